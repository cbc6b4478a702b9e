"""Tests of the difference between two samples of texts, figure by figure.

An alarm needs a p-value and a size. Each figure has one test, of the independent texts; the
p-values of all are corrected by Holm's method: "A Simple Sequentially Rejective Multiple Test
Procedure" (1979). With many texts, small changes that nobody needs to act on are significant, so a
change must also be large: ten percentage points of a share near one half. In the units of each
test, that is

- of a share: Cohen's h, the difference of 2 asin(sqrt(share)), of at least 0.2, which Cohen calls a
  small effect ("Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 6). From 1%,
  it is reached at 3.9%; from 10%, at 17%;
- of the share of a class that has less than 4%: the h from there to a quarter of it, or back. A
  class below the average share must change as much as one of that share;
- of the shares of all classes together: Cohen's w of at least 0.2 (chapter 7);
- of a distribution: the largest difference of the shares of texts up to any value, which is the
  statistic of Kolmogorov and Smirnov, of at least 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from encoder_cls.extras.drift.figures import Figures, independent

# The level of all tests of a comparison together.
LEVEL = 0.05

SMALLEST_H = 0.2
SMALLEST_W = 0.2
SMALLEST_DISTANCE = 0.1

# The fraction of the held-out texts that counts as unsure: those with the lowest confidence.
UNSURE_FRACTION = 0.1

# A class counts by itself in the test of all classes if that many texts are expected in each of
# the two samples; other classes are joined. Where there are many classes, one is enough: Koehler
# and Larntz, "An Empirical Investigation of Goodness-of-Fit Statistics for Sparse Multinomials"
# (1980).
MIN_EXPECTED = 1.0


class Figure(StrEnum):
    """The figures that are compared, in the order in which they are shown."""

    CLASSES = "classes"
    CLASS = "class"
    UNFAMILIAR = "unfamiliar"
    UNSURE = "unsure"
    UNKNOWN_WORDS = "unknown_words"
    LENGTH = "length"
    CONFIDENCE = "confidence"
    ACCURACY = "accuracy"


SHARES_OF_CLASSES = (Figure.CLASSES, Figure.CLASS)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A figure of two samples, with the test of their difference.

    Attributes:
        label: the class whose share it is; else None.
        before: of the held-out texts, and `now` of the later ones, a share, a mean or a median;
            None for the shares of all classes together.
        size: in units in which `smallest` is the least that is a reason for an alarm.
    """

    figure: Figure
    label: str | None = None
    before: float | None
    now: float | None
    size: float
    smallest: float
    p_value: float

    @property
    def is_alarm(self) -> bool:
        """Whether it is both large and significant, by a corrected p-value."""
        return self.size >= self.smallest and self.p_value <= LEVEL


def compare(
    before: Figures, now: Figures, label_names: Sequence[str], *, is_multi_label: bool = False
) -> Iterator[Change]:
    """Compare figure by figure; p-values are not corrected."""
    size_before, size_now = before.num_independent, now.num_independent

    def change_of_share(
        figure: Figure, count_before: int, count_now: int, label: str | None = None
    ) -> Change:
        share_before, share_now = count_before / len(before), count_now / len(now)
        smallest = SMALLEST_H
        if label is not None:
            smallest = smallest_h_of_class(max(share_before, share_now), len(label_names))
        return Change(
            figure=figure,
            label=label,
            before=share_before,
            now=share_now,
            size=cohens_h(share_before, share_now),
            smallest=smallest,
            p_value=fisher_p_value(share_before, size_before, share_now, size_now),
        )

    def change_of_distribution(
        figure: Figure,
        values: tuple[NDArray[Any], NDArray[Any]],
        shown: tuple[float, float],
    ) -> Change:
        distance = float(stats.ks_2samp(*values, method="asymp").statistic)
        return Change(
            figure=figure,
            before=shown[0],
            now=shown[1],
            size=distance,
            smallest=SMALLEST_DISTANCE,
            p_value=kolmogorov_smirnov_p_value(distance, size_before, size_now),
        )

    # The test of all classes does not allow for texts that count in several. Of two classes, the
    # share of one says all.
    if len(label_names) > 2 and not is_multi_label:
        yield _change_of_classes(before, now)
    for number, label in enumerate(label_names):
        yield change_of_share(
            Figure.CLASS, int(before.num_predicted[number]), int(now.num_predicted[number]), label
        )

    if len(before.is_unfamiliar) and len(now.is_unfamiliar):
        yield change_of_share(
            Figure.UNFAMILIAR, int(before.is_unfamiliar.sum()), int(now.is_unfamiliar.sum())
        )
    unsure = np.quantile(before.confidence, UNSURE_FRACTION)
    yield change_of_share(
        Figure.UNSURE, int((before.confidence < unsure).sum()), int((now.confidence < unsure).sum())
    )

    yield change_of_distribution(
        Figure.UNKNOWN_WORDS,
        (before.unknown_shares, now.unknown_shares),
        (before.unknown_fraction, now.unknown_fraction),
    )
    yield change_of_distribution(
        Figure.LENGTH,
        (before.num_words, now.num_words),
        (float(np.median(before.num_words)), float(np.median(now.num_words))),
    )
    yield change_of_distribution(
        Figure.CONFIDENCE,
        (before.confidence, now.confidence),
        (float(before.confidence.mean()), float(now.confidence.mean())),
    )

    if now.is_labelled.any():
        num_labelled = independent(now.groups[now.is_labelled])
        yield Change(
            figure=Figure.ACCURACY,
            before=before.accuracy,
            now=now.accuracy,
            size=cohens_h(before.accuracy, now.accuracy),
            smallest=SMALLEST_H,
            p_value=fisher_p_value(before.accuracy, size_before, now.accuracy, num_labelled),
        )


def _change_of_classes(before: Figures, now: Figures) -> Change:
    """Pearson's test of homogeneity of the shares of all classes.

    Chance alone makes w larger, with more classes more so; the expected statistic is subtracted.
    """
    sizes = np.array([before.num_independent, now.num_independent])
    shares = np.stack([before.num_predicted / len(before), now.num_predicted / len(now)])
    counts = shares * sizes[:, None]

    expected = np.outer(sizes, counts.sum(axis=0) / sizes.sum())
    is_frequent = (expected >= MIN_EXPECTED).all(axis=0)
    joined = sizes - counts[:, is_frequent].sum(axis=1)
    table = np.column_stack([counts[:, is_frequent], np.maximum(joined, 0)])
    table = table[:, table.sum(axis=0) > 1e-9]

    w, p_value = 0.0, 1.0
    if table.shape[1] > 1:
        statistic, p_value, degrees, _ = stats.chi2_contingency(table, correction=False)
        excess = max(0.0, statistic - degrees)
        w = math.sqrt(excess * sizes.sum() / sizes.prod())
    return Change(
        figure=Figure.CLASSES,
        before=None,
        now=None,
        size=w,
        smallest=SMALLEST_W,
        p_value=float(p_value),
    )


def cohens_h(first: float, second: float) -> float:
    """The size of the difference of two shares."""
    return abs(2 * math.asin(math.sqrt(first)) - 2 * math.asin(math.sqrt(second)))


def smallest_h_of_class(larger_share: float, num_classes: int) -> float:
    """The smallest h that is a reason for an alarm, by the larger one of two shares of a class.

    From a small share to a quarter of it, h is the root of the share.
    """
    return min(SMALLEST_H, math.sqrt(max(larger_share, 1 / num_classes)))


def fisher_p_value(first: float, num_first: float, second: float, num_second: float) -> float:
    """Fisher's exact test of two shares of independent texts."""
    table = []
    for share, number in ((first, num_first), (second, num_second)):
        with_it = round(share * number)
        table.append([with_it, max(0, round(number) - with_it)])
    return float(stats.fisher_exact(table).pvalue)


def kolmogorov_smirnov_p_value(distance: float, num_first: float, num_second: float) -> float:
    """The p-value of a distance between two distributions of independent texts."""
    number = num_first * num_second / (num_first + num_second)
    return float(stats.kstwo.sf(distance, max(1, round(number))))


def corrected(comparisons: Sequence[Iterable[Change]]) -> list[list[Change]]:
    """Correct all p-values for the number of tests in all comparisons.

    The tests of single classes, those of all classes and all others have equal parts of the level,
    so that many tests of one kind do not hide what else has changed.
    """
    changes_of = [list(changes) for changes in comparisons]
    every = [change for changes in changes_of for change in changes]
    p_values = np.array([change.p_value for change in every])
    kinds = np.array(
        [change.figure if change.figure in SHARES_OF_CLASSES else "others" for change in every]
    )
    distinct = np.unique(kinds)
    for kind in distinct:
        chosen = kinds == kind
        p_values[chosen] = np.minimum(1, len(distinct) * holm(p_values[chosen]))

    remaining = iter(p_values.tolist())
    return [
        [replace(change, p_value=next(remaining)) for change in changes] for changes in changes_of
    ]


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correct p-values, (tests,), by Holm's method."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    in_order = np.maximum.accumulate(p_values[order] * factors)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1, in_order)
    return adjusted


def noticeable_difference(before: Figures, now: Figures) -> float:
    """The smallest difference of a share near one half that a test would notice."""
    variance = 0.25 * (1 / before.num_independent + 1 / now.num_independent)
    return min(1.0, float(stats.norm.ppf(1 - LEVEL / 2)) * math.sqrt(variance))


def noticeable_w(before: Figures, now: Figures) -> float:
    """The smallest w that a test of all classes together would notice."""
    degrees = len(before.num_predicted) - 1
    # This test has a third of the level.
    excess = float(stats.chi2.ppf(1 - LEVEL / 3, degrees)) - degrees
    return math.sqrt(excess * (1 / before.num_independent + 1 / now.num_independent))
