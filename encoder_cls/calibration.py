"""Logits and labels in, the temperature that makes probabilities honest out; or the scales that make several agree.

Guo et al., "On Calibration of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599: logits are
divided by one number, chosen so that labels not trained on are as probable as possible. No prediction changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]

HOTTEST = 20.0  # temperatures from 1 / HOTTEST to HOTTEST: more or less mean that there is nothing to calibrate on
LEAST_PART = 1e-3  # of a joint opinion, however misleading
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


def pool(scores: Sequence[Logits], scales: Sequence[float]) -> NDArray[np.float64]:
    """The joint opinion of several kinds of classifiers, (texts, classes): their scaled scores are added up as logits.

    Each kind's scores are (members, texts, classes), with one member or as many as the others; probabilities are
    averaged over members. Adding logits is a logarithmic opinion pool (Genest and Zidek, "Combining Probability
    Distributions: A Critique and an Annotated Bibliography", 1986): unlike a mean of probabilities, it is surer
    than each where all agree.
    """
    total = sum(np.float64(scale) * score for scale, score in zip(scales, scores, strict=True))
    return cast("NDArray[np.float64]", softmax(np.asarray(total)).mean(axis=0))


def fit_pool(scores: Sequence[Logits], labels: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """The scales under which `pool` explains labels (texts,) best, and what part of the opinion each kind has.

    Parts are of the scales after each kind was given its own temperature.
    """
    from scipy.optimize import minimize

    targets = _targets(labels, scores[0].shape[-1])
    alone = np.array([1 / fit_temperature(score.mean(axis=0), labels) for score in scores])

    def surprise(parts: NDArray[np.float64]) -> float:
        return cross_entropy(pool(scores, parts * alone), targets)

    equal = np.full(len(scores), 1 / len(scores))
    found = minimize(surprise, equal, method="L-BFGS-B", bounds=[(LEAST_PART, HOTTEST)] * len(scores)).x
    return (found * alone).tolist(), (found / found.sum()).tolist()


def fit_temperature(logits: Logits, labels: NDArray[np.int64]) -> float:
    """The temperature under which logits (texts, classes) explain labels (texts,) best."""
    from scipy.optimize import minimize_scalar

    targets = _targets(labels, logits.shape[1])

    def surprise(log_temperature: float) -> float:
        return cross_entropy(softmax(logits / np.exp(log_temperature)), targets)

    limit = float(np.log(HOTTEST))
    found = minimize_scalar(surprise, bounds=(-limit, limit), method="bounded")
    return float(np.exp(found.x))


def _targets(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """What is to be explained, (texts, classes).

    One more text is taken to have been seen whose class is anyone's guess: a small split without a mistake
    is no reason to be certain (after Platt, "Probabilistic Outputs for Support Vector Machines", 1999).
    """
    return (one_hot(labels, num_classes) * len(labels) + 1 / num_classes) / (len(labels) + 1)
