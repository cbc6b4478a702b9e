"""The logits of a classifier's parts in; scores of each alone, and what the encoder adds to the linear one, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.intervals import Interval, macro_f1_interval, paired_interval, wilson_interval
from encoder_cls.inference.logits import Logits

if TYPE_CHECKING:
    from encoder_cls.evaluation.report import Report

COMBINED = "combined"  # the classifier as it answers
LINEAR_ALONE = "model.encoder=false"  # which trains the linear part alone, in seconds
# Of the larger share in the sum of the logits, from which the answer is said to be nearly, or mostly, that part's.
NEARLY_ALL, MOSTLY = 0.97, 0.6


@dataclass(frozen=True, kw_only=True)
class PartScores:
    """How well a part of a classifier answers by itself; intervals are 95%, (low, high)."""

    accuracy: float
    accuracy_interval: Interval
    macro_f1: float
    macro_f1_interval: Interval


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the encoder adds to the linear classifier.

    Attributes:
        combined_minus_linear: the difference of accuracy.
        interval: its 95% interval, from the texts on which one of both is right.
        is_sure: whether 0 is outside of it.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_parts(
    combined: Logits, parts: Mapping[str, Logits], labels: NDArray[np.int64]
) -> tuple[dict[str, PartScores], Comparison | None]:
    """The scores of `combined` and of each part, and the comparison; none where there are not both parts.

    Args:
        combined: the classifier's logits, (texts, classes).
        parts: those of `linear` and `encoder`, as far as there are.
        labels: the classes, (texts,); those beyond the logits' are mistakes.
    """
    answers = {COMBINED: combined.argmax(axis=1)}
    answers |= {name: parts[name].argmax(axis=1) for name in ("linear", "encoder") if name in parts}
    scores = {name: _scores(predictions, labels) for name, predictions in answers.items()}
    if len(parts) < 2:
        return scores, None
    is_right, is_linear_right = (answers[name] == labels for name in (COMBINED, "linear"))
    only_combined, only_linear = int((is_right & ~is_linear_right).sum()), int((is_linear_right & ~is_right).sum())
    interval = paired_interval(only_combined, only_linear, len(labels))
    return scores, Comparison(
        combined_minus_linear=(only_combined - only_linear) / len(labels),
        interval=interval,
        is_sure=interval[0] > 0 or interval[1] < 0,
    )


def _scores(predictions: NDArray[Any], labels: NDArray[np.int64]) -> PartScores:
    from sklearn.metrics import f1_score

    right = int((predictions == labels).sum())
    return PartScores(
        accuracy=right / len(labels),
        accuracy_interval=wilson_interval(right, len(labels)),
        macro_f1=float(f1_score(labels, predictions, average="macro", zero_division=0)),
        macro_f1_interval=macro_f1_interval(labels, predictions),
    )


def comparison_sentence(report: Report) -> str:
    """What the encoder adds to the linear model, and which of both decides, in words; nothing where there is one."""
    if report.comparison is None:
        return ""
    points, interval = 100 * report.comparison.combined_minus_linear, report.comparison.interval
    # As it is shown: no sign before a zero.
    by = f"{abs(points):.1f} points below" if points <= -0.05 else f"{max(points, 0):+.1f} points over"
    sure = "sure" if report.comparison.is_sure else "not sure"
    sentence = (
        f"{by} the linear model alone ({sure}; 95% interval {100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"
    )
    weight = _weight_in_words(report.mixture_shares)
    return f"{sentence}; {weight}" if weight else sentence


def _weight_in_words(shares: Mapping[str, float] | None) -> str:
    if not shares or len(shares) < 2:
        return ""
    names = {"linear": "the linear model", "encoder": "the encoder"}
    larger, smaller = sorted(shares, key=lambda name: -shares[name])
    weights = f"{_percent(shares[larger])} of the weight"
    if shares[larger] >= NEARLY_ALL:
        return f"{names[larger]} decides nearly alone ({weights})"
    if shares[larger] >= MOSTLY:
        return f"{names[larger]} has most of the weight ({_percent(shares[larger])})"
    of_each = f"{names[larger]} {_percent(shares[larger])}, {names[smaller]} {_percent(shares[smaller])}"
    return f"both weigh about the same ({of_each})"


def _percent(share: float) -> str:
    """A share, with as many digits as show that it is not everything."""
    return f"{share:.1%}" if NEARLY_ALL <= share < 1 else f"{share:.0%}"


def advice(report: Report) -> str:
    """What a person may try next, going by the scores; nothing where the classifier is the best there is."""
    comparison, reference = report.comparison, report.linear_reference
    if comparison and not (comparison.is_sure and comparison.combined_minus_linear > 0):
        return f"the linear model alone may do as well, and trains in seconds: --set {LINEAR_ALONE}"
    if reference and reference["accuracy"] > report.metrics.accuracy:
        if "linear" not in report.parts:
            return f"the linear reference is more accurate here; a linear model alone: --set {LINEAR_ALONE}"
        return "the linear reference is more accurate here; more labelled texts would help most"
    return ""
