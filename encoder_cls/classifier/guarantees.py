"""Guaranteed precision and coverage, measured on held-out texts.

A precision is guaranteed by fixed-sequence testing (Angelopoulos et al., "Learn then Test", 2021,
https://arxiv.org/abs/2110.01052, algorithm 1): thresholds are tested from the highest until one
fails the exact bound of a binomial proportion (Clopper and Pearson, 1934). It holds for nine of ten
models.

A coverage is guaranteed by split conformal prediction (Angelopoulos and Bates, 2021,
https://arxiv.org/abs/2107.07511, section 1), over all texts and models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The probability that a guaranteed precision holds.
CONFIDENCE = 0.9

# Thresholds are probabilities, independent of the data: 0, and then equal steps of the log odds.
LOWEST_LOG_ODDS = -12.0
HIGHEST_LOG_ODDS = 9.0
STEP = 0.1
_LOG_ODDS = np.arange(LOWEST_LOG_ODDS, HIGHEST_LOG_ODDS + STEP / 2, STEP)
THRESHOLDS = np.concatenate([[0.0], 1 / (1 + np.exp(-_LOG_ODDS))])

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """Counts of held-out texts at each of the `THRESHOLDS`, (thresholds,); none increases.

    Attributes:
        predictions: texts whose most probable class has at least this probability.
        right: those of them whose label it is.
        covered: texts whose label has at least this probability, even if another class has more.
    """

    predictions: Counts
    right: Counts
    covered: Counts

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> Guarantees:
        """Count held-out texts.

        Args:
            probabilities: (texts, classes).
            labels: class numbers, (texts,), which may lie beyond the classes.
        """
        confidence = probabilities.max(axis=1)
        is_right = probabilities.argmax(axis=1) == labels

        is_known = labels < probabilities.shape[1]
        label_probabilities = probabilities[is_known, labels[is_known]]

        return cls(
            predictions=counts_from(THRESHOLDS, confidence),
            right=counts_from(THRESHOLDS, confidence[is_right]),
            covered=counts_from(THRESHOLDS, label_probabilities),
        )

    @property
    def num_texts(self) -> int:
        """The number of held-out texts."""
        return int(self.predictions[0])

    def precision_threshold(self, precision: float) -> float | None:
        """The lowest probability from which a precision is guaranteed, if any."""
        if precision <= 0:
            # Any predictions have it.
            return 0.0

        # Each start has its own sequence of tests; they share the error.
        starts = sequence_starts(self.num_texts, precision)
        lowest = len(THRESHOLDS)
        for start in starts:
            error = (1 - CONFIDENCE) / len(starts)
            thresholds_from_start = np.flatnonzero(self.predictions >= start)[::-1]
            for index in thresholds_from_start:
                if not self._has_precision(index, precision, error):
                    break
                lowest = min(lowest, index)

        if lowest == len(THRESHOLDS):
            return None
        return float(THRESHOLDS[lowest])

    def coverage_threshold(self, coverage: float) -> float | None:
        """The probability from which a class is in a text's set, for a coverage, if any.

        Of n held-out texts, the labels of (n + 1) * coverage, rounded up, have at least this
        probability.
        """
        # 0.9 * 10 is 9, whatever its last digits.
        wanted = math.ceil(round((self.num_texts + 1) * coverage, 9))
        (fitting,) = np.nonzero(self.covered >= wanted)
        if not len(fitting):
            return None
        return float(THRESHOLDS[fitting[-1]])

    @cached_property
    def highest_precision(self) -> float:
        """The highest precision that can be guaranteed, in thousandths; 0 if none."""
        for thousandths in range(999, 0, -1):
            precision = thousandths / 1000
            if self.precision_threshold(precision) is not None:
                return precision
        return 0.0

    @property
    def highest_coverage(self) -> float:
        """The highest coverage that can be guaranteed, in thousandths."""
        return math.floor(1000 * int(self.covered[0]) / (self.num_texts + 1)) / 1000

    def _has_precision(self, index: int, precision: float, error: float) -> bool:
        """Whether the predictions from a threshold have a precision, up to a probability of error.

        Clopper and Pearson's lower bound is at least the precision if so many correct predictions
        are as improbable as the error, where each is correct with the probability `precision`.
        """
        right = int(self.right[index])
        predictions = int(self.predictions[index])
        if right <= predictions * precision:
            return False
        return self._tail(right, predictions, precision) <= error

    def _tail(self, right: int, predictions: int, precision: float) -> float:
        """The probability of at least so many correct predictions, by a binomial distribution."""
        k = np.arange(right, predictions + 1)
        log_factorials = self._log_factorials
        log_ways = log_factorials[predictions] - log_factorials[k] - log_factorials[predictions - k]
        log_probabilities = (
            log_ways + k * math.log(precision) + (predictions - k) * math.log1p(-precision)
        )
        return float(np.exp(log_probabilities).sum())

    @cached_property
    def _log_factorials(self) -> NDArray[np.float64]:
        """ln(n!) of n = 0, 1, ..., (texts + 1,)."""
        return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.num_texts + 1)))])

    # --- In a model folder ------------------------------------------------------------------------

    def to_json(self) -> dict[str, list[int]]:
        """The values for a model folder."""
        return {
            "predictions": self.predictions.tolist(),
            "right": self.right.tolist(),
            "covered": self.covered.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Guarantees:
        """Read the values of a model folder, which may come from a stranger.

        Raises:
            ValueError: no texts have these counts.
        """
        predictions = _counts_of(values, "predictions")
        right = _counts_of(values, "right")
        covered = _counts_of(values, "covered")

        if len(values) > 3:
            raise ValueError("guarantees: unknown keys (expected predictions, right and covered)")
        if predictions[0] < 1:
            raise ValueError("guarantees.predictions: no text (expected at least one)")
        if covered[0] > predictions[0]:
            raise ValueError("guarantees.covered: more texts than there are")
        if (right > predictions).any():
            raise ValueError("guarantees.right: more texts than guarantees.predictions")
        if (right > covered).any():
            raise ValueError("guarantees.right: more texts than guarantees.covered")
        return cls(predictions=predictions, right=right, covered=covered)


def _counts_of(values: Mapping[str, Any], name: str) -> Counts:
    """The counts of one name, checked by themselves."""
    counts = np.array(values[name])
    if counts.shape != THRESHOLDS.shape or counts.dtype != np.int64:
        raise ValueError(
            f"guarantees.{name}: invalid value (expected {len(THRESHOLDS)} whole numbers)"
        )
    if counts.min() < 0 or (np.diff(counts) > 0).any():
        raise ValueError(f"guarantees.{name}: invalid value (expected counts, none increasing)")
    return counts


def counts_from(thresholds: NDArray[np.float64], values: NDArray[np.float64]) -> Counts:
    """The number of values from each threshold up, (thresholds,)."""
    return np.asarray(len(values) - np.searchsorted(np.sort(values), thresholds))


# The most sequences of tests of a precision. With a single one, which starts at the highest
# threshold, one wrong label among the surest predictions would end the tests.
MAX_STARTS = 4

# The place of a start within its part of the predictions.
PLACE_OF_START = 0.25


def sequence_starts(num_texts: int, precision: float) -> list[int]:
    """The numbers of predictions at which the tests of a precision start, increasing.

    Fewer predictions would fail even without a mistake.
    """
    if not 0 < precision < 1:
        return []
    error = 1 - CONFIDENCE

    # A sequence gets at least twice the predictions that it needs.
    affordable = num_texts // (2 * fewest_predictions(precision, error))
    num_starts = max(1, min(MAX_STARTS, affordable))
    fewest = fewest_predictions(precision, error / num_starts)

    starts = set()
    for index in range(num_starts):
        place = int(num_texts * (index + PLACE_OF_START) / num_starts)
        starts.add(max(fewest, place))
    return sorted(starts)


def fewest_predictions(precision: float, error: float) -> int:
    """The smallest number of predictions that show a precision if all are correct."""
    return math.ceil(round(math.log(error) / math.log(precision), 9))
