"""Intervals: those of other libraries and of known cases, and that they hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from encoder_cls.evaluation import scores as intervals
from encoder_cls.evaluation.scores import macro_f1_interval, paired_interval, wilson_interval


@pytest.mark.parametrize(("right", "total"), [(0, 1), (0, 10), (10, 10), (7, 9), (352, 374), (1, 100_000)])
def test_the_interval_of_a_fraction_is_scipy_s(right, total):
    """Wilson's; the fraction is always within."""
    low, high = wilson_interval(right, total)
    assert (low, high) == pytest.approx(tuple(binomtest(right, total).proportion_ci(method="wilson")), abs=1e-6)
    assert 0 <= low <= right / total <= high <= 1


def test_the_interval_of_a_difference_by_hand():
    """Agresti and Min: half a text more in each of the four cells."""
    low, high = paired_interval(9, 3, 98)
    center, spread = 0.06, 1.959964 * np.sqrt(13 - 36 / 100) / 100
    assert (low, high) == pytest.approx((center - spread, center + spread))
    assert paired_interval(3, 9, 98) == pytest.approx((-high, -low))
    assert paired_interval(0, 0, 10**6) == pytest.approx((0, 0), abs=1e-5)


@pytest.mark.parametrize(("first", "second", "total"), [(0.05, 0.03, 300), (0.02, 0.02, 100), (0.1, 0.05, 1000)])
def test_the_interval_of_a_difference_holds_the_true_one_nineteen_times_in_twenty(first, second, total):
    """At least, of 2,000 samples, but for chance."""
    draws = np.random.default_rng(0).multinomial(total, [first, second, 1 - first - second], size=2000)
    found = np.array([paired_interval(int(one), int(other), total) for one, other, _ in draws])
    holds = (found[:, 0] <= first - second) & (first - second <= found[:, 1])
    assert holds.mean() > 0.94


def example(texts: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    labels = random.integers(0, classes, texts)
    return labels, np.where(random.random(texts) < 0.8, labels, random.integers(0, classes + 1, texts))


@pytest.mark.parametrize(("texts", "classes"), [(40, 3), (300, 11)])
def test_the_interval_of_macro_f1_is_that_of_texts_drawn_anew(texts, classes):
    """As a plain bootstrap of rows, scored by scikit-learn, within what 1,000 samples leave to chance."""
    labels, predictions = example(texts, classes)
    draws = np.random.default_rng(2).integers(0, texts, (400, texts))
    scores = [f1_score(labels[rows], predictions[rows], average="macro", zero_division=0) for rows in draws]
    expected = np.quantile(scores, [0.025, 0.975])
    assert macro_f1_interval(labels, predictions) == pytest.approx(expected, abs=0.15 * (expected[1] - expected[0]))


def test_the_interval_of_macro_f1_is_the_same_each_time_and_no_less_in_pieces(monkeypatch):
    """A report that is made again is the same; of many pairs of classes some samples are drawn at a time."""
    labels, predictions = example(300, 5)
    whole = macro_f1_interval(labels, predictions)
    assert macro_f1_interval(labels, predictions) == whole
    monkeypatch.setattr(intervals, "DRAWS_AT_ONCE", 70)
    assert macro_f1_interval(labels, predictions) == whole


def test_the_macro_f1_of_answers_that_are_all_right_is_certain():
    """And of those that are all wrong."""
    labels = np.arange(12) % 3
    assert macro_f1_interval(labels, labels) == (1, 1)
    assert macro_f1_interval(labels, labels + 3) == (0, 0)
