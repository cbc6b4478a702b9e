"""The charts of the page of a report: what each chart shows, and at which coordinates.

`templates/charts.html` draws them as SVG, in the colours of `system/html_pages.css`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import counts_from
from encoder_cls.evaluation.levels import LevelsEvaluation
from encoder_cls.metrics.classification import CalibrationBins, ClassMetrics, LabelMetrics
from encoder_cls.metrics.tasks import task_of

# The width and height of a chart. These are the units of all coordinates; the page scales them.
WIDTH = 440
HEIGHT = 270


@dataclass(frozen=True)
class Plane:
    """The part of a chart in which values from 0 to 1 are drawn, by its distances to the edges."""

    left: float = 46
    right: float = 16
    top: float = 24
    bottom: float = 42

    def x(self, fraction: Any) -> Any:
        """The horizontal coordinate of values from 0 to 1."""
        return self.left + fraction * (WIDTH - self.left - self.right)

    def y(self, fraction: Any) -> Any:
        """The vertical coordinate of values from 0 to 1."""
        return HEIGHT - self.bottom - fraction * (HEIGHT - self.bottom - self.top)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line, with its class in the style sheet and the `d` of its path."""

    style: str
    name: str
    path: str

    @classmethod
    def through(
        cls, x: NDArray[Any], y: NDArray[Any], *, style: str, name: str, plane: Plane
    ) -> Curve:
        """Make a curve through points from 0 to 1."""
        points = np.column_stack([plane.x(x), plane.y(y)])

        # Of consecutive points that round to the same whole units, draw only the last one.
        whole_units = points.round()
        is_last = np.ones(len(points), dtype=bool)
        is_last[:-1] = (whole_units[:-1] != whole_units[1:]).any(axis=1)
        pairs = [f"{left:.1f},{top:.1f}" for left, top in points[is_last]]
        return cls(style=style, name=name, path=f"M{' '.join(pairs)}")


@dataclass(frozen=True, kw_only=True)
class ReliabilityDot:
    """The predictions in a bin; `share` is their number as a fraction of the fullest bin's."""

    confidence: float
    accuracy: float
    texts: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ReliabilityChart:
    """Accuracy by probability, of a `prediction`, or multi-label of a `label`; bars count texts."""

    of: str
    dots: list[ReliabilityDot]
    plane: Plane = Plane(bottom=84)


def reliability(bins: CalibrationBins, *, of: str = "prediction") -> ReliabilityChart:
    """Make the chart of accuracy by probability."""
    num_bins = len(bins.texts)
    dots = []
    for number in np.flatnonzero(bins.texts).tolist():
        dot = ReliabilityDot(
            confidence=bins.confidence[number],
            accuracy=bins.accuracy[number],
            texts=bins.texts[number],
            share=bins.texts[number] / max(bins.texts),
            low=number / num_bins,
            high=(number + 1) / num_bins,
        )
        dots.append(dot)
    return ReliabilityChart(of=of, dots=dots)


@dataclass(frozen=True, kw_only=True)
class ThresholdChart:
    """What a threshold keeps, and the accuracy of that."""

    curves: list[Curve]
    suggested: float | None
    plane: Plane


def thresholds(
    confidence: NDArray[np.float64], is_correct: NDArray[np.bool_], suggested: float | None
) -> ThresholdChart:
    """What a threshold on `confidence` keeps."""
    plane = Plane()
    steps = np.linspace(0, 1, 201)
    num_kept = counts_from(steps, confidence)
    num_correct = counts_from(steps, confidence[is_correct])

    # The curve of accuracy ends at the most confident prediction. Higher thresholds keep nothing.
    keeps_any = num_kept > 0
    accuracy = num_correct[keeps_any] / num_kept[keeps_any]
    accuracy_curve = Curve.through(
        steps[keeps_any], accuracy, style="c1", name="right, of the kept ones", plane=plane
    )

    kept_fraction = num_kept / len(confidence)
    kept_curve = Curve.through(
        steps, kept_fraction, style="c2", name="predictions that are kept", plane=plane
    )
    return ThresholdChart(curves=[accuracy_curve, kept_curve], suggested=suggested, plane=plane)


@dataclass(frozen=True, kw_only=True)
class CurvesChart:
    """Precision by recall, a curve for each of some classes."""

    curves: list[Curve]
    plane: Plane


# The most pairs of a text and a class in the curve of all classes, which take about a second.
MAX_DECISIONS = 5_000_000


def precision_recall(
    probabilities: NDArray[np.float64],
    labels: NDArray[Any],
    chosen: Sequence[int],
    names: Sequence[str],
) -> CurvesChart:
    """Curves of chosen classes, and one of all together if others occur."""
    from sklearn.metrics import precision_recall_curve

    plane = Plane()
    num_texts, num_classes = probabilities.shape
    is_label = task_of(labels).indicators(labels, num_classes)

    curves = []
    num_occurring = is_label.any(axis=0).sum()
    if num_occurring > len(chosen):
        # Each pair of a text and a class is a decision. Of many texts, draw a random sample.
        num_drawn = max(1, MAX_DECISIONS // num_classes)
        sample = np.random.default_rng(0).permutation(num_texts)[:num_drawn]
        if is_label[sample].any():
            precision, recall, _ = precision_recall_curve(
                is_label[sample].ravel(), probabilities[sample].ravel()
            )
            curve = Curve.through(
                recall, precision, style="c0", name="all classes together", plane=plane
            )
            curves.append(curve)

    for style_number, class_number in enumerate(chosen, start=1):
        precision, recall, _ = precision_recall_curve(
            is_label[:, class_number], probabilities[:, class_number]
        )
        curve = Curve.through(
            recall, precision, style=f"c{style_number}", name=names[class_number], plane=plane
        )
        curves.append(curve)
    return CurvesChart(curves=curves, plane=plane)


def answered(evaluation: LevelsEvaluation) -> CurvesChart:
    """How many of the surest answers are right, by level."""
    plane = Plane()
    curves: list[Curve] = []
    for scores in evaluation.levels[-MAX_CURVES:]:
        curve = Curve.through(
            np.array(scores.curve.answered),
            np.array(scores.curve.right),
            style=f"c{len(curves) + 1}",
            name=f"level {scores.level}",
            plane=plane,
        )
        curves.append(curve)
    return CurvesChart(curves=curves, plane=plane)


# The most classes with a curve; more curves could not be distinguished.
MAX_CURVES = 6


def notable_classes(
    per_class: Mapping[str, ClassMetrics], most: int, *, num_classes: int
) -> tuple[list[int], str]:
    """Choose at most `most` classes that occur in training, with a note if not all.

    Half are the rarest classes, the others those with the lowest F1.
    """
    scores = list(per_class.values())[:num_classes]
    occurring = [number for number, score in enumerate(scores) if score.support]
    if len(occurring) <= most:
        return occurring, ""

    def support(number: int) -> int:
        return scores[number].support

    def f1(number: int) -> float:
        return scores[number].f1 or 0

    # A class is rare if it has fewer texts than the median class.
    median_support = np.median([support(number) for number in occurring])
    rare = [number for number in occurring if support(number) < median_support]
    rarest = sorted(rare, key=support)[: most // 2]

    others = [number for number in occurring if number not in rarest]
    worst = sorted(others, key=f1)[: most - len(rarest)]

    noun = "classes"
    if isinstance(scores[0], LabelMetrics):
        noun = "labels"
    note = f"Curves of {most} of {len(occurring)} {noun}: the rarest and those with the lowest F1."
    return [*rarest, *worst], note


@dataclass(frozen=True, kw_only=True)
class LengthBar:
    """A bar for texts with a range of words such as "5–9"; its middle is from 0 to 1."""

    words: str
    texts: int
    accuracy: float
    middle: float


@dataclass(frozen=True, kw_only=True)
class LengthChart:
    """Accuracy by the length of texts in words."""

    bars: list[LengthBar]
    bar_width: float
    plane: Plane


# The number of bins of lengths, each with about the same number of texts.
LENGTH_BINS = 6
# The largest width of a bar in units of the chart.
MAX_BAR_WIDTH = 46
# The fraction of the width of the plane that bars fill; the rest is between them.
BAR_SHARE = 0.7


def accuracy_by_length(
    lengths: NDArray[np.int64], is_correct: NDArray[np.bool_]
) -> LengthChart | None:
    """Accuracy by the number of words; None if all are in one bin."""
    # Find the bounds of bins with about the same number of texts. Quantiles that are equal give
    # only one bound.
    quantiles = np.linspace(0, 1, LENGTH_BINS + 1)
    bounds = np.unique(np.quantile(lengths, quantiles).round().astype(int))

    # The longest texts belong to the last bin.
    last_bin = max(0, len(bounds) - 2)
    bins = np.searchsorted(bounds, lengths, side="right") - 1
    bins = np.clip(bins, 0, last_bin)
    filled = np.unique(bins)
    if len(filled) < 2:
        return None

    bars = []
    for place, number in enumerate(filled):
        is_member = bins == number
        shortest = lengths[is_member].min()
        longest = lengths[is_member].max()
        words = f"{shortest}"
        if shortest < longest:
            words = f"{shortest}–{longest}"

        bar = LengthBar(
            words=words,
            texts=int(is_member.sum()),
            accuracy=float(is_correct[is_member].mean()),
            middle=(place + 0.5) / len(filled),
        )
        bars.append(bar)

    plane = Plane()
    width = BAR_SHARE * (plane.x(1) - plane.x(0)) / len(bars)
    return LengthChart(bars=bars, bar_width=min(MAX_BAR_WIDTH, width), plane=plane)
