"""Latent semantic analysis (Deerwester et al., 1990): a truncated SVD of the features of texts.

A text's coordinates are its features times the directions, so a model of both is one of
features alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import CHAR_NGRAM_IDS, HASHES


class Directions(NamedTuple):
    """The directions of latent semantics.

    Attributes:
        columns: the columns of the features that are used, (used,).
        vectors: (used, dimensions).
    """

    columns: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def coordinates(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """The coordinates of texts along the directions, (texts, dimensions)."""
        coordinates: NDArray[np.float32] = features[:, self.columns] @ self.vectors
        return coordinates


# The most texts to find directions in: more of them change little.
MAX_TEXTS = 5000
# Power iterations of the randomized decomposition (Halko et al., 2011).
POWER_ITERATIONS = 2
# The scale of the coordinates beside the features, which are vectors of length 1.5 or so.
SCALE = 2.0


def find_directions(
    features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int
) -> Directions:
    """Decompose TF-IDF features, (texts, features), into directions.

    Pairs, templates and features of a single text are left out: they added nothing to the others.
    """
    from sklearn.utils.extmath import randomized_svd

    # Draw some of the texts.
    if features.shape[0] > MAX_TEXTS:
        drawn = np.random.default_rng(0).permutation(features.shape[0])[:MAX_TEXTS]
        features = features[np.sort(drawn)]

    # Choose words and character n-grams that several of them have.
    is_shared = features.getnnz(axis=0) > 1
    is_word = feature_ids < HASHES
    is_char_ngram = feature_ids >= CHAR_NGRAM_IDS
    (columns,) = np.nonzero(is_shared & (is_word | is_char_ngram))

    # A matrix has fewer directions than rows or columns.
    dimensions = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if dimensions < 1:
        return Directions(columns[:0], np.zeros((0, 0), dtype=np.float32))

    _, _, right = randomized_svd(
        features[:, columns], dimensions, n_iter=POWER_ITERATIONS, random_state=0
    )
    return Directions(columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32))
