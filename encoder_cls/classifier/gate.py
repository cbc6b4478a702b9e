"""Choose the gate of a cascade: the confidence from which the linear model predicts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.metrics.classification import compute_metrics, predicted_labels
from encoder_cls.metrics.log_loss import losses_of_texts
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups

# The gates that are tried, in ascending order. The lower the gate, the more texts skip the encoder.
GATES = (
    0.4,
    0.45,
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.95,
    0.97,
    0.98,
    0.99,
)

# The largest fraction of the predictions that a gate may change.
MAX_CHANGED = 1 / 200

# The largest increase of the mean loss that a gate may cause, in nats.
MAX_LOSS_INCREASE = 0.01


def fit_gate(
    classifier: Classifier,
    part_logits: Mapping[str, Logits],
    labels: NDArray[Any],
    groups: RowGroups,
) -> float | None:
    """Find the lowest gate with which a classifier predicts as well as without a gate.

    With the gate, compared with the predictions without a gate:

    - at most `MAX_CHANGED` of the predictions change;
    - the mean loss rises by at most `MAX_LOSS_INCREASE`, and by at most its standard error;
    - the accuracy falls by at most its standard error;
    - the calibration error rises by at most the standard error of the accuracy.

    The result is None if no gate is good enough, or independent texts are too few to measure
    `MAX_CHANGED`.
    """
    if len(classifier.parts) == 1 or groups.num_groups * MAX_CHANGED < 1:
        return None

    without_gate = _GatedPredictions.by(replace(classifier, gate=None), part_logits, labels, groups)
    for gate in GATES:
        with_gate = _GatedPredictions.by(
            replace(classifier, gate=gate), part_logits, labels, groups
        )
        if with_gate.are_as_good_as(without_gate):
            return gate
    return None


@dataclass(frozen=True, kw_only=True)
class _GatedPredictions:
    """Predictions with a gate; a text is correct if all of its labels are."""

    classifier: Classifier
    logits: Logits
    labels: NDArray[Any]
    groups: RowGroups
    predictions: NDArray[Any]
    is_correct: NDArray[np.bool_]
    losses: NDArray[np.float64]

    @classmethod
    def by(
        cls,
        classifier: Classifier,
        part_logits: Mapping[str, Logits],
        labels: NDArray[Any],
        groups: RowGroups,
    ) -> _GatedPredictions:
        logits = classifier.combined(part_logits)
        predictions = predicted_labels(logits, classifier.thresholds, num_labels=logits.shape[1])
        predictions = predictions.reshape(len(labels), -1)
        is_correct = (predictions == labels.reshape(predictions.shape)).all(axis=1)

        return cls(
            classifier=classifier,
            logits=logits,
            labels=labels,
            groups=groups,
            predictions=predictions,
            is_correct=is_correct,
            losses=losses_of_texts(logits, labels),
        )

    def are_as_good_as(self, without_gate: _GatedPredictions) -> bool:
        is_changed = (self.predictions != without_gate.predictions).any(axis=1)
        if is_changed.mean() > MAX_CHANGED:
            return False

        max_increase = min(MAX_LOSS_INCREASE, self._standard_error(without_gate.losses))
        if self.losses.mean() > without_gate.losses.mean() + max_increase:
            return False

        accuracy_error = self._standard_error(without_gate.is_correct)
        if self.is_correct.mean() < without_gate.is_correct.mean() - accuracy_error:
            return False

        # Compare the calibration errors last, because they take the longest to compute.
        return self._calibration_error() <= without_gate._calibration_error() + accuracy_error

    def _standard_error(self, values: NDArray[Any]) -> float:
        return float(values.std()) / math.sqrt(self.groups.effective_number(values))

    def _calibration_error(self) -> float:
        label_names = self.classifier.label_names
        thresholds = self.classifier.thresholds
        return compute_metrics(self.logits, self.labels, label_names, thresholds).ece
