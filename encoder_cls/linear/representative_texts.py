"""Choose texts that represent many texts, above all those that matter most.

The chosen and the labelled texts together should represent all as well as possible, each by the
most similar one: this is facility location (Wei, Iyer and Bilmes, "Submodularity in Data Subset
Selection and Active Learning", 2015, https://proceedings.mlr.press/v37/wei15.html), by the
similarity of coordinates of latent semantics (Deerwester et al., 1990). NumPy alone computes it, as
all that predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import (
    CHAR_NGRAM_IDS,
    HASHES,
    SparseRows,
    count_features,
    find,
    keep_known,
    tfidf,
)
from encoder_cls.text.tokens import TokenizedTexts, offsets_of_lengths

Vectors = NDArray[np.float32]

# The maximum number of tokens that are read of a text.
MAX_TOKENS = 1024
# The maximum number of coordinates of a text.
DIMENSIONS = 200
# The randomized decomposition has further random directions, and power iterations, as in "Finding
# Structure with Randomness" by Halko, Martinsson and Tropp: https://doi.org/10.1137/090771806.
OVERSAMPLES = 10
POWER_ITERATIONS = 2


def text_vectors(texts: TokenizedTexts) -> Vectors:
    """Coordinates of texts, (texts, dimensions), whose dot products are similarities.

    Their length is 1, or 0 for a text without a word or character n-gram that another one has.
    """
    features, num_features = _shared_features(texts)
    num_dimensions = min(DIMENSIONS, len(texts) - 1, num_features - 1)
    if num_dimensions < 1:
        return np.zeros((len(texts), 1), dtype=np.float32)

    transposed = _transposed(features, num_features)
    num_directions = min(num_dimensions + OVERSAMPLES, len(texts), num_features)
    directions = np.random.default_rng(0).standard_normal(
        (num_features, num_directions), dtype=np.float32
    )
    for _ in range(1 + POWER_ITERATIONS):
        basis, _ = np.linalg.qr(_product(features, directions))
        directions = _product(transposed, basis)

    # The features are about `basis @ directions.T`, and the squares of their singular values are
    # the eigenvalues of `directions.T @ directions`, which increase.
    squares, rotation = np.linalg.eigh(directions.T @ directions)
    coordinates = basis @ (rotation * np.sqrt(np.maximum(squares, 0)))[:, -num_dimensions:]

    lengths = np.linalg.norm(coordinates, axis=1, keepdims=True)
    vectors: Vectors = (coordinates / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return vectors


def _shared_features(texts: TokenizedTexts) -> tuple[SparseRows, int]:
    """TF-IDF values of words and character n-grams that several texts have; their number."""
    pieces = list(
        count_features(
            texts,
            max_tokens=MAX_TOKENS,
            frequent_token_ids=np.zeros(0, dtype=np.int32),
            use_char_ngrams=True,
        )
    )
    # Each text has one value for each of its features, so the values of a feature count texts.
    ids_of_values = [piece.ids[piece.columns] for piece in pieces]
    ids, num_texts = np.unique(np.concatenate(ids_of_values), return_counts=True)
    is_shared = num_texts > 1
    feature_ids = ids[is_shared]
    if not len(feature_ids):
        return SparseRows(
            columns=np.zeros(0, dtype=np.int32),
            values=np.zeros(0, dtype=np.float32),
            offsets=np.zeros(len(texts) + 1, dtype=np.int64),
        ), 0

    known = [
        keep_known(piece, find(ids_of_piece, feature_ids))
        for piece, ids_of_piece in zip(pieces, ids_of_values, strict=True)
    ]
    counts = SparseRows(
        columns=np.concatenate([piece.columns for piece in known]),
        values=np.concatenate([piece.values for piece in known]),
        offsets=offsets_of_lengths(np.concatenate([np.diff(piece.offsets) for piece in known])),
    )
    idf = (np.log((1 + len(texts)) / (1 + num_texts[is_shared])) + 1).astype(np.float32)
    values = tfidf(counts, feature_ids, idf)

    # Pairs count in the length of a text, and are left out like templates: see `latent_semantics`.
    is_used = (feature_ids < HASHES) | (feature_ids >= CHAR_NGRAM_IDS)
    columns = np.where(is_used, np.cumsum(is_used) - 1, -1).astype(np.int32)
    return keep_known(values, columns[values.columns]), int(is_used.sum())


def _transposed(rows: SparseRows, num_columns: int) -> SparseRows:
    row_numbers = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.offsets))
    order = np.argsort(rows.columns, kind="stable")
    return SparseRows(
        columns=row_numbers[order],
        values=rows.values[order],
        offsets=offsets_of_lengths(np.bincount(rows.columns, minlength=num_columns)),
    )


def _product(rows: SparseRows, matrix: Vectors) -> Vectors:
    product = np.zeros((len(rows), matrix.shape[1]), dtype=np.float32)
    for number, (start, end) in enumerate(pairwise(rows.offsets.tolist())):
        product[number] = rows.values[start:end] @ matrix[rows.columns[start:end]]
    return product


def choose_representatives(
    vectors: Vectors,
    weights: NDArray[np.float64],
    labelled: Sequence[int],
    number: int,
) -> list[int]:
    """Choose at most `number` unlabelled texts, by their indices, the most useful first.

    `weights` are how much each text matters, such as its uncertainty. Labelled texts represent
    others already.
    """

    def similarities(index: int) -> NDArray[np.float32]:
        """The similarities of a text to all, up to 1; each text represents itself."""
        similar: NDArray[np.float32] = vectors @ vectors[index]
        similar[index] = 1
        return similar

    # How similar each text is to the most similar one that is labelled or chosen, (texts,). A
    # cosine below 0 means nothing.
    represented = np.zeros(len(vectors), dtype=np.float32)
    for index in labelled:
        represented = np.maximum(represented, similarities(index))

    def gain_of(index: int) -> float:
        return float(weights @ np.maximum(similarities(index) - represented, 0))

    gains = np.array([gain_of(index) for index in range(len(vectors))])
    gains[list(labelled)] = -1
    num_left = int((gains >= 0).sum())

    chosen: list[int] = []
    while len(chosen) < min(number, num_left):
        # A gain only falls while texts are chosen. So a text whose gain is still the largest after
        # it was computed again is the best one, and the other gains need not be computed (Minoux,
        # "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions", 1978).
        best = int(gains.argmax())
        gains[best] = gain_of(best)
        if gains.argmax() != best:
            continue

        chosen.append(best)
        gains[best] = -1
        represented = np.maximum(represented, similarities(best))
    return chosen
