"""Calibration is judged beyond what chance explains."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.evaluation.judged_calibration import (
    Calibration,
    JudgedCalibration,
    judge_calibration,
)
from encoder_cls.metrics.classification import CalibrationBins


def judged(seed: int, *, num_texts: int, too_high: float, copies: int = 1) -> JudgedCalibration:
    """Random predictions whose probabilities are too high by so much, each so many times."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.4, 1, num_texts)
    is_right = random.random(num_texts) < confidence - too_high
    bins = CalibrationBins.of(np.repeat(confidence, copies), np.repeat(is_right, copies))
    return judge_calibration(bins, independent=1 / copies)


@pytest.mark.parametrize("num_texts", [100, 200, 1000])
@pytest.mark.parametrize("copies", [1, 5])
def test_a_perfect_calibration_is_rarely_called_poor(num_texts, copies):
    found = [judged(seed, num_texts=num_texts, too_high=0, copies=copies) for seed in range(100)]

    assert sum(judgement.grade is Calibration.POOR for judgement in found) <= 10
    assert np.mean([judgement.error for judgement in found]) < 0.04


@pytest.mark.parametrize("num_texts", [200, 1000])
def test_probabilities_that_are_too_high_are_called_poor(num_texts):
    found = [judged(seed, num_texts=num_texts, too_high=0.15) for seed in range(100)]

    assert sum(judgement.grade is Calibration.POOR for judgement in found) >= 90
    assert np.mean([judgement.error for judgement in found]) == pytest.approx(0.15, abs=0.01)
    assert np.mean([judgement.excess for judgement in found]) == pytest.approx(0.15, abs=0.01)


def test_without_predictions_there_is_nothing_to_judge():
    bins = CalibrationBins.of(np.zeros(0), np.zeros(0, dtype=bool))

    assert judge_calibration(bins).grade is Calibration.UNKNOWN
