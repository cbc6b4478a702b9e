"""Guaranteed precision and coverage, measured on held-out texts.

The precision is the fraction of correct predictions among those with a probability from a threshold
up. It is guaranteed by fixed-sequence testing (Angelopoulos et al., "Learn then Test", 2021,
https://arxiv.org/abs/2110.01052, algorithm 1): thresholds are tested from the highest one down,
until one fails an exact binomial test (Clopper and Pearson, 1934). A guaranteed precision is missed
by at most one in ten trained models.

The coverage is the fraction of texts whose set of classes contains the label. It is guaranteed by
split conformal prediction (Angelopoulos and Bates, 2021, https://arxiv.org/abs/2107.07511, section
1), on average over texts and trained models.

Texts of a split group are likely to be right or wrong together, so independent texts are counted
(`row_groups`): all copies of a text count once.

In a multi-label task, a prediction is that of a whole text, of exactly its labels, and a set must
contain all of them. Each label also has a guaranteed precision of its own.

Each level of codes has guarantees for its most probable codes, and one precision is that of answers
with back-off: of the deepest code that reaches a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.codes import Codes
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, task_of

# The probability that a guaranteed precision holds.
CONFIDENCE = 0.9

# The lowest and the highest log odds of a threshold, and the step from one to the next.
LOWEST_LOG_ODDS = -12.0
HIGHEST_LOG_ODDS = 9.0
STEP = 0.1
# The thresholds that can be chosen: the probability 0, then those at equal steps of the log odds.
# They do not depend on the data, as the tests of a precision require.
_LOG_ODDS = np.arange(LOWEST_LOG_ODDS, HIGHEST_LOG_ODDS + STEP / 2, STEP)
THRESHOLDS = np.concatenate([[0.0], 1 / (1 + np.exp(-_LOG_ODDS))])

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PrecisionCounts:
    """Counts of independent held-out predictions at each of the `THRESHOLDS`, (thresholds,).

    Counts do not increase. Of `num_confident` predictions from a threshold up, `num_correct` are
    correct.
    """

    num_confident: Counts
    num_correct: Counts

    @classmethod
    def count(
        cls,
        confidence: NDArray[np.float64],
        is_correct: NDArray[np.bool_],
        groups: RowGroups,
    ) -> PrecisionCounts:
        """Count held-out predictions by their confidence, (predictions,)."""
        weights = _independent_weights(is_correct, groups)
        num_confident, num_correct = _independent_counts(
            _sums_from(confidence, weights),
            _sums_from(confidence[is_correct], weights[is_correct]),
            counts_from(THRESHOLDS, confidence),
            counts_from(THRESHOLDS, confidence[is_correct]),
        )
        return cls(
            num_confident=num_confident,
            # A lower threshold keeps more predictions, but perhaps with a lower precision.
            num_correct=np.minimum.accumulate(num_correct),
        )

    @property
    def num_texts(self) -> int:
        """The number of held-out texts."""
        # The first threshold is 0, which every text reaches.
        return int(self.num_confident[0])

    def precision_threshold(self, precision: float) -> float | None:
        """The lowest probability from which predictions surely have a precision; None if none."""
        if precision <= 0:
            # All predictions together have a precision of at least 0.
            return 0.0

        # Several sequences of tests run, each down from another threshold. The permitted
        # probability of an error is divided among the sequences (Bonferroni).
        starts = sequence_starts(self.num_texts, precision)
        lowest = len(THRESHOLDS)
        for start in starts:
            error = (1 - CONFIDENCE) / len(starts)
            highest_first = np.flatnonzero(self.num_confident >= start)[::-1]
            for index in highest_first:
                if not self._has_precision(index, precision, error):
                    break
                lowest = min(lowest, index)

        if lowest == len(THRESHOLDS):
            return None
        return float(THRESHOLDS[lowest])

    @cached_property
    def highest_precision(self) -> float:
        """The highest precision that can be guaranteed, to three digits; 0 if none can be."""
        if not self.num_texts:
            return 0.0

        # Begin with the highest precision that this many correct predictions could show.
        highest = math.floor(1000 * (1 - CONFIDENCE) ** (1 / self.num_texts)) + 1
        for thousandths in range(min(999, highest), 0, -1):
            precision = thousandths / 1000
            if self.precision_threshold(precision) is not None:
                return precision
        return 0.0

    def _has_precision(self, index: int, precision: float, error: float) -> bool:
        """Test exactly whether the predictions from a threshold up have at least a precision.

        If each were right with the probability `precision`, so many right ones, or more, would have
        a probability of at most `error`.
        """
        num_texts = int(self.num_confident[index])
        num_correct = int(self.num_correct[index])
        if num_correct <= num_texts * precision:
            return False
        return self._binomial_tail(num_correct, num_texts, precision) <= error

    def _binomial_tail(self, num_correct: int, num_texts: int, precision: float) -> float:
        k = np.arange(num_correct, num_texts + 1)
        log_factorials = self._log_factorials
        log_ways = log_factorials[num_texts] - log_factorials[k] - log_factorials[num_texts - k]
        log_probabilities = (
            log_ways + k * math.log(precision) + (num_texts - k) * math.log1p(-precision)
        )
        return float(np.exp(log_probabilities).sum())

    @cached_property
    def _log_factorials(self) -> NDArray[np.float64]:
        return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.num_texts + 1)))])

    def to_json(self) -> dict[str, Any]:
        """The values for a model folder."""
        return {
            "num_confident": self.num_confident.tolist(),
            "num_correct": self.num_correct.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PrecisionCounts:
        """Read the values of a model folder, which may come from a stranger.

        Raises:
            ValueError: they are not counts that predictions can have.
        """
        num_confident = _counts_of(values, "num_confident")
        num_correct = _counts_of(values, "num_correct")
        if (num_correct > num_confident).any():
            raise ValueError("guarantees.num_correct: more texts than guarantees.num_confident")
        return cls(num_confident=num_confident, num_correct=num_correct)


@dataclass(frozen=True, kw_only=True)
class BackOffCounts(PrecisionCounts):
    """Counts of held-out answers with back-off at each of the `THRESHOLDS`.

    At a threshold, a text is answered with the most probable code of the deepest level at which
    that code reaches it.

    The guarantee is that of all answers together, whatever their levels. Let the rule with the
    threshold t answer n(t) of the held-out texts, k(t) of them rightly. Held-out texts are drawn
    like new ones, so, given n(t), k(t) is binomial with the precision p(t) of the rule on new
    texts, and the exact test of `PrecisionCounts` holds for p(t). All levels have the same
    threshold, so the rules are one sequence, which is fixed before any label is seen. It is tested
    from the highest threshold, which answers few texts, and most of them at the top, down to the
    first test that fails. A rule with too low a precision can be chosen only if the first such rule
    passes its test, which has at most the permitted probability, however many rules are tested
    (Bauer, "Multiple testing in clinical trials", 1991, https://doi.org/10.1002/sim.4780100609;
    "Learn then Test", algorithm 1).

    A threshold for each level, chosen on one half of the texts and tested on the other, answered as
    much in simulations, and could be guaranteed less often (docs/experiments/accuracy.md#back-off).
    """

    @classmethod
    def of_levels(
        cls,
        confidence: NDArray[np.float64],
        is_correct: NDArray[np.bool_],
        groups: RowGroups,
    ) -> BackOffCounts:
        """Count held-out texts by the confidence in their code of each level, (levels, texts)."""
        # Of the levels, the one at which texts of a group are most alike counts for all.
        correlation = max(groups.correlation(of_level) for of_level in is_correct)
        weights = groups.weights(correlation)
        texts = np.arange(confidence.shape[1])

        counts = []
        for threshold in THRESHOLDS:
            num_levels = (confidence >= threshold).sum(axis=0)
            is_answered = num_levels > 0
            is_right = is_answered & is_correct[np.maximum(num_levels, 1) - 1, texts]
            counts.append(
                (
                    weights[is_answered].sum(),
                    weights[is_right].sum(),
                    is_answered.sum(),
                    is_right.sum(),
                )
            )
        num_confident, num_correct = _independent_counts(*np.array(counts, dtype=np.float64).T)
        return cls(num_confident=num_confident, num_correct=num_correct)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BackOffCounts:
        """Read the values of a model folder; see `PrecisionCounts.from_json`."""
        num_confident = _counts_of(values, "num_confident")
        # A lower threshold may have fewer correct answers: those that go deeper.
        num_correct = _counts_of(values, "num_correct", are_sorted=False)
        if (num_correct > num_confident).any():
            raise ValueError("guarantees.num_correct: more texts than guarantees.num_confident")
        return cls(num_confident=num_confident, num_correct=num_correct)


@dataclass(frozen=True, kw_only=True)
class Guarantees(PrecisionCounts):
    """Counts of held-out texts at each of the `THRESHOLDS`, from which guarantees follow.

    Attributes:
        num_covered: texts all of whose labels reach the threshold.
        labels: multi-label, counts of the texts that get each label.
        levels: counts of each level above the classes, from the top.
        back_off: of answers with back-off; None without levels.
    """

    num_covered: Counts
    labels: tuple[PrecisionCounts, ...] = ()
    levels: tuple[Guarantees, ...] = ()
    back_off: BackOffCounts | None = None

    @classmethod
    def of(
        cls,
        probabilities: NDArray[np.float64],
        labels: NDArray[Any],
        thresholds: Sequence[float] = (),
        *,
        groups: RowGroups,
    ) -> Guarantees:
        """Count held-out texts by their probabilities, (texts, classes).

        Labels beyond the classes are unknown to the classifier: their texts are never correct.
        """
        task = task_of(labels)
        num_classes = probabilities.shape[1]

        predictions = task.predictions(probabilities, thresholds)
        confidence = task.prediction_probabilities(probabilities, predictions)
        is_correct = task.are_correct(predictions, labels)
        texts = PrecisionCounts.count(confidence, is_correct, groups)
        is_known = task.are_known(labels, num_classes)
        label_probabilities = task.label_probabilities(probabilities, labels)[is_known]
        weights = _independent_weights(is_correct, groups)[is_known]

        # Count the texts that get each label of a multi-label task.
        counts_of_labels = []
        if task is MULTI_LABEL:
            for number in range(num_classes):
                gets_label = predictions[:, number]
                has_label = labels[gets_label, number] > 0
                counts_of_labels.append(
                    PrecisionCounts.count(
                        probabilities[gets_label, number], has_label, groups.subset(gets_label)
                    )
                )

        return cls(
            num_confident=texts.num_confident,
            num_correct=texts.num_correct,
            num_covered=_rounded_down(_sums_from(label_probabilities, weights)),
            labels=tuple(counts_of_labels),
        )

    def with_levels(
        self,
        probabilities: NDArray[np.float64],
        labels: NDArray[np.int64],
        codes: Codes,
        *,
        groups: RowGroups,
    ) -> Guarantees:
        """Add the guarantees of levels, counted on the same texts."""
        guarantees = []
        confidence = []
        is_correct = []
        for level in codes.levels:
            of_codes = level.probabilities(probabilities)
            labels_of_level = level.labels(labels)
            guarantees.append(Guarantees.of(of_codes, labels_of_level, groups=groups))
            confidence.append(of_codes.max(axis=1))
            is_correct.append(of_codes.argmax(axis=1) == labels_of_level)
        back_off = BackOffCounts.of_levels(np.array(confidence), np.array(is_correct), groups)
        return replace(self, levels=tuple(guarantees[:-1]), back_off=back_off)

    def at_level(self, number: int | None) -> Guarantees:
        """The guarantees of a level, counted from 1; None, or the last one, is that of classes."""
        if number is None or number > len(self.levels):
            return self
        return self.levels[number - 1]

    def coverage_threshold(self, coverage: float) -> float | None:
        """The threshold from which classes form sets that surely have a coverage; None if none.

        It is the highest one that at least ceil((n + 1) * coverage) of the labels of the n held-out
        texts reach.
        """
        # Round to 9 digits first, so that `ceil` does not turn a floating-point error such as
        # 9.000000000000002 into 10.
        num_wanted = math.ceil(round((self.num_texts + 1) * coverage, 9))
        (indices,) = np.nonzero(self.num_covered >= num_wanted)
        if not len(indices):
            return None
        return float(THRESHOLDS[indices[-1]])

    @property
    def highest_coverage(self) -> float:
        """The highest coverage that can be guaranteed, to three digits, rounded down."""
        return math.floor(1000 * int(self.num_covered[0]) / (self.num_texts + 1)) / 1000

    # --- In a model folder ------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The values for a model folder."""
        values = super().to_json()
        values["num_covered"] = self.num_covered.tolist()
        if self.labels:
            values["labels"] = [counts.to_json() for counts in self.labels]
        if self.back_off:
            values["levels"] = [counts.to_json() for counts in self.levels]
            values["back_off"] = self.back_off.to_json()
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Guarantees:
        """Read the values of a model folder; see `PrecisionCounts.from_json`."""
        known = {"num_confident", "num_correct", "num_covered", "labels", "levels", "back_off"}
        if values.keys() - known:
            raise ValueError(
                "guarantees: unknown keys (expected num_confident, num_correct and num_covered)"
            )
        if _counts_of(values, "num_confident")[0] < 1:
            raise ValueError("guarantees.num_confident: no text (expected at least one)")
        texts = PrecisionCounts.from_json(values)
        num_covered = _counts_of(values, "num_covered")
        if num_covered[0] > texts.num_texts:
            raise ValueError("guarantees.num_covered: more texts than there are")
        if (texts.num_correct > num_covered).any():
            raise ValueError("guarantees.num_correct: more texts than guarantees.num_covered")

        counts_of_labels = []
        for counts in values.get("labels", ()):
            counts_of_labels.append(PrecisionCounts.from_json(counts))
        back_off = None
        if "back_off" in values:
            back_off = BackOffCounts.from_json(values["back_off"])
        return cls(
            num_confident=texts.num_confident,
            num_correct=texts.num_correct,
            num_covered=num_covered,
            labels=tuple(counts_of_labels),
            levels=tuple(cls.from_json(counts) for counts in values.get("levels", ())),
            back_off=back_off,
        )


def _counts_of(values: Mapping[str, Any], name: str, *, are_sorted: bool = True) -> Counts:
    """The array of this name; a `ValueError` if it does not hold counts at all thresholds."""
    counts = np.array(values[name])
    if counts.shape != THRESHOLDS.shape or counts.dtype != np.int64:
        raise ValueError(
            f"guarantees.{name}: invalid value (expected {len(THRESHOLDS)} whole numbers)"
        )
    if counts.min() < 0 or (are_sorted and (np.diff(counts) > 0).any()):
        raise ValueError(f"guarantees.{name}: invalid value (expected counts, none increasing)")
    return counts


class AnsweredTexts(NamedTuple):
    """The texts that get a class, where one of the classes stands for none of the others.

    Attributes:
        probabilities: those of the other classes, (answered, classes - 1).
        labels: numbers of the other classes, (answered,); that of a text of none is beyond them, so
            that no answer is right for it.
    """

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        probabilities: NDArray[np.float64],
        labels: NDArray[np.int64],
        none_number: int | None,
    ) -> AnsweredTexts:
        """Leave out texts that get no class; without a class `none_number`, all get one."""
        if none_number is None:
            return cls(np.arange(len(labels)), probabilities, labels)
        rows = np.flatnonzero(probabilities.argmax(axis=1) != none_number)
        numbers = labels[rows]
        beyond = max(probabilities.shape[1], labels.max(initial=0))
        return cls(
            rows,
            np.delete(probabilities[rows], none_number, axis=1),
            np.where(numbers == none_number, beyond, numbers - (numbers > none_number)),
        )


# Smaller sums of weights count as this one, so that nothing is divided by zero.
SMALLEST_WEIGHT = 1e-9


def _independent_weights(is_correct: NDArray[np.bool_], groups: RowGroups) -> NDArray[np.float64]:
    return groups.weights(groups.correlation(is_correct))


def _independent_counts(
    num_confident: NDArray[np.float64],
    num_correct: NDArray[np.float64],
    confident_texts: NDArray[Any],
    correct_texts: NDArray[Any],
) -> tuple[Counts, Counts]:
    """Round numbers of predictions down to counts, with the lower precision of two.

    Large groups may be harder than small ones: then the precision of all texts is lower than the
    weighted one.
    """
    precision = np.minimum(
        num_correct / np.maximum(num_confident, SMALLEST_WEIGHT),
        correct_texts / np.maximum(1, confident_texts),
    )
    num_independent = _rounded_down(num_confident)
    return num_independent, _rounded_down(num_independent * precision)


def _sums_from(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    order = np.argsort(values)
    sums = np.concatenate([np.cumsum(weights[order][::-1])[::-1], [0.0]])
    return np.asarray(sums[np.searchsorted(values[order], THRESHOLDS)])


def _rounded_down(sums: NDArray[Any]) -> Counts:
    return np.floor(sums + 1e-9).astype(np.int64)


def counts_from(thresholds: NDArray[np.float64], values: NDArray[np.float64]) -> Counts:
    """Count the values that reach each threshold, (thresholds,)."""
    return np.asarray(len(values) - np.searchsorted(np.sort(values), thresholds))


# The largest number of sequences of tests. There are several, because a single sequence, which
# starts at the highest threshold, ends at once if the label of one of the surest texts is wrong.
MAX_STARTS = 4

# The texts, ordered by confidence, are divided into as many equal parts as there are sequences.
# A sequence starts at this fraction of its part.
START_WITHIN_PART = 0.25


def sequence_starts(num_texts: int, precision: float) -> list[int]:
    """Choose with how many of the most confident texts each sequence of tests starts, increasing.

    There are at least `min_texts`, since fewer fail even if all are predicted correctly; none if
    the precision is not between 0 and 1.
    """
    if not 0 < precision < 1:
        return []
    error = 1 - CONFIDENCE

    # There are only so many sequences that each has at least twice the texts that it needs.
    affordable = num_texts // (2 * min_texts(precision, error))
    num_starts = max(1, min(MAX_STARTS, affordable))
    earliest_start = min_texts(precision, error / num_starts)

    starts = set()
    for part in range(num_starts):
        start = int(num_texts * (part + START_WITHIN_PART) / num_starts)
        starts.add(max(earliest_start, start))
    return sorted(starts)


def min_texts(precision: float, error: float) -> int:
    """The smallest n with precision^n <= error: enough texts if all predictions are correct."""
    # Round to 9 digits first, so that a floating-point error does not add a text.
    return math.ceil(round(math.log(error) / math.log(precision), 9))
