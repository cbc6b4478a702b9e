"""Word vectors, made of the neighbours of words, from which the embeddings of an encoder start."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.encoder.batches import derive_seed
from encoder_cls.encoder.transformer import INITIAL_STD, EncoderClassifier
from encoder_cls.text.tokens import MASK_ID, CharNgrams, TokenizedTexts, drawn_rows

Floats = NDArray[np.float64]

# Neighbours are at most this many words to either side; a word at distance d counts 1 / d.
WINDOW = 5

# The power of the frequencies of neighbours, which lowers the share of frequent ones.
SMOOTHING = 0.75

# Iterations of the randomized decomposition (Halko et al., 2011).
POWER_ITERATIONS = 4

# The tokens whose neighbours are counted: that takes seconds, and half a gigabyte.
MAX_TOKENS = 2_000_000


def start_from_word_vectors(model: EncoderClassifier, texts: TokenizedTexts, *, seed: int) -> None:
    """Set the embeddings of words that have neighbours in texts, and of their character n-grams.

    A truncated SVD of positive pointwise mutual information (Levy and Goldberg, "Neural Word
    Embedding as Implicit Matrix Factorization", 2014). The scale is that of random vectors, which
    decides whether it helps (https://arxiv.org/abs/2407.12514).
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
    """Positive pointwise mutual information of tokens and neighbours, (tokens, tokens), in nats.

    For a token t and a neighbour n, it is ln(p(t, n) / (p(t) p(n))), or 0 if that is negative.
    """
    counts = _neighbour_counts(texts, vocab_size).tocoo()

    token_counts = np.asarray(counts.sum(axis=1))[:, 0]
    smoothed_counts = token_counts**SMOOTHING
    neighbour_shares = smoothed_counts / max(1, smoothed_counts.sum())

    # How often two tokens would be neighbours if they were independent of each other.
    expected = token_counts[counts.row] * neighbour_shares[counts.col]
    information = np.log(counts.data / expected).clip(min=0)

    positive = sp.csr_matrix((information, (counts.row, counts.col)), shape=counts.shape)
    positive.eliminate_zeros()
    return positive


def _neighbour_counts(texts: TokenizedTexts, vocab_size: int) -> sp.csr_matrix:
    """How often each token has each neighbour, weighted by their distance, (tokens, tokens)."""
    ids = texts.input_ids()
    text_of_token = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    is_word = ids > MASK_ID

    counts = sp.csr_matrix((vocab_size, vocab_size))
    for distance in range(1, WINDOW + 1):
        first = slice(None, -distance)
        second = slice(distance, None)

        are_neighbours = is_word[first] & is_word[second]
        are_neighbours &= text_of_token[first] == text_of_token[second]

        weights = np.full(are_neighbours.sum(), 1 / distance)
        pairs = (ids[first][are_neighbours], ids[second][are_neighbours])
        counts += sp.csr_matrix((weights, pairs), shape=counts.shape)

    # Neighbours are on either side.
    return counts + counts.T


def _ngram_vectors(
    vectors: Floats,
    has_vector: NDArray[np.bool_],
    word_ids: NDArray[np.int32],
    char_ngrams: CharNgrams,
    *,
    buckets: int,
) -> tuple[Floats, NDArray[np.bool_]]:
    """The mean vector of the words with a character n-gram, and whether there is one.

    Args:
        vectors: of tokens, (tokens, dimensions).
        has_vector: which tokens have a vector, (tokens,).
        word_ids: the token id of each word, (words,).
        char_ngrams: of each word.
        buckets: the number of rows among which n-grams are hashed.

    Returns:
        Arrays of (buckets, dimensions) and (buckets,).
    """
    ids = np.repeat(word_ids, np.diff(char_ngrams.offsets))
    rows = char_ngrams.ngrams.astype(np.int64) % buckets
    is_counted = has_vector[ids]

    ones = np.ones(is_counted.sum())
    uses = sp.csr_matrix((ones, (rows[is_counted], ids[is_counted])), shape=(buckets, len(vectors)))
    num_uses = np.asarray(uses.sum(axis=1))
    means = uses @ vectors / np.maximum(num_uses, 1)
    return means, num_uses[:, 0] > 0


def _replace_rows(table: Tensor, vectors: Floats, is_replaced: NDArray[np.bool_]) -> None:
    """Replace some rows of a table by vectors, scaled to the deviation of random weights.

    Columns beyond those of the vectors stay.
    """
    if not is_replaced.any():
        return
    rows = vectors[is_replaced]
    rows = rows * (INITIAL_STD / rows.std())

    with torch.no_grad():
        mask = torch.from_numpy(is_replaced).to(table.device)
        table[mask, : rows.shape[1]] = torch.from_numpy(rows).to(table)
