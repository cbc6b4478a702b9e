"""The HTML page of attention maps: SVG images, which its script (`html_pages.js`) draws."""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.attention_maps import AttentionMaps
from encoder_cls.system.display import replace_unprintable, shortened
from encoder_cls.system.html_pages import html_page, render

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
WEIGHTS_OF_SCALE = (0, 0.02, 0.1, 0.25, 0.5, 1)


class ShownText(NamedTuple):
    """A text as the page shows it; `margin` is the space for names, in pixels."""

    heading: str
    num_tokens: int
    names: list[str]
    margin: int
    layers: list[list[tuple[str, str]]]


def render_attention(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """Make a page of attention maps of each layer and head, all on one scale from 0 to 1."""
    body = render(
        "classifier/attention_page.html",
        title=title,
        texts=(_shown(heading, maps) for heading, maps in texts),
        colours=BLUES,
        weights_of_scale=WEIGHTS_OF_SCALE,
        cell=CELL,
        letters=LETTERS,
        top=TITLE,
        min_width=MIN_MAP_WIDTH,
        min_scale=MIN_SCALE,
    )
    return html_page(title, body)


def _shown(heading: str, maps: AttentionMaps) -> ShownText:
    names = []
    for token in maps.tokens[:MAX_MAP_TOKENS]:
        names.append(replace_unprintable(shortened(token, limit=MAX_NAME_LENGTH)))

    layers = []
    for layer, heads in enumerate(maps.weights, start=1):
        shown_heads = []
        for head, weights in enumerate(heads, start=1):
            label = f"layer {layer}, head {head}"
            if is_nearly_uniform(weights):
                label += " (nearly uniform)"
            shown_heads.append((label, _levels(weights)))
        layers.append(shown_heads)

    return ShownText(
        heading=heading,
        num_tokens=maps.weights.shape[-1],
        names=names,
        margin=LETTERS + max(_width(name) for name in names),
        layers=layers,
    )


def _levels(weights: NDArray[np.float32]) -> str:
    """The levels of a map, (tokens, tokens), in Base64: a hundredth of the size of rectangles."""
    # Levels are square roots of weights, so that small weights are visible, too. Among many tokens,
    # most weights are small.
    shown = np.clip(weights[:MAX_MAP_TOKENS, :MAX_MAP_TOKENS], 0, 1)
    levels = (np.sqrt(shown) * HIGHEST_LEVEL).round().astype(np.uint8)
    return base64.b64encode(levels.tobytes()).decode()


# The fraction of the largest possible entropy from which attention is called nearly uniform.
NEARLY_UNIFORM = 0.98


def is_nearly_uniform(weights: NDArray[np.float32]) -> bool:
    """Whether the rows of a map, (tokens, tokens), have nearly the entropy of uniform attention."""
    if len(weights) < 2:
        return False
    entropies = -(weights * np.log(np.maximum(weights, 1e-12))).sum(axis=-1)
    return bool(entropies.mean() >= NEARLY_UNIFORM * np.log(len(weights)))


def _width(name: str) -> int:
    """Estimate the width of a name in pixels; East Asian letters and pictographs are widest."""
    width = 0.0
    for character in name:
        if unicodedata.east_asian_width(character) in {"W", "F"}:
            width += 1.0
        else:
            width += 0.6
    return round(LETTERS * width)
