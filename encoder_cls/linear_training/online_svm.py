"""NB-SVMs that learn from one batch of texts after another, all classes at once.

They have the squared hinge loss of `nb_svm`, but each batch takes a step of AdaGrad (Duchi, Hazan
and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011,
https://jmlr.org/papers/v12/duchi11a.html), which keeps a high learning rate for rare features, so
that few passes are enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear_training.nb_svm import OneVsRest

# The learning rate of AdaGrad. A weight's step is the rate times its gradient, divided by the root
# of the sum of its squared gradients.
LEARNING_RATE = 0.3

# The initial value of each sum of squared gradients. It keeps the first steps of a weight small.
INITIAL_SQUARES = 10.0


class Batch(NamedTuple):
    """Texts to take a step on, with columns of the features that occur in them.

    Attributes:
        feature_columns: among all features, increasing, (columns,).
        values: TF-IDF, (texts, columns).
        targets: (texts, classifiers), as are `sample_weights`.
    """

    feature_columns: NDArray[np.int32]
    values: sp.csr_matrix
    targets: NDArray[np.bool_]
    sample_weights: NDArray[np.floating[Any]]

    @classmethod
    def of(
        cls,
        features: sp.csr_matrix,
        targets: NDArray[np.bool_],
        sample_weights: NDArray[np.floating[Any]],
    ) -> Batch:
        """Make a batch of texts with all features, of which few occur and have a gradient."""
        occurring, columns = np.unique(features.indices, return_inverse=True)
        rows = (features.data, columns.astype(np.int32), features.indptr)
        values = sp.csr_matrix(rows, shape=(features.shape[0], len(occurring)))
        return cls(occurring, values, targets, sample_weights)


class OnlineSvms:
    """One-vs-rest NB-SVMs; features are multiplied by `ratios`, (features, classifiers)."""

    def __init__(self, ratios: NDArray[np.float32]) -> None:
        num_classifiers = ratios.shape[1]
        self._ratios = ratios
        self._weights = np.zeros_like(ratios)
        self._squares = np.full_like(ratios, INITIAL_SQUARES)
        self._biases = np.zeros(num_classifiers, dtype=np.float32)
        self._bias_squares = np.full(num_classifiers, INITIAL_SQUARES, dtype=np.float32)

    def learn(self, batch: Batch) -> None:
        """Take a step.

        Most of the time goes into memory: an index in place of `take`, or no operations in place,
        would take twice as long.
        """
        # Get the numbers of the features that occur in the batch, all (columns, classifiers).
        columns = batch.feature_columns
        ratios = self._ratios.take(columns, axis=0)
        weights = self._weights.take(columns, axis=0)
        squares = self._squares.take(columns, axis=0)

        # Compute the gradient of the squared hinge loss, max(0, 1 - sign * margin) ** 2, with
        # respect to each margin, (texts, classifiers).
        margins = batch.values @ (weights * ratios) + self._biases
        signs = np.where(batch.targets, np.float32(1), np.float32(-1))
        shortfalls = np.maximum(0, 1 - signs * margins)
        margin_gradients = (-2 * signs * shortfalls * batch.sample_weights).astype(np.float32)

        gradients = batch.values.T @ margin_gradients
        gradients *= ratios

        squares += gradients**2

        # Take a step of AdaGrad: the learning rate times the gradient, divided by the root of the
        # sum of its squares. The gradients are not needed any more, so they become the steps.
        gradients *= LEARNING_RATE
        gradients /= np.sqrt(squares)
        weights -= gradients
        self._squares[columns] = squares
        self._weights[columns] = weights

        # Take a step with the biases, which are the weights of a feature that is 1 in all texts.
        bias_gradients = margin_gradients.sum(axis=0)
        self._bias_squares += bias_gradients**2
        self._biases -= LEARNING_RATE * bias_gradients / np.sqrt(self._bias_squares)

    def classifiers(self) -> OneVsRest:
        """A copy as they are now, for features without the ratios."""
        return OneVsRest(self._weights * self._ratios, self._biases.copy())
