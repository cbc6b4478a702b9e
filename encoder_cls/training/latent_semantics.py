"""TF-IDF features of texts in, a few directions out in which features that occur together lie together.

Latent semantic analysis (Deerwester et al., "Indexing by Latent Semantic Analysis", 1990): a truncated singular value
decomposition of the features of texts, of which no label need be known. A text's coordinates are its features times the
directions, so weights of coordinates are weights of features: a classifier of both is one of the features alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.text.ngram_features import CHAR_NGRAM_IDS, HASHES

MOST_TEXTS = 5000  # to find directions in: more of them change little, and take longer
POWER_ITERATIONS = 2  # of the randomized decomposition (Halko et al., 2011)
SCALE = 2.0  # of the coordinates beside the features, whose vectors have a length near 1.5


class LatentDirections(NamedTuple):
    """What a truncated decomposition finds.

    Attributes:
        columns: of the features that the directions are made of.
        values: (columns, dimensions).
    """

    columns: NDArray[np.int64]
    values: NDArray[np.float32]

    def coordinates(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """Of texts, (texts, dimensions)."""
        found: NDArray[np.float32] = features[:, self.columns] @ self.values
        return found

    def add_to(self, weights: NDArray[np.float32], of_coordinates: NDArray[np.float32]) -> None:
        """Add weights of coordinates, (dimensions, classes), to those of features that have the same effect."""
        weights[self.columns] += self.values @ of_coordinates


def find_directions(features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int) -> LatentDirections:
    """So many directions at most, of words and character n-grams that occur in two texts or more.

    Pairs and templates, most of them rare, are left out: beside the others they were seen to add nothing.

    Args:
        features: TF-IDF, a row a text.
        feature_ids: of the columns.
        dimensions: how many directions are wanted.
    """
    from sklearn.utils.extmath import randomized_svd

    if features.shape[0] > MOST_TEXTS:
        chosen = np.random.default_rng(0).permutation(features.shape[0])[:MOST_TEXTS]
        features = features[np.sort(chosen)]
    is_used = (features.getnnz(axis=0) > 1) & ((feature_ids < HASHES) | (feature_ids >= CHAR_NGRAM_IDS))
    (columns,) = np.nonzero(is_used)
    wanted = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if wanted < 1:
        return LatentDirections(columns[:0], np.zeros((0, 0), dtype=np.float32))
    _, _, right = randomized_svd(features[:, columns], wanted, n_iter=POWER_ITERATIONS, random_state=0)
    return LatentDirections(columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32))
