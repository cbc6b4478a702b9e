"""Confidence intervals: against other libraries, plain bootstraps, and cases known by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from encoder_cls.metrics.intervals import (
    accuracy_difference_interval,
    accuracy_interval,
    macro_f1_interval,
    mcnemar_p_value,
    micro_f1_difference,
    micro_f1_interval,
    paired_interval,
    wilson_interval,
)
from encoder_cls.metrics.precision_recall import ClassCounts
from encoder_cls.metrics.row_groups import RowGroups


@pytest.mark.parametrize(
    ("num_right", "num_texts"),
    [(0, 1), (0, 10), (10, 10), (7, 9), (352, 374), (1, 100_000)],
)
def test_the_interval_of_an_accuracy_is_the_one_of_scipy(num_right, num_texts):
    """Both use Wilson's method. The accuracy itself is always inside the interval."""
    low, high = wilson_interval(num_right, num_texts)

    expected = binomtest(num_right, num_texts).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert 0 <= low <= num_right / num_texts <= high <= 1


def test_the_interval_of_a_difference_by_hand():
    """Agresti and Min add half a text to each of the four cells."""
    low, high = paired_interval(9, 3, 98)

    center = 6 / 100
    half_width = 1.959964 * np.sqrt(13 - 36 / 100) / 100
    assert (low, high) == pytest.approx((center - half_width, center + half_width))

    # The reverse difference has the mirrored interval. Equal predictions for many texts have a
    # narrow one.
    assert paired_interval(3, 9, 98) == pytest.approx((-high, -low))
    assert paired_interval(0, 0, 10**6) == pytest.approx((0, 0), abs=1e-5)


def example(num_texts: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions, of which about 80% are correct; one class is never a label."""
    random = np.random.default_rng(1)
    labels = random.integers(0, num_classes, num_texts)
    is_right = random.random(num_texts) < 0.8
    other_classes = random.integers(0, num_classes + 1, num_texts)
    return labels, np.where(is_right, labels, other_classes)


def test_the_interval_of_macro_f1_agrees_with_a_plain_bootstrap():
    """It agrees up to the chance of few samples, and is the same each time."""
    labels, predictions = example(2000, 11)

    found = macro_f1_interval(labels, predictions, RowGroups.single(len(labels)))

    # Draw rows with replacement, and score them by scikit-learn.
    scores = []
    for rows in np.random.default_rng(2).integers(0, 2000, (200, 2000)):
        score = f1_score(labels[rows], predictions[rows], average="macro", zero_division=0)
        scores.append(score)
    low, high = np.quantile(scores, [0.025, 0.975])
    twice = 2 * f1_score(labels, predictions, average="macro", zero_division=0)
    assert found == pytest.approx((twice - high, twice - low), abs=0.2 * (high - low))

    assert macro_f1_interval(labels, predictions, RowGroups.single(len(labels))) == found


def test_the_interval_of_a_perfect_macro_f1_is_about_that_of_the_accuracy():
    labels, _ = example(300, 11)
    single = RowGroups.single(len(labels))

    low, high = macro_f1_interval(labels, labels, single)

    expected, _ = accuracy_interval(labels == labels, single)
    assert low == pytest.approx(expected, abs=0.01)
    assert high == 1


def test_macro_f1_of_few_texts_a_class_has_no_interval():
    """Copies of a text count once, in each task; and a difference has none, too."""
    labels = np.arange(40) % 10
    several = np.eye(10, dtype=bool)[labels]
    copies = np.repeat(labels, 5)

    assert macro_f1_interval(labels, labels, RowGroups.single(40)) is None
    assert macro_f1_interval(labels, labels, RowGroups.single(40), labels) is None
    assert macro_f1_interval(several, several, RowGroups.single(40)) is None
    assert macro_f1_interval(copies, copies, RowGroups(np.repeat(np.arange(40), 5))) is None
    assert macro_f1_interval(copies, copies, RowGroups.single(200)) is not None


@pytest.mark.parametrize("num_classes", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_the_interval_of_macro_f1_contains_the_true_value(num_classes):
    """In about 95% of samples, at few texts of each class, where the score itself is too low."""
    random = np.random.default_rng(0)
    accuracies = random.uniform(0.75, 1, num_classes)

    def sample(num_texts: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(0, num_classes, num_texts)
        is_right = random.random(num_texts) < accuracies[labels]
        return labels, np.where(is_right, labels, random.integers(0, num_classes, num_texts))

    labels, predictions = sample(200_000)
    true = ClassCounts.of(predictions, labels).macro_f1
    num_covered = 0
    for _ in range(40):
        low, high = macro_f1_interval(*sample(8 * num_classes), RowGroups.single(8 * num_classes))
        num_covered += low <= true <= high

    assert num_covered >= 35


def test_the_interval_of_micro_f1_agrees_with_a_plain_bootstrap():
    """The difference of equal predictions is 0."""
    random = np.random.default_rng(0)
    labels = (random.random((300, 5)) < [0.4, 0.2, 0.05, 0, 0.02]).astype(np.int8)
    predictions = labels + random.normal(size=(300, 5)) > 0.8

    # Draw rows with replacement.
    scores = []
    for _ in range(300):
        rows = random.integers(300, size=300)
        scores.append(ClassCounts.of(predictions[rows], labels[rows]).micro_f1)

    expected = np.quantile(scores, [0.025, 0.975])
    assert micro_f1_interval(labels, predictions, RowGroups.single(len(labels))) == pytest.approx(
        expected, abs=0.01
    )
    groups = RowGroups.single(len(labels))
    assert micro_f1_difference(labels, predictions, predictions, groups) == ((0, 0), 1)


def test_the_interval_of_a_difference_is_narrower_than_that_of_each_score():
    """Predictions that are mostly equal have the same mistakes, which cancel."""
    labels, first = example(400, 4)
    is_corrected = np.random.default_rng(1).random(400) < 0.03
    second = np.where(is_corrected, labels, first)

    low, high = macro_f1_interval(labels, second, RowGroups.single(len(labels)), first)

    first_low, first_high = macro_f1_interval(labels, first, RowGroups.single(len(labels)))
    assert high - low < 0.75 * (first_high - first_low)

    # Equal predictions have a difference of about 0, and the reverse difference is mirrored.
    equal_low, equal_high = macro_f1_interval(labels, first, RowGroups.single(len(labels)), first)
    assert -0.01 < equal_low < 0 < equal_high < 0.01
    assert macro_f1_interval(labels, first, RowGroups.single(len(labels)), second) == pytest.approx(
        (-high, -low), abs=0.003
    )


def several_labels(num_texts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of texts, and two predictions of the same quality with independent mistakes."""
    random = np.random.default_rng(2)
    labels = random.random((num_texts, 4)) < [0.5, 0.3, 0.1, 0.0]
    first = labels ^ (random.random(labels.shape) < 0.1)
    second = labels ^ (random.random(labels.shape) < 0.1)
    return labels, first, second


def test_the_interval_of_macro_f1_of_several_labels_agrees_with_a_plain_bootstrap():
    """The mean is taken over the labels that a text of the sample has."""
    labels, first, second = several_labels(300)
    low, high = macro_f1_interval(labels, first, RowGroups.single(len(labels)), second)

    random = np.random.default_rng(0)
    differences = []
    for _ in range(300):
        sample = random.integers(0, 300, 300)
        first_f1 = ClassCounts.of(first[sample], labels[sample]).macro_f1
        second_f1 = ClassCounts.of(second[sample], labels[sample]).macro_f1
        differences.append(first_f1 - second_f1)

    expected = np.quantile(differences, [0.025, 0.975])
    assert (low, high) == pytest.approx(tuple(expected), abs=0.015)


def test_the_p_value_of_micro_f1_agrees_with_all_exchanges():
    """Of ten texts, there are 1,024 ways to exchange the predictions of some."""
    labels, first, second = several_labels(10)
    first_f1 = ClassCounts.of(first, labels).micro_f1
    second_f1 = ClassCounts.of(second, labels).micro_f1
    observed = abs(first_f1 - second_f1)

    # Exchange the predictions of the texts in each of all possible sets of texts.
    num_as_large = 0
    for exchanged in product([False, True], repeat=10):
        is_exchanged = np.array(exchanged)[:, None]
        first_f1 = ClassCounts.of(np.where(is_exchanged, second, first), labels).micro_f1
        second_f1 = ClassCounts.of(np.where(is_exchanged, first, second), labels).micro_f1
        if abs(first_f1 - second_f1) >= observed - 1e-12:
            num_as_large += 1

    assert observed > 0
    expected = num_as_large / 2**10
    _, p_value = micro_f1_difference(labels, first, second, RowGroups.single(len(labels)))
    assert p_value == pytest.approx(expected, abs=0.02)


def test_the_p_value_of_micro_f1_is_small_only_for_different_classifiers():
    labels, first, second = several_labels(400)
    worse = first ^ (np.random.default_rng(3).random(labels.shape) < 0.1)
    groups = RowGroups.single(len(labels))

    (low, high), p_value = micro_f1_difference(labels, first, second, groups)
    assert p_value > 0.05
    assert low <= 0 <= high
    (low, _), p_value = micro_f1_difference(labels, first, worse, groups)
    assert p_value < 0.001
    assert low > 0


def test_copies_of_texts_do_not_narrow_an_interval():
    """Each text twenty times says no more than each text once."""
    random = np.random.default_rng(3)
    groups = RowGroups(np.repeat(np.arange(60), 20))
    labels, first, second = random.integers(0, 3, (3, 60))
    first[:40] = labels[:40]
    several, once, other = random.random((3, 60, 4)) < 0.4

    def widths(copies: int, groups: RowGroups) -> list[float]:
        y, a, b, has, gets, gets_other = (
            np.repeat(values, copies, axis=0)
            for values in (labels, first, second, several, once, other)
        )
        intervals = [
            accuracy_interval(a == y, groups),
            accuracy_difference_interval(a == y, b == y, groups),
            macro_f1_interval(y, a, groups),
            macro_f1_interval(y, a, groups, b),
            micro_f1_interval(has, gets, groups),
            micro_f1_difference(has, gets, gets_other, groups)[0],
            macro_f1_interval(has, gets, groups),
        ]
        return [high - low for low, high in intervals]

    of_copies = widths(20, groups)
    of_single_texts = widths(1, RowGroups.single(60))
    assert of_copies == pytest.approx(of_single_texts, rel=0.15)
    assert min(np.divide(of_copies, of_single_texts)) > 0.95


def test_copies_of_texts_leave_the_tests_as_they_are():
    random = np.random.default_rng(4)
    first, second = random.random((2, 50)) < [[0.9], [0.6]]
    once = mcnemar_p_value(first, second, RowGroups.single(50))
    copies = RowGroups(np.repeat(np.arange(50), 7))
    assert mcnemar_p_value(np.repeat(first, 7), np.repeat(second, 7), copies) == once

    # In groups of unequal sizes, the larger differences weigh more, so no fewer groups decide.
    uneven = np.array([9, 9, 1, 1, 1, 1])
    groups = RowGroups(np.repeat(np.arange(6), uneven))
    better = np.ones(22, dtype=bool)
    assert mcnemar_p_value(better, ~better, groups) == pytest.approx(2 / 2**6, abs=0.01)


def test_one_text_shows_no_difference_of_micro_f1():
    """A bootstrap of one text has a single sample, so its interval would be a point."""
    labels = np.array([[1, 0]])
    right = labels > 0

    interval, _ = micro_f1_difference(labels, right, ~right, RowGroups.single(1))
    assert interval == (0, 1)
