"""Pictures by matplotlib: `confusion_matrix.png`, and what TensorBoard shows.

A page has no picture: `charts.py` and tables show the same there, light or dark.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.classification import CalibrationBins
from encoder_cls.system.display import replace_unprintable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pixels of an inch.
DPI = 100
# Points, the unit of font sizes, of a pixel.
POINTS = 72 / DPI
# Pixels of the letters of axes.
AXIS_LETTERS = 12.0
# Inches above a plane and to its right.
EDGE = 0.12


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


def _figure(width: float, height: float, *, margin: float = 0.7) -> Figure:
    """An empty figure; sizes are in inches, the margin is to the left and below.

    Margins are fixed: matplotlib takes as long to choose some as to draw the figure.
    """
    # A third of a second.
    import_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)
    figure.subplots_adjust(
        left=margin / width,
        bottom=margin / height,
        right=1 - EDGE / width,
        top=1 - EDGE / height,
    )
    return figure


def to_png(figure: Figure) -> bytes:
    """A figure as PNG."""
    content = io.BytesIO()
    with _missing_letters_allowed():
        figure.savefig(content, format="png", dpi=DPI)
    return content.getvalue()


def to_pixels(figure: Figure) -> NDArray[np.uint8]:
    """A figure as an image, (height, width, 3)."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    with _missing_letters_allowed():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3]


@contextmanager
def _missing_letters_allowed() -> Iterator[None]:
    """Draw boxes for characters that no font has, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


# The confusion matrix

# Pixels of a side of the matrix, where that makes good cells.
MATRIX_SIDE = 480
# The least pixels of a cell: a name beside a smaller one could not be read.
SMALLEST_CELL = 10
# The most pixels of a cell.
LARGEST_CELL = 100
# The least pixels of a cell with a number in it.
SMALLEST_NUMBERED_CELL = 16
# Pixels of the smallest letters in which a number can be read.
SMALLEST_LETTERS = 7
# The width of a digit, and about that of a letter, relative to the size of letters.
LETTER_WIDTH = 0.64
# Characters of a class name.
LONGEST_NAME = 24
# A count is white on cells that are darker than this.
DARK = 0.6


def confusion_figure(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> Figure:
    """A confusion matrix: rows are labels, columns predictions.

    Cells are coloured by their share of the row, correct predictions in blue, mistakes in orange.
    """
    counts = np.array(matrix)
    num_classes = len(counts)

    # Sizes in pixels: a cell, and the letters of names beside it.
    cell = int(np.clip(MATRIX_SIDE / num_classes, SMALLEST_CELL, LARGEST_CELL))
    name_size = min(AXIS_LETTERS, 0.85 * cell)
    names = [_name_in_figure(name) for name in label_names]
    longest_name = max(len(name) for name in names)

    # Sizes in inches: the matrix, and the names to its left and below.
    side = cell * num_classes / DPI
    margin = 0.3 + max(0.6, name_size * LETTER_WIDTH * longest_name / DPI)
    whole_side = margin + side + EDGE
    figure = _figure(whole_side, whole_side, margin=margin)
    axes = figure.subplots()

    darkness = _draw_cells(axes, counts)
    _name_classes(axes, names, name_size)

    # The names of the axes, in the corners that are free.
    font_size = POINTS * AXIS_LETTERS
    names_top = 1 - (side + 0.2) / whole_side
    figure.text(0.98, 0.01, "predicted →", ha="right", va="bottom", fontsize=font_size)
    figure.text(0.01, names_top, "↑ label", va="top", fontsize=font_size)

    # Counts, in letters so small that the largest one fits its cell.
    num_digits = len(str(counts.max()))
    count_size = min(AXIS_LETTERS, 0.9 * cell / (LETTER_WIDTH * num_digits))
    if cell >= SMALLEST_NUMBERED_CELL and count_size >= SMALLEST_LETTERS:
        _write_counts(axes, counts, darkness, count_size)
    return figure


def _name_in_figure(name: str) -> str:
    """A class name on one line, which matplotlib does not take for a formula."""
    return replace_unprintable(shortened(name, limit=LONGEST_NAME)).replace("$", r"\$")


def _draw_cells(axes: Axes, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Colour the cells of counts; return how dark each one is, (classes, classes)."""
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    is_right = np.eye(len(counts), dtype=bool)

    # Mistakes by the square root of their share: the colour of few ones would be too pale.
    darkness: NDArray[np.float64] = np.where(is_right, shares, np.sqrt(shares))
    right = np.ma.masked_array(darkness, ~is_right)
    wrong = np.ma.masked_array(darkness, is_right | (counts == 0))
    axes.imshow(right, cmap="Blues", vmin=0, vmax=1)
    axes.imshow(wrong, cmap="Oranges", vmin=0, vmax=1)
    return darkness


def _name_classes(axes: Axes, names: Sequence[str], name_size: float) -> None:
    """Write the names of classes, in letters of so many pixels, on both axes."""
    numbers = np.arange(len(names))
    font_size = POINTS * name_size
    fonts = fonts_for(names)
    axes.set_xticks(numbers, names, rotation=90, fontsize=font_size, fontfamily=fonts)
    axes.set_yticks(numbers, names, fontsize=font_size, fontfamily=fonts)
    axes.tick_params(length=0)


def _write_counts(
    axes: Axes, counts: NDArray[np.int64], darkness: NDArray[np.float64], count_size: float
) -> None:
    """Write the counts into their cells, in letters of so many pixels."""
    for row, column in np.argwhere(counts > 0):
        colour = "black"
        if darkness[row, column] > DARK:
            colour = "white"
        axes.text(
            column,
            row,
            str(counts[row, column]),
            color=colour,
            ha="center",
            va="center",
            fontsize=POINTS * count_size,
        )


# The font that comes with matplotlib.
USUAL_FONT = "DejaVu Sans"
# Fonts with these names are tried first for letters that it lacks.
PREFERRED_FONTS = "Noto Sans"
# Fonts of matplotlib without letters: boxes, and parts of formulas.
FONTS_WITHOUT_LETTERS = ("Last Resort", "STIXSize", "DejaVu Sans Display", "cm")


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Font families for texts, each for characters that those before it lack."""
    import_matplotlib()
    from matplotlib import font_manager

    wanted = {character for text in texts for character in text if not character.isspace()}
    families = [USUAL_FONT]
    missing = wanted - _characters(str(font_manager.findfont(USUAL_FONT)))

    paths = {}
    for font in font_manager.fontManager.ttflist:
        if not font.name.startswith(FONTS_WITHOUT_LETTERS):
            paths[font.name] = font.fname

    preferred_first = sorted(paths, key=lambda name: (not name.startswith(PREFERRED_FONTS), name))
    for name in preferred_first:
        if not missing:
            break
        characters = _characters(paths[name])
        if missing & characters:
            families.append(name)
            missing -= characters
    return families


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters of a font; none if it cannot be read, such as one of pictures alone."""
    import_matplotlib()
    from matplotlib.ft2font import FT2Font

    try:
        codes = FT2Font(path).get_charmap()
    except (RuntimeError, OSError, TypeError):
        return frozenset()
    return frozenset(chr(code) for code in codes)


# Only for TensorBoard


def reliability_figure(bins: CalibrationBins) -> Figure:
    """Accuracy by confidence, above the number of texts of each confidence."""
    figure = _figure(4, 4)
    accuracy_axes, texts_axes = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    confidence = np.array(bins.confidence)
    accuracy = np.array(bins.accuracy)
    texts = np.array(bins.texts)

    is_filled = texts > 0
    accuracy_axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    accuracy_axes.plot(confidence[is_filled], accuracy[is_filled], marker="o", markersize=4)
    accuracy_axes.set(ylabel="right", xlim=(0, 1), ylim=(0, 1.02))

    middles = (np.arange(len(texts)) + 0.5) / len(texts)
    texts_axes.bar(middles, texts, width=0.9 / len(texts))
    texts_axes.set(xlabel="probability of the prediction", ylabel="texts")
    return figure
