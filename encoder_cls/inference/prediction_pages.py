"""Predictions in, HTML out: the words of texts in the colours of what they did, and attention maps.

Written with the standard library and NumPy, so that what only predicts needs no template engine and no plots.
"""

from __future__ import annotations

import base64
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.explain import STRONG, AttentionMaps, marked
from encoder_cls.system.display import replace_unprintable, shortened
from encoder_cls.system.html_page import escaped, html_page

MOST_MAP_TOKENS = 48  # of a text whose attention is drawn: in more cells nothing can be seen
LONGEST_NAME = 14  # characters of a token beside a map
CELL, LETTERS = 12, 9  # pixels of a cell of a map, and of the letters beside it
TITLE = 18  # pixels above a map
NARROWEST_MAP = 80  # pixels: what its title takes
LEVELS = 64  # of attention that can be told apart
# ColorBrewer's Blues, from nothing to the most (https://colorbrewer2.org).
BLUES = "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b"

_EXPLANATIONS = """\
<h1>{title}</h1>
{note}<p class="note">Green words speak for the class, red ones against it. A word's strength (point at it) is by how \
much the log
odds of the class fall when the word is left out.</p>
<table class="sortable">
<thead><tr><th>class</th><th>probability</th><th class="text">text</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>"""
_ATTENTION = """\
<h1>{title}</h1>
<p class="note">Each row is a token that looks, each column one that is looked at; the darker, the more. What a token \
looks at
is not why the class was chosen: for that there is <code>--explain</code>.</p>
{texts}"""


def render_explanations(title: str, rows: Sequence[Mapping[str, Any]], *, note: str | None = None) -> str:
    """A page of predictions with their texts, the words in the colours of what they did.

    Args:
        title: of the page.
        rows: each with `text`, `label`, `probability` and `weights` (of `WordWeight`), and perhaps `left_out`: how many
            words have no weight since there are too many. Where there is no probability, `reason` says why.
        note: what is shown where it is not all, such as "the first 10 texts".
    """
    shown_note = f'<p class="note">This page holds {escaped(note)} only.</p>\n' if note else ""
    body = _EXPLANATIONS.format(title=escaped(title), note=shown_note, rows="\n".join(map(_row, rows)))
    return html_page(title, body)


def render_attention(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """A page of the attention maps of texts, one for each layer and head.

    Args:
        title: of the page.
        texts: each with a line about it; made one at a time, since the maps of a long text are large.
    """
    shown = [part for number, (line, maps) in enumerate(texts) for part in _maps_of_a_text(number, line, maps)]
    return html_page(title, _ATTENTION.format(title=escaped(title), texts="\n".join(shown)))


def words_html(pieces: Iterable[tuple[str, float]]) -> str:
    """A text cut into pieces with weights (see `marked`), as HTML with the pieces in colours."""
    shown = (
        f'<span style="background:{_colour(weight)}" title="{weight:+.2f}">{escaped(piece)}</span>'
        if weight
        else escaped(piece)
        for piece, weight in pieces
    )
    return f'<span class="words">{"".join(shown)}</span>'


def _colour(weight: float) -> str:
    """Green for what speaks for the class, red for what speaks against it, the stronger the fuller."""
    strength = min(abs(weight) / STRONG, 1.0)
    return f"rgba({'46,160,67' if weight > 0 else '218,54,51'},{0.75 * strength:.2f})"


def _row(row: Mapping[str, Any]) -> str:
    left_out = row.get("left_out")
    note = f' <span class="note">(the last {left_out} words are not explained)</span>' if left_out else ""
    words = words_html(marked(row["text"], row["weights"]))
    probability = f"{row['probability']:.3f}" if row["probability"] is not None else escaped(row["reason"])
    return f'<tr><td>{escaped(row["label"])}</td><td>{probability}</td><td class="text">{words}{note}</td></tr>'


def _maps_of_a_text(number: int, line: str, maps: AttentionMaps) -> Iterator[str]:
    """The line about a text, then its maps, a row of them for each layer; `number` tells it from the page's others."""
    yield f'<h2 class="words">{escaped(line)}</h2>'
    if len(maps.tokens) > MOST_MAP_TOKENS:
        yield f'<p class="note">The first {MOST_MAP_TOKENS} tokens.</p>'
    names = [replace_unprintable(shortened(token, limit=LONGEST_NAME)) for token in maps.tokens[:MOST_MAP_TOKENS]]
    margin = CELL + max(map(_width, names))
    yield _names_of_tokens(number, names, margin)
    for layer, heads in enumerate(maps.weights[:, :, :MOST_MAP_TOKENS, :MOST_MAP_TOKENS], start=1):
        drawn = (
            _map(number, f"layer {layer}, head {head}", weights, margin) for head, weights in enumerate(heads, start=1)
        )
        yield "\n".join(['<div class="side">', *drawn, "</div>"])


def _names_of_tokens(number: int, names: Sequence[str], margin: int) -> str:
    """The names beside all maps of a text and below them, which these refer to: they would be most of the page."""
    middles = [(index + 0.5) * CELL + LETTERS / 3 for index in range(len(names))]
    rows = "".join(
        f'<text x="{margin - 4}" y="{TITLE + middle:.0f}">{escaped(name)}</text>'
        for name, middle in zip(names, middles, strict=True)
    )
    below = TITLE + CELL * len(names) + 4
    columns = "".join(
        f'<text transform="translate({margin + middle:.0f} {below}) rotate(-90)">{escaped(name)}</text>'
        for name, middle in zip(names, middles, strict=True)
    )
    return (
        f'<svg class="names" width="0" height="0"><g id="tokens-{number}" font-size="{LETTERS}" text-anchor="end">'
        f"{rows}{columns}</g></svg>"
    )


def _map(number: int, title: str, weights: NDArray[np.float32], margin: int) -> str:
    """One map as SVG: the cells are an image, a pixel each, which takes a hundredth of as many rectangles."""
    side = CELL * len(weights)
    width, height = margin + max(side, NARROWEST_MAP), TITLE + side + margin
    image = base64.b64encode(_png(weights / max(float(weights.max()), 1e-6))).decode()
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
        f'<text x="{margin}" y="{TITLE - 6}" font-size="{LETTERS + 1}">{title}</text><use href="#tokens-{number}"/>'
        f'<image x="{margin}" y="{TITLE}" width="{side}" height="{side}" href="data:image/png;base64,{image}"/></svg>'
    )


def _png(values: NDArray[np.float32]) -> bytes:
    """Numbers from 0 to 1 as an image with a pixel each, as RFC 2083 has it, from light to dark blue."""
    points = np.array([list(bytes.fromhex(colour)) for colour in BLUES.split()])
    positions = np.linspace(0, len(points) - 1, LEVELS)
    palette = np.stack([np.interp(positions, np.arange(len(points)), channel) for channel in points.T], axis=1)
    levels = (np.clip(values, 0, 1) * (LEVELS - 1)).round().astype(np.uint8)
    rows = np.pad(levels, ((0, 0), (1, 0)))  # each begins with a 0: its bytes are no differences
    header = struct.pack(">2I5B", values.shape[1], values.shape[0], 8, 3, 0, 0, 0)  # a byte a pixel, of a palette
    parts = {
        b"IHDR": header,
        b"PLTE": palette.round().astype(np.uint8).tobytes(),
        b"IDAT": zlib.compress(rows.tobytes()),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _width(name: str) -> int:
    """About how many pixels a name takes: letters of East Asia and pictures are as wide as they are high."""
    return round(LETTERS * sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in name))
