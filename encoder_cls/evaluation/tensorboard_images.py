"""Pictures by matplotlib: the confusion matrix, and TensorBoard's."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.system.display import replace_unprintable, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = "DejaVu Sans"  # comes with matplotlib
NO_LETTERS = ("Last Resort", "STIXSize", "DejaVu Sans Display", "cm")  # of matplotlib: boxes, and pieces of formulas
PREFERRED = "Noto Sans"


def fonts_for(texts: Iterable[str], *, installed: Sequence[tuple[str, str]] | None = None) -> list[str]:
    """Font families for texts, each for the characters that those before it lack.

    `installed` are names and paths of the fonts that may be used beside the usual one; None: those of the system.
    """
    from matplotlib import font_manager

    wanted = {character for text in texts for character in text if not character.isspace()}
    families, lacking = [USUAL], wanted - _characters(str(font_manager.findfont(USUAL)))
    for name, path in (_installed() if installed is None else installed) if lacking else ():
        if lacking & _characters(path):
            families.append(name)
            lacking -= _characters(path)
    return families


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """The fonts of the system that have letters, first those for all scripts."""
    from matplotlib import font_manager

    found = {font.name: font.fname for font in font_manager.fontManager.ttflist if not font.name.startswith(NO_LETTERS)}
    return tuple(sorted(found.items(), key=lambda font: (not font[0].startswith(PREFERRED), font[0])))


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters that a font has; of one that cannot be read, such as pictures alone, none."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (RuntimeError, OSError, TypeError):
        return frozenset()


DPI = 100  # pixels of an inch
POINTS = 72 / DPI  # of a pixel: the unit of sizes of letters
LETTER = 0.64  # width of a digit, and about that of a letter, as a part of the letters' size
SMALLEST_LETTERS = 7  # pixels in which a number can be read
MATRIX_SIDE = 480  # pixels of a confusion matrix, where that makes good cells
READABLE = 10  # pixels of a row in which a name can be read
LARGEST_CELL = 100  # pixels
ANNOTATED = 16  # pixels of a cell in which a number can be read
SQUARE = 8  # pixels of a point's image


def confusion(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> Figure:
    """A confusion matrix: each row a label, each cell coloured by its part of the row's, orange where it is wrong."""
    counts = np.array(matrix)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    cell = int(np.clip(MATRIX_SIDE / len(counts), READABLE, LARGEST_CELL))
    name_size = min(12.0, 0.85 * cell)
    names = [plain_label(name, limit=24) for name in label_names]
    side = cell * len(counts) / DPI
    margin = 0.3 + max(0.6, name_size * LETTER * max(map(len, names)) / DPI)
    figure = _figure(margin + side + 0.12, margin + side + 0.12, margin=margin)
    axes = figure.subplots()
    is_right = np.eye(len(counts), dtype=bool)
    # Blue where label and answer are the same, orange elsewhere: few mistakes are pale, so these by their square roots.
    axes.imshow(np.ma.masked_array(shares, ~is_right), cmap="Blues", vmin=0, vmax=1)
    axes.imshow(np.ma.masked_array(np.sqrt(shares), is_right | (counts == 0)), cmap="Oranges", vmin=0, vmax=1)
    numbers = np.arange(len(names))
    style: dict[str, Any] = {"fontsize": POINTS * name_size, "fontfamily": fonts_for(names)}
    axes.set_xticks(numbers, names, rotation=90, **style)
    axes.set_yticks(numbers, names, **style)
    axes.tick_params(length=0)
    figure.text(0.98, 0.01, "predicted →", ha="right", va="bottom", fontsize=POINTS * 12)
    figure.text(0.01, 1 - (side + 0.2) / (margin + side + 0.12), "↑ label", va="top", fontsize=POINTS * 12)
    count_size = min(12.0, 0.9 * cell / (LETTER * len(str(counts.max()))))
    if cell >= ANNOTATED and count_size >= SMALLEST_LETTERS:
        for row, column in np.argwhere(counts > 0):
            axes.text(
                *(column, row, str(counts[row, column])),
                color="white" if shares[row, column] ** (1 if row == column else 0.5) > 0.6 else "black",
                ha="center",
                va="center",
                fontsize=POINTS * count_size,
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


def colour_squares(groups: NDArray[np.int64]) -> NDArray[np.float32]:
    """Square images (groups, 3, `SQUARE`, `SQUARE`) with a white edge: equal numbers have equal colours."""
    import matplotlib as mpl

    palette = np.array(mpl.colormaps["tab20"](range(20)), dtype=np.float32)[:, :3]
    images = np.ones((len(groups), 3, SQUARE, SQUARE), dtype=np.float32)
    images[:, :, 1:-1, 1:-1] = palette[groups % len(palette), :, None, None]
    return images


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
    """No warning of characters without a font: a picture has a box for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def plain_label(text: str, *, limit: int) -> str:
    """A text for an axis: one line, short, no formula, nothing that cannot be in XML."""
    plain = replace_unprintable(shortened(text, limit=limit)).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain  # matplotlib leaves such a name out of a legend


def _figure(width: float, height: float, *, margin: float = 0.7) -> Figure:
    """An empty figure, in inches; to let matplotlib find the margins would double the time."""
    from matplotlib.figure import Figure  # a third of a second

    figure = Figure(figsize=(width, height), dpi=DPI)
    figure.subplots_adjust(margin / width, margin / height, 1 - 0.12 / width, 1 - 0.12 / height)
    return figure
