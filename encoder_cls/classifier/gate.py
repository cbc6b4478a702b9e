"""Choose the gate of a cascade: where the linear model is sure enough, it predicts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.metrics.classification import compute_metrics, losses_of_texts, predicted_labels
from encoder_cls.metrics.logits import Logits

# The gates that are tried, from the lowest, which lets most texts skip the encoder.
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

# The largest share of the predictions that a gate may change.
MAX_CHANGED = 1 / 200

# The most that a gate may add to the mean loss, in nats.
MAX_LOSS = 0.01


def fit_gate(
    classifier: Classifier, part_logits: Mapping[str, Logits], labels: NDArray[Any]
) -> float | None:
    """Find the lowest gate at which a classifier predicts validation texts as well as without one.

    At most `MAX_CHANGED` of the predictions change, the loss rises by `MAX_LOSS` at most,
    neither accuracy nor loss gets worse by more than its standard error, and the calibration error
    by no more than that of the accuracy.

    Args:
        classifier: its own gate does not count.
        part_logits: of the texts, as of `Classifier.part_logits`.
        labels: of the texts.

    Returns:
        The gate; None if there is none, or if too few texts could show it.
    """
    if len(classifier.parts) == 1 or len(labels) * MAX_CHANGED < 1:
        return None

    exact = _Predictions.by(replace(classifier, gate=None), part_logits, labels)
    for gate in GATES:
        candidate = _Predictions.by(replace(classifier, gate=gate), part_logits, labels)
        if candidate.is_as_good_as(exact):
            return gate
    return None


@dataclass(frozen=True, kw_only=True)
class _Predictions:
    """The predictions of a classifier for labelled texts.

    Attributes:
        classifier: with its gate.
        logits: (texts, classes).
        labels: (texts,) or, multi-label, (texts, classes).
        predictions: (texts, classes), or (texts, 1) of single-label tasks.
        is_right: (texts,).
        losses: (texts,).
    """

    classifier: Classifier
    logits: Logits
    labels: NDArray[Any]
    predictions: NDArray[Any]
    is_right: NDArray[np.bool_]
    losses: NDArray[np.float64]

    @classmethod
    def by(
        cls, classifier: Classifier, part_logits: Mapping[str, Logits], labels: NDArray[Any]
    ) -> _Predictions:
        """Predict texts from the logits of the parts."""
        logits = classifier.combined(part_logits)
        predictions = predicted_labels(logits, classifier.thresholds, num_labels=logits.shape[1])
        predictions = predictions.reshape(len(labels), -1)
        is_right = (predictions == labels.reshape(predictions.shape)).all(axis=1)

        return cls(
            classifier=classifier,
            logits=logits,
            labels=labels,
            predictions=predictions,
            is_right=is_right,
            losses=losses_of_texts(logits, labels),
        )

    def is_as_good_as(self, exact: _Predictions) -> bool:
        """Whether the predictions are as good as those without a gate, as `fit_gate` describes."""
        is_changed = (self.predictions != exact.predictions).any(axis=1)
        if is_changed.mean() > MAX_CHANGED:
            return False

        most_loss = min(MAX_LOSS, _standard_error(exact.losses))
        if self.losses.mean() > exact.losses.mean() + most_loss:
            return False

        error_of_accuracy = _standard_error(exact.is_right)
        if self.is_right.mean() < exact.is_right.mean() - error_of_accuracy:
            return False

        # This comes last, since it takes the longest.
        return self._calibration_error() <= exact._calibration_error() + error_of_accuracy

    def _calibration_error(self) -> float:
        label_names = self.classifier.label_names
        thresholds = self.classifier.thresholds
        return compute_metrics(self.logits, self.labels, label_names, thresholds).ece


def _standard_error(values: NDArray[Any]) -> float:
    """The standard error of the mean of values, (texts,)."""
    return float(values.std()) / math.sqrt(len(values))
