"""Pictures drawn by matplotlib: of the confusion matrix, for TensorBoard, and for papers.

The page of a report has tables and `svg_charts` instead, which follow its light or dark scheme.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

DPI = 100
# The size of a pixel in points, the unit of font sizes.
POINTS = 72 / DPI
# The size of the letters beside axes, in pixels.
AXIS_LETTERS = 12.0
# The space above a plot and to its right, in inches.
EDGE = 0.12


def import_matplotlib() -> None:
    """Import matplotlib, also if `MPLBACKEND` names a backend that is not installed.

    A notebook sets it for programs that it starts, and the import would fail, although no backend
    is used here; so it is unset meanwhile. The import takes a third of a second.
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
    """Make a figure, in inches; choosing its margins would take as long as drawing it."""
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
    """Draw a figure as PNG."""
    content = io.BytesIO()
    with _missing_letters_allowed():
        figure.savefig(content, format="png", dpi=DPI)
    return content.getvalue()


# The formats of files of pictures, by the ending of the file's name.
FILE_FORMATS = {".svg": "svg", ".png": "png", ".pdf": "pdf"}
# The resolution of PNG files for papers, in pixels per inch.
PRINT_DPI = 200


def to_file(figure: Figure, ending: str) -> bytes:
    """Draw a figure in one of the `FILE_FORMATS`.

    The same figure gives the same bytes, without a date or random names.
    """
    import matplotlib as mpl

    file_format = FILE_FORMATS[ending]
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format)
    content = io.BytesIO()
    with _missing_letters_allowed(), mpl.rc_context({"svg.hashsalt": "encoder-cls"}):
        figure.savefig(content, format=file_format, dpi=PRINT_DPI, metadata=metadata)
    return content.getvalue()


def to_pixels(figure: Figure) -> NDArray[np.uint8]:
    """Draw a figure as pixels, (height, width, 3)."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    with _missing_letters_allowed():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3]


@contextmanager
def _missing_letters_allowed() -> Iterator[None]:
    """Suppress the warning that a box is drawn for a character that no font has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


# The confusion matrix

# The side of the matrix in pixels, unless its cells would then be too small or too large.
MATRIX_SIDE = 480
# The smallest side of a cell in pixels; a name beside a smaller cell could not be read.
MIN_CELL = 10
# The largest side of a cell in pixels.
MAX_CELL = 100
# The smallest side of a cell with a number in it, in pixels.
MIN_NUMBERED_CELL = 16
# The size of the smallest letters in which a number can be read, in pixels.
MIN_LETTERS = 7
# The width of a digit, relative to the size of letters. Most letters are about as wide.
LETTER_WIDTH = 0.64
MAX_NAME_LENGTH = 24
# The darkness of a cell, from 0 to 1, above which its number is written in white.
DARK = 0.6


def confusion_figure(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> Figure:
    """Draw a confusion matrix of counts: rows are labels, columns predictions.

    A cell shows its fraction of the row: blue if correct, orange if not.
    """
    counts = np.array(matrix)
    num_classes = len(counts)

    # Choose the size of a cell, and that of the letters beside it, in pixels.
    cell = int(np.clip(MATRIX_SIDE / num_classes, MIN_CELL, MAX_CELL))
    name_size = min(AXIS_LETTERS, 0.85 * cell)
    names = [_name_in_figure(name) for name in label_names]
    longest_name = max(len(name) for name in names)

    # Compute the size of the matrix, and that of the names to its left and below, in inches.
    side = cell * num_classes / DPI
    margin = 0.3 + max(0.6, name_size * LETTER_WIDTH * longest_name / DPI)
    whole_side = margin + side + EDGE
    figure = _figure(whole_side, whole_side, margin=margin)
    axes = figure.subplots()

    darkness = _draw_cells(axes, counts)
    _name_classes(axes, names, name_size)

    # Write the names of the axes into the corners that are free.
    font_size = POINTS * AXIS_LETTERS
    names_top = 1 - (side + 0.2) / whole_side
    figure.text(0.98, 0.01, "predicted →", ha="right", va="bottom", fontsize=font_size)
    figure.text(0.01, names_top, "↑ label", va="top", fontsize=font_size)

    # Write the counts into the cells, in letters that are small enough for the largest count. Leave
    # them out if they could not be read.
    num_digits = len(str(counts.max()))
    count_size = min(AXIS_LETTERS, 0.9 * cell / (LETTER_WIDTH * num_digits))
    if cell >= MIN_NUMBERED_CELL and count_size >= MIN_LETTERS:
        _write_counts(axes, counts, darkness, count_size)
    return figure


def _name_in_figure(name: str) -> str:
    """Write a name on one line, with dollar signs escaped, which would start a formula."""
    return replace_unprintable(shortened(name, limit=MAX_NAME_LENGTH)).replace("$", r"\$")


def _draw_cells(axes: Axes, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Colour cells, and return how dark they are, from 0 to 1."""
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    is_correct = np.eye(len(counts), dtype=bool)

    # Colour mistakes by the square root of their share, because the share itself would make the
    # colour of a few mistakes too pale.
    darkness: NDArray[np.float64] = np.where(is_correct, shares, np.sqrt(shares))
    correct = np.ma.masked_array(darkness, ~is_correct)
    wrong = np.ma.masked_array(darkness, is_correct | (counts == 0))
    axes.imshow(correct, cmap="Blues", vmin=0, vmax=1)
    axes.imshow(wrong, cmap="Oranges", vmin=0, vmax=1)
    return darkness


def _name_classes(axes: Axes, names: Sequence[str], name_size: float) -> None:
    numbers = np.arange(len(names))
    font_size = POINTS * name_size
    fonts = fonts_for(names)
    axes.set_xticks(numbers, names, rotation=90, fontsize=font_size, fontfamily=fonts)
    axes.set_yticks(numbers, names, fontsize=font_size, fontfamily=fonts)
    axes.tick_params(length=0)


def _write_counts(
    axes: Axes, counts: NDArray[np.int64], darkness: NDArray[np.float64], count_size: float
) -> None:
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


# The default font, which comes with matplotlib.
DEFAULT_FONT = "DejaVu Sans"
# For characters that the default font lacks, fonts whose names begin like this are tried first.
PREFERRED_FONTS = "Noto Sans"
# The beginnings of the names of fonts without letters: fonts of boxes, and of parts of formulas.
FONTS_WITHOUT_LETTERS = ("Last Resort", "STIXSize", "DejaVu Sans Display", "cm")


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Font families, each of which has characters that those before it lack."""
    import_matplotlib()
    from matplotlib import font_manager

    wanted = {character for text in texts for character in text if not character.isspace()}
    families = [DEFAULT_FONT]
    missing = wanted - _characters(str(font_manager.findfont(DEFAULT_FONT)))

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
    """The characters of a font; empty if it cannot be read, such as a font of pictures."""
    import_matplotlib()
    from matplotlib.ft2font import FT2Font

    try:
        codes = FT2Font(path).get_charmap()
    except (RuntimeError, OSError, TypeError):
        return frozenset()
    return frozenset(chr(code) for code in codes)


# The chart of accuracy by confidence, for TensorBoard


def reliability_figure(bins: CalibrationBins) -> Figure:
    """Draw accuracy, and the number of texts, by confidence."""
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


# The curves of trainings

Curve = tuple[Sequence[int], Sequence[float]]
"""The steps of a curve, increasing, and its values at these steps."""


def curves_figure(curves: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Draw curves over steps, side by side for each quantity, by the name of the run."""
    figure = _figure(4.2 * len(curves), 3.4, margin=0.6)
    figure.subplots_adjust(wspace=0.3, top=0.97)
    names = list(dict.fromkeys(name for by_run in curves.values() for name in by_run))
    all_axes = figure.subplots(1, len(curves), squeeze=False)[0]

    for axes, (quantity, by_run) in zip(all_axes, curves.items(), strict=True):
        for number, name in enumerate(names):
            if name in by_run:
                steps, values = by_run[name]
                label = _name_in_figure(name)
                axes.plot(steps, values, color=f"C{number}", marker=".", label=label)
        axes.set(xlabel="step", ylabel=quantity)
        axes.grid(alpha=0.3)
    all_axes[0].legend(fontsize=POINTS * AXIS_LETTERS, prop={"family": fonts_for(names)})
    return figure


# Attention maps

# The most tokens of a text in a picture of attention; more could not be read in print.
MAX_ATTENTION_TOKENS = 40
# The side of a cell of an attention map, in inches.
ATTENTION_CELL = 0.16


def attention_figure(tokens: Sequence[str], weights: NDArray[np.float32]) -> Figure:
    """Draw the attention maps, (layers, heads, tokens, tokens), with a row for each layer.

    The colour is the square root of a weight, so that small ones are visible, from 0 to 1. Tokens
    after `MAX_ATTENTION_TOKENS` are left out.
    """
    names = [_name_in_figure(token) for token in tokens[:MAX_ATTENTION_TOKENS]]
    num_tokens = len(names)
    num_layers, num_heads = weights.shape[:2]

    # The maps, and the space between them for the names of tokens, in inches.
    side = ATTENTION_CELL * num_tokens
    letters = 0.8 * ATTENTION_CELL * DPI
    space = 0.5 + letters * LETTER_WIDTH * max(len(name) for name in names) / DPI
    cell = side + space
    figure = _figure(cell * num_heads, cell * num_layers, margin=space)
    figure.subplots_adjust(
        left=(space - EDGE) / (cell * num_heads),
        bottom=(space - 0.3) / (cell * num_layers),
        right=1 - EDGE / (cell * num_heads),
        top=1 - 0.3 / (cell * num_layers),
        wspace=space / side,
        hspace=space / side,
    )

    all_axes = figure.subplots(num_layers, num_heads, squeeze=False)
    for layer, axes_of_layer in enumerate(all_axes):
        for head, axes in enumerate(axes_of_layer):
            shown = weights[layer, head, :num_tokens, :num_tokens]
            axes.imshow(np.sqrt(shown), cmap="Blues", vmin=0, vmax=1)
            axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=POINTS * AXIS_LETTERS)
            _name_classes(axes, names, letters)
    return figure
