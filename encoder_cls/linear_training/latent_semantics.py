"""Latent semantic analysis (Deerwester et al., 1990): a truncated SVD of the features of texts.

The coordinates of a text are its features times the directions, so a linear model of both is also
one of features alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import CHAR_NGRAM_IDS, HASHES


class Directions(NamedTuple):
    """The directions of latent semantics, (used, dimensions), and the features that they use."""

    columns: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def coordinates(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """Coordinates of texts, (texts, dimensions)."""
        coordinates: NDArray[np.float32] = features[:, self.columns] @ self.vectors
        return coordinates


# The maximum number of texts from which directions are computed. More texts change them little.
MAX_TEXTS = 5000

# The number of power iterations of the randomized decomposition (Halko et al., 2011).
POWER_ITERATIONS = 2

# The scale of the coordinates, relative to the features, whose vectors have a length of about 1.5.
SCALE = 2.0


def find_directions(
    features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int
) -> Directions:
    """Find the directions in TF-IDF values, (texts, features).

    Pairs, templates and features of a single text did not improve them, and are left out. There are
    fewer than `dimensions`, maybe none, of few texts or features.
    """
    from sklearn.utils.extmath import randomized_svd

    if features.shape[0] > MAX_TEXTS:
        drawn = np.random.default_rng(0).permutation(features.shape[0])[:MAX_TEXTS]
        features = features[np.sort(drawn)]

    is_shared = features.getnnz(axis=0) > 1
    is_word = feature_ids < HASHES
    is_char_ngram = feature_ids >= CHAR_NGRAM_IDS
    (columns,) = np.nonzero(is_shared & (is_word | is_char_ngram))

    # The number of directions must be lower than the numbers of rows and columns.
    dimensions = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if dimensions < 1:
        return Directions(columns[:0], np.zeros((0, 0), dtype=np.float32))

    _, _, right = randomized_svd(
        features[:, columns], dimensions, n_iter=POWER_ITERATIONS, random_state=0
    )
    return Directions(columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32))
