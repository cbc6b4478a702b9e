"""Thresholds of a multi-label task: few examples of a label change its threshold little."""

from __future__ import annotations

import numpy as np
import pytest
from support.labels import SCALES, SHIFTS, margins_and_labels

from encoder_cls.classifier import thresholds as thresholds_module
from encoder_cls.classifier.thresholds import fit_thresholds
from encoder_cls.linear_training.folds import split_into_folds
from encoder_cls.metrics.logits import sigmoid
from encoder_cls.metrics.precision_recall import ClassCounts, best_f1_threshold
from encoder_cls.metrics.row_groups import RowGroups


def test_thresholds_of_rare_labels_do_not_overfit():
    """F1 on new texts is compared with that of separate thresholds, and of one for all labels."""
    random = np.random.default_rng(0)
    two_frequent = [0.3, 0.1]
    ten_rare = [0.006] * 10
    rates = np.array(two_frequent + ten_rare)
    base = np.log(rates / (1 - rates))

    def draw_texts(number: int) -> tuple[np.ndarray, np.ndarray]:
        logits = base + 1.6 * random.normal(size=(number, len(rates)))
        labels = random.random(logits.shape) < sigmoid(logits)
        return logits.astype(np.float32), labels.astype(np.int8)

    logits, labels = draw_texts(800)
    new_logits, new_labels = draw_texts(20_000)

    # The threshold that is best for each label by itself.
    separate = []
    for label_logits, label_targets in zip(logits.T, labels.T, strict=True):
        separate.append(best_f1_threshold(label_logits, label_targets))

    # The threshold that is best for all labels together.
    def micro_f1(threshold: float) -> float:
        return ClassCounts.of(logits >= threshold, labels).micro_f1

    common = max(np.linspace(-3, 1, 81), key=micro_f1)

    thresholds = fit_thresholds(logits, labels, RowGroups.single(800))

    with_fitted = ClassCounts.of(sigmoid(new_logits) >= thresholds, new_labels)
    with_separate = ClassCounts.of(new_logits >= np.array(separate), new_labels)
    with_common = ClassCounts.of(new_logits >= common, new_labels)
    assert with_fitted.micro_f1 > with_separate.micro_f1 + 0.005
    assert with_fitted.micro_f1 > with_common.micro_f1 - 0.02
    assert with_fitted.macro_f1 > with_common.macro_f1 + 0.05


@pytest.mark.parametrize("value", [0, 1])
def test_the_threshold_of_a_label_that_all_or_no_text_has_is_a_probability(value):
    margins, labels = margins_and_labels(200)
    labels[:, 0] = value
    logits = (margins * SCALES + SHIFTS).astype(np.float32)

    thresholds = fit_thresholds(logits, labels, RowGroups.single(200))

    assert ((thresholds >= 0) & (thresholds <= 1)).all()


def test_repeated_texts_do_not_choose_the_rule(monkeypatch):
    """All repetitions of a text are in one fold of the cross-validation."""
    margins, labels = margins_and_labels(40)
    repeated_margins = np.repeat(margins, 5, axis=0)
    repeated_labels = np.repeat(labels, 5, axis=0)
    texts = np.repeat(np.arange(40), 5)

    folds = []

    def recorded(split_groups: np.ndarray) -> list[np.ndarray]:
        folds.extend(split_into_folds(split_groups))
        return folds

    monkeypatch.setattr(thresholds_module, "split_into_folds", recorded)

    fit_thresholds(repeated_margins, repeated_labels, RowGroups(texts))

    sampled = texts[np.random.default_rng(0).permutation(200)]
    texts_in_folds = [len(set(sampled[fold])) for fold in folds]
    assert sum(texts_in_folds) == 40
