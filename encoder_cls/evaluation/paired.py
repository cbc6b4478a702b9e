"""The answers of two classifiers to the same texts in; which is better, by how much, and how sure that is, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.intervals import Interval, paired_interval, paired_macro_f1_interval
from encoder_cls.evaluation.parts import PartScores, score_answers


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Another classifier beside the one of a report, on the same texts; intervals are 95%, (low, high).

    Attributes:
        run: the other's folder, as it was named.
        scores: of the other.
        accuracy_difference: the other's accuracy less that of the report's.
        accuracy_difference_interval: of that, from the texts on which one of both is right.
        macro_f1_difference: as of accuracy.
        macro_f1_difference_interval: by a bootstrap of the texts, each drawn with both answers.
        only_this: texts that the report's classifier alone gets right.
        only_other: texts that the other alone gets right.
        p_value: of McNemar's exact test: how likely so uneven numbers are where both are equally good.
    """

    run: str
    scores: PartScores
    accuracy_difference: float
    accuracy_difference_interval: Interval
    macro_f1_difference: float
    macro_f1_difference_interval: Interval
    only_this: int
    only_other: int
    p_value: float

    @property
    def is_sure(self) -> bool:
        """Whether a difference of 0 is outside of the interval of accuracy."""
        low, high = self.accuracy_difference_interval
        return low > 0 or high < 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; the other's scores are at the top level."""
        values = asdict(self)
        return {"run": values.pop("run"), **values.pop("scores"), **values}


def compare_answers(
    labels: NDArray[np.int64], this: NDArray[np.int64], other: NDArray[np.int64], *, run: str
) -> PairedComparison:
    """Compare what two classifiers answer.

    McNemar, "Note on the sampling error of the difference between correlated proportions or percentages" (1947),
    https://doi.org/10.1007/BF02295996, with exact probabilities.

    Args:
        labels: the class of each text, (texts,).
        this: what the classifier of the report answers, (texts,).
        other: what the other answers, (texts,); a class that the first does not know has a number of its own.
        run: what to call the other.
    """
    from scipy.stats import binomtest

    is_right, other_is_right = this == labels, other == labels
    only_this, only_other = int((is_right & ~other_is_right).sum()), int((other_is_right & ~is_right).sum())
    scores, of_this = score_answers(other, labels), score_answers(this, labels)
    return PairedComparison(
        run=run,
        scores=scores,
        accuracy_difference=(only_other - only_this) / len(labels),
        accuracy_difference_interval=paired_interval(only_other, only_this, len(labels)),
        macro_f1_difference=scores.macro_f1 - of_this.macro_f1,
        macro_f1_difference_interval=paired_macro_f1_interval(labels, other, this),
        only_this=only_this,
        only_other=only_other,
        p_value=float(binomtest(only_other, only_this + only_other).pvalue) if only_this + only_other else 1.0,
    )


def comparison_lines(comparison: PairedComparison, *, name: str) -> Sequence[str]:
    """Which is better by accuracy, and by macro-F1, as two sentences.

    Args:
        comparison: the comparison.
        name: of the other classifier, printable.
    """
    accuracy = _sentence(name, comparison.accuracy_difference, comparison.accuracy_difference_interval, "accuracy")
    macro_f1 = _sentence(name, comparison.macro_f1_difference, comparison.macro_f1_difference_interval, "macro-F1")
    alone = f"{comparison.only_other:,} texts it alone gets right, {comparison.only_this:,} it alone gets wrong"
    p_value = f"p = {comparison.p_value:.3f}" if comparison.p_value >= 0.001 else "p < 0.001"
    return f"{accuracy} (McNemar's test: {p_value}; {alone})", macro_f1


def _sentence(name: str, difference: float, interval: Interval, of: str) -> str:
    low, high = interval
    which = "better"
    if difference < 0:
        difference, low, high, which = -difference, -high, -low, "worse"
    points = f"{100 * difference:.1f} points of {of}, 95% interval {100 * low:.1f} to {100 * high:.1f}"
    if 100 * difference < 0.05:  # as it is shown
        return f"no sure difference: {points}"
    return f"{name} is {which} by {points}" if low > 0 else f"no sure difference: {name} is {which} by {points}"
