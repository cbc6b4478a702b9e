"""Single-label and multi-label tasks: logits to probabilities and labels.

Single-label: a text belongs to one of the classes, whose probabilities sum to 1. Multi-label: each label is a question
of its own, answered yes or no, so a text may have several labels, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

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


class Task(Protocol):
    """What a classifier is to say of a text."""

    name: str
    """As `config.json` has it."""

    fewest_classes: int

    def num_one_vs_rest(self, num_classes: int) -> int:
        """How many one-vs-rest classifiers there are for so many classes."""

    def margins_to_logits(self, margins: Logits) -> Logits:
        """The logits of margins of one-vs-rest classifiers, (texts, classes)."""

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Those of logits, both (texts, classes)."""

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        """ln(p / (1 - p)) of a class, of logits (texts, classes)."""


class SingleLabel:
    """Each text has one label."""

    name = "single-label"
    fewest_classes = 2

    def num_one_vs_rest(self, num_classes: int) -> int:
        """One for each class; of two classes the second's tells both."""
        return num_classes if num_classes > 2 else 1

    def margins_to_logits(self, margins: Logits) -> Logits:
        """The logits of margins of one-vs-rest classifiers, (texts, classes).

        Of two classes there is the second's margin, and the first's is its opposite. Each of more classes has a
        probability by itself: a softmax of their margins would be too sure of many texts, and too unsure of those that
        no class claims.
        """
        return np.hstack([-margins, margins]) if margins.shape[1] == 1 else log_sigmoid(margins).astype(np.float32)

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """A softmax: those of a text sum to 1."""
        return softmax(logits)

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        """See `Task`."""
        others: NDArray[np.float64] = np.logaddexp.reduce(np.delete(logits, label, axis=1), axis=1)
        return logits[:, label] - others


class MultiLabel:
    """Each text has any number of labels."""

    name = "multi-label"
    fewest_classes = 1

    def num_one_vs_rest(self, num_classes: int) -> int:
        """One for each label."""
        return num_classes

    def margins_to_logits(self, margins: Logits) -> Logits:
        """Calibrated margins are log odds already."""
        return margins

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """A sigmoid each."""
        return sigmoid(logits)

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        """See `Task`."""
        return logits[:, label]


SINGLE_LABEL: Task = SingleLabel()
MULTI_LABEL: Task = MultiLabel()
TASKS = {task.name: task for task in (SINGLE_LABEL, MULTI_LABEL)}


def task_of(labels: NDArray[Any]) -> Task:
    """The task whose labels these are: of each text its class, (texts,), or all of them, (texts, classes)."""
    return SINGLE_LABEL if labels.ndim == 1 else MULTI_LABEL
