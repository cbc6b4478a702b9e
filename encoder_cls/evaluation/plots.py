"""Numbers in, pictures out: figures, and these as PNG or SVG."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.system.display import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MATRIX_SIDE = 480  # pixels of a confusion matrix, where that makes good cells
READABLE = 10  # pixels of a row in which a name can be read
ANNOTATED = 16  # pixels of a cell in which a number can be read
SHARES = np.array([0.0, 0.5, 1.0])  # of a row, and their colours
BLUES = np.array([[247, 251, 255], [107, 174, 214], [8, 48, 107]])
DOT = 32  # pixels
LARGEST_CURVES = 10  # classes; more curves cannot be told apart
MOST_DECISIONS = 5_000_000  # texts times classes behind a curve: a second
LENGTH_BINS = 6
MOST_TOKENS = 48  # of a text whose attention is drawn: in more cells nothing can be seen
GAP = 3  # cells between two attention maps


def confusion(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> bytes:
    """A confusion matrix as a PNG: each row a label, coloured by the part of its examples.

    It is drawn over and over while a model is trained: not by matplotlib, which takes twenty times as long.
    """
    import matplotlib as mpl
    from PIL import Image, ImageDraw, ImageFont

    def font(size: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", size)

    counts = np.array(matrix)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    colours = np.stack([np.interp(shares, SHARES, channel) for channel in BLUES.T], axis=-1)
    cell = int(np.clip(MATRIX_SIDE // len(counts), min(READABLE, 1200 // len(counts)) or 1, 100))
    side = cell * len(counts)
    squares = Image.fromarray(colours.round().astype(np.uint8)).resize((side, side), Image.Resampling.NEAREST)
    middles = np.arange(len(counts)) * cell + cell / 2

    width = font(12).getlength(str(counts.max()))
    if cell >= ANNOTATED and (size := int(12 * min(1, 0.9 * cell / width))) >= 7:
        draw, figures = ImageDraw.Draw(squares), font(size)
        for row, column in np.argwhere(counts > 0):
            colour = "white" if shares[row, column] > 0.5 else "black"
            draw.text((middles[column], middles[row]), str(counts[row, column]), colour, figures, anchor="mm")

    names = [shown(name, limit=24)[1:-1] for name in label_names] if cell >= READABLE else []
    letters = font(min(12, cell))
    margin = 16 + int(max(84, *map(letters.getlength, names), 0))
    strip = Image.new("L", (margin, side), 255)
    for name, middle in zip(names, middles, strict=False):
        ImageDraw.Draw(strip).text((margin - 8, middle), name, 0, letters, anchor="rm")
    picture = Image.new("RGB", (margin + side + 8, 8 + side + margin), "white")
    picture.paste(squares, (margin, 8))
    picture.paste(strip, (0, 8))
    picture.paste(strip.transpose(Image.Transpose.ROTATE_90), (margin, 8 + side))
    corner = ImageDraw.Draw(picture)
    corner.text((margin - 8, picture.height - 8), "predicted →", "black", font(12), anchor="rb")
    corner.text((8, 8 + side + 8), "↑ label", "black", font(12), anchor="lt")
    content = io.BytesIO()
    picture.save(content, format="PNG")
    return content.getvalue()


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
    places = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(0, len(edges) - 2))
    names, scores, counts = [], [], []
    for place in np.unique(places):
        members = places == place
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
    """Attention maps (layers, heads, tokens, tokens) of the first `MOST_TOKENS` tokens, one row a layer."""
    layers, heads = weights.shape[:2]
    names = [plain_label(token, limit=14) for token in tokens[:MOST_TOKENS]]
    # All maps are one image: axes for each of them would take ten times as long.
    pitch = len(names) + GAP
    image = np.full((layers * pitch - GAP, heads * pitch - GAP), np.nan)
    margin, top = 0.1 + 0.06 * max(map(len, names)), 0.3
    width, height = (0.12 * cells for cells in image.shape[::-1])
    figure = _figure(margin + width + 0.12, margin + height + top, margin=margin, top=top)
    axes = figure.subplots()
    for layer, head in np.ndindex(layers, heads):
        drawn = weights[layer, head, :MOST_TOKENS, :MOST_TOKENS]
        top, left = layer * pitch, head * pitch
        image[top : top + len(names), left : left + len(names)] = drawn / max(float(drawn.max()), 1e-6)
        middle = left + (len(names) - 1) / 2
        axes.text(middle, top - 0.8, f"layer {layer + 1}, head {head + 1}", ha="center", va="bottom", fontsize=7)
    axes.imshow(image, cmap="Blues", vmin=0, vmax=1)
    places = np.arange(len(names))
    axes.set_xticks((np.arange(heads)[:, None] * pitch + places).ravel(), names * heads, rotation=90, fontsize=6)
    axes.set_yticks((np.arange(layers)[:, None] * pitch + places).ravel(), names * layers, fontsize=6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def positions(added: NDArray[np.float32]) -> Figure:
    """What is added to the tokens' vectors for their places, (places, d_model)."""
    figure = _figure(6, 3)
    axes = figure.subplots()
    axes.imshow(added, aspect="auto", cmap="RdBu")
    axes.set(xlabel="feature", ylabel="place")
    return figure


def dots(groups: NDArray[np.int64]) -> bytes:
    """A PNG of dots `DOT` pixels wide, row by row in a square: one for each number, equal numbers in equal colours."""
    import matplotlib as mpl
    from PIL import Image

    palette = (255 * np.array(mpl.colormaps["tab20"](range(20)))).astype(np.uint8)
    columns = max(1, math.ceil(math.sqrt(len(groups))))
    places = np.arange(DOT) - (DOT - 1) / 2
    disc = np.hypot(places, places[:, None]) < DOT / 2 - 0.5
    sheet = np.zeros((columns**2, DOT, DOT, 4), dtype=np.uint8)
    sheet[: len(groups)] = palette[groups % len(palette), None, None] * disc[:, :, None]
    square = sheet.reshape(columns, columns, DOT, DOT, 4).swapaxes(1, 2).reshape(columns * DOT, columns * DOT, 4)
    content = io.BytesIO()
    Image.fromarray(square).save(content, format="PNG")
    return content.getvalue()


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


@contextmanager
def _any_character() -> Iterator[None]:
    """No warning of characters that matplotlib's font has not: a PNG has a box for each, a browser its own font."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def plain_label(text: str, *, limit: int) -> str:
    """A text for an axis: one line, short, no formula, nothing that cannot be in XML."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in short).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain  # matplotlib leaves such a name out of a legend


def _figure(width: float, height: float, *, margin: float = 0.7, top: float = 0.12) -> Figure:
    """An empty figure, in inches of 100 points; to let matplotlib find the margins would double the time."""
    from matplotlib.figure import Figure  # a third of a second

    figure = Figure(figsize=(width, height), dpi=100)
    figure.subplots_adjust(margin / width, margin / height, 1 - 0.12 / width, 1 - top / height)
    return figure
