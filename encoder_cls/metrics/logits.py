"""Functions of logits: softmax, sigmoid, and weighted sums of the logits of several classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The probabilities of logits along the last axis."""
    # Subtract the largest logit, so that no exponential overflows.
    largest = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits.astype(np.float64) - largest)
    return cast("NDArray[np.float64]", exponentials / exponentials.sum(axis=-1, keepdims=True))


def sigmoid(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """1 / (1 + exp(-logit)) of each logit, without overflow."""
    log_probabilities = -np.logaddexp(0.0, -logits.astype(np.float64))
    return cast("NDArray[np.float64]", np.exp(log_probabilities))


def log_sigmoid(margins: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """ln(1 / (1 + exp(-margin))) of each margin, without overflow."""
    return cast("NDArray[np.floating[Any]]", -np.logaddexp(0, -margins))


def combine_logits(
    logits: Sequence[NDArray[np.floating[Any]]], weights: Sequence[float] | NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted sum of the logits of several classifiers, (texts, classes).

    It is a logarithmic opinion pool (Genest and Zidek, "Combining Probability Distributions: A
    Critique and an Annotated Bibliography", 1986). If all classifiers agree, it is surer than each
    of them, unlike a mean of probabilities.
    """
    total: NDArray[np.float64] = np.zeros(())
    for weight, part in zip(weights, logits, strict=True):
        total = total + weight * part.astype(np.float64)
    return total
