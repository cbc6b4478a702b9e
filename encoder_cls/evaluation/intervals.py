"""Answers and labels in, 95% confidence intervals of scores out: how far those of as many other texts may lie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Interval = tuple[float, float]
"""The lowest and the highest value."""

QUANTILE = 1.959964  # of the normal distribution, with 2.5% above it
SAMPLES, FEWEST_SAMPLES = 1000, 100  # of the bootstrap
MOST_DRAWS = 5_000_000  # samples times pairs of label and answer, a second: of more pairs there are fewer samples
DRAWS_AT_ONCE = 1 << 21


def wilson_interval(right: int, total: int) -> Interval:
    """The interval of a fraction, `right` of `total`.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927),
    https://doi.org/10.1080/01621459.1927.10502953: it holds for few texts, too, and near 0 and 1.
    """
    fraction, square = right / total, QUANTILE**2
    center = (fraction + square / (2 * total)) / (1 + square / total)
    spread = math.sqrt(fraction * (1 - fraction) / total + square / (4 * total**2)) * QUANTILE / (1 + square / total)
    # The fraction itself is within: at 0 and at 1 the last digit would deny that.
    return min(max(0.0, center - spread), fraction), max(min(1.0, center + spread), fraction)


def paired_interval(only_first: int, only_second: int, total: int) -> Interval:
    """The interval of the difference of two accuracies on the same texts.

    Agresti and Min, "Simple Improved Confidence Intervals for Comparing Matched Proportions" (2005),
    https://doi.org/10.1002/sim.1781: texts that both get right, or both wrong, say nothing of which is better.

    Args:
        only_first: texts that the first alone gets right.
        only_second: texts that the second alone gets right.
        total: all texts.
    """
    first, second, texts = only_first + 0.5, only_second + 0.5, total + 2
    center = (first - second) / texts
    spread = QUANTILE * math.sqrt(first + second - (first - second) ** 2 / texts) / texts
    return max(-1.0, center - spread), min(1.0, center + spread)


def macro_f1_interval(labels: NDArray[np.int64], predictions: NDArray[np.integer[Any]]) -> Interval:
    """The interval of macro-F1, by a percentile bootstrap: that of as many texts drawn again and again from these.

    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. The draws are the same for the same
    labels (texts,) and predictions (texts,).
    """
    pairs, counts = np.unique(np.stack([labels, predictions]), axis=1, return_counts=True)
    return _percentiles([_macro_f1(pairs, drawn) for drawn in _samples(counts)])


def paired_macro_f1_interval(
    labels: NDArray[np.int64], first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]
) -> Interval:
    """The interval of the macro-F1 of the first predictions less that of the second, all (texts,).

    As `macro_f1_interval`; each text is drawn with both predictions, so what both get wrong says nothing.
    """
    triples, counts = np.unique(np.stack([labels, first, second]), axis=1, return_counts=True)
    found = [np.unique(triples[[0, row]], axis=1, return_inverse=True) for row in (1, 2)]
    (of_first, *_), (of_second, *_) = found
    to_first, to_second = (
        sp.csr_matrix((np.ones(len(counts)), (np.arange(len(counts)), inverse.reshape(-1)))) for _, inverse in found
    )
    return _percentiles(
        [_macro_f1(of_first, drawn @ to_first) - _macro_f1(of_second, drawn @ to_second) for drawn in _samples(counts)]
    )


def _samples(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """How often what is there so often is drawn, where as much is drawn as there is, in parts of (samples, counts)."""
    random = np.random.default_rng(0)
    samples = min(SAMPLES, max(FEWEST_SAMPLES, MOST_DRAWS // len(counts)))
    at_once = max(1, DRAWS_AT_ONCE // len(counts))
    for start in range(0, samples, at_once):
        yield random.multinomial(counts.sum(), counts / counts.sum(), size=min(at_once, samples - start))


def _percentiles(scores: list[NDArray[np.float64]]) -> Interval:
    low, high = np.quantile(np.concatenate(scores), [0.025, 0.975])
    return float(low), float(high)


def _macro_f1(pairs: NDArray[np.int64], counts: NDArray[Any]) -> NDArray[np.float64]:
    """The macro-F1 of each sample: the mean over the classes that occur in it as label or prediction.

    Args:
        pairs: each label with each prediction that it was given, (2, pairs), in the order of the labels.
        counts: how often each is in each sample, (samples, pairs).
    """
    classes = np.unique(pairs)
    of_labels, of_predictions, right = (np.zeros((len(counts), len(classes))) for _ in range(3))
    for sums, numbers in zip((of_labels, of_predictions), pairs, strict=True):
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        sums[:, np.searchsorted(classes, found)] = np.add.reduceat(counts[:, order], starts, axis=1)
    is_right = pairs[0] == pairs[1]
    right[:, np.searchsorted(classes, pairs[0, is_right])] = counts[:, is_right]
    occurrences = of_labels + of_predictions
    f1 = 2 * right / np.maximum(1, occurrences)
    scores: NDArray[np.float64] = f1.sum(axis=1) / (occurrences > 0).sum(axis=1)
    return scores
