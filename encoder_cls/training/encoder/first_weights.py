"""The weights that a stage starts from: of an earlier stage, of a base run, or vectors of words by their neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import load_classifier, weights_of_part
from encoder_cls.system.terminal import begin_work
from encoder_cls.text.token_arrays import MASK_ID, TokenizedTexts
from encoder_cls.training.encoder.batches import derive_seed
from encoder_cls.training.prepared import Prepared
from encoder_cls.transformer import INITIAL_STD, EncoderClassifier

WORDS, HEAD = "encoder.embedding.tokens.weight", "head.linear."
WINDOW = 5  # words to either side; a word at distance d counts 1 / d
SMOOTHING = 0.75  # power of the frequencies of neighbours
POWER_ITERATIONS = 4  # of the randomized decomposition (Halko et al., 2011)
MOST_TOKENS = 2_000_000  # that are counted: seconds, and half a gigabyte


def load_weights(model: EncoderClassifier, folder: Path) -> None:
    """Give a model all weights of the classifier in a folder."""
    weights = weights_of_part(load_classifier(folder, engine="numpy"), "encoder")  # arrays: no second model is made
    model.load_state_dict({name: torch.from_numpy(np.asarray(weight)) for name, weight in weights.items()})


def start_stage(model: EncoderClassifier, prepared: Prepared, *, seed: int) -> None:
    """Start the first stage from the base run, if it has an encoder, or from word vectors, if the plan has them."""
    if prepared.base and prepared.base.encoder:
        start_from(prepared.base, model, label_names=prepared.dataset.label_names)
    elif prepared.plan.has_word_vectors:
        begin_work(f"computing word vectors of {len(prepared.texts):,} texts")
        start_from_word_vectors(model, prepared.texts, seed=seed)
        begin_work("")


def start_from(base: Classifier, model: EncoderClassifier, *, label_names: tuple[str, ...]) -> None:
    """Give a new model the weights of a base run's encoder of the same shape.

    New words and classes keep their random weights. Words of the base run come first; classes are matched by name.
    """
    numbers = [base.label_names.index(name) for name in label_names if name in base.label_names]
    is_known = torch.tensor([name in base.label_names for name in label_names])
    state = model.state_dict()
    for name, weight in weights_of_part(base, "encoder").items():
        values = torch.from_numpy(np.asarray(weight, dtype=np.float32))
        if name == WORDS:
            state[name][: len(values)] = values
        elif name.startswith(HEAD):
            state[name][is_known] = values[numbers].to(state[name].device)
        else:
            state[name].copy_(values)


def start_from_word_vectors(model: EncoderClassifier, texts: TokenizedTexts, *, seed: int) -> None:
    """Give words that have neighbours in texts, and the character n-grams of these words, first vectors.

    A truncated SVD of positive pointwise mutual information (Levy and Goldberg, "Neural Word Embedding as Implicit
    Matrix Factorization", 2014). The scale is that of random vectors, which decides whether it helps
    (https://arxiv.org/abs/2407.12514). A character n-gram gets the mean of its words.
    """
    from sklearn.utils.extmath import randomized_svd

    embedding = model.encoder.embedding
    information = neighbour_information(sample_of(texts, seed=seed), embedding.tokens.num_embeddings)
    dimensions = min(embedding.tokens.embedding_dim, information.shape[0] - 1)
    left, values, _ = randomized_svd(information, dimensions, n_iter=POWER_ITERATIONS, random_state=0)
    vectors, is_known = left * np.sqrt(values), np.diff(information.indptr) > 0
    _replace_rows(embedding.tokens.weight, vectors, is_known)
    if embedding.char_ngrams:
        table, ngrams = embedding.char_ngrams.table, texts.char_ngrams
        ids = np.repeat(texts.word_ids, np.diff(ngrams.offsets))
        rows = ngrams.ngrams.astype(np.int64) % table.num_embeddings
        counted = is_known[ids]
        shape = (table.num_embeddings, len(vectors))
        uses = sp.csr_matrix((np.ones(counted.sum()), (rows[counted], ids[counted])), shape=shape)
        counts = np.asarray(uses.sum(axis=1))
        _replace_rows(table.weight, uses @ vectors / np.maximum(counts, 1), counts[:, 0] > 0)


def sample_of(texts: TokenizedTexts, *, seed: int) -> TokenizedTexts:
    """As many of the texts, drawn at random, as have `MOST_TOKENS`."""
    order = np.random.default_rng(derive_seed(seed)).permutation(len(texts))
    count = np.searchsorted(np.cumsum(np.diff(texts.offsets)[order]), MOST_TOKENS, side="right")
    return texts.take(np.sort(order[: max(1, int(count))]))


def neighbour_information(texts: TokenizedTexts, vocab_size: int) -> sp.csr_matrix:
    """Positive pointwise mutual information of each token with its neighbours, (tokens, tokens), in nats."""
    ids, text = texts.input_ids(), np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    is_word = ids > MASK_ID
    counts = sp.csr_matrix((vocab_size, vocab_size))
    for distance in range(1, WINDOW + 1):
        first, second = slice(None, -distance), slice(distance, None)
        are_near = is_word[first] & is_word[second] & (text[first] == text[second])
        pairs = (ids[first][are_near], ids[second][are_near])
        counts += sp.csr_matrix((np.full(are_near.sum(), 1 / distance), pairs), shape=counts.shape)
    counts = (counts + counts.T).tocoo()
    of_words = np.asarray(counts.sum(axis=1))[:, 0]
    of_neighbours = of_words**SMOOTHING / max(1, (of_words**SMOOTHING).sum())
    information = np.log(counts.data / (of_words[counts.row] * of_neighbours[counts.col])).clip(min=0)
    positive = sp.csr_matrix((information, (counts.row, counts.col)), shape=counts.shape)
    positive.eliminate_zeros()
    return positive


def _replace_rows(table: torch.Tensor, vectors: NDArray[np.float64], is_known: NDArray[np.bool_]) -> None:
    """Replace the rows of a table that are known, in as many columns as there are, rescaled."""
    if not is_known.any():
        return
    rows = vectors[is_known] * (INITIAL_STD / vectors[is_known].std())
    with torch.no_grad():
        table[torch.from_numpy(is_known).to(table.device), : rows.shape[1]] = torch.from_numpy(rows).to(table)
