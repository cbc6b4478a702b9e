"""Scores with confidence intervals, paired tests, and guarantees measured on other texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import ClassCounts, answers_of, f1_scores
from encoder_cls.inference.task import Logits

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
    """Bootstrap samples: how often each kind of text is drawn, in parts of (samples, kinds)."""
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

    Pairs of label and prediction are (2, pairs), in the order of the labels, their counts (samples, pairs).
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


def micro_f1_interval(
    labels: NDArray[Any], answers: NDArray[np.bool_], others: NDArray[np.bool_] | None = None
) -> Interval:
    """The interval of micro-F1, or of how much better answers are than others, all (texts, labels).

    As `macro_f1_interval`; texts that are alike in how many labels they have, get and get right are drawn together.
    """
    has_label = labels > 0
    columns = [has_label.sum(axis=1)]
    for given in (answers,) if others is None else (answers, others):
        columns += [given.sum(axis=1), (given & has_label).sum(axis=1)]
    kinds, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    scores = []
    for drawn in _samples(counts):
        sums = (drawn @ kinds).astype(np.float64)
        of_each = [
            2 * sums[:, column + 1] / np.maximum(1, sums[:, 0] + sums[:, column])
            for column in range(1, kinds.shape[1], 2)
        ]
        scores.append(of_each[0] if len(of_each) == 1 else of_each[0] - of_each[1])
    return _percentiles(scores)


COMBINED = "combined"  # the classifier as it answers


@dataclass(frozen=True, kw_only=True)
class PartScores:
    """Scores of a classifier, or of a part of it; intervals are 95%, (low, high).

    Attributes:
        name: `accuracy`, or `micro_f1` where a text may have several labels.
        score: its value.
    """

    name: str
    score: float
    interval: Interval
    macro_f1: float
    macro_f1_interval: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """The scores as JSON values."""
        of_macro_f1 = {"macro_f1_interval": self.macro_f1_interval} if self.macro_f1_interval else {}
        return {
            **{self.name: self.score, f"{self.name}_interval": self.interval, "macro_f1": self.macro_f1},
            **of_macro_f1,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The encoder's contribution, beside the linear classifier alone.

    Attributes:
        combined_minus_linear: the difference of accuracy, or of micro-F1.
        interval: its 95% interval, from the texts on which one of both is right.
        is_sure: whether 0 is outside of it.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_answers(answers: NDArray[Any], labels: NDArray[Any]) -> PartScores:
    """Score classes (texts,) against labels (texts,), or labels that texts get, (texts, labels), against theirs."""
    if labels.ndim > 1:
        scores = f1_scores(answers, labels)
        interval = micro_f1_interval(labels, answers)
        return PartScores(name="micro_f1", score=scores.micro, interval=interval, macro_f1=scores.macro)
    right = int((answers == labels).sum())
    counts = ClassCounts.of_classes(answers, labels, 1 + int(max(answers.max(), labels.max())))
    return PartScores(
        name="accuracy",
        score=right / len(labels),
        interval=wilson_interval(right, len(labels)),
        macro_f1=float(counts.f1[counts.occurs].mean()),
        macro_f1_interval=macro_f1_interval(labels, answers),
    )


def score_parts(
    answers: Mapping[str, NDArray[Any]], labels: NDArray[Any]
) -> tuple[dict[str, PartScores], Comparison | None]:
    """Score the answers of `combined` and of the parts `linear` and `encoder`, as far as they exist.

    Returns:
        The scores by part, and the comparison; None where there are not both parts.
    """
    scores = {part: score_answers(of_part, labels) for part, of_part in answers.items()}
    if not {"linear", "encoder"} <= set(answers):
        return scores, None
    combined, linear = answers[COMBINED], answers["linear"]
    if labels.ndim > 1:
        difference = scores[COMBINED].score - scores["linear"].score
        interval = micro_f1_interval(labels, combined, linear)
    else:
        only_combined, only_linear = only_right(combined, linear, labels)
        difference = (only_combined - only_linear) / len(labels)
        interval = paired_interval(only_combined, only_linear, len(labels))
    is_sure = interval[0] > 0 or interval[1] < 0
    return scores, Comparison(combined_minus_linear=difference, interval=interval, is_sure=is_sure)


def only_right(first: NDArray[Any], second: NDArray[Any], labels: NDArray[Any]) -> tuple[int, int]:
    """The number of texts that the first answers alone get right, and the second alone; all (texts,)."""
    is_right, is_second_right = first == labels, second == labels
    return int((is_right & ~is_second_right).sum()), int((is_second_right & ~is_right).sum())


def parts_alone(
    part_logits: Mapping[str, Logits], mixture_weights: Sequence[float], shares: Sequence[float]
) -> dict[str, Logits]:
    """The logits of each part as they would be without the others.

    A mixture weight divided by its share of the sum is the factor of the part alone; all are in the same order.
    """
    return {
        name: (logits * (weight / max(share, 1e-6))).astype(np.float32)
        for (name, logits), weight, share in zip(part_logits.items(), mixture_weights, shares, strict=True)
    }


def micro_f1(logits: Logits, labels: NDArray[Any], thresholds: Sequence[float]) -> float:
    """Micro-F1 of logits (texts, classes), against labels (texts, classes)."""
    return f1_scores(answers_of(logits, thresholds, num_labels=labels.shape[1]), labels).micro
