"""The HTML page of attention maps.

A map is an image in an SVG figure, with a pixel for each pair of tokens. The page contains the
levels of attention of each map. Its script (`html_pages.js`) draws the images from these levels,
and shows the value under the pointer.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.attention_maps import AttentionMaps
from encoder_cls.system.display import replace_unprintable, shortened
from encoder_cls.system.html_pages import escaped, html_page

# The most tokens of a text in a map; the cells of a larger map would be too small.
MAX_MAP_TOKENS = 48

# The most characters of a token beside a map.
MAX_NAME_LENGTH = 14

# The width and height of a cell in pixels.
CELL = 16
# The size of the letters beside a map in pixels.
LETTERS = 12
# The height of the space above a map for its title, in pixels.
TITLE = 22
# The smallest width of a map in pixels, so that its title fits.
MIN_MAP_WIDTH = 215

# Maps that do not fit side by side are scaled down, but not below this factor, because smaller
# letters are illegible.
MIN_SCALE = 0.6

# The highest level of attention. A level is a byte.
HIGHEST_LEVEL = 255

# The colours from no attention to the most: ColorBrewer's Blues (https://colorbrewer2.org).
BLUES = (
    "#f7fbff",
    "#deebf7",
    "#c6dbef",
    "#9ecae1",
    "#6baed6",
    "#4292c6",
    "#2171b5",
    "#08519c",
    "#08306b",
)
# The weights that are written below the scale.
WEIGHTS_OF_SCALE = (0, 0.02, 0.1, 0.25, 0.5, 1)

_PAGE = """\
<h1>{title}</h1>
<p class="note">Each row is a token that looks, each column one that is looked at; the stronger \
the colour, the more. All maps have this one scale; point at a cell, or touch it, for its value. \
What a token looks at is not why the class was chosen: for that there is <code>--explain</code>.\
</p>
<noscript><p class="note">The maps are missing: a script of this page draws them.</p></noscript>
{scale}
{texts}"""


def render_attention(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """Make a page of attention maps, one for each layer and head, all on one scale from 0 to 1.

    Each text has a line above its maps. An iterator of texts is best, because the maps of a long
    text are large, and only those of one text are needed at a time.
    """
    lines: list[str] = []
    for number, (heading, maps) in enumerate(texts):
        lines += _maps_of_text(number, heading, maps)
    body = _PAGE.format(title=escaped(title), scale=_scale(), texts="\n".join(lines))
    return html_page(title, body)


def _maps_of_text(number: int, heading: str, maps: AttentionMaps) -> Iterator[str]:
    """Yield the HTML of a text, numbered from 0: its heading, then a row of maps for each layer."""
    yield f'<h2 class="words" dir="auto">{escaped(heading)}</h2>'

    num_tokens = maps.weights.shape[-1]
    note = f"A token that looked at all {num_tokens} alike would give each {1 / num_tokens:.3f}."
    if num_tokens > MAX_MAP_TOKENS:
        note += f" The first {MAX_MAP_TOKENS} tokens."
    yield f'<p class="note">{note}</p>'

    names = []
    for token in maps.tokens[:MAX_MAP_TOKENS]:
        names.append(replace_unprintable(shortened(token, limit=MAX_NAME_LENGTH)))
    margin = LETTERS + max(_width(name) for name in names)
    yield _names_of_tokens(number, names, margin)

    least_width = round(MIN_SCALE * (margin + CELL * len(names)))
    for layer, heads in enumerate(maps.weights, start=1):
        yield f'<div class="maps" style="--least:{least_width}px">'
        for head, weights in enumerate(heads, start=1):
            yield _map(number, f"layer {layer}, head {head}", weights, margin)
        yield "</div>"


def _names_of_tokens(number: int, names: Sequence[str], margin: int) -> str:
    """The tokens of a text as SVG, once beside and once below a map, to which all maps refer."""
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
    """A figure for a map of attention weights, (tokens, tokens), whose image a script draws.

    An attribute of the figure has a byte for each cell. A rectangle for each cell would take a
    hundred times as many bytes.
    """
    label = title
    if is_nearly_uniform(weights):
        label += " (nearly uniform)"

    # Levels are square roots of weights, so that small weights are visible, too. Among many tokens,
    # most weights are small.
    shown = np.clip(weights[:MAX_MAP_TOKENS, :MAX_MAP_TOKENS], 0, 1)
    levels = (np.sqrt(shown) * HIGHEST_LEVEL).round().astype(np.uint8)
    encoded_levels = base64.b64encode(levels.tobytes()).decode()

    side = CELL * len(levels)
    place = f'x="{margin}" y="{TITLE}" width="{side}" height="{side}"'
    heading_place = f'x="{margin}" y="{TITLE - 7}" font-size="{LETTERS + 1}"'
    content = (
        f'<text class="strong" {heading_place}>{label}</text>'
        f'<use href="#tokens-{number}"/>'
        f"<image {place}/>"
    )
    return _svg(
        content,
        width=margin + max(side, MIN_MAP_WIDTH),
        height=TITLE + side + margin,
        label=label,
        attributes=f'data-levels="{encoded_levels}"',
    )


# The fraction of the largest possible entropy from which attention is called nearly uniform.
NEARLY_UNIFORM = 0.98


def is_nearly_uniform(weights: NDArray[np.float32]) -> bool:
    """Whether the tokens of a map, (tokens, tokens), look at all tokens nearly equally.

    This is decided by the mean entropy of the rows of the map.
    """
    if len(weights) < 2:
        return False
    entropies = -(weights * np.log(np.maximum(weights, 1e-12))).sum(axis=-1)
    return bool(entropies.mean() >= NEARLY_UNIFORM * np.log(len(weights)))


def _scale() -> str:
    """The colour scale of all maps as SVG, from whose gradient the script takes the colours."""
    stops = ""
    for number, colour in enumerate(BLUES):
        stops += f'<stop offset="{number / (len(BLUES) - 1)}" stop-color="{colour}"/>'

    content = f'<linearGradient id="levels">{stops}</linearGradient>'
    content += '<rect class="scale" x="10" y="4" width="300" height="14" fill="url(#levels)"/>'
    for weight in WEIGHTS_OF_SCALE:
        x = 10 + 300 * weight**0.5
        content += f'<text x="{x:.0f}" y="34" text-anchor="middle">{weight:g}</text>'
    return _svg(content, width=330, height=40, label="scale", attributes=f'font-size="{LETTERS}"')


def _svg(content: str, *, width: int, height: int, label: str, attributes: str) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" aria-label="{label}" {attributes}>{content}</svg>'


def _width(name: str) -> int:
    """Estimate the width of a name in pixels; East Asian letters and pictographs are widest."""
    width = 0.0
    for character in name:
        if unicodedata.east_asian_width(character) in {"W", "F"}:
            width += 1.0
        else:
            width += 0.6
    return round(LETTERS * width)
