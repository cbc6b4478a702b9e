"""Charts: SVG for pages, in the style of `inference/html_pages.css`; figures of matplotlib for PNG and TensorBoard."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import counts_from
from encoder_cls.classifier.html_pages import escaped
from encoder_cls.evaluation.intervals import Interval
from encoder_cls.metrics.classification import CalibrationBins, ClassMetrics, LabelMetrics
from encoder_cls.system.display import replace_unprintable, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 440, 270  # of a chart, in units of its own
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 24, 42  # around the plane
MOST_CURVES = 6  # of single classes: more cannot be distinguished
MOST_DECISIONS = 5_000_000  # texts times classes in the curve of all classes: a second
LENGTH_BINS = 6
WIDEST_BAR = 46
LONGEST_NAME = 26  # characters of a class name in a key

# Of figures.
USUAL_FONT = "DejaVu Sans"  # comes with matplotlib
PREFERRED_FONTS = "Noto Sans"
NO_LETTERS = (
    "Last Resort",
    "STIXSize",
    "DejaVu Sans Display",
    "cm",
)  # of matplotlib: boxes, parts of formulas
DPI = 100  # pixels of an inch
POINTS = 72 / DPI  # of a pixel: the unit of sizes of letters
LETTER = 0.64  # the width of a digit, and about that of a letter, relative to the size
SMALLEST_LETTERS = 7  # pixels in which a number can be read
MATRIX_SIDE = 480  # pixels of a confusion matrix, where that makes good cells
READABLE = 10  # pixels of a row in which a name can be read
LARGEST_CELL = 100  # pixels
ANNOTATED = 16  # pixels of a cell in which a number can be read
SQUARE = 8  # pixels of a point's image


def _x(value: Any) -> Any:
    """Map a fraction of the horizontal axis, or an array of them, to units of the drawing."""
    return LEFT + value * (WIDTH - LEFT - RIGHT)


def _y(value: Any, bottom: int = BOTTOM) -> Any:
    """Map a fraction of the vertical axis, which ends `bottom` units above the edge, to units of the drawing."""
    return HEIGHT - bottom - value * (HEIGHT - bottom - TOP)


def reliability(bins: CalibrationBins, *, of: str = "answer") -> str:
    """Accuracy by probability of an answer, or of a label; dots of fewer texts are smaller and paler."""
    bottom, floor = BOTTOM + 42, HEIGHT - BOTTOM  # the counts are below the plane
    parts = [_line("even", _x(0), _y(0, bottom), _x(1), _y(1, bottom))]
    for number in np.flatnonzero(bins.texts).tolist():
        confidence, accuracy, texts = (
            bins.confidence[number],
            bins.accuracy[number],
            bins.texts[number],
        )
        part = texts / max(bins.texts)
        title = f"says {confidence:.2f}, right {accuracy:.2f}: {texts:,} texts"
        left, right = (_x(edge / len(bins.texts)) for edge in (number, number + 1))
        parts += [
            _bar(
                "count",
                left + 1,
                floor - max(1.0, 34 * part),
                right - left - 2,
                max(1.0, 34 * part),
                title,
            ),
            f'<circle cx="{_x(confidence):.1f}" cy="{_y(accuracy, bottom):.1f}" r="{3 + 4 * part**0.5:.1f}" '
            f'opacity="{0.2 + 0.8 * part**0.5:.2f}"><title>{title}</title></circle>',
        ]
    parts.append(f'<text x="{LEFT - 6}" y="{floor}" text-anchor="end">texts</text>')
    frame = _frame("right", f"probability of the {of}", bottom=bottom)
    return _chart(f"Accuracy by probability of the {of}", [*frame, *parts])


def thresholds(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], suggested: float | None
) -> str:
    """The fraction of the texts that are answered, and of the answers that are right, by threshold."""
    steps = np.linspace(0, 1, 201)
    num_answered, num_right = (counts_from(steps, it) for it in (confidence, confidence[correct]))
    has_answers = num_answered > 0
    right = num_right[has_answers] / num_answered[has_answers]
    parts = _frame("part of the texts, of the answers", "threshold")
    if suggested:
        middle, (anchor, shift) = _x(suggested), ("end", -5) if suggested > 0.5 else ("start", 5)
        parts += [
            _line("even", middle, _y(0), middle, _y(1)),
            f'<text class="strong" x="{middle + shift:.1f}" y="{_y(0.03):.1f}" text-anchor="{anchor}">'
            f"suggested: {suggested:.3f}</text>",
        ]
    parts += [
        _curve("c1", steps[has_answers], right),
        _curve("c2", steps, num_answered / len(confidence)),
    ]
    key = _key([("c1", "right, of the answers"), ("c2", "texts that get an answer")])
    return key + _chart("What a threshold does", parts)


def precision_recall(
    probabilities: NDArray[np.float64],
    labels: NDArray[Any],
    chosen: Sequence[int],
    names: Sequence[str],
) -> str:
    """Precision against recall of chosen classes, and of all answers together if more classes occur.

    Probabilities are (texts, classes), labels (texts,) or (texts, labels).
    """
    from sklearn.metrics import precision_recall_curve

    num_classes = probabilities.shape[1]
    drawn, key = [], []
    is_label = (
        labels[:, :num_classes] > 0
        if labels.ndim > 1
        else labels[:, None] == np.arange(num_classes)
    )
    if is_label.any(axis=0).sum() > len(chosen):
        sample = np.random.default_rng(0).permutation(len(labels))[
            : max(1, MOST_DECISIONS // num_classes)
        ]
        if is_label[sample].any():
            precision, recall, _ = precision_recall_curve(
                is_label[sample].ravel(), probabilities[sample].ravel()
            )
            drawn.append(_curve("c0", recall, precision))
            key.append(("c0", "all classes together"))
    for style, number in enumerate(chosen, start=1):
        precision, recall, _ = precision_recall_curve(is_label[:, number], probabilities[:, number])
        drawn.append(_curve(f"c{style}", recall, precision))
        key.append((f"c{style}", names[number]))
    return _key(key) + _chart("Precision and recall", [*_frame("precision", "recall"), *drawn])


def notable_classes(
    per_class: Mapping[str, ClassMetrics], most: int, *, num_classes: int
) -> tuple[list[int], str]:
    """The numbers of at most `most` classes, with a note if more occur.

    Half of them are the rarest, and the others those with the lowest F1. Classes from `num_classes` on, which never
    occur in training, have no probability.
    """
    scores = list(per_class.values())[:num_classes]
    occurring = [number for number, score in enumerate(scores) if score.support]
    if len(occurring) <= most:
        return occurring, ""
    usual = np.median([scores[number].support for number in occurring])
    rare = [number for number in occurring if scores[number].support < usual]
    rarest = sorted(rare, key=lambda number: scores[number].support)[: most // 2]
    others = [number for number in occurring if number not in rarest]
    worst = sorted(others, key=lambda number: scores[number].f1 or 0)[: most - len(rarest)]
    classes = "labels" if isinstance(scores[0], LabelMetrics) else "classes"
    note = (
        f"Curves of {most} of {len(occurring)} {classes}: the rarest and those with the lowest F1."
    )
    return [*rarest, *worst], note


def accuracy_by_length(lengths: NDArray[np.int64], correct: NDArray[np.bool_]) -> str | None:
    """Accuracy by length of text in words, in bins of about as many texts each; None if all are in one bin."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_BINS + 1)).round().astype(int))
    bins = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(0, len(edges) - 2))
    filled = np.unique(bins)
    if len(filled) < 2:
        return None
    parts = _frame("right", "words of the text", x_ticks=())
    width = min(WIDEST_BAR, 0.7 * (WIDTH - LEFT - RIGHT) / len(filled))
    for place, number in enumerate(filled):
        members = bins == number
        low, high, score = (
            lengths[members].min(),
            lengths[members].max(),
            float(correct[members].mean()),
        )
        name = f"{low}" if low == high else f"{low}–{high}"
        middle, top = _x((place + 0.5) / len(filled)), _y(score)
        title = f"{name} words: {score:.1%} right of {members.sum():,} texts"
        parts += [
            _bar("bar", middle - width / 2, top, width, _y(0) - top, title),
            f'<text class="strong" x="{middle:.1f}" y="{top - 5:.1f}" text-anchor="middle">{score:.0%}</text>',
            f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{name}</text>',
        ]
    return _chart("Accuracy by length of the text", parts)


def parts_with_intervals(
    rows: Sequence[tuple[str, float, Interval | None]], name: str = "Accuracy of the parts"
) -> str:
    """Scores on one scale, each a dot on the line of its interval; the first is the classifier's."""
    import_matplotlib()
    from matplotlib.ticker import MaxNLocator

    ends = [value for _, score, interval in rows for value in (score, *(interval or ()))]
    # Ticks are shown in tenths of a percent at most.
    locator = MaxNLocator(4, steps=[1, 2, 5, 10])
    ticks = np.asarray(locator.tick_values(min(*ends, max(ends) - 0.004), max(ends)))
    ticks = ticks[ticks > -1e-9] if max(ends) > 0 else ticks
    low, high = ticks[0], ticks[-1]
    row_height, left, right, top = 26, 186, 412, 6
    floor = top + row_height * len(rows)

    def x(value: float) -> float:
        return float(left + (value - low) / (high - low) * (right - left))

    drawn, other, digits = [], ' class="other"', int(ticks[1] - low < 0.0099)
    for tick in ticks:
        drawn += [
            _line("grid", x(tick), top, x(tick), floor),
            f'<text x="{x(tick):.1f}" y="{floor + 15}" text-anchor="middle">{tick:.{digits}%}</text>',
        ]
    for number, (part, score, interval) in enumerate(rows):
        middle = top + row_height * (number + 0.5)
        title = f"{part}: {score:.1%}" + (
            f", {interval[0]:.1%} to {interval[1]:.1%}" if interval else ""
        )
        line = _line("interval", x(interval[0]), middle, x(interval[1]), middle) if interval else ""
        drawn.append(
            f"<g{other if number else ''}><title>{escaped(title)}</title>"
            f'<text class="name" x="0" y="{middle + 4:.1f}">{escaped(part)}</text>'
            f'<text class="strong" x="{left - 18}" y="{middle + 4:.1f}" text-anchor="end">{score:.1%}</text>{line}'
            f'<circle cx="{x(score):.1f}" cy="{middle:.1f}" r="4.5"/></g>'
        )
    return _chart(name, drawn, height=floor + 22)


def _frame(
    y_name: str,
    x_name: str,
    *,
    x_ticks: Sequence[float] = (0, 0.25, 0.5, 0.75, 1),
    bottom: int = BOTTOM,
) -> list[str]:
    """The grid, its numbers, and the names of the axes, both horizontal."""
    end, values = WIDTH - RIGHT, (0, 0.25, 0.5, 0.75, 1)
    floor = HEIGHT - BOTTOM + 16
    return [
        *(
            _line("grid" if it else "axis", LEFT, _y(it, bottom), end, _y(it, bottom))
            for it in values
        ),
        *(
            f'<text x="{LEFT - 6}" y="{_y(it, bottom) + 4:.1f}" text-anchor="end">{it:.0%}</text>'
            for it in values
        ),
        *(
            f'<text x="{_x(it):.1f}" y="{floor}" text-anchor="middle">{it:g}</text>'
            for it in x_ticks
        ),
        f'<text class="strong" x="0" y="12">{y_name}</text>',
        f'<text class="strong" x="{end}" y="{HEIGHT - 6}" text-anchor="end">{x_name}</text>',
    ]


def _chart(name: str, parts: Iterable[str], *, height: int = HEIGHT) -> str:
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">'
    return "\n".join([head, *parts, "</svg>"])


def _key(entries: Sequence[tuple[str, str]]) -> str:
    """The key of the lines, as HTML so that names wrap."""
    items = "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="{style}" d="M0 5H26"/></svg>'
        f"<bdi>{escaped(shortened(name, limit=LONGEST_NAME))}</bdi></li>"
        for style, name in entries
    )
    return f'<ul class="key">{items}</ul>'


def _curve(style: str, x: NDArray[Any], y: NDArray[Any]) -> str:
    """A line through points; of those within one unit of the drawing, only the last."""
    points = np.column_stack([_x(x), _y(y)])
    points = points[np.diff(points.round(), axis=0, append=np.nan).any(axis=1)]
    return f'<path class="{style}" d="M{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _bar(style: str, left: float, top: float, width: float, height: float, title: str) -> str:
    return (
        f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5">'
        f"<title>{title}</title></rect>"
    )


def confusion_figure(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> Figure:
    """A confusion matrix: rows are labels, cells are coloured by their share of the row, mistakes in orange."""
    counts = np.array(matrix)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    cell = int(np.clip(MATRIX_SIDE / len(counts), READABLE, LARGEST_CELL))
    name_size = min(12.0, 0.85 * cell)
    # On one line, and no formula.
    names = [
        replace_unprintable(shortened(name, limit=24)).replace("$", r"\$") for name in label_names
    ]
    side = cell * len(counts) / DPI
    margin = 0.3 + max(0.6, name_size * LETTER * max(map(len, names)) / DPI)
    figure = _figure(margin + side + 0.12, margin + side + 0.12, margin=margin)
    axes = figure.subplots()
    is_right = np.eye(len(counts), dtype=bool)
    # Blue where label and answer are equal, orange elsewhere, by the square root: few mistakes would be too pale.
    axes.imshow(np.ma.masked_array(shares, ~is_right), cmap="Blues", vmin=0, vmax=1)
    axes.imshow(
        np.ma.masked_array(np.sqrt(shares), is_right | (counts == 0)),
        cmap="Oranges",
        vmin=0,
        vmax=1,
    )
    numbers = np.arange(len(names))
    style: dict[str, Any] = {"fontsize": POINTS * name_size, "fontfamily": fonts_for(names)}
    axes.set_xticks(numbers, names, rotation=90, **style)
    axes.set_yticks(numbers, names, **style)
    axes.tick_params(length=0)
    figure.text(0.98, 0.01, "predicted →", ha="right", va="bottom", fontsize=POINTS * 12)
    figure.text(
        0.01, 1 - (side + 0.2) / (margin + side + 0.12), "↑ label", va="top", fontsize=POINTS * 12
    )
    count_size = min(12.0, 0.9 * cell / (LETTER * len(str(counts.max()))))
    if cell >= ANNOTATED and count_size >= SMALLEST_LETTERS:
        for row, column in np.argwhere(counts > 0):
            axes.text(
                *(column, row, str(counts[row, column])),
                color="white"
                if shares[row, column] ** (1 if row == column else 0.5) > 0.6
                else "black",
                ha="center",
                va="center",
                fontsize=POINTS * count_size,
            )
    return figure


def reliability_figure(bins: CalibrationBins) -> Figure:
    """Accuracy by confidence, above the number of texts of each confidence."""
    figure = _figure(4, 4)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    confidence, accuracy, texts = (
        np.array(bins.confidence),
        np.array(bins.accuracy),
        np.array(bins.texts),
    )
    filled = texts > 0
    upper.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    upper.plot(confidence[filled], accuracy[filled], marker="o", markersize=4)
    upper.set(ylabel="right", xlim=(0, 1), ylim=(0, 1.02))
    lower.bar((np.arange(len(texts)) + 0.5) / len(texts), texts, width=0.9 / len(texts))
    lower.set(xlabel="probability of the answer", ylabel="texts")
    return figure


def import_matplotlib() -> None:
    """Import matplotlib, a third of a second, whatever the environment variable `MPLBACKEND` is.

    A notebook sets it for the programs that it starts. matplotlib refuses to be imported where it
    names a backend that is not installed, but the pictures here are drawn without any backend. One
    that is installed stays the caller's choice.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            mpl.rcParams["backend"] = backend


def colour_squares(groups: NDArray[np.int64]) -> NDArray[np.float32]:
    """Square images, (groups, 3, `SQUARE`, `SQUARE`), with a white edge and one colour per group."""
    import_matplotlib()
    import matplotlib as mpl

    palette = np.array(mpl.colormaps["tab20"](range(20)), dtype=np.float32)[:, :3]
    images = np.ones((len(groups), 3, SQUARE, SQUARE), dtype=np.float32)
    images[:, :, 1:-1, 1:-1] = palette[groups % len(palette), :, None, None]
    return images


def to_png(figure: Figure) -> bytes:
    """A figure as PNG."""
    import_matplotlib()
    from matplotlib.image import imsave

    content = io.BytesIO()
    imsave(content, to_pixels(figure), format="png", origin="upper")
    return content.getvalue()


def to_pixels(figure: Figure) -> NDArray[np.uint8]:
    """A figure as an image (height, width, 3), with boxes for characters that no font has."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3]


def _figure(width: float, height: float, *, margin: float = 0.7) -> Figure:
    """An empty figure, in inches, with fixed margins: those of matplotlib take as long as drawing."""
    import_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)
    figure.subplots_adjust(margin / width, margin / height, 1 - 0.12 / width, 1 - 0.12 / height)
    return figure


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Font families for texts, each for the characters that those before it lack."""
    import_matplotlib()
    from matplotlib import font_manager

    wanted = {character for text in texts for character in text if not character.isspace()}
    families, lacking = [USUAL_FONT], wanted - _characters(str(font_manager.findfont(USUAL_FONT)))
    paths = {
        it.name: it.fname
        for it in font_manager.fontManager.ttflist
        if not it.name.startswith(NO_LETTERS)
    }
    for name in sorted(paths, key=lambda it: (not it.startswith(PREFERRED_FONTS), it)):
        if lacking and lacking & _characters(paths[name]):
            families.append(name)
            lacking -= _characters(paths[name])
    return families


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters of a font; none if it cannot be read, such as one of pictures alone."""
    import_matplotlib()
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (RuntimeError, OSError, TypeError):
        return frozenset()
