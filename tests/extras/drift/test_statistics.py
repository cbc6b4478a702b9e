"""The statistics of drift, on numbers whose distribution is known."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.extras.drift.comparison import (
    LEVEL,
    Change,
    Figure,
    cohens_h,
    compare,
    corrected,
    noticeable_difference,
    noticeable_w,
    smallest_h_of_class,
)
from encoder_cls.extras.drift.dates import NO_DAY, day_of, periods_of
from encoder_cls.extras.drift.expected_accuracy import SampledProbabilities, expected_accuracy
from encoder_cls.extras.drift.figures import Figures, independent


def figures_of(probabilities, labels) -> Figures:
    """The figures of texts of which the probabilities, (texts, classes), and labels are known."""
    predicted = probabilities.argmax(axis=1)
    number = len(labels)
    return Figures(
        num_predicted=np.bincount(predicted, minlength=probabilities.shape[1]),
        confidence=probabilities.max(axis=1).astype(np.float32),
        num_words=np.full(number, 5),
        unknown_words=np.zeros(number, dtype=np.int32),
        is_unfamiliar=np.zeros(number, dtype=bool),
        is_right=(predicted == labels).astype(np.int8),
        groups=np.arange(number),
    )


def calibrated(shares, number: int, *, seed: int):
    """Probabilities that are right at equal shares of two classes, and labels with these shares.

    A text is a number of a normal distribution, which is narrow for the second class.
    """
    random = np.random.default_rng(seed)
    labels = random.choice(2, size=number, p=shares)
    deviations = np.array([1.0, 0.2])
    values = random.normal(size=number) * deviations[labels]
    densities = np.exp(-0.5 * (values[:, None] / deviations) ** 2) / deviations
    return densities / densities.sum(axis=1, keepdims=True), labels


def test_the_expected_accuracy_allows_for_other_shares_of_classes():
    before, labels_before = calibrated([0.5, 0.5], 4000, seed=0)
    now, labels_now = calibrated([0.95, 0.05], 4000, seed=1)
    measured = (now.argmax(axis=1) == labels_now).mean()

    def expected_with(shifted):
        return expected_accuracy(
            figures_of(before, labels_before),
            figures_of(now, labels_now),
            mean_probabilities=before.mean(axis=0),
            shifted=shifted,
        )

    assert expected_with(None).accuracy - measured > 0.1
    corrected = expected_with(SampledProbabilities(np.arange(4000), now))
    low, high = corrected.interval
    assert low <= measured <= high
    assert high - low < 0.07


def test_the_interval_allows_for_shares_of_classes_that_are_estimates():
    """The accuracy is in it in 90 of 100 draws, and without their variance in 68."""
    num_within = 0
    for seed in range(30):
        before, labels_before = calibrated([0.5, 0.5], 1000, seed=2 * seed)
        now, labels_now = calibrated([0.95, 0.05], 100, seed=2 * seed + 1)
        low, high = expected_accuracy(
            figures_of(before, labels_before),
            figures_of(now, labels_now),
            mean_probabilities=before.mean(axis=0),
            shifted=SampledProbabilities(np.arange(100), now),
        ).interval
        num_within += low <= (now.argmax(axis=1) == labels_now).mean() <= high
    assert num_within >= 26


def test_the_expected_accuracy_is_that_of_the_held_out_texts_without_a_change():
    before = figures_of(*calibrated([0.5, 0.5], 2000, seed=2))
    # All probabilities are too high.
    before = Figures(**{**vars(before), "confidence": np.sqrt(before.confidence)})
    of_no_text = SampledProbabilities(np.zeros(0, dtype=np.int64), np.zeros((0, 2), np.float32))
    for shifted in (None, of_no_text):
        found = expected_accuracy(
            before, before, mean_probabilities=np.ones(2) / 2, shifted=shifted
        )
        assert found.accuracy == pytest.approx(before.is_right.mean())
        assert not found.is_corrected


def test_p_values_are_corrected_by_holm_kind_by_kind():
    """The tests of single classes do not make the others less significant."""
    p_values = {
        Figure.UNSURE: (0.02, 0.005, 0.015, 0.3),
        Figure.CLASSES: (0.01,),
        Figure.CLASS: (0.01, 0.01),
    }
    changes = []
    for figure, values in p_values.items():
        for value in values:
            change = Change(figure=figure, before=0, now=1, size=1, smallest=0.2, p_value=value)
            changes.append(change)

    first, second = corrected([changes[:2], changes[2:]])

    assert [change.figure for change in (*first, *second)] == [change.figure for change in changes]
    found = [change.p_value for change in (*first, *second)]
    assert found == pytest.approx([0.135, 0.06, 0.135, 0.9, 0.03, 0.06, 0.06])


def test_a_change_must_be_large_and_significant():
    before, labels = calibrated([0.5, 0.5], 40_000, seed=3)
    now, labels_now = calibrated([0.47, 0.53], 40_000, seed=4)
    (changes,) = corrected(
        [compare(figures_of(before, labels), figures_of(now, labels_now), ["a", "b"])]
    )
    shares = [change for change in changes if change.figure is Figure.CLASS]
    assert all(change.p_value < 0.01 for change in shares)
    assert not any(change.is_alarm for change in changes)


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.6), (0.1, 0.168), (0.01, 0.039)])
def test_the_sizes_of_an_alarm_are_as_documented(first, second):
    assert cohens_h(first, second) == pytest.approx(0.2, abs=0.01)


def test_a_class_that_is_nearly_gone_is_noticed_among_many():
    """Of 77 classes with 20 texts each, one has a single text later, and one has half of them."""
    before = figures_of(np.eye(77)[np.repeat(np.arange(77), 20)], np.zeros(77 * 20))
    counts = np.full(77, 20)
    counts[[3, 5]] = 1, 10
    now = figures_of(np.eye(77)[np.repeat(np.arange(77), counts)], np.zeros(counts.sum()))
    (changes,) = corrected([compare(before, now, [str(number) for number in range(77)])])
    assert [change.label for change in changes if change.is_alarm] == ["3"]


@pytest.mark.parametrize(
    ("share", "num_classes", "smallest"), [(0.5, 2, 0.2), (0.1, 77, 0.2), (0.01, 77, 0.114)]
)
def test_a_rare_class_needs_a_smaller_change(share, num_classes, smallest):
    assert smallest_h_of_class(share, num_classes) == pytest.approx(smallest, abs=0.001)


def test_many_classes_do_not_make_an_alarm_by_themselves():
    """Chance alone makes the shares of 800 classes differ."""
    random = np.random.default_rng(5)
    samples = []
    for number in (1000, 3000):
        probabilities = np.eye(800)[random.integers(800, size=number)]
        samples.append(figures_of(probabilities, np.zeros(number)))
    (changes,) = corrected([compare(*samples, [str(number) for number in range(800)])])
    assert changes[0].figure is Figure.CLASSES
    assert changes[0].size < 0.1
    assert not any(change.is_alarm for change in changes)


def test_groups_count_by_their_sizes():
    assert independent(np.arange(10)) == 10
    assert independent(np.zeros(10, dtype=int)) == 1
    assert independent(np.array([0, 0, 1, 1])) == 2


def test_what_few_texts_can_show_is_known():
    few = figures_of(*calibrated([0.5, 0.5], 30, seed=6))
    many = figures_of(*calibrated([0.5, 0.5], 100_000, seed=7))
    assert noticeable_difference(few, many) == pytest.approx(0.18, abs=0.005)
    assert noticeable_w(few, many) > 2 * noticeable_w(many, many)


def test_changes_of_all_classes_are_significant_from_the_size_that_is_named():
    """Of 100 classes, half become more frequent, and the others less."""
    names = [str(number) for number in range(100)]
    before = figures_of(np.eye(100)[np.repeat(np.arange(100), 20)], np.zeros(2000))
    significant = set()
    for change in range(10):
        counts = np.tile([20 + change, 20 - change], 50)
        now = figures_of(np.eye(100)[np.repeat(np.arange(100), counts)], np.zeros(2000))
        ((of_classes, *_),) = corrected([compare(before, now, names)])
        is_significant = of_classes.p_value <= LEVEL
        assert is_significant == (of_classes.size > noticeable_w(before, now))
        significant.add(is_significant)
    assert significant == {True, False}


@pytest.mark.parametrize(
    "written",
    [
        "2026-06-30",
        "2026-06-30T23:59:59+09:00",
        "20260630",
        "30.06.2026",
        "30.06.26",
        "30.06.2026 10:15",
    ],
)
def test_dates_are_read_as_they_are_written(written):
    days = np.array([day_of(written), day_of(""), day_of(None), day_of("2026-06-01")], np.int32)
    assert days[1] == days[2] == NO_DAY
    periods = periods_of(days)
    assert {name: members.tolist() for name, members in periods.items()} == {
        "2026-06-01": [False, False, False, True],
        "2026-06-29": [True, False, False, False],
    }
