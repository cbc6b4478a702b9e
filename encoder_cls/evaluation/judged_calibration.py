"""How well probabilities are calibrated, beyond what chance explains.

The calibration error of few texts is large by chance: it is the mean of absolute differences, and
even a perfectly calibrated classifier is not right for exactly 80% of the texts of a bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from encoder_cls.metrics.classification import CalibrationBins

# The number of texts that are needed to judge calibration.
MIN_TEXTS_TO_JUDGE = 100
# The highest error of a classifier that is called well calibrated.
WELL_CALIBRATED = 0.03
# The highest error of a classifier that is called fairly calibrated.
FAIRLY_CALIBRATED = 0.08
# A higher share of the errors that chance alone gives must be below the error of a classifier that
# is called poorly calibrated.
SURE = 0.95
# The number of times that perfectly calibrated predictions are drawn.
NUM_DRAWS = 1000


class Calibration(Enum):
    """How good a calibration is."""

    UNKNOWN = "too few texts to judge"
    GOOD = "well calibrated"
    FAIR = "fairly calibrated"
    POOR = "poorly calibrated"


@dataclass(frozen=True, kw_only=True)
class JudgedCalibration:
    """The calibration of a classifier, judged on some predictions.

    Attributes:
        measured: the calibration error (ECE).
        by_chance: the mean error of a perfect classifier.
        error: an estimate without chance.
        excess: mean probability minus share of right predictions.
    """

    grade: Calibration
    num_predictions: int
    measured: float
    by_chance: float
    error: float
    excess: float


def judge_calibration(bins: CalibrationBins, *, independent: float = 1.0) -> JudgedCalibration:
    """Judge predictions in bins, of which the share `independent` is independent."""
    num_predictions = sum(bins.texts)
    by_chance = _errors_by_chance(bins, independent)
    mean_by_chance = float(by_chance.mean())

    # Chance and a true error add up like the sides of a right triangle, since they are independent.
    # The difference of both would be far too low if the true error is the larger one.
    measured = bins.expected_error
    error = float(np.sqrt(max(0.0, measured**2 - mean_by_chance**2)))

    grade = Calibration.FAIR
    if num_predictions < MIN_TEXTS_TO_JUDGE:
        grade = Calibration.UNKNOWN
    elif error <= WELL_CALIBRATED:
        grade = Calibration.GOOD
    elif error > FAIRLY_CALIBRATED:
        is_sure = measured > np.quantile(by_chance, SURE)
        grade = Calibration.POOR if is_sure else Calibration.UNKNOWN

    gaps = np.subtract(bins.confidence, bins.accuracy)
    return JudgedCalibration(
        grade=grade,
        num_predictions=num_predictions,
        measured=measured,
        by_chance=mean_by_chance,
        error=error,
        excess=float(np.dot(bins.texts, gaps) / max(1, num_predictions)),
    )


def _errors_by_chance(bins: CalibrationBins, independent: float) -> np.ndarray:
    """The errors, (draws,), of predictions that are as right as they are probable.

    Groups that are right or wrong together vary as fewer independent ones.
    """
    random = np.random.default_rng(0)
    num_texts = np.array(bins.texts)
    confidence = np.array(bins.confidence)

    num_right = random.binomial(num_texts, confidence, size=(NUM_DRAWS, len(num_texts)))
    gaps = np.abs(num_right - num_texts * confidence)
    errors: np.ndarray = gaps.sum(axis=1) / max(1, num_texts.sum()) / np.sqrt(independent)
    return errors
