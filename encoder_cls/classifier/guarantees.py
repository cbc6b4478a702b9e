"""Guaranteed precision and coverage, and detection of out-of-distribution texts, all measured on held-out texts.

A precision is guaranteed by fixed-sequence testing (Angelopoulos et al., "Learn then Test", 2021,
https://arxiv.org/abs/2110.01052, algorithm 1): thresholds are tested from the highest until one fails the exact bound
of a binomial proportion (Clopper and Pearson, 1934). It holds for nine of ten models. A coverage is guaranteed by split
conformal prediction (Angelopoulos and Bates, 2021, https://arxiv.org/abs/2107.07511, section 1), over all texts and
models.

Probabilities alone (Hendrycks and Gimpel, 2017, https://arxiv.org/abs/1610.02136) miss out-of-distribution texts that
share a few typical words with the training texts. So features count, too: their rarity, the share of unknown ones, and
the evidence for the best class, which is low for a new topic with familiar words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.linear_model import EVIDENCE_NUMBERS
from encoder_cls.linear.ngrams import RARITY_NUMBERS
from encoder_cls.text.tokens import TokenizedTexts

CONFIDENCE = 0.9  # that a guaranteed precision holds
# The sequence has several starts, which share the error: with one, at the highest threshold, a single wrong label
# among the surest answers would end it.
MOST_STARTS = 4
FIRST_START = 0.25  # the place of a start within its part of the answers
# Thresholds are probabilities, 0 and then equal steps of the log odds, independent of the data.
LOWEST, HIGHEST, STEP = -12.0, 9.0, 0.1
THRESHOLDS = np.concatenate([[0.0], 1 / (1 + np.exp(-np.arange(LOWEST, HIGHEST + STEP / 2, STEP)))])
COLUMNS = ("answers", "right", "covered")

CONFIDENCE_WEIGHT = 3.0  # of the log odds of the best class, beside one for each number of rarity
EVIDENCE_WEIGHTS = (6.0, 4.0)  # of the linear part's evidence, which also counts below its mean
# Rarity counts more beyond so many deviations, since noise has some evidence by chance.
FAR, FAR_WEIGHT = (
    4.0,
    2.0,
)
LARGEST_ODDS = 30.0  # log odds: all digits of such a probability are 9
FLAGGED = 0.01  # of the held-out texts
LEAST_DEVIATION = 1e-3  # below it, a number counts as constant
FEWEST_TEXTS = 20  # held out, to estimate deviations
FEWEST_NUMBERS = 2  # of a text: those of a model without a linear part

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """Counts of held-out texts at each of the `THRESHOLDS`; each array is (thresholds,), and none increases.

    Attributes:
        answers: texts whose most probable class has at least this probability.
        right: those of them whose label it is.
        covered: texts whose label has at least this probability, even if another class has more.
    """

    answers: Counts
    right: Counts
    covered: Counts

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> Guarantees:
        """Count held-out texts by probabilities, (texts, classes), and labels, (texts,), perhaps beyond the classes."""
        confidence, is_known = probabilities.max(axis=1), labels < probabilities.shape[1]
        of_labels = probabilities[is_known, labels[is_known]]
        values = (confidence, confidence[probabilities.argmax(axis=1) == labels], of_labels)
        answers, right, covered = (counts_from(THRESHOLDS, it) for it in values)
        return cls(answers=answers, right=right, covered=covered)

    @property
    def num_texts(self) -> int:
        """The number of held-out texts."""
        return int(self.answers[0])

    def precision_threshold(self, precision: float) -> float | None:
        """The lowest probability from which a precision is guaranteed, if any."""
        if precision <= 0:
            return 0.0  # of any answers
        numbers = starts(self.num_texts, precision)
        lowest = len(THRESHOLDS)
        for start in numbers:
            error = (1 - CONFIDENCE) / len(numbers)
            for index in np.flatnonzero(self.answers >= start)[::-1]:
                right, answers = int(self.right[index]), int(self.answers[index])
                if right <= answers * precision or self._tail(right, answers, precision) > error:
                    break
                lowest = min(lowest, index)
        return float(THRESHOLDS[lowest]) if lowest < len(THRESHOLDS) else None

    def coverage_threshold(self, coverage: float) -> float | None:
        """The probability from which a class is in a text's set, for a coverage, if any.

        Of n held-out texts, the labels of (n + 1) * coverage, rounded up, have at least this probability.
        """
        # 0.9 * 10 is 9, whatever its last digits.
        wanted = math.ceil(round((self.num_texts + 1) * coverage, 9))
        fitting = np.flatnonzero(self.covered >= wanted)
        return float(THRESHOLDS[fitting[-1]]) if len(fitting) else None

    @cached_property
    def highest_precision(self) -> float:
        """The highest precision that can be guaranteed, in thousandths; 0 if none."""
        precisions = (number / 1000 for number in range(999, 0, -1))
        return next((it for it in precisions if self.precision_threshold(it) is not None), 0.0)

    @property
    def highest_coverage(self) -> float:
        """The highest coverage that can be guaranteed, in thousandths."""
        return math.floor(1000 * int(self.covered[0]) / (self.num_texts + 1)) / 1000

    @cached_property
    def _log_factorials(self) -> NDArray[np.float64]:
        """ln(n!) of n = 0, 1, ..., (texts + 1,)."""
        return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.num_texts + 1)))])

    def _tail(self, right: int, answers: int, precision: float) -> float:
        """The probability of at least so many right answers, if each is right with the probability `precision`.

        It is at most 1 - c if Clopper and Pearson's lower bound at confidence c is at least the precision.
        """
        k, log_factorials = np.arange(right, answers + 1), self._log_factorials
        log_ways = log_factorials[answers] - log_factorials[k] - log_factorials[answers - k]
        return float(
            np.exp(
                log_ways + k * math.log(precision) + (answers - k) * math.log1p(-precision)
            ).sum()
        )

    def to_json(self) -> dict[str, list[int]]:
        """The values for a model folder."""
        return {name: getattr(self, name).tolist() for name in COLUMNS}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Guarantees:
        """Read the values of a model folder; a `ValueError` if they are impossible."""
        answers, right, covered = counts = np.array([values[name] for name in COLUMNS])
        is_table = (
            len(values) == len(COLUMNS)
            and counts.shape[1:] == THRESHOLDS.shape
            and counts.dtype == np.int64
        )
        are_counts = (
            is_table and (np.diff(counts) <= 0).all() and counts.min() >= 0 and answers[0] >= 1
        )
        if (
            not are_counts
            or covered[0] > answers[0]
            or (right > np.minimum(answers, covered)).any()
        ):
            raise ValueError("the guarantees are impossible")
        return cls(answers=answers, right=right, covered=covered)


def counts_from(thresholds: Array, values: Array) -> Counts:
    """The number of values from each threshold up, (thresholds,)."""
    return np.asarray(len(values) - np.searchsorted(np.sort(values), thresholds))


def starts(num_texts: int, precision: float) -> list[int]:
    """The numbers of answers at which the tests of a precision start: fewer would fail even without a mistake."""
    if not 0 < precision < 1:
        return []
    error = 1 - CONFIDENCE
    number = max(1, min(MOST_STARTS, num_texts // (2 * fewest_answers(precision, error))))
    fewest = fewest_answers(precision, error / number)
    return sorted(
        {max(fewest, int(num_texts * (index + FIRST_START) / number)) for index in range(number)}
    )


def fewest_answers(precision: float, error: float) -> int:
    """The smallest number of answers that show a precision if all are right."""
    return math.ceil(round(math.log(error) / math.log(precision), 9))


@dataclass(frozen=True, kw_only=True)
class Familiarity:
    """The distribution of `text_numbers` on held-out texts.

    Attributes:
        means: (numbers,).
        deviations: standard deviations, (numbers,); 0 of a number that is nearly constant.
        threshold: the score from which a text is out of distribution.
    """

    means: Array
    deviations: Array
    threshold: float

    @classmethod
    def of(cls, numbers: Array) -> Familiarity | None:
        """Fit held-out texts, (texts, numbers), so that `FLAGGED` of them are unfamiliar; None if there are too few."""
        if len(numbers) < FEWEST_TEXTS:
            return None
        deviations = numbers.std(axis=0)
        deviations[deviations < LEAST_DEVIATION] = 0
        usual = cls(means=numbers.mean(axis=0), deviations=deviations, threshold=np.inf)
        in_order = np.sort(usual.scores(numbers))
        # Just above the highest of the others, so none of few texts is flagged.
        highest = in_order[len(in_order) - 1 - int(FLAGGED * len(in_order))]
        return replace(usual, threshold=float(np.nextafter(highest, np.inf)))

    def scores(self, numbers: Array) -> Array:
        """The unfamiliarity of texts, (texts,): a weighted sum of deviations above the means."""
        varies = self.deviations > 0
        deviations = (numbers - self.means) * np.where(
            varies, 1 / np.where(varies, self.deviations, 1), 0
        )
        num_evidence = EVIDENCE_NUMBERS if len(self.means) > FEWEST_NUMBERS else 0
        rarity = deviations[:, num_evidence:-1]
        scores: Array = np.maximum(rarity, 0).sum(axis=1) + CONFIDENCE_WEIGHT * np.maximum(
            deviations[:, -1], 0
        )
        if num_evidence:
            scores += FAR_WEIGHT * np.maximum(rarity - FAR, 0).sum(axis=1)
            scores += deviations[:, :num_evidence] @ EVIDENCE_WEIGHTS
        return scores

    def are_unfamiliar(self, numbers: Array) -> NDArray[np.bool_]:
        """Which texts are out of distribution, (texts,)."""
        return self.scores(numbers) >= self.threshold

    def to_json(self) -> dict[str, Any]:
        """The values for a model folder."""
        return {
            "means": self.means.tolist(),
            "deviations": self.deviations.tolist(),
            "threshold": self.threshold,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, has_linear: bool) -> Familiarity:
        """Read the values of a model folder, without evidence if it is old; a `ValueError` if they do not fit."""
        num_numbers = FEWEST_NUMBERS + (EVIDENCE_NUMBERS + RARITY_NUMBERS if has_linear else 0)
        means, deviations = (
            np.array(values[name], dtype=np.float64) for name in ("means", "deviations")
        )
        threshold = float(values["threshold"])
        if len(means) == len(deviations) == num_numbers - EVIDENCE_NUMBERS:
            means, deviations = (
                np.concatenate([np.zeros(EVIDENCE_NUMBERS), it]) for it in (means, deviations)
            )
        is_whole = (
            means.shape == deviations.shape == (num_numbers,)
            and np.isfinite([*means, *deviations]).all()
        )
        if not is_whole or (deviations < 0).any() or np.isnan(threshold):
            raise ValueError("the familiarity has other numbers than the model")
        return cls(means=means, deviations=deviations, threshold=threshold)


def text_numbers(probabilities: Array, texts: TokenizedTexts, of_linear: Array | None) -> Array:
    """Measure how unusual texts are, (texts, numbers), from their probabilities, (texts, classes).

    The numbers of a linear part, if any, the share of unknown tokens, and the negative log odds of the best class.
    """
    best = probabilities.max(axis=1)
    unknown_share = texts.unknown / np.maximum(1, texts.lengths - 1)
    odds = np.minimum(np.log(best / np.maximum(1 - best, np.exp(-LARGEST_ODDS))), LARGEST_ODDS)
    columns = [unknown_share[:, None], -odds[:, None]]
    return np.hstack(columns if of_linear is None else [of_linear, *columns])
