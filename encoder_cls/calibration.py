"""Logits and labels in, the temperature that makes probabilities honest out.

Guo et al., "On Calibration of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599: logits are
divided by one number, chosen so that labels not trained on are as probable as possible. No prediction changes.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]

HOTTEST = 20.0  # temperatures from 1 / HOTTEST to HOTTEST: more or less mean that there is nothing to calibrate on
SMALLEST = 1e-12  # probabilities below count as this: one impossible label must not outweigh all others


def softmax(logits: Logits) -> NDArray[np.float64]:
    """Probabilities of logits along the last axis."""
    exponents = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return cast("NDArray[np.float64]", exponents / exponents.sum(axis=-1, keepdims=True))


def cross_entropy(probabilities: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
    """The mean surprise at targets under probabilities, both (texts, classes), in nats."""
    return float(-(targets * np.log(np.maximum(probabilities, SMALLEST))).sum(axis=-1).mean())


def one_hot(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """Labels (texts,) as targets, (texts, classes)."""
    return np.eye(num_classes)[labels]


def fit_temperature(logits: Logits, labels: NDArray[np.int64]) -> float:
    """The temperature under which logits (texts, classes) explain labels (texts,) best.

    One more text is taken to have been seen whose class is anyone's guess: a small split without a mistake
    is no reason to be certain (after Platt, "Probabilistic Outputs for Support Vector Machines", 1999).
    """
    from scipy.optimize import minimize_scalar

    num_texts, num_classes = logits.shape
    targets = (one_hot(labels, num_classes) * num_texts + 1 / num_classes) / (num_texts + 1)

    def surprise(log_temperature: float) -> float:
        return cross_entropy(softmax(logits / np.exp(log_temperature)), targets)

    limit = float(np.log(HOTTEST))
    found = minimize_scalar(surprise, bounds=(-limit, limit), method="bounded")
    return float(np.exp(found.x))
