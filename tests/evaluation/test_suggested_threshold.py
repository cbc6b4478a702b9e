"""The suggested threshold."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.evaluation.suggested_threshold import (
    MIN_TEXTS,
    SuggestedThreshold,
    suggest_threshold,
)
from encoder_cls.metrics.row_groups import RowGroups


def suggested(confidence: np.ndarray, is_correct: np.ndarray) -> SuggestedThreshold:
    """The suggestion by texts that are independent of each other."""
    return suggest_threshold(confidence, is_correct, RowGroups.single(len(confidence)))


@pytest.mark.parametrize("num_texts", [200, 1000])
def test_from_the_suggested_threshold_on_new_predictions_are_accurate(num_texts):
    """At most one suggestion in ten is too low, though the best of many thresholds is wanted."""
    random = np.random.default_rng(0)
    new_texts = random.beta(4, 1, 100_000)

    num_too_low = 0
    num_suggested = 0
    for _ in range(200):
        confidence = random.beta(4, 1, num_texts)
        probability, _ = suggested(confidence, random.random(num_texts) < confidence)
        if probability is not None:
            num_suggested += 1
            num_too_low += new_texts[new_texts >= probability].mean() < 0.95

    assert num_too_low <= 20
    assert num_suggested >= 50


def test_a_threshold_is_as_low_as_many_texts_show_and_has_the_digits_of_a_report():
    confidence = np.linspace(0.5, 1, 20_000)
    is_correct = confidence >= 0.8

    probability, predicted_fraction = suggested(confidence, is_correct)

    # 5% of the kept predictions may be wrong, less what chance may explain.
    assert probability == round(probability, 3) == pytest.approx(0.791, abs=0.0015)
    assert predicted_fraction == (confidence >= probability).mean()


def test_too_few_predictions_show_nothing():
    ones = np.ones(MIN_TEXTS)

    assert suggested(ones, ones > 0) == (0.0, 1.0)
    assert suggested(ones[1:], ones[1:] > 0) == (None, 1.0)


def test_copies_of_a_text_count_once():
    ones = np.ones(10 * MIN_TEXTS)
    copies = RowGroups(np.arange(len(ones)) % (MIN_TEXTS - 1))

    assert suggest_threshold(ones, ones > 0, copies) == (None, 1.0)


def test_a_threshold_that_keeps_few_of_many_predictions_is_not_suggested():
    """Of 1,200 predictions, 50 are sure and right; that is less than a twentieth."""
    confidence = np.array([0.99] * 50 + [0.5] * 1150)
    is_correct = confidence > 0.9

    assert suggested(confidence, is_correct) == (None, 1.0)
    assert suggested(confidence[:900], is_correct[:900]).predicted_fraction == 50 / 900
