"""Single-label and multi-label tasks: logits to probabilities.

Single-label: a text has one of the classes, whose probabilities sum to 1. Multi-label: each label
is an independent yes-or-no question, so a text may have several labels, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Probabilities of logits along the last axis."""
    # With the largest logit subtracted, no exponential is too large for a number.
    largest = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits.astype(np.float64) - largest)
    return cast("NDArray[np.float64]", exponentials / exponentials.sum(axis=-1, keepdims=True))


def sigmoid(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """1 / (1 + exp(-logit)) of each logit."""
    log_probabilities = -np.logaddexp(0.0, -logits.astype(np.float64))
    return cast("NDArray[np.float64]", np.exp(log_probabilities))


def log_sigmoid(margins: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """ln(1 / (1 + exp(-margin))) of each margin."""
    return cast("NDArray[np.floating[Any]]", -np.logaddexp(0, -margins))


def combine_logits(
    logits: Sequence[NDArray[np.floating[Any]]], weights: Sequence[float] | NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted sum of the logits of several classifiers, (texts, classes).

    It is a logarithmic opinion pool (Genest and Zidek, "Combining Probability Distributions: A
    Critique and an Annotated Bibliography", 1986): unlike a mean of probabilities, it is surer than
    each of them if all agree.
    """
    total: NDArray[np.float64] = np.zeros(())
    for weight, part in zip(weights, logits, strict=True):
        total = total + weight * part.astype(np.float64)
    return total


class Task:
    """The single-label task: each text has one of the classes.

    Attributes:
        name: in `config.json`.
        fewest_classes: that a classifier can have.
    """

    name = "single-label"
    fewest_classes = 2

    def num_one_vs_rest(self, num_classes: int) -> int:
        """The number of one-vs-rest machines: one for each class, but a single one for two."""
        if num_classes > 2:
            return num_classes
        return 1

    def margins_to_logits(self, margins: Logits) -> Logits:
        """Convert margins of one-vs-rest classifiers to logits, (texts, classes).

        Of two classes, the second has the margin, and the first its opposite. More classes have
        independent margins: a softmax of these would be too sure of many texts, and too unsure of
        texts of no class.
        """
        if margins.shape[1] == 1:
            return np.hstack([-margins, margins])
        return log_sigmoid(margins).astype(np.float32)

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The probabilities of the classes, (texts, classes)."""
        return softmax(logits)

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """How sure each text's prediction is, (texts,); multi-label, its least sure label."""
        return cast("NDArray[np.float64]", probabilities.max(axis=1))

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        """ln(p / (1 - p)) of a class, (texts,)."""
        other_logits = np.delete(logits, label, axis=1)
        others: NDArray[np.float64] = np.logaddexp.reduce(other_logits, axis=1)
        return logits[:, label] - others


class _MultiLabel(Task):
    """Each text has any number of labels, and a calibrated margin is the log odds of one."""

    name = "multi-label"
    fewest_classes = 1

    def num_one_vs_rest(self, num_classes: int) -> int:
        return num_classes

    def margins_to_logits(self, margins: Logits) -> Logits:
        return margins

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        return sigmoid(logits)

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        confidences = np.maximum(probabilities, 1 - probabilities)
        return cast("NDArray[np.float64]", confidences.min(axis=1))

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        return logits[:, label]


SINGLE_LABEL = Task()
MULTI_LABEL = _MultiLabel()
TASKS: dict[str, Task] = {task.name: task for task in (SINGLE_LABEL, MULTI_LABEL)}


def task_of(labels: NDArray[Any]) -> Task:
    """The task of these labels: single-label is (texts,), multi-label (texts, classes)."""
    if labels.ndim == 1:
        return SINGLE_LABEL
    return MULTI_LABEL
