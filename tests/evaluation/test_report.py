"""Reports: what `evaluate` measures beside metrics."""

from __future__ import annotations

import numpy as np

from encoder_cls.evaluation.report import FEWEST_PREDICTIONS, WANTED_ACCURACY, suggest_threshold


def test_the_suggested_threshold_is_the_lowest_that_is_accurate_enough():
    """Compared with trying every one that can be shown, in thousandths."""
    random = np.random.default_rng(0)
    found = []
    for num_texts in (15, 30, 200, 200, 200):
        confidence = random.choice([0.25, 0.5, 0.9996, 1.0, *random.random(20)], size=num_texts)
        correct = random.random(num_texts) < 0.8 + 0.2 * confidence

        accurate = []
        for step in range(1000):
            predicted = correct[confidence >= step / 1000]
            if len(predicted) >= FEWEST_PREDICTIONS and predicted.mean() >= WANTED_ACCURACY:
                accurate.append(step / 1000)

        threshold, _ = suggest_threshold(confidence, correct)
        assert threshold == (accurate[0] if accurate else None)
        found.append(threshold)

    # Both kinds of cases occurred: 15 texts are too few.
    assert found[0] is None
    assert any(found)
