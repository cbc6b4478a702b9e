"""Pretraining on texts without their labels: word vectors, masked language modelling, denoising."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from encoder_cls.encoder.architecture import by_length
from encoder_cls.encoder.batches import derive_seed, is_word
from encoder_cls.encoder.torch_encoder import Batch, pad
from encoder_cls.encoder.transformer import INITIAL_STD, DenoisingAutoencoder, EncoderClassifier
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, TokenizedTexts, drawn_rows

WINDOW = 5  # words to either side; a word at distance d counts 1 / d
SMOOTHING = 0.75  # power of the frequencies of neighbours
POWER_ITERATIONS = 4  # of the randomized decomposition (Halko et al., 2011)
MOST_TOKENS = 2_000_000  # whose neighbours are counted: seconds, and half a gigabyte


@dataclass(frozen=True)
class GuessedTokens:
    """A batch of texts with tokens to guess.

    Attributes:
        inputs: the texts.
        is_guessed: (B, T).
        guessed: the tokens to guess, (M,), in the order of `is_guessed`.
        candidates: the distinct tokens of the batch, (V,), in order. The softmax is over these: few of all tokens,
            sampled by their frequency.
        vectors: computes the vectors, (B, T, D), from which a model guesses.
    """

    inputs: Batch
    is_guessed: Tensor
    guessed: Tensor
    candidates: Tensor
    vectors: Callable[[Any], Tensor]

    @property
    def normalizer(self) -> Tensor:
        """The number of guessed tokens, at least 1, (): the summed loss divided by it is the mean loss."""
        return self.is_guessed.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all guessed tokens, summed, ()."""
        scores = model.encoder.embedding.token_scores(
            self.vectors(model)[self.is_guessed], self.candidates
        )
        targets = torch.searchsorted(self.candidates, self.guessed)
        return functional.cross_entropy(scores.float(), targets, reduction="sum")


def mask_tokens(batch: Batch, candidates: Tensor, *, fraction: float) -> GuessedTokens:
    """Masked language modelling: replace a random part of the words by `[MASK]`, to be guessed from their contexts.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), https://arxiv.org/abs/1810.04805;
    there some become other words or stay, which is not needed (Wettig et al., 2023, https://arxiv.org/abs/2202.08005).
    """
    ids, char_ngrams = batch.input_ids, batch.char_ngrams
    is_masked = is_word(ids) & (torch.rand(ids.shape, device=ids.device) < fraction)
    without_ngrams = len(char_ngrams.offsets) - 1  # the number of one more word, `[MASK]`
    char_ngrams = char_ngrams._replace(
        words=char_ngrams.words.masked_fill(is_masked, without_ngrams),
        offsets=torch.cat([char_ngrams.offsets, char_ngrams.offsets[-1:]]),
    )
    masked = batch._replace(input_ids=ids.masked_fill(is_masked, MASK_ID), char_ngrams=char_ngrams)
    return GuessedTokens(
        masked, is_masked, ids[is_masked], candidates, lambda model: model.encoder(*masked)
    )


def denoise(batch: Batch, candidates: Tensor, *, fraction: float) -> GuessedTokens:
    """Denoising: the encoder reads the texts with words deleted, and a decoder guesses each word from those before it.

    Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder" (2021),
    https://arxiv.org/abs/2104.06979; there the decoder sees one vector of the text, here all vectors of the encoder.
    """
    corrupted = delete_tokens(batch, fraction=fraction)
    ids, has_next = batch.input_ids, batch.attention_mask.roll(-1, dims=1)
    has_next[:, -1] = False

    def vectors(model: DenoisingAutoencoder) -> Tensor:
        embedded, memory = (
            model.encoder.embedding(ids, batch.char_ngrams),
            model.encoder(*corrupted),
        )
        decoded: Tensor = model.decoder(
            embedded, batch.attention_mask, memory, corrupted.attention_mask
        )
        return decoded

    return GuessedTokens(batch, has_next, ids[:, 1:][has_next[:, :-1]], candidates, vectors)


def delete_tokens(batch: Batch, *, fraction: float) -> Batch:
    """Delete a random part of the words; the texts become shorter."""
    ids, mask = batch.input_ids, batch.attention_mask
    is_kept = mask & ((torch.rand(ids.shape, device=ids.device) >= fraction) | (ids == CLS_ID))
    # Those that are kept come first.
    order = (~is_kept).sort(dim=1, stable=True).indices[:, : is_kept.sum(dim=1).max()]
    mask, words = is_kept.gather(1, order), batch.char_ngrams.words.gather(1, order)
    ids = ids.gather(1, order).masked_fill(~mask, PAD_ID)
    return Batch(ids, mask, batch.char_ngrams._replace(words=words))


def summed_loss(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    objective: Callable[[Batch, Tensor], GuessedTokens],
    *,
    batch_tokens: int,
    share: Callable[[int], range],
) -> tuple[float, float]:
    """Sum the losses of the guessed tokens in a share of the texts, without dropout; also returns their number."""
    device = next(model.parameters()).device
    pieces = by_length(texts.lengths, batch_tokens=batch_tokens)
    mine, was_training = share(len(pieces)), model.training
    loss = weight = 0.0
    model.eval()
    try:
        with torch.inference_mode():
            for number, piece in enumerate(pieces):
                inputs = pad(texts, *piece).to(device)
                # In all processes: it draws random numbers.
                batch = objective(inputs, torch.unique(inputs.input_ids))
                if number in mine:
                    loss += float(batch.loss(model))
                    weight += float(batch.normalizer)
                    check_stop()
    finally:
        model.train(was_training)
    return loss, weight


def start_from_word_vectors(model: EncoderClassifier, texts: TokenizedTexts, *, seed: int) -> None:
    """Set the vectors of words that have neighbours in texts, and of the character n-grams of these words.

    A truncated SVD of positive pointwise mutual information (Levy and Goldberg, "Neural Word Embedding as Implicit
    Matrix Factorization", 2014). The scale is that of random vectors, which decides whether it helps
    (https://arxiv.org/abs/2407.12514). A character n-gram gets the mean of its words.
    """
    from sklearn.utils.extmath import randomized_svd

    embedding = model.encoder.embedding
    rows = drawn_rows(np.diff(texts.offsets), MOST_TOKENS, seed=derive_seed(seed))
    information = neighbour_information(texts.take(np.sort(rows)), embedding.tokens.num_embeddings)
    dimensions = min(embedding.tokens.embedding_dim, information.shape[0] - 1)
    left, values, _ = randomized_svd(
        information, dimensions, n_iter=POWER_ITERATIONS, random_state=0
    )
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


def neighbour_information(texts: TokenizedTexts, vocab_size: int) -> sp.csr_matrix:
    """Positive pointwise mutual information of each token with its neighbours, (tokens, tokens), in nats."""
    ids, text = texts.input_ids(), np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    are_words = ids > MASK_ID
    counts = sp.csr_matrix((vocab_size, vocab_size))
    for distance in range(1, WINDOW + 1):
        first, second = slice(None, -distance), slice(distance, None)
        are_near = are_words[first] & are_words[second] & (text[first] == text[second])
        pairs = (ids[first][are_near], ids[second][are_near])
        counts += sp.csr_matrix((np.full(are_near.sum(), 1 / distance), pairs), shape=counts.shape)
    counts = (counts + counts.T).tocoo()
    of_words = np.asarray(counts.sum(axis=1))[:, 0]
    of_neighbours = of_words**SMOOTHING / max(1, (of_words**SMOOTHING).sum())
    information = np.log(counts.data / (of_words[counts.row] * of_neighbours[counts.col])).clip(
        min=0
    )
    positive = sp.csr_matrix((information, (counts.row, counts.col)), shape=counts.shape)
    positive.eliminate_zeros()
    return positive


def _replace_rows(table: Tensor, vectors: NDArray[np.float64], is_known: NDArray[np.bool_]) -> None:
    """Replace the known rows of a table by vectors, rescaled; columns beyond those of the vectors stay."""
    if not is_known.any():
        return
    rows = vectors[is_known] * (INITIAL_STD / vectors[is_known].std())
    with torch.no_grad():
        table[torch.from_numpy(is_known).to(table.device), : rows.shape[1]] = torch.from_numpy(
            rows
        ).to(table)
