"""The charts of a page: what each one shows, and where. `templates/charts.html` draws them as SVG.

Their colours are those of `classifier/html_pages.css`, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import counts_from
from encoder_cls.evaluation.matplotlib_figures import import_matplotlib
from encoder_cls.metrics.classification import CalibrationBins, ClassMetrics, LabelMetrics
from encoder_cls.metrics.intervals import Interval

# The size of a chart in units of its own; the page scales it.
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
        """The horizontal place of a fraction, or of an array of them, in units of the chart."""
        return self.left + fraction * (WIDTH - self.left - self.right)

    def y(self, fraction: Any) -> Any:
        """The vertical place of a fraction, or of an array of them, in units of the chart."""
        return HEIGHT - self.bottom - fraction * (HEIGHT - self.bottom - self.top)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line through points. Its `style` is a class of the style sheet, its `path` that of SVG."""

    style: str
    name: str
    path: str

    @classmethod
    def through(
        cls, x: NDArray[Any], y: NDArray[Any], *, style: str, name: str, plane: Plane
    ) -> Curve:
        """A curve through points with these fractions, both (points,)."""
        points = np.column_stack([plane.x(x), plane.y(y)])

        # Of points in the same unit of the chart only the last is drawn.
        whole_units = points.round()
        is_next_elsewhere = np.diff(whole_units, axis=0, append=np.nan).any(axis=1)
        pairs = [f"{left:.1f},{top:.1f}" for left, top in points[is_next_elsewhere]]
        return cls(style=style, name=name, path=f"M{' '.join(pairs)}")


@dataclass(frozen=True, kw_only=True)
class ReliabilityDot:
    """The predictions of one bin of confidence."""

    confidence: float
    accuracy: float
    # The number of texts, and its fraction of that of the fullest bin.
    texts: int
    share: float
    # The bounds of the bin.
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ReliabilityChart:
    """Accuracy by the probability of a prediction, or of a label, as `of` says."""

    of: str
    dots: list[ReliabilityDot]
    # The numbers of texts are drawn below the plane.
    plane: Plane = Plane(bottom=84)


def reliability(bins: CalibrationBins, *, of: str = "prediction") -> ReliabilityChart:
    """A dot for each bin that has texts."""
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
    """What a threshold does: how many predictions it keeps, and how many of these are correct."""

    curves: list[Curve]
    suggested: float | None
    plane: Plane


def thresholds(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], suggested: float | None
) -> ThresholdChart:
    """Both fractions by threshold.

    `confidence` is that of the predictions, `correct` whether they are correct, both (texts,).
    """
    plane = Plane()
    steps = np.linspace(0, 1, 201)
    num_predicted = counts_from(steps, confidence)
    num_right = counts_from(steps, confidence[correct])

    # Beyond the most confident prediction there is nothing that could be right.
    has_predictions = num_predicted > 0
    accuracy = num_right[has_predictions] / num_predicted[has_predictions]
    right = Curve.through(
        steps[has_predictions], accuracy, style="c1", name="right, of the kept ones", plane=plane
    )

    kept_fraction = num_predicted / len(confidence)
    kept = Curve.through(
        steps, kept_fraction, style="c2", name="predictions that are kept", plane=plane
    )
    return ThresholdChart(curves=[right, kept], suggested=suggested, plane=plane)


@dataclass(frozen=True, kw_only=True)
class CurvesChart:
    """Precision against recall."""

    curves: list[Curve]
    plane: Plane


# Texts times classes in the curve of all classes: about a second.
MAX_DECISIONS = 5_000_000


def precision_recall(
    probabilities: NDArray[np.float64],
    labels: NDArray[Any],
    chosen: Sequence[int],
    names: Sequence[str],
) -> CurvesChart:
    """Curves of chosen classes, and one of all classes together if more occur.

    Probabilities are (texts, classes), labels (texts,) or (texts, labels).
    """
    from sklearn.metrics import precision_recall_curve

    plane = Plane()
    num_texts, num_classes = probabilities.shape
    if labels.ndim > 1:
        is_label = labels[:, :num_classes] > 0
    else:
        is_label = labels[:, None] == np.arange(num_classes)

    curves = []
    num_occurring = is_label.any(axis=0).sum()
    if num_occurring > len(chosen):
        # Each pair of a text and a class is a decision; of many texts, take a random sample.
        most_texts = max(1, MAX_DECISIONS // num_classes)
        sample = np.random.default_rng(0).permutation(num_texts)[:most_texts]
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


# The most classes with a curve: more cannot be distinguished.
MAX_CURVES = 6


def notable_classes(
    per_class: Mapping[str, ClassMetrics], most: int, *, num_classes: int
) -> tuple[list[int], str]:
    """The numbers of at most `most` classes, with a note if more occur.

    Half of them are the rarest, and the others those with the lowest F1. Classes from
    `num_classes` on, which never occur in training, have no probability.
    """
    scores = list(per_class.values())[:num_classes]
    occurring = [number for number, score in enumerate(scores) if score.support]
    if len(occurring) <= most:
        return occurring, ""

    def support(number: int) -> int:
        return scores[number].support

    def f1(number: int) -> float:
        return scores[number].f1 or 0

    # A class is rare if it has fewer texts than is usual.
    usual_support = np.median([support(number) for number in occurring])
    rare = [number for number in occurring if support(number) < usual_support]
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
    """Texts of similar length: the words that they have, and how many are predicted correctly."""

    words: str
    texts: int
    accuracy: float
    # The place of the bar's middle, from 0 to 1.
    middle: float


@dataclass(frozen=True, kw_only=True)
class LengthChart:
    """Accuracy by length of text in words."""

    bars: list[LengthBar]
    # The width of a bar in units of the chart.
    bar_width: float
    plane: Plane


# Bins of about as many texts each.
LENGTH_BINS = 6
# The widest bar in units of the chart.
WIDEST_BAR = 46
# The part of the width that bars fill.
BAR_SHARE = 0.7


def accuracy_by_length(
    lengths: NDArray[np.int64], correct: NDArray[np.bool_]
) -> LengthChart | None:
    """A bar for each bin of lengths, which are in words; None if all texts are in one bin.

    Both arguments are (texts,).
    """
    # The bounds of bins with about as many texts each; equal bounds are one.
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
            accuracy=float(correct[is_member].mean()),
            middle=(place + 0.5) / len(filled),
        )
        bars.append(bar)

    plane = Plane()
    width = BAR_SHARE * (plane.x(1) - plane.x(0)) / len(bars)
    return LengthChart(bars=bars, bar_width=min(WIDEST_BAR, width), plane=plane)


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """A score, and the ends of its interval if there is one, with their places on the scale."""

    name: str
    score: float
    interval: Interval | None
    # The vertical place of the row, and the horizontal ones of the score and of the interval.
    y: float
    x: float
    low_x: float | None
    high_x: float | None


@dataclass(frozen=True, kw_only=True)
class ScoresChart:
    """Scores on one scale, each a dot on the line of its interval; the first one counts most."""

    name: str
    rows: list[ScoreRow]
    # Labels of the scale, with their places.
    ticks: list[tuple[str, float]]
    # The place of the numbers, right-aligned, and the bounds of the plane.
    numbers_x: float
    top: float
    floor: float


# The height of a row, in units of the chart.
ROW_HEIGHT = 26
# Above the first row.
ROWS_TOP = 6
# The horizontal bounds of the scale: names and numbers are to the left.
SCALE_LEFT = 186
SCALE_RIGHT = 412
# Between the numbers and the scale.
NUMBERS_GAP = 18
# The least range of the scale, so that its ticks differ in tenths of a percent.
MIN_RANGE = 0.004


def scores_with_intervals(
    rows: Sequence[tuple[str, float, Interval | None]], name: str
) -> ScoresChart:
    """A row for each name, score and interval."""
    values = []
    for _, score, interval in rows:
        values.append(score)
        values += interval or ()
    ticks = _score_ticks(min(values), max(values))
    low = ticks[0]
    high = ticks[-1]

    def x(value: float) -> float:
        return float(SCALE_LEFT + (value - low) / (high - low) * (SCALE_RIGHT - SCALE_LEFT))

    score_rows = []
    for number, (row_name, score, interval) in enumerate(rows):
        low_x = None
        high_x = None
        if interval:
            low_x = x(interval[0])
            high_x = x(interval[1])
        row = ScoreRow(
            name=row_name,
            score=score,
            interval=interval,
            y=ROWS_TOP + ROW_HEIGHT * (number + 0.5),
            x=x(score),
            low_x=low_x,
            high_x=high_x,
        )
        score_rows.append(row)

    # Ticks that are closer than a percent need a digit more.
    num_digits = 0
    if ticks[1] - ticks[0] < 0.0099:
        num_digits = 1
    return ScoresChart(
        name=name,
        rows=score_rows,
        ticks=[(f"{tick:.{num_digits}%}", x(tick)) for tick in ticks],
        numbers_x=SCALE_LEFT - NUMBERS_GAP,
        top=ROWS_TOP,
        floor=ROWS_TOP + ROW_HEIGHT * len(rows),
    )


def _score_ticks(lowest: float, highest: float) -> NDArray[np.float64]:
    """Round numbers around scores, ascending."""
    import_matplotlib()
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(4, steps=[1, 2, 5, 10])
    ticks = np.asarray(locator.tick_values(min(lowest, highest - MIN_RANGE), highest))
    if highest <= 0:
        return ticks
    # No score is below 0; rounding may make the tick at 0 a little less.
    return ticks[ticks > -1e-9]
