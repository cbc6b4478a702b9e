"""The logits of a classifier's parts in; scores of each alone, and what the encoder adds to the linear one, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.intervals import Interval, macro_f1_interval, paired_interval, wilson_interval
from encoder_cls.inference.logits import Logits

COMBINED = "combined"  # the classifier as it answers


@dataclass(frozen=True, kw_only=True)
class PartScores:
    """How well a part of a classifier answers by itself; intervals are 95%, (low, high)."""

    accuracy: float
    accuracy_interval: Interval
    macro_f1: float
    macro_f1_interval: Interval

    @property
    def score(self) -> float:
        """What parts are compared by."""
        return self.accuracy

    @property
    def score_interval(self) -> Interval:
        """That of the score."""
        return self.accuracy_interval


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the encoder adds to the linear classifier.

    Attributes:
        combined_minus_linear: the difference of accuracy, multi-label of micro-F1.
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
    scores = {name: score_answers(predictions, labels) for name, predictions in answers.items()}
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


def score_answers(predictions: NDArray[Any], labels: NDArray[np.int64]) -> PartScores:
    """The scores of the classes (texts,) that some classifier answers."""
    from sklearn.metrics import f1_score

    right = int((predictions == labels).sum())
    return PartScores(
        accuracy=right / len(labels),
        accuracy_interval=wilson_interval(right, len(labels)),
        macro_f1=float(f1_score(labels, predictions, average="macro", zero_division=0)),
        macro_f1_interval=macro_f1_interval(labels, predictions),
    )
