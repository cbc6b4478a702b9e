"""Guaranteed precision and coverage, and detection of out-of-distribution texts.

A precision is promised by fixed-sequence testing (Angelopoulos et al., "Learn then Test: Calibrating Predictive
Algorithms to Achieve Risk Control", 2021, https://arxiv.org/abs/2110.01052, algorithm 1): thresholds that were fixed
beforehand are tested one after the other, the highest first, until one cannot be shown to keep the promise; what shows
it is the exact bound of a binomial proportion (Clopper and Pearson, "The Use of Confidence or Fiducial Limits", 1934).
Of ten models nine keep what is promised in this way.

A coverage is promised by split conformal prediction (Angelopoulos and Bates, "A Gentle Introduction to Conformal
Prediction and Distribution-Free Uncertainty Quantification", 2021, https://arxiv.org/abs/2107.07511, section 1): the
label of a text is in its set with that probability, over all texts and models.

Both hold of texts like those that were held out.

Detecting what a classifier was not trained for by its probabilities alone (Hendrycks and Gimpel, "A Baseline for
Detecting Misclassified and Out-of-Distribution Examples in Neural Networks", 2017, https://arxiv.org/abs/1610.02136)
misses texts that share a few telling words with it. So the features count, too: how rare they were in training, and how
many were not there at all. Each number is measured in standard deviations above its mean on held-out texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.9  # that a promised precision is kept
# The sequence begins in several places, each with its part of the error: were it to begin at the highest thresholds
# alone, one wrong label among the surest answers would end it.
MOST_STARTS = 4
FIRST_START = 0.25  # where a start is within its part of the answers
# Thresholds are probabilities whose log odds are so far apart, fixed whatever the data; the first is 0.
LOWEST, HIGHEST, STEP = -12.0, 9.0, 0.1
THRESHOLDS = np.concatenate([[0.0], 1 / (1 + np.exp(-np.arange(LOWEST, HIGHEST + STEP / 2, STEP)))])
COLUMNS = ("answers", "right", "covered")

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """What held-out texts tell of each of the `THRESHOLDS`; each array is (thresholds,), and none increases.

    Attributes:
        answers: how many of the texts have a most probable class at least so probable.
        right: how many of these have it for their label.
        covered: how many texts have a label at least so probable, whichever class is most probable.
    """

    answers: Counts
    right: Counts
    covered: Counts

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> Guarantees:
        """What texts tell that neither weights nor features were learned from.

        Args:
            probabilities: (texts, classes).
            labels: their classes, (texts,); one beyond the classes is never right, and in no set.
        """
        confidence, is_known = probabilities.max(axis=1), labels < probabilities.shape[1]
        of_labels = probabilities[is_known, labels[is_known]]
        right = confidence[probabilities.argmax(axis=1) == labels]
        answers, are_right, covered = (_at_least(values) for values in (confidence, right, of_labels))
        return cls(answers=answers, right=are_right, covered=covered)

    @property
    def num_texts(self) -> int:
        """How many texts were held out."""
        return int(self.answers[0])

    def precision_threshold(self, precision: float) -> float | None:
        """The lowest probability from which answers are right so often, as can be promised; none where it cannot."""
        is_kept = self._are_kept(precision)
        lowest = None
        for start in starts(self.num_texts, precision):
            for index in np.flatnonzero(self.answers >= start)[::-1]:
                if not is_kept[index]:
                    break
                lowest = index if lowest is None else min(lowest, index)
        return None if lowest is None else float(THRESHOLDS[lowest])

    def coverage_threshold(self, coverage: float) -> float | None:
        """The probability from which classes are in a text's set, so that its label is, so often; none where too rare.

        Of n texts held out, the label's probability is that high in (n + 1) * coverage of them, rounded up.
        """
        wanted = math.ceil(round((self.num_texts + 1) * coverage, 9))  # 0.9 * 10 is 9, whatever its last digits say
        fitting = np.flatnonzero(self.covered >= wanted)
        return float(THRESHOLDS[fitting[-1]]) if len(fitting) else None

    @cached_property
    def highest_precision(self) -> float:
        """The highest that can be promised, in thousandths; 0 where none can be."""
        found = (number / 1000 for number in range(999, 0, -1) if self.precision_threshold(number / 1000) is not None)
        return next(found, 0.0)

    @property
    def highest_coverage(self) -> float:
        """The highest that can be promised, in thousandths."""
        return math.floor(1000 * int(self.covered[0]) / (self.num_texts + 1)) / 1000

    def _are_kept(self, precision: float) -> NDArray[np.bool_]:
        """Which thresholds are shown to keep a precision, (thresholds,)."""
        are_kept = np.zeros(len(THRESHOLDS), dtype=bool)
        begin = starts(self.num_texts, precision)
        if begin:
            error = (1 - CONFIDENCE) / len(begin)
            for index in np.flatnonzero((self.answers >= begin[0]) & (self.right > self.answers * precision)):
                right, answers = int(self.right[index]), int(self.answers[index])
                are_kept[index] = binomial_tail(right, answers, precision, self._log_factorials) <= error
        return are_kept

    @cached_property
    def _log_factorials(self) -> NDArray[np.float64]:
        """Of 0, 1, ..., (texts + 1,)."""
        return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.num_texts + 1)))])

    def to_json(self) -> dict[str, list[int]]:
        """As a model folder holds it."""
        return {name: getattr(self, name).tolist() for name in COLUMNS}

    @classmethod
    def from_json(cls, values: Any) -> Guarantees:
        """What a model folder holds.

        Raises:
            ValueError: it is none.
            KeyError: a column is missing.
            TypeError: what is read is no table.
        """
        columns = [values[name] for name in COLUMNS]
        for column in columns:
            if len(column) != len(THRESHOLDS) or any(type(count) is not int for count in column):
                raise ValueError("the guarantees are none that this version knows")
        answers, right, covered = (np.array(column, dtype=np.int64) for column in columns)
        is_table = all((np.diff(column) <= 0).all() and column[-1] >= 0 for column in (answers, right, covered))
        is_possible = covered[0] <= answers[0] and (right <= np.minimum(answers, covered)).all()
        if not is_table or len(values) != len(COLUMNS) or not is_possible:
            raise ValueError("the guarantees contradict themselves")
        if answers[0] < 1:
            raise ValueError("the guarantees are of no text")
        return cls(answers=answers, right=right, covered=covered)


def starts(num_texts: int, precision: float) -> list[int]:
    """With how many answers the tests of a precision begin: with fewer, not even answers without a mistake would do."""
    if not 0 < precision < 1:
        return []
    error = 1 - CONFIDENCE
    number = max(1, min(MOST_STARTS, num_texts // (2 * fewest_answers(precision, error))))
    fewest = fewest_answers(precision, error / number)
    return sorted({max(fewest, int(num_texts * (index + FIRST_START) / number)) for index in range(number)})


def fewest_answers(precision: float, error: float) -> int:
    """How many answers, all of them right, show a precision."""
    return math.ceil(round(math.log(error) / math.log(precision), 9))


def binomial_tail(right: int, answers: int, precision: float, log_factorials: NDArray[np.float64]) -> float:
    """How probable so many right answers or more are, were each right with the probability `precision`.

    At most 1 - c where the lower bound of Clopper and Pearson at confidence c is at least the precision.

    Args:
        right: how many are.
        answers: of how many.
        precision: above 0, below 1.
        log_factorials: of 0, 1, ... up to the answers at least.
    """
    k = np.arange(right, answers + 1)
    log_ways = log_factorials[answers] - log_factorials[k] - log_factorials[answers - k]
    return float(np.exp(log_ways + k * math.log(precision) + (answers - k) * math.log1p(-precision)).sum())


def _at_least(values: NDArray[np.float64]) -> Counts:
    """How many of the values are at least as high as each threshold."""
    return len(values) - np.searchsorted(np.sort(values), THRESHOLDS)


CONFIDENCE_WEIGHT = 3.0  # of the log odds of the best class, beside one for each other number
LARGEST_ODDS = 30.0  # log odds: a probability of which all digits are 9
FLAGGED = 0.01  # of the held-out texts
LEAST_DEVIATION = 1e-3  # of a number that is the same in nearly all texts, and says nothing of them
FEWEST_TEXTS = 20  # held out, for deviations to say something

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Familiarity:
    """What is usual in held-out texts.

    Attributes:
        means: of each number, (numbers,); the log odds of the best class, negated, come last.
        deviations: their standard deviations, (numbers,); those of a number that says nothing are 0.
        threshold: the score from which a text is unfamiliar.
    """

    means: Array
    deviations: Array
    threshold: float

    @classmethod
    def of(cls, numbers: Array) -> Familiarity | None:
        """What held-out texts tell, of which `FLAGGED` are then unfamiliar; none of too few.

        Args:
            numbers: as `text_numbers` has them, (texts, numbers).
        """
        if len(numbers) < FEWEST_TEXTS:
            return None
        deviations = numbers.std(axis=0)
        deviations[deviations < LEAST_DEVIATION] = 0
        usual = cls(means=numbers.mean(axis=0), deviations=deviations, threshold=np.inf)
        in_order = np.sort(usual.scores(numbers))
        # Just above the highest of the others: of few texts none is flagged.
        highest = in_order[len(in_order) - 1 - int(FLAGGED * len(in_order))]
        threshold = float(np.nextafter(highest, np.inf))
        return cls(means=usual.means, deviations=usual.deviations, threshold=threshold)

    def scores(self, numbers: Array) -> Array:
        """How unfamiliar texts are, (texts,): the deviations above the means, summed."""
        says_something = self.deviations > 0
        weights = np.where(says_something, 1 / np.where(says_something, self.deviations, 1), 0)
        weights[-1] *= CONFIDENCE_WEIGHT
        scores: Array = np.maximum((numbers - self.means) * weights, 0).sum(axis=1)
        return scores

    def are_unfamiliar(self, numbers: Array) -> NDArray[np.bool_]:
        """Which texts are unlike those of training, (texts,)."""
        return self.scores(numbers) >= self.threshold

    def to_json(self) -> dict[str, Any]:
        """As a model folder holds it."""
        return {"means": self.means.tolist(), "deviations": self.deviations.tolist(), "threshold": self.threshold}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, num_numbers: int) -> Familiarity:
        """What a model folder holds.

        Raises:
            ValueError: it is none.
            KeyError: a value is missing.
            TypeError: one is of another type.
        """
        means, deviations = (np.array(values[name], dtype=np.float64) for name in ("means", "deviations"))
        threshold = float(values["threshold"])
        is_whole = means.shape == deviations.shape == (num_numbers,) and np.isfinite([*means, *deviations]).all()
        if not is_whole or (deviations < 0).any() or np.isnan(threshold):
            raise ValueError("what is familiar to the model is described by other numbers than there are")
        return cls(means=means, deviations=deviations, threshold=threshold)


def text_numbers(probabilities: Array, unknown_share: Array, rarity: Array | None) -> Array:
    """All numbers of texts, (texts, numbers), in each of which more is less usual.

    Args:
        probabilities: (texts, classes).
        unknown_share: of the tokens of each text, (texts,).
        rarity: those of its features, as `LinearClassifier.read` has them, (texts, numbers); none without that part.
    """
    best = probabilities.max(axis=1)
    odds = np.minimum(np.log(best / np.maximum(1 - best, np.exp(-LARGEST_ODDS))), LARGEST_ODDS)
    columns = [unknown_share[:, None], -odds[:, None]]
    return np.hstack(columns if rarity is None else [rarity, *columns])
