"""Probabilities and thresholds of labels: their own as far as they have examples, else those of all labels."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.evaluation.metrics import ClassCounts
from encoder_cls.inference.task import sigmoid
from encoder_cls.training.linear import calibration
from encoder_cls.training.linear.calibration import (
    fit_inverse_temperature,
    fit_mixture_weights,
    fit_platt_per_label,
    fit_thresholds,
)
from encoder_cls.training.linear.folds import folds

SCALES, SHIFTS = np.array([2.0, 2.0, 0.5, 2.0]), np.array([-1.0, -1.0, 0.0, -1.0])


def drawn(texts: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Margins, and labels that are as probable as `SCALES` and `SHIFTS` have it."""
    random = np.random.default_rng(seed)
    margins = random.normal(-0.5, 1, size=(texts, len(SCALES))).astype(np.float32)
    return margins, (random.random(margins.shape) < sigmoid(margins * SCALES + SHIFTS)).astype(np.int8)


def test_each_label_has_the_scale_and_the_shift_that_many_examples_show():
    """Also where they differ from those of the others; few examples leave them near these."""
    margins, labels = drawn(20_000)
    scales, shifts = fit_platt_per_label(margins, labels)
    assert scales == pytest.approx(SCALES, rel=0.1)
    assert shifts == pytest.approx(SHIFTS, abs=0.1)
    few, _ = fit_platt_per_label(margins[:10], labels[:10])
    assert np.ptp(few) < np.ptp(scales) / 2


@pytest.mark.parametrize("value", [0, 1])
def test_a_label_that_all_or_no_text_has_gets_a_finite_scale(value):
    """As likely as one more text would leave it."""
    margins, labels = drawn(200)
    labels[:, 0] = value
    scales, shifts = fit_platt_per_label(margins, labels)
    assert np.isfinite([*scales, *shifts]).all()
    thresholds = fit_thresholds((margins * scales + shifts).astype(np.float32), labels, np.arange(200))
    assert ((thresholds >= 0) & (thresholds <= 1)).all()


def test_mixture_weights_and_temperature_are_those_of_all_labels():
    """Logits that are twice too large are halved; of two parts the one that says nothing gets next to no weight."""
    margins, labels = drawn(20_000)
    logits = (margins * SCALES + SHIFTS).astype(np.float32)
    assert fit_inverse_temperature(2 * logits, labels) == pytest.approx(0.5, rel=0.05)
    noise = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    weights, shares = fit_mixture_weights([noise, logits], labels)
    assert weights[1] == pytest.approx(1, rel=0.05)
    assert shares[0] < 0.05


def test_thresholds_of_rare_labels_do_not_overfit():
    """On new texts they are better than each label's own best ones, and about as good as one for all in micro-F1."""
    random = np.random.default_rng(0)
    rates = np.array([0.3, 0.1, *[0.006] * 10])
    base = np.log(rates / (1 - rates))

    def texts(number: int) -> tuple[np.ndarray, np.ndarray]:
        logits = base + 1.6 * random.normal(size=(number, len(rates)))
        return logits.astype(np.float32), (random.random(logits.shape) < sigmoid(logits)).astype(np.int8)

    logits, labels = texts(800)
    new_logits, new_labels = texts(20_000)
    own = [
        max(np.unique(logits[:, it]), key=lambda t: _f1(logits[:, it], labels[:, it], t)) for it in range(len(rates))
    ]
    common = max(np.linspace(-3, 1, 81), key=lambda t: ClassCounts.of(logits >= t, labels).micro_f1)
    found = ClassCounts.of(sigmoid(new_logits) >= fit_thresholds(logits, labels, np.arange(800)), new_labels)
    assert found.micro_f1 > ClassCounts.of(new_logits >= np.array(own), new_labels).micro_f1 + 0.005
    assert found.micro_f1 > ClassCounts.of(new_logits >= common, new_labels).micro_f1 - 0.02
    assert found.macro_f1 > ClassCounts.of(new_logits >= common, new_labels).macro_f1 + 0.05


def test_repeated_texts_do_not_choose_the_rule(monkeypatch):
    """They are in one fold of the cross-validation."""
    logits, labels = (np.repeat(it, 5, axis=0) for it in drawn(40))
    parts = []
    monkeypatch.setattr(calibration, "folds", lambda them: parts.extend(folds(them)) or parts)
    texts = np.repeat(np.arange(40), 5)
    fit_thresholds(logits, labels, texts)
    sampled = texts[np.random.default_rng(0).permutation(200)]
    assert sum(len(set(sampled[part])) for part in parts) == 40


def _f1(scores: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    return ClassCounts.of((scores >= threshold)[:, None], labels[:, None]).micro_f1
