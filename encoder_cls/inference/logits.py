"""Logits in, probabilities out; the logits of several classifiers in, their weighted sum out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Probabilities of logits along the last axis."""
    exponents = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return cast("NDArray[np.float64]", exponents / exponents.sum(axis=-1, keepdims=True))


def sigmoid(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """1 / (1 + exp(-logit)) of each logit."""
    return cast("NDArray[np.float64]", np.exp(-np.logaddexp(0.0, -logits.astype(np.float64))))


def log_sigmoid(margins: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """ln(1 / (1 + exp(-margin))) of each margin."""
    return cast("NDArray[np.floating[Any]]", -np.logaddexp(0, -margins))


def combine_logits(
    logits: Sequence[NDArray[np.floating[Any]]], weights: Sequence[float] | NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted sum of the logits of several classifiers, (texts, classes).

    A logarithmic opinion pool (Genest and Zidek, "Combining Probability Distributions: A Critique and an Annotated
    Bibliography", 1986): unlike a mean of probabilities, it is surer than each where all agree.
    """
    total: NDArray[np.float64] = np.zeros(())
    for weight, part in zip(weights, logits, strict=True):
        total = total + weight * part.astype(np.float64)
    return total
