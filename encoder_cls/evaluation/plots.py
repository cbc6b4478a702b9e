"""Numbers in, plots out: figures, and these as PNG, pixels or SVG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.inference.prediction_pages import MOST_MAP_TOKENS
from encoder_cls.system.display import replace_unprintable, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100  # pixels of an inch
LETTER = 0.64  # width of a digit, and about that of a letter, as a part of the letters' size
SMALLEST_LETTERS = 7  # pixels in which a number can be read
MATRIX_SIDE = 480  # pixels of a confusion matrix, where that makes good cells
READABLE = 10  # pixels of a row in which a name can be read
LARGEST_CELL = 100  # pixels
ANNOTATED = 16  # pixels of a cell in which a number can be read
SQUARE = 8  # pixels of a point's image
LARGEST_CURVES = 10  # classes; more curves cannot be told apart
MOST_DECISIONS = 5_000_000  # texts times classes behind a curve: a second
LENGTH_BINS = 6
GAP = 3  # cells between two attention maps


def confusion(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> Figure:
    """A confusion matrix: each row a label, each cell coloured by its part of the row's examples."""
    counts = np.array(matrix)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    cell = int(np.clip(MATRIX_SIDE / len(counts), READABLE, LARGEST_CELL))
    name_size = min(12.0, 0.85 * cell)
    names = [plain_label(name, limit=24) for name in label_names]
    side = cell * len(counts) / DPI
    margin = 0.3 + max(0.6, name_size * LETTER * max(map(len, names)) / DPI)
    figure = _figure(margin + side + 0.12, margin + side + 0.12, margin=margin)
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    numbers = np.arange(len(names))
    axes.set_xticks(numbers, names, rotation=90, fontsize=_points(name_size))
    axes.set_yticks(numbers, names, fontsize=_points(name_size))
    axes.tick_params(length=0)
    figure.text(0.98, 0.01, "predicted →", ha="right", va="bottom", fontsize=_points(12))
    figure.text(0.01, 1 - (side + 0.2) / (margin + side + 0.12), "↑ label", va="top", fontsize=_points(12))
    count_size = min(12.0, 0.9 * cell / (LETTER * len(str(counts.max()))))
    if cell >= ANNOTATED and count_size >= SMALLEST_LETTERS:
        for row, column in np.argwhere(counts > 0):
            axes.text(
                *(column, row, str(counts[row, column])),
                color="white" if shares[row, column] > 0.5 else "black",
                ha="center",
                va="center",
                fontsize=_points(count_size),
            )
    return figure


def reliability(bins: CalibrationBins) -> Figure:
    """Accuracy against confidence, above how many texts there are of each confidence."""
    figure = _figure(4, 4)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    confidence, accuracy, texts = np.array(bins.confidence), np.array(bins.accuracy), np.array(bins.texts)
    filled = texts > 0
    upper.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    upper.plot(confidence[filled], accuracy[filled], marker="o", markersize=4)
    upper.set(ylabel="right", xlim=(0, 1), ylim=(0, 1.02))
    lower.bar((np.arange(len(texts)) + 0.5) / len(texts), texts, width=0.9 / len(texts))
    lower.set(xlabel="probability of the answer", ylabel="texts")
    return figure


def precision_recall(probabilities: NDArray[np.float64], labels: NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Precision against recall of each class, or of all answers where there are too many.

    Args:
        probabilities: (texts, classes).
        labels: (texts,); one that is beyond the classes is none of them.
        names: of the classes.
    """
    from sklearn.metrics import precision_recall_curve

    figure = _figure(4.6, 4)
    axes = figure.subplots()
    num_classes = probabilities.shape[1]
    occurring = np.intersect1d(labels, np.arange(num_classes))
    if len(occurring) <= LARGEST_CURVES:
        for number in occurring.tolist():
            precision, recall, _ = precision_recall_curve(labels == number, probabilities[:, number])
            axes.plot(recall, precision, linewidth=1.2, label=plain_label(names[number], limit=18))
        axes.legend(fontsize=7, loc="lower left")
    else:
        sample = np.random.default_rng(0).permutation(len(labels))[: max(1, MOST_DECISIONS // num_classes)]
        is_label = labels[sample, None] == np.arange(num_classes)
        precision, recall, _ = precision_recall_curve(is_label.ravel(), probabilities[sample].ravel())
        axes.plot(recall, precision, label="all classes together")
        axes.legend(fontsize=8, loc="lower left")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.02))
    return figure


def thresholds(confidence: NDArray[np.float64], correct: NDArray[np.bool_], suggested: float | None) -> Figure:
    """What a threshold does: the part of the texts that still get an answer, and how many of these are right."""
    steps = np.linspace(0, 1, 101)
    num_answered, num_right = (
        len(part) - np.searchsorted(np.sort(part), steps) for part in (confidence, confidence[correct])
    )
    right = np.where(num_answered > 0, num_right / np.maximum(1, num_answered), np.nan)
    figure = _figure(4, 4)
    axes = figure.subplots()
    axes.plot(steps, right, label="right, of those answered")
    axes.plot(steps, num_answered / len(confidence), label="answered")
    if suggested is not None:
        axes.axvline(suggested, color="0.5", linewidth=1, linestyle="--", label=f"suggested: {suggested:.3f}")
    axes.set(xlabel="threshold", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(fontsize=8, loc="lower left")
    return figure


def accuracy_by_length(lengths: NDArray[np.int64], correct: NDArray[np.bool_]) -> Figure:
    """Accuracy by length of text in words, in bins of about equally many texts."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_BINS + 1)).round().astype(int))
    bins = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(0, len(edges) - 2))
    names, scores, counts = [], [], []
    for number in np.unique(bins):
        members = bins == number
        low, high = lengths[members].min(), lengths[members].max()
        names.append(f"{low}" if low == high else f"{low}–{high}")
        scores.append(correct[members].mean())
        counts.append(int(members.sum()))
    figure = _figure(4.6, 4)
    axes = figure.subplots()
    bars = axes.bar(range(len(names)), scores)
    axes.bar_label(bars, [f"{count}" for count in counts], fontsize=7)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="words of the text", ylabel="right (above: texts)", ylim=(0, 1.08))
    return figure


def attention(tokens: Sequence[str], weights: NDArray[np.float32]) -> Figure:
    """Attention maps (layers, heads, tokens, tokens) of the first `MOST_MAP_TOKENS` tokens, one row a layer."""
    layers, heads = weights.shape[:2]
    names = [plain_label(token, limit=14) for token in tokens[:MOST_MAP_TOKENS]]
    # All maps are one image: axes for each of them would take ten times as long.
    pitch = len(names) + GAP
    image = np.full((layers * pitch - GAP, heads * pitch - GAP), np.nan)
    margin, top = 0.1 + 0.06 * max(map(len, names)), 0.3
    width, height = (0.12 * cells for cells in image.shape[::-1])
    figure = _figure(margin + width + 0.12, margin + height + top, margin=margin, top=top)
    axes = figure.subplots()
    for layer, head in np.ndindex(layers, heads):
        drawn = weights[layer, head, :MOST_MAP_TOKENS, :MOST_MAP_TOKENS]
        top, left = layer * pitch, head * pitch
        image[top : top + len(names), left : left + len(names)] = drawn / max(float(drawn.max()), 1e-6)
        middle = left + (len(names) - 1) / 2
        axes.text(middle, top - 0.8, f"layer {layer + 1}, head {head + 1}", ha="center", va="bottom", fontsize=7)
    axes.imshow(image, cmap="Blues", vmin=0, vmax=1)
    positions = np.arange(len(names))
    axes.set_xticks((np.arange(heads)[:, None] * pitch + positions).ravel(), names * heads, rotation=90, fontsize=6)
    axes.set_yticks((np.arange(layers)[:, None] * pitch + positions).ravel(), names * layers, fontsize=6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def position_vectors(added: NDArray[np.float32]) -> Figure:
    """The vectors (positions, d_model) that are added to those of the tokens."""
    figure = _figure(6, 3)
    axes = figure.subplots()
    axes.imshow(added, aspect="auto", cmap="RdBu")
    axes.set(xlabel="feature", ylabel="position")
    return figure


def colour_squares(groups: NDArray[np.int64]) -> NDArray[np.float32]:
    """Square images (groups, 3, `SQUARE`, `SQUARE`) with a white edge: equal numbers have equal colours."""
    import matplotlib as mpl

    palette = np.array(mpl.colormaps["tab20"](range(20)), dtype=np.float32)[:, :3]
    images = np.ones((len(groups), 3, SQUARE, SQUARE), dtype=np.float32)
    images[:, :, 1:-1, 1:-1] = palette[groups % len(palette), :, None, None]
    return images


def to_svg(figure: Figure) -> str:
    """A figure as SVG that equal figures have in common; its texts are escaped by matplotlib."""
    import matplotlib as mpl

    content = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "encoder-cls", "svg.fonttype": "none", "font.size": 9}), _any_character():
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return content.getvalue()[content.getvalue().index("<svg") :]


def to_png(figure: Figure) -> bytes:
    """A figure as PNG."""
    content = io.BytesIO()
    with _any_character():
        figure.savefig(content, format="png")
    return content.getvalue()


def to_pixels(figure: Figure) -> NDArray[np.uint8]:
    """A figure as an image (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    with _any_character():
        canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[:, :, :3]  # type: ignore[no-untyped-call]


@contextmanager
def _any_character() -> Iterator[None]:
    """No warning of characters that matplotlib's font has not: a PNG has a box for each, a browser its own font."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def plain_label(text: str, *, limit: int) -> str:
    """A text for an axis: one line, short, no formula, nothing that cannot be in XML."""
    plain = replace_unprintable(shortened(text, limit=limit)).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain  # matplotlib leaves such a name out of a legend


def _points(pixels: float) -> float:
    """A size of letters as matplotlib has it."""
    return pixels * 72 / DPI


def _figure(width: float, height: float, *, margin: float = 0.7, top: float = 0.12) -> Figure:
    """An empty figure, in inches; to let matplotlib find the margins would double the time."""
    from matplotlib.figure import Figure  # a third of a second

    figure = Figure(figsize=(width, height), dpi=DPI)
    figure.subplots_adjust(margin / width, margin / height, 1 - 0.12 / width, 1 - top / height)
    return figure
