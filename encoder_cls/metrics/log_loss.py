"""The loss of predictions: the negative log-likelihood of labels, in nats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, task_of

Floats = NDArray[np.float64]


def cross_entropy(
    probabilities: Floats, targets: Floats, weights: NDArray[np.floating[Any]] | None = None
) -> float:
    """The mean loss of target probabilities, (texts, classes), in nats, weighted by text."""
    return float(np.average(_log_losses(probabilities, targets), weights=weights))


def binary_cross_entropy(
    probabilities: Floats, targets: NDArray[Any], weights: Floats | None = None
) -> float:
    """The mean over texts of the loss of all labels of a text, in nats."""
    return float(np.average(_binary_losses(probabilities, targets), weights=weights))


def losses_of_texts(logits: Logits, labels: NDArray[Any]) -> Floats:
    """The negative log-likelihood of each text's label, or of all its labels, in nats, (texts,)."""
    task = task_of(labels)
    probabilities = task.probabilities(logits)
    if task is MULTI_LABEL:
        return _binary_losses(probabilities, labels)
    return _log_losses(probabilities, one_hot(labels, logits.shape[1]))


def _binary_losses(probabilities: Floats, targets: NDArray[Any]) -> Floats:
    return _log_losses(probabilities, targets) + _log_losses(1 - probabilities, 1 - targets)


# Lower probabilities count as this one, so that one label with a probability of 0 does not outweigh
# all others.
MIN_PROBABILITY = 1e-12


def _log_losses(probabilities: Floats, targets: NDArray[Any]) -> Floats:
    """-sum(target * ln(probability)) over the classes of each text, (texts,)."""
    log_probabilities = np.log(np.maximum(probabilities, MIN_PROBABILITY))
    losses: Floats = -(targets * log_probabilities).sum(axis=-1)
    return losses


def one_hot(labels: NDArray[np.int64], num_classes: int) -> Floats:
    """The target probabilities of class numbers, (texts, `num_classes`)."""
    targets = np.zeros((len(labels), num_classes))
    targets[np.arange(len(labels)), labels] = 1
    return targets


def surely_lowers_the_loss(
    before: Logits,
    after: Logits,
    labels: NDArray[Any],
    groups: RowGroups,
    *,
    standard_errors: float,
) -> bool:
    """Whether the mean loss of the logits `after` is significantly lower than that of `before`.

    A small difference may be chance: the mean of the differences of texts must exceed this number
    of standard errors.
    """
    gains = losses_of_texts(before, labels) - losses_of_texts(after, labels)
    num_texts = groups.effective_number(gains)
    return bool(gains.mean() * np.sqrt(num_texts) > standard_errors * gains.std())
