"""C and the calibration are chosen on held-out texts, or by cross-validation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.syllables import Reader, corpus, fit, options_for

from encoder_cls.linear_training import model_selection
from encoder_cls.linear_training.calibration import Calibration
from encoder_cls.linear_training.cost import expect_work, reporting_progress, usual_fits
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts
from encoder_cls.linear_training.model_selection import fit_calibrated, fit_linear
from encoder_cls.metrics.log_loss import cross_entropy, one_hot
from encoder_cls.metrics.logits import softmax
from encoder_cls.metrics.tasks import SINGLE_LABEL


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_c_with_the_lowest_loss_on_held_out_texts_is_chosen(monkeypatch, num_classes):
    """A high C is best if the labels are correct, and a low C if many of them are wrong."""
    texts, labels = corpus(num_classes)
    random = np.random.default_rng(0)
    is_noisy = random.random(len(labels)) < 0.2 * num_classes
    noise = random.integers(0, num_classes, len(labels))
    noisy_labels = np.where(is_noisy, noise, labels)
    read = Reader(texts)

    def weights(labels: NDArray[np.int64], *c_values: float) -> list[list[float]]:
        monkeypatch.setitem(model_selection.C_VALUES, SINGLE_LABEL, c_values)
        return fit(read, texts, labels, char_ngrams=True).weights.values.tolist()

    with_high = weights(labels, 10.0)
    assert weights(labels, 1e-4, 10.0) == with_high
    assert weights(labels, 1e-4) != with_high

    monkeypatch.setattr(model_selection, "MIN_GAIN", 0)
    with_low = weights(noisy_labels, 0.03)
    assert weights(noisy_labels, 0.03, 10.0) == with_low
    assert weights(noisy_labels, 0.03, 10.0, 100.0) == with_low
    assert weights(noisy_labels, 10.0) != with_low


class HeldOut:
    """Texts of the corpus to fit to, and thirty others that are held out."""

    def __init__(self) -> None:
        texts, labels = corpus(3)
        self.texts = Reader(texts)(texts)
        self.held_out = LabelledTexts(
            texts=self.texts[:30], labels=labels[:30], split_groups=np.arange(30)
        )
        self.counted = CountedTexts.of(self.texts[30:], labels[30:], options_for(3))

    def fit(self, **options: Any) -> tuple[list[list[float]], Calibration]:
        """Fit to the other texts, and return the logits of all texts and the calibration."""
        linear, calibration = fit_linear(self.counted, **options)
        return linear.logits(self.texts).tolist(), calibration


def test_with_too_few_held_out_texts_c_is_chosen_by_cross_validation(monkeypatch):
    data = HeldOut()
    monkeypatch.setitem(model_selection.MIN_HELD_OUT, SINGLE_LABEL, 31)
    first_models = []

    logits, _ = data.fit(held_out=data.held_out, on_first=first_models.append)

    by_folds, _ = data.fit()
    assert logits == by_folds
    assert first_models == []


def test_c_is_chosen_on_enough_held_out_texts(monkeypatch):
    """A first model comes early, and the chosen calibration can be used again."""
    data = HeldOut()
    monkeypatch.setitem(model_selection.C_VALUES, SINGLE_LABEL, (1e-4, 0.01, 2.0))
    monkeypatch.setitem(model_selection.MIN_HELD_OUT, SINGLE_LABEL, 30)
    first_models = []

    logits, calibration = data.fit(held_out=data.held_out, on_first=first_models.append)

    by_folds, _ = data.fit()
    assert logits != by_folds
    assert calibration.svm_c == 2.0
    (first_model,) = first_models
    assert first_model.logits(data.texts).tolist() != logits

    again = fit_calibrated(data.counted, calibration)
    assert again.logits(data.texts).tolist() == logits


@pytest.mark.parametrize("enough", [30, 31])
@pytest.mark.parametrize("c_values", [(1e-4, 0.01, 2.0), (0.01, 0.5, 1.0, 2.0)])
def test_the_progress_of_a_fit_rises_to_its_end(monkeypatch, enough, c_values):
    """C is chosen on held-out texts or in folds, and among few or many values."""
    data = HeldOut()
    num_texts = len(data.counted)
    monkeypatch.setitem(model_selection.C_VALUES, SINGLE_LABEL, c_values)
    monkeypatch.setitem(model_selection.MIN_HELD_OUT, SINGLE_LABEL, enough)
    shares: list[float] = []

    with reporting_progress(shares.append):
        num_fits = usual_fits(num_texts, len(data.held_out), SINGLE_LABEL)
        expect_work(num_fits * data.counted.num_classifiers * num_texts)
        data.fit(held_out=data.held_out)

    assert len(set(shares)) >= 9
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] == pytest.approx(1)


def test_each_further_value_of_c_is_work_that_was_not_expected(monkeypatch):
    """Where the loss keeps falling, the share of the work falls a little, and still ends at 1."""
    monkeypatch.setattr(model_selection, "MIN_GAIN", -math.inf)
    shares: list[float] = []

    data = HeldOut()
    num_texts = len(data.counted)

    with reporting_progress(shares.append):
        num_fits = usual_fits(num_texts, 0, SINGLE_LABEL)
        expect_work(num_fits * data.counted.num_classifiers * num_texts)
        data.fit()

    assert shares != sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_a_quick_model_is_calibrated_on_any_number_of_held_out_texts():
    """A temperature of 1 is better than a half or two."""
    data = HeldOut()
    texts, labels = data.held_out.texts, data.held_out.labels

    quick, _ = fit_linear(data.counted, held_out=data.held_out, is_quick=True)

    logits = quick.logits(texts)
    assert (logits.argmax(axis=1) == labels).mean() > 0.6
    targets = one_hot(labels, 3)
    loss = cross_entropy(softmax(logits), targets)
    assert loss < cross_entropy(softmax(logits * 0.5), targets)
    assert loss < cross_entropy(softmax(logits * 2), targets)


def test_weights_count_in_cross_validation_and_in_the_fit():
    """Of contradicting labels, the heavier one is learned."""
    texts, labels = corpus(3)
    read = Reader(texts)
    both_texts = read([*texts, *texts])
    both_labels = np.concatenate([labels, (labels + 1) % 3])
    weights = np.repeat([1.8, 0.2], len(labels)).astype(np.float32)
    split_groups = np.tile(np.arange(len(labels)), 2)

    counted = CountedTexts.of(both_texts, both_labels, options_for(3), weights)
    linear, calibration = fit_linear(counted, split_groups=split_groups)

    is_right = linear.logits(read(texts)).argmax(axis=1) == labels
    assert is_right.mean() > 0.8
    assert len(calibration.logits) == len(both_labels)
