"""Pictures by matplotlib: the confusion matrix, and TensorBoard's."""

from __future__ import annotations

import io
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.inference.page import MOST_MAP_TOKENS, is_nearly_uniform
from encoder_cls.system.display import replace_unprintable, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = "DejaVu Sans"  # comes with matplotlib
NO_LETTERS = ("Last Resort", "STIXSize", "DejaVu Sans Display", "cm")  # of matplotlib: boxes, and pieces of formulas
PREFERRED = "Noto Sans"


class Fonts(NamedTuple):
    """Font families, each for what those before it lack; and the scripts that none of them has."""

    families: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def note(self) -> str:
        """What is to be done that all letters can be written; empty where they can."""
        return f"no font for {', '.join(self.missing)} (try {PREFERRED})" if self.missing else ""


def fonts_for(texts: Iterable[str], *, installed: Sequence[tuple[str, str]] | None = None) -> Fonts:
    """The fonts that texts need.

    Args:
        texts: to be written.
        installed: name and path of each font that may be used beside the usual one; none: those of the system.
    """
    wanted = {character for text in texts for character in text if not character.isspace()}
    lacking = wanted - _characters(_usual_path())
    families = [USUAL]
    if lacking:
        for name, path in _installed() if installed is None else installed:
            if found := lacking & _characters(path):
                families.append(name)
                lacking -= found
            if not lacking:
                break
    scripts = {unicodedata.name(character, "unknown letters").split()[0].title() for character in lacking}
    return Fonts(tuple(families), tuple(sorted("CJK" if script == "Cjk" else script for script in scripts)))


def _usual_path() -> str:
    from matplotlib import font_manager

    return str(font_manager.findfont(USUAL))


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """The fonts of the system that have letters, first those that are made to have all scripts."""
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
LETTER = 0.64  # width of a digit, and about that of a letter, as a part of the letters' size
SMALLEST_LETTERS = 7  # pixels in which a number can be read
MATRIX_SIDE = 480  # pixels of a confusion matrix, where that makes good cells
READABLE = 10  # pixels of a row in which a name can be read
LARGEST_CELL = 100  # pixels
ANNOTATED = 16  # pixels of a cell in which a number can be read
NOTE_SIZE = 9  # pixels of the letters of a note
SQUARE = 8  # pixels of a point's image
GAP = 3  # cells between two attention maps


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
    fonts = fonts_for(names)
    axes.set_xticks(numbers, names, rotation=90, fontsize=_points(name_size), fontfamily=fonts.families)
    axes.set_yticks(numbers, names, fontsize=_points(name_size), fontfamily=fonts.families)
    _note(figure, fonts, margin)
    axes.tick_params(length=0)
    figure.text(0.98, 0.01, "predicted →", ha="right", va="bottom", fontsize=_points(12))
    figure.text(0.01, 1 - (side + 0.2) / (margin + side + 0.12), "↑ label", va="top", fontsize=_points(12))
    count_size = min(12.0, 0.9 * cell / (LETTER * len(str(counts.max()))))
    if cell >= ANNOTATED and count_size >= SMALLEST_LETTERS:
        for row, column in np.argwhere(counts > 0):
            axes.text(
                *(column, row, str(counts[row, column])),
                color="white" if shares[row, column] ** (1 if row == column else 0.5) > 0.6 else "black",
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


def attention(tokens: Sequence[str], weights: NDArray[np.float32]) -> Figure:
    """Attention maps (layers, heads, tokens, tokens) of the first `MOST_MAP_TOKENS` tokens, one row a layer.

    All are on one scale, from 0 to 1, by the square roots.
    """
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
        image[top : top + len(names), left : left + len(names)] = np.sqrt(drawn)
        middle = left + (len(names) - 1) / 2
        uniform = " (≈ uniform)" if is_nearly_uniform(weights[layer, head]) else ""
        axes.text(
            middle, top - 0.8, f"layer {layer + 1}, head {head + 1}{uniform}", ha="center", va="bottom", fontsize=7
        )
    axes.imshow(image, cmap="Blues", vmin=0, vmax=1)
    positions = np.arange(len(names))
    fonts = fonts_for(names)
    columns, rows = (np.arange(count)[:, None] * pitch + positions for count in (heads, layers))
    axes.set_xticks(columns.ravel(), names * heads, rotation=90, fontsize=6, fontfamily=fonts.families)
    axes.set_yticks(rows.ravel(), names * layers, fontsize=6, fontfamily=fonts.families)
    _note(figure, fonts, margin)
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


def _note(figure: Figure, fonts: Fonts, margin: float) -> None:
    """Say in the corner below the names, `margin` inches wide, for which letters there is no font."""
    if fonts.missing:
        lines = textwrap.wrap(fonts.note, width=max(12, int(margin * DPI / (NOTE_SIZE * LETTER))))
        figure.text(0.01, 0.01, "\n".join(lines), va="bottom", fontsize=_points(NOTE_SIZE), color="#b04000")


def _points(pixels: float) -> float:
    """A size of letters as matplotlib has it."""
    return pixels * 72 / DPI


def _figure(width: float, height: float, *, margin: float = 0.7, top: float = 0.12) -> Figure:
    """An empty figure, in inches; to let matplotlib find the margins would double the time."""
    from matplotlib.figure import Figure  # a third of a second

    figure = Figure(figsize=(width, height), dpi=DPI)
    figure.subplots_adjust(margin / width, margin / height, 1 - 0.12 / width, 1 - top / height)
    return figure
