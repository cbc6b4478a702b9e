"""Suggest a threshold: the lowest probability from which predictions are accurate enough."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import counts_from

# The fraction of the kept predictions that must be correct.
WANTED_ACCURACY = 0.95
# The smallest number of predictions that a suggested threshold may keep.
MIN_PREDICTIONS = 20
# The smallest fraction of all predictions that a suggested threshold may keep.
MIN_PREDICTED = 0.05


class SuggestedThreshold(NamedTuple):
    """The threshold that is suggested for the predictions of a single-label task.

    Attributes:
        probability: the threshold; None if no threshold is suggested.
        predicted_fraction: the fraction of predictions that the threshold keeps; 1 if no threshold
            is suggested.
    """

    probability: float | None
    predicted_fraction: float


def suggest_threshold(
    confidence: NDArray[np.float64], is_correct: NDArray[np.bool_]
) -> SuggestedThreshold:
    """Find the lowest threshold from which `WANTED_ACCURACY` of the predictions are correct.

    A threshold is suggested only if it keeps at least `MIN_PREDICTIONS` predictions, and at least
    the fraction `MIN_PREDICTED` of them.

    Args:
        confidence: the probability of each text's predicted class, (texts,).
        is_correct: whether each prediction is correct, (texts,).
    """
    # Try thresholds with three digits, as reports show them. A threshold that is rounded only when
    # it is shown might keep other predictions.
    thresholds = np.arange(1000) / 1000
    num_kept = counts_from(thresholds, confidence)
    num_correct = counts_from(thresholds, confidence[is_correct])

    is_accurate = num_correct / np.maximum(1, num_kept) >= WANTED_ACCURACY
    min_kept = max(MIN_PREDICTIONS, MIN_PREDICTED * len(is_correct))
    indices = np.flatnonzero(is_accurate & (num_kept >= min_kept))
    if len(indices) == 0:
        return SuggestedThreshold(None, 1.0)

    threshold = float(thresholds[indices[0]])
    is_kept = confidence >= threshold
    return SuggestedThreshold(threshold, float(is_kept.mean()))
