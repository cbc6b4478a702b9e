"""NB-SVMs that learn from one batch of texts after another, all classes at once.

The machines and their loss, the squared hinge, are those of `nb_svm`. There, a solver fits each
machine to all texts; here, each batch takes a step of AdaGrad (Duchi, Hazan and Singer, "Adaptive
Subgradient Methods for Online Learning and Stochastic Optimization", 2011,
https://jmlr.org/papers/v12/duchi11a.html). AdaGrad keeps a high learning rate for rare features
until they have occurred often. That is why a few passes over the texts are enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.nb_svm import OneVsRest

# The learning rate of AdaGrad. A weight's step is the rate times its gradient, divided by the root
# of the sum of its squared gradients.
LEARNING_RATE = 0.3

# The initial value of each sum of squared gradients. It keeps the first steps of a weight small.
INITIAL_SQUARES = 10.0


class OnlineSvms:
    """One-vs-rest NB-SVMs that learn a batch at a time.

    Args:
        ratios: the naive Bayes ratios, by which features are multiplied, (features, machines).
    """

    def __init__(self, ratios: NDArray[np.float32]) -> None:
        num_machines = ratios.shape[1]
        self._ratios = ratios
        self._weights = np.zeros_like(ratios)
        self._squares = np.full_like(ratios, INITIAL_SQUARES)
        self._biases = np.zeros(num_machines, dtype=np.float32)
        self._bias_squares = np.full(num_machines, INITIAL_SQUARES, dtype=np.float32)

    def learn(
        self,
        features: sp.csr_matrix,
        targets: NDArray[np.bool_],
        text_weights: NDArray[np.floating[Any]],
    ) -> None:
        """Take a step on a batch of texts.

        Args:
            features: the TF-IDF values of the texts, (texts, features).
            targets: whether each text belongs to the machine's class, (texts, machines).
            text_weights: the weight of each text in each machine, (texts, machines).
        """
        # Only the features that occur in the batch have a gradient. They are a small part of all
        # features, so keep the columns of these only.
        occurring, columns = np.unique(features.indices, return_inverse=True)
        values = (features.data, columns.astype(np.int32), features.indptr)
        batch = sp.csr_matrix(values, shape=(features.shape[0], len(occurring)))
        ratios = self._ratios[occurring]
        weights = self._weights[occurring]

        # Compute the gradient of the squared hinge loss, max(0, 1 - sign * margin) ** 2, with
        # respect to each margin, (texts, machines).
        margins = batch @ (weights * ratios) + self._biases
        signs = np.where(targets, np.float32(1), np.float32(-1))
        shortfalls = np.maximum(0, 1 - signs * margins)
        margin_gradients = (-2 * signs * shortfalls * text_weights).astype(np.float32)

        # Take a step of AdaGrad with the weights of these features.
        gradients = (batch.T @ margin_gradients) * ratios
        squares = self._squares[occurring] + gradients**2
        self._squares[occurring] = squares
        self._weights[occurring] = weights - LEARNING_RATE * gradients / np.sqrt(squares)

        # Take a step with the biases, which are the weights of a feature that is 1 in all texts.
        bias_gradients = margin_gradients.sum(axis=0)
        self._bias_squares += bias_gradients**2
        self._biases -= LEARNING_RATE * bias_gradients / np.sqrt(self._bias_squares)

    def machines(self) -> OneVsRest:
        """Return a copy of the machines as they are now, for features without the ratios."""
        return OneVsRest(self._weights * self._ratios, self._biases.copy())
