"""Suggest a threshold: the lowest probability from which enough predictions are correct."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import counts_from

# The precision of the predictions above the suggested threshold.
WANTED_ACCURACY = 0.95
# The least number of predictions above the suggested threshold.
MIN_PREDICTIONS = 20
# Their least fraction of all texts.
MIN_PREDICTED = 0.05


class SuggestedThreshold(NamedTuple):
    """A threshold for the predictions of a single-label task.

    Attributes:
        probability: the threshold; None where none is suggested.
        predicted_fraction: the fraction of texts whose prediction it keeps; 1 without a threshold.
    """

    probability: float | None
    predicted_fraction: float


def suggest_threshold(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> SuggestedThreshold:
    """Find the lowest probability from which `WANTED_ACCURACY` of the predictions are correct.

    None is suggested where it would keep fewer than `MIN_PREDICTIONS`, or the predictions for
    fewer than `MIN_PREDICTED` of all texts. Both arguments are (texts,).
    """
    # Thousandths, as shown: a threshold that is rounded afterwards might keep other predictions.
    steps = np.arange(1000) / 1000
    num_predicted = counts_from(steps, confidence)
    num_right = counts_from(steps, confidence[correct])

    is_accurate = num_right / np.maximum(1, num_predicted) >= WANTED_ACCURACY
    least_predicted = max(MIN_PREDICTIONS, MIN_PREDICTED * len(correct))
    fitting = np.flatnonzero(is_accurate & (num_predicted >= least_predicted))
    if len(fitting) == 0:
        return SuggestedThreshold(None, 1.0)

    threshold = float(steps[fitting[0]])
    is_predicted = confidence >= threshold
    return SuggestedThreshold(threshold, float(is_predicted.mean()))
