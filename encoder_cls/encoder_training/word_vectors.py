"""Word vectors, from neighbours in the training texts, with which embeddings start."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.encoder.transformer import INITIAL_STD, EncoderClassifier
from encoder_cls.encoder_training.random_numbers import derive_seed
from encoder_cls.text.tokens import FEATURE, MASK_ID, CharNgrams, TokenizedTexts, drawn_rows

Floats = NDArray[np.float64]

# The neighbours of a word are at most this many words away, on either side. A neighbour at a
# distance of d words counts 1 / d.
WINDOW = 5

# The frequencies of neighbours are raised to this power, which lowers the share of frequent ones.
SMOOTHING = 0.75

# The number of power iterations of the randomized SVD (Halko et al., 2011).
POWER_ITERATIONS = 4

# The maximum number of tokens whose neighbours are counted, which takes seconds and half a
# gigabyte of memory.
MAX_TOKENS = 2_000_000


def start_from_word_vectors(model: EncoderClassifier, texts: TokenizedTexts, *, seed: int) -> None:
    """Set the embeddings of words, and of their character n-grams, to word vectors.

    They come from a truncated SVD of positive pointwise mutual information (Levy and Goldberg,
    "Neural Word Embedding as Implicit Matrix Factorization", 2014), scaled to the deviation of
    random embeddings: another scale may not help (https://arxiv.org/abs/2407.12514). Of more than
    `MAX_TOKENS` tokens, a sample is used.
    """
    from sklearn.utils.extmath import randomized_svd

    embedding = model.encoder.embedding
    vocab_size, d_model = embedding.tokens.weight.shape

    rows = drawn_rows(np.diff(texts.offsets), MAX_TOKENS, seed=derive_seed(seed))
    information = neighbour_information(texts.take(np.sort(rows)), vocab_size)

    left, values, _ = randomized_svd(
        information, min(d_model, vocab_size - 1), n_iter=POWER_ITERATIONS, random_state=0
    )
    vectors = left * np.sqrt(values)
    has_neighbours = np.diff(information.indptr) > 0
    _replace_rows(embedding.tokens.weight, vectors, has_neighbours)

    if embedding.char_ngrams:
        table = embedding.char_ngrams.table.weight
        means, is_used = _ngram_vectors(
            vectors, has_neighbours, texts.word_ids, texts.char_ngrams, buckets=len(table)
        )
        _replace_rows(table, means, is_used)


def neighbour_information(texts: TokenizedTexts, vocab_size: int) -> sp.csr_matrix:
    """Positive pointwise mutual information of neighbours, (tokens, tokens), in nats.

    It is ln(p(t, n) / (p(t) p(n))), or 0 if that is negative.
    """
    counts = _neighbour_counts(texts, vocab_size).tocoo()

    token_counts = np.asarray(counts.sum(axis=1))[:, 0]
    smoothed_counts = token_counts**SMOOTHING
    neighbour_shares = smoothed_counts / max(1, smoothed_counts.sum())

    # The count of two tokens as neighbours if they occurred independently of each other.
    expected = token_counts[counts.row] * neighbour_shares[counts.col]
    information = np.log(counts.data / expected).clip(min=0)

    positive = sp.csr_matrix((information, (counts.row, counts.col)), shape=counts.shape)
    positive.eliminate_zeros()
    return positive


def _neighbour_counts(texts: TokenizedTexts, vocab_size: int) -> sp.csr_matrix:
    """Count neighbours, weighted by 1 / distance, (tokens, tokens)."""
    ids = texts.input_ids()
    text_of_token = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    is_word = ids > MASK_ID
    if texts.kinds is not None:
        is_word &= texts.kinds[texts.words] != FEATURE

    counts = sp.csr_matrix((vocab_size, vocab_size))
    for distance in range(1, WINDOW + 1):
        first = slice(None, -distance)
        second = slice(distance, None)

        are_neighbours = is_word[first] & is_word[second]
        are_neighbours &= text_of_token[first] == text_of_token[second]

        weights = np.full(are_neighbours.sum(), 1 / distance)
        pairs = (ids[first][are_neighbours], ids[second][are_neighbours])
        counts += sp.csr_matrix((weights, pairs), shape=counts.shape)

    # So far, only neighbours to the right are counted; those to the left are the transpose.
    return counts + counts.T


def _ngram_vectors(
    vectors: Floats,
    has_vector: NDArray[np.bool_],
    word_ids: NDArray[np.int32],
    char_ngrams: CharNgrams,
    *,
    buckets: int,
) -> tuple[Floats, NDArray[np.bool_]]:
    ids = np.repeat(word_ids, np.diff(char_ngrams.offsets))
    rows = char_ngrams.ngrams.astype(np.int64) % buckets
    is_counted = has_vector[ids]

    ones = np.ones(is_counted.sum())
    uses = sp.csr_matrix((ones, (rows[is_counted], ids[is_counted])), shape=(buckets, len(vectors)))
    num_uses = np.asarray(uses.sum(axis=1))
    means = uses @ vectors / np.maximum(num_uses, 1)
    return means, num_uses[:, 0] > 0


def _replace_rows(table: Tensor, vectors: Floats, is_replaced: NDArray[np.bool_]) -> None:
    """Replace rows by vectors, scaled like random weights; shorter ones leave other columns."""
    if not is_replaced.any():
        return
    rows = vectors[is_replaced]
    rows = rows * (INITIAL_STD / rows.std())

    with torch.no_grad():
        mask = torch.from_numpy(is_replaced).to(table.device)
        table[mask, : rows.shape[1]] = torch.from_numpy(rows).to(table)
