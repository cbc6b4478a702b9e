"""The suggested threshold."""

from __future__ import annotations

import numpy as np

from encoder_cls.evaluation.suggested_threshold import (
    MIN_PREDICTIONS,
    WANTED_ACCURACY,
    suggest_threshold,
)


def lowest_accurate_threshold(confidence: np.ndarray, correct: np.ndarray) -> float | None:
    """Find the threshold by trying every one with three digits."""
    for step in range(1000):
        threshold = step / 1000
        is_kept = confidence >= threshold
        if is_kept.sum() < MIN_PREDICTIONS:
            return None
        if correct[is_kept].mean() >= WANTED_ACCURACY:
            return threshold
    return None


def test_the_suggested_threshold_is_the_lowest_that_is_accurate_enough():
    random = np.random.default_rng(0)
    found = []
    for num_texts in (15, 30, 200, 200, 200):
        confidence = random.choice([0.25, 0.5, 0.9996, 1.0, *random.random(20)], size=num_texts)
        correct = random.random(num_texts) < 0.8 + 0.2 * confidence

        threshold, _ = suggest_threshold(confidence, correct)

        assert threshold == lowest_accurate_threshold(confidence, correct)
        found.append(threshold)

    # Both kinds of cases occurred: 15 texts are too few.
    assert found[0] is None
    assert any(found)


def test_a_threshold_that_keeps_few_of_many_predictions_is_not_suggested():
    """Of 1,000 predictions, 30 are sure and right; that is less than a twentieth."""
    confidence = np.array([0.99] * 30 + [0.5] * 970)
    correct = np.array([True] * 30 + [False] * 970)

    assert suggest_threshold(confidence, correct) == (None, 1.0)
    assert suggest_threshold(confidence[:600], correct[:600]) == (0.501, 0.05)
