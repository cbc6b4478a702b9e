"""The gate of a cascade: where the linear classifier is sure, it answers alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import compute_metrics, losses_of_texts
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.task import Logits
from encoder_cls.text.token_arrays import TokenizedTexts

GATES = (*(percent / 100 for percent in range(40, 100, 5)), 0.97, 0.98, 0.99)  # that are tried
MOST_CHANGED = 1 / 200  # of the answers by a gate; and its most loss, in nats
MOST_LOSS = 0.01


def fit_gate(classifier: Classifier, texts: TokenizedTexts, labels: NDArray[Any]) -> None:
    """Set the lowest gate at which a classifier answers validation texts as well as without one, if there is one.

    At most `MOST_CHANGED` of the texts get another answer, the loss rises by `MOST_LOSS` at
    most, and no measure gets worse beyond its standard error; that of the calibration error is about the accuracy's.
    Too few texts to show this give no gate.
    """
    classifier.gate = None
    if len(classifier.parts) == 1 or len(labels) * MOST_CHANGED < 1:
        return
    of_parts, thresholds = classifier.part_logits(texts), np.array(classifier.thresholds)

    def answered(logits: Logits) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.float64]]:
        """Answers, whether they are right, and the loss of each text, (texts,)."""
        several = len(thresholds) > 0
        answers = classifier.task.probabilities(logits) >= thresholds if several else logits.argmax(axis=1)
        is_right = (answers == labels).reshape(len(labels), -1).all(axis=1)
        return answers, is_right, losses_of_texts(classifier.task, logits, labels)

    def calibration_error(logits: Logits) -> float:
        return compute_metrics(logits, labels, classifier.label_names, classifier.thresholds).ece

    exact = classifier.combined(of_parts)
    (answers, right, losses), ece = answered(exact), calibration_error(exact)
    of_accuracy, of_loss = (float(it.std()) / math.sqrt(len(labels)) for it in (right, losses))
    for classifier.gate in GATES:
        logits = classifier.combined(of_parts)
        now, now_right, now_losses = answered(logits)
        if (
            (now != answers).reshape(len(labels), -1).any(axis=1).mean() <= MOST_CHANGED
            and now_losses.mean() <= losses.mean() + min(MOST_LOSS, of_loss)
            and now_right.mean() >= right.mean() - of_accuracy
            and calibration_error(logits) <= ece + of_accuracy
        ):
            return
    classifier.gate = None
