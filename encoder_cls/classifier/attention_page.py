"""The HTML page of attention maps.

A map is an image in an SVG figure, with a pixel for each pair of tokens.
"""

from __future__ import annotations

import base64
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.explain import AttentionMaps
from encoder_cls.classifier.html_pages import escaped, html_page
from encoder_cls.system.display import replace_unprintable, shortened

# The tokens of a text that are drawn: cells of more would be too small.
MOST_MAP_TOKENS = 48

# The characters of a token beside a map.
LONGEST_NAME = 14

# Sizes in pixels: of a cell, of the letters beside a map, and of the space above it.
CELL = 16
LETTERS = 12
TITLE = 22
# The title of a map takes this width.
NARROWEST_MAP = 215

# Maps side by side are scaled down to this at most: smaller letters are illegible.
LEAST_SCALE = 0.6

# The levels of attention.
LEVELS = 256

# ColorBrewer's Blues, from no attention to the most (https://colorbrewer2.org).
BLUES = ("f7fbff", "deebf7", "c6dbef", "9ecae1", "6baed6", "4292c6", "2171b5", "08519c", "08306b")

_PAGE = """\
<h1>{title}</h1>
<p class="note">Each row is a token that looks, each column one that is looked at; the stronger \
the colour, the more. All maps have this one scale; point at a cell, or touch it, for its value. \
What a token looks at is not why the class was chosen: for that there is <code>--explain</code>.\
</p>
{scale}
{texts}"""


def render_attention(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """Make a page of attention maps, one for each layer and head, all on one scale from 0 to 1.

    Args:
        title: of the page.
        texts: for each text the line above its maps, and the maps. They are read one at a time,
            because the maps of a long text are large.
    """
    lines: list[str] = []
    for number, (line, maps) in enumerate(texts):
        lines += _maps_of_text(number, line, maps)
    body = _PAGE.format(title=escaped(title), scale=_scale(), texts="\n".join(lines))
    return html_page(title, body)


def _maps_of_text(number: int, line: str, maps: AttentionMaps) -> Iterator[str]:
    """The line about a text, counted from 0 on the page, then a row of maps for each layer."""
    yield f'<h2 class="words" dir="auto">{escaped(line)}</h2>'

    num_tokens = maps.weights.shape[-1]
    note = f"A token that looked at all {num_tokens} alike would give each {1 / num_tokens:.3f}."
    if num_tokens > MOST_MAP_TOKENS:
        note += f" The first {MOST_MAP_TOKENS} tokens."
    yield f'<p class="note">{note}</p>'

    names = [
        replace_unprintable(shortened(token, limit=LONGEST_NAME))
        for token in maps.tokens[:MOST_MAP_TOKENS]
    ]
    margin = LETTERS + max(_width(name) for name in names)
    yield _names_of_tokens(number, names, margin)

    least_width = round(LEAST_SCALE * (margin + CELL * len(names)))
    for layer, heads in enumerate(maps.weights, start=1):
        figures = [
            _map(number, f"layer {layer}, head {head}", weights, margin)
            for head, weights in enumerate(heads, start=1)
        ]
        row = [f'<div class="maps" style="--least:{least_width}px">', *figures, "</div>"]
        yield "\n".join(row)


def _names_of_tokens(number: int, names: Sequence[str], margin: int) -> str:
    """The names of tokens beside and below the maps of a text.

    They are drawn once, and all maps refer to them.
    """
    below = TITLE + CELL * len(names) + 4
    rows = ""
    columns = ""
    for index, name in enumerate(names):
        middle = (index + 0.5) * CELL + LETTERS / 3
        row_place = f'x="{margin - 4}" y="{TITLE + middle:.0f}"'
        rows += f'<text class="row" {row_place}>{escaped(name)}</text>'
        column_place = f"translate({margin + middle:.0f} {below}) rotate(-90)"
        columns += f'<text class="column" transform="{column_place}">{escaped(name)}</text>'
    return (
        '<svg class="names" aria-hidden="true" width="0" height="0">'
        f'<g id="tokens-{number}" font-size="{LETTERS}" text-anchor="end">{rows}{columns}</g></svg>'
    )


def _map(number: int, title: str, weights: NDArray[np.float32], margin: int) -> str:
    """A map of attention weights, (tokens, tokens), as a figure.

    Its cells are an image, which takes a hundredth of the bytes of rectangles. The levels of colour
    are the square roots of weights, because each of many tokens gets little weight. An attribute
    has them for the script, a byte for each cell.
    """
    label = f"{title} (nearly uniform)" if is_nearly_uniform(weights) else title
    shown = np.clip(weights[:MOST_MAP_TOKENS, :MOST_MAP_TOKENS], 0, 1)
    levels = (np.sqrt(shown) * (LEVELS - 1)).round().astype(np.uint8)
    side = CELL * len(levels)

    heading = (
        f'<text class="strong" x="{margin}" y="{TITLE - 7}" font-size="{LETTERS + 1}">'
        f"{label}</text>"
    )
    names = f'<use href="#tokens-{number}"/>'
    image = _image(levels, margin, TITLE, side, side)
    return _svg(
        margin + max(side, NARROWEST_MAP),
        TITLE + side + margin,
        label,
        heading + names + image,
        f' data-levels="{base64.b64encode(levels.tobytes()).decode()}"',
    )


# The share of the largest possible entropy from which attention counts as uniform.
NEARLY_UNIFORM = 0.98


def is_nearly_uniform(weights: NDArray[np.float32]) -> bool:
    """Whether each token looks at all tokens nearly alike.

    It is judged by the mean entropy of the rows of a map, (tokens, tokens).
    """
    if len(weights) < 2:
        return False
    entropies = -(weights * np.log(np.maximum(weights, 1e-12))).sum(axis=-1)
    return bool(entropies.mean() >= NEARLY_UNIFORM * np.log(len(weights)))


def _scale() -> str:
    """The scale of all maps, with weights at some places."""
    content = _image(np.arange(LEVELS, dtype=np.uint8)[None], 10, 4, 300, 14)
    for weight in (0, 0.02, 0.1, 0.25, 0.5, 1):
        x = 10 + 300 * weight**0.5
        content += f'<text x="{x:.0f}" y="34" text-anchor="middle">{weight:g}</text>'
    return _svg(330, 40, "scale", content, f' font-size="{LETTERS}"')


def _svg(width: int, height: int, label: str, content: str, attributes: str) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" aria-label="{label}"{attributes}>{content}</svg>'


def _image(levels: NDArray[np.uint8], x: int, y: int, width: int, height: int) -> str:
    """Levels, (rows, columns), as an image within a figure."""
    source = f"data:image/png;base64,{base64.b64encode(_png(levels)).decode()}"
    size = f'width="{width}" height="{height}" preserveAspectRatio="none"'
    return f'<image x="{x}" y="{y}" {size} href="{source}"/>'


def _png(levels: NDArray[np.uint8]) -> bytes:
    """Levels, (rows, columns), as an image in PNG (RFC 2083), from light to dark blue."""
    # A byte for each pixel, its index in the palette.
    num_rows, num_columns = levels.shape
    header = struct.pack(">2I5B", num_columns, num_rows, 8, 3, 0, 0, 0)

    # The 0 before each row stands for no filter.
    rows = np.pad(levels, ((0, 0), (1, 0)))

    return (
        b"\x89PNG\r\n\x1a\n"
        + _png_chunk(b"IHDR", header)
        + _png_chunk(b"PLTE", _palette().tobytes())
        + _png_chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + _png_chunk(b"IEND", b"")
    )


def _png_chunk(name: bytes, content: bytes) -> bytes:
    length = struct.pack(">I", len(content))
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return length + name + content + checksum


def _palette() -> NDArray[np.uint8]:
    """The colour of each level, (levels, 3), between the `BLUES`."""
    colours = np.array([list(bytes.fromhex(colour)) for colour in BLUES])
    positions = np.linspace(0, len(colours) - 1, LEVELS)
    channels = [np.interp(positions, np.arange(len(colours)), channel) for channel in colours.T]
    palette: NDArray[np.uint8] = np.stack(channels, axis=1).round().astype(np.uint8)
    return palette


def _width(name: str) -> int:
    """The approximate width of a name in pixels.

    East Asian letters and pictures are as wide as they are high.
    """
    width = 0.0
    for character in name:
        is_wide = unicodedata.east_asian_width(character) in {"W", "F"}
        width += 1.0 if is_wide else 0.6
    return round(LETTERS * width)
