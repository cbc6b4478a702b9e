"""Choose the gate of a cascade: where the linear classifier is sure enough, it answers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.metrics.classification import answers_of, compute_metrics, losses_of_texts
from encoder_cls.metrics.logits import Logits

GATES = (*(percent / 100 for percent in range(40, 100, 5)), 0.97, 0.98, 0.99)  # that are tried
# Share of the answers that a gate changes, nats that it adds to the mean loss.
MOST_CHANGED, MOST_LOSS = (
    1 / 200,
    0.01,
)


def fit_gate(
    classifier: Classifier, part_logits: Mapping[str, Logits], labels: NDArray[Any]
) -> None:
    """Set the lowest gate, if any, at which a classifier answers validation texts as well as without one.

    `part_logits` are those of the texts, as of `Classifier.part_logits`.

    At most `MOST_CHANGED` of the texts get another answer, the loss rises by `MOST_LOSS` at most, neither accuracy nor
    loss gets worse by more than its standard error, and the calibration error by no more than that of the accuracy. Too
    few texts to show this give no gate.
    """
    classifier.gate = None
    if len(classifier.parts) == 1 or len(labels) * MOST_CHANGED < 1:
        return

    def measured(
        logits: Logits,
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
        """The answers, (texts, labels or 1), whether each text is right, and its loss."""
        answers = answers_of(logits, classifier.thresholds, num_labels=logits.shape[1]).reshape(
            len(labels), -1
        )
        return (
            answers,
            (answers == labels.reshape(answers.shape)).all(axis=1),
            losses_of_texts(logits, labels),
        )

    def calibration_error(logits: Logits) -> float:
        return compute_metrics(logits, labels, classifier.label_names, classifier.thresholds).ece

    exact = classifier.combined(part_logits)
    (answers, right, losses), ece = measured(exact), calibration_error(exact)
    of_accuracy, of_loss = (float(it.std()) / math.sqrt(len(labels)) for it in (right, losses))
    for classifier.gate in GATES:
        logits = classifier.combined(part_logits)
        now, now_right, now_losses = measured(logits)
        if (
            (now != answers).any(axis=1).mean() <= MOST_CHANGED
            and now_losses.mean() <= losses.mean() + min(MOST_LOSS, of_loss)
            and now_right.mean() >= right.mean() - of_accuracy
            and calibration_error(logits) <= ece + of_accuracy  # last: it takes the longest
        ):
            return
    classifier.gate = None
