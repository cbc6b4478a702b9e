"""Suggest a threshold: the lowest probability from which predictions are surely accurate enough."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import CONFIDENCE, counts_from
from encoder_cls.metrics.intervals import lower_bound
from encoder_cls.metrics.row_groups import RowGroups

# The fraction of the kept predictions that must be correct.
WANTED_ACCURACY = 0.95
# The smallest number of independent texts that a threshold is suggested by. With fewer, most
# thresholds that seem accurate enough are so by chance (docs/experiments/accuracy.md).
MIN_TEXTS = 200
# The smallest fraction of all predictions that a suggested threshold may keep.
MIN_PREDICTED = 0.05


class SuggestedThreshold(NamedTuple):
    """A threshold, and the fraction that it keeps; None, and 1, if none is suggested."""

    probability: float | None
    predicted_fraction: float


NO_THRESHOLD = SuggestedThreshold(None, 1.0)


def suggest_threshold(
    confidence: NDArray[np.float64], is_correct: NDArray[np.bool_], groups: RowGroups
) -> SuggestedThreshold:
    """The lowest threshold from which surely `WANTED_ACCURACY` of the predictions are correct.

    The lower bound must be that high: the accuracy itself is the best of many thresholds on the
    same texts.
    """
    num_independent = groups.effective_number(is_correct)
    if num_independent < MIN_TEXTS:
        return NO_THRESHOLD

    # Try thresholds with three digits, as reports show them. A threshold that is rounded only when
    # it is shown might keep other predictions.
    thresholds = np.arange(1000) / 1000
    num_kept = counts_from(thresholds, confidence)
    num_correct = counts_from(thresholds, confidence[is_correct])

    independent_share = num_independent / len(is_correct)
    lowest_accuracy = lower_bound(
        num_correct * independent_share, num_kept * independent_share, confidence=CONFIDENCE
    )
    is_accurate = lowest_accuracy >= WANTED_ACCURACY
    indices = np.flatnonzero(is_accurate & (num_kept >= MIN_PREDICTED * len(is_correct)))
    if len(indices) == 0:
        return NO_THRESHOLD

    threshold = float(thresholds[indices[0]])
    is_kept = confidence >= threshold
    return SuggestedThreshold(threshold, float(is_kept.mean()))
