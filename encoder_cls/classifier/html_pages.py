"""HTML pages: the frame of all pages, and the pages of predictions and attention maps.

A page is one file that needs no network. In case escaping fails, a content security policy lets only the script run
whose hash it names. There is no template engine, because predicting would depend on it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.explain import (
    LEAST_WEIGHT,
    STRONG,
    AttentionMaps,
    Explanation,
    WordWeight,
    marked,
)
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.system.display import replace_unprintable, shortened

SHADES = 9  # in the style sheet
_RIGHT_TO_LEFT = re.compile(
    r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+(?:[\W_]+[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+)*"
)

MOST_MAP_TOKENS = 48  # drawn of a text: cells of more would be too small
MOST_STRONGEST = 5  # words whose weights are below a text
LARGEST_WEIGHT = 9.9  # shown: larger ones change only what follows 0.9999 in a probability
LONGEST_NAME = 14  # characters of a token beside a map
CELL, LETTERS = 16, 12  # pixels of a cell of a map, and of the letters beside it
TITLE = 22  # pixels above a map
NARROWEST_MAP = 215  # pixels: the width of its title
LEAST_SCALE = 0.6  # of maps side by side: smaller letters are illegible
LEVELS = 256  # of attention
NEARLY_UNIFORM = 0.98  # of the largest possible entropy
# ColorBrewer's Blues, from 0 to the most (https://colorbrewer2.org).
BLUES = "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b"

LEGEND = f"""\
<p class="note words"><span class="against a9">orange, dotted</span> <span class="against a4">speaks against</span> \
the class, <span class="for a4">speaks for it</span> <span class="for a9">blue</span>: by how much the log odds of the \
class fall when the word is left out. 0.7 doubles the odds; {STRONG:g}, in full colour, makes them \
{math.exp(STRONG):.0f} times as high; beyond {LARGEST_WEIGHT} weights are not distinguished.</p>"""
_ATTENTION = """\
<h1>{title}</h1>
<p class="note">Each row is a token that looks, each column one that is looked at; the stronger the colour, the more. \
All maps have this one scale; point at a cell, or touch it, for its value. What a token looks at is not why the class \
was chosen: for that there is <code>--explain</code>.</p>
{scale}
{texts}"""


def html_page(title: str, body: str, *, script: str | None = None, connect: str = "'none'") -> str:
    """Wrap a page around HTML in which every text is `escaped`.

    `script` replaces the common script; `connect` is where it may connect to, in the words of the security policy.
    """
    script = _beside("js") if script is None else script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {"title": escaped(title), "style": _beside("css"), "body": body, "script": script}
    return _beside("html").format(**parts, digest=digest, connect=connect)


def escaped(text: str) -> str:
    """Escape a text for HTML, also within quotes, and replace control characters and half surrogate pairs."""
    return html.escape(replace_unprintable(text, keep="\n\t"))


def isolated(text: str, *, in_attribute: bool = False) -> str:
    """Escape a sentence, and isolate words from right to left, such as names of classes, so that they move no others.

    In an attribute, such as a title, Unicode characters isolate them in place of tags.
    """
    before, after = ("\u2068", "\u2069") if in_attribute else ("<bdi>", "</bdi>")
    return _RIGHT_TO_LEFT.sub(rf"{before}\g<0>{after}", escaped(text))


def shade(strength: float) -> str:
    """The CSS class of a colour of this strength, from 0 to 1, in `SHADES` steps."""
    return f"a{min(SHADES, max(1, round(strength * SHADES)))}"


@cache
def _beside(ending: str) -> str:
    return Path(__file__).with_suffix(f".{ending}").read_text(encoding="utf-8")


def render_predictions(
    rows: str, *, is_multi_label: bool, note: str | None = None, model: str = ""
) -> str:
    """Make a page of predictions, each a line of `prediction_row`.

    `note` names the texts on the page if they are not all, such as "the first 10 texts".
    """
    notes = [f"Answered by {escaped(model)}."] if model else []
    notes += [f"This page holds {escaped(note)} only."] if note else []
    runner_up = "" if is_multi_label else '<th class="text wider">runner-up</th>'
    heads = f'<th class="middling">class</th><th class="narrow">probability</th>{runner_up}<th class="text">text</th>'
    lines = [
        "<h1>Predictions</h1>",
        *([f'<p class="note">{" ".join(notes)}</p>'] if notes else []),
        LEGEND,
    ]
    lines += [
        '<table class="sortable stacked full">',
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    return html_page("Predictions", "\n".join([*lines, f"{rows}</tbody>", "</table>"]))


def prediction_row(
    text: str, prediction: Prediction, words: Explanation, *, label: str, notes: Sequence[str] = ()
) -> str:
    """Render a text, its words coloured by their weights, with its prediction as this `label`, and notes below."""
    below = [strongest] if (strongest := strongest_words(words)) else []
    below += [escaped(f"({note})") for note in notes]
    below += [f"(the last {words.left_out} words are not explained)"] if words.left_out else []
    shown = words_html(marked(text, words)) + (
        f'<br><span class="note">{" ".join(below)}</span>' if below else ""
    )
    runner_up = '<td class="text" data-value="0"></td>' if prediction.labels is None else ""
    if prediction.labels is None and not prediction.reason:
        _, (name, second) = prediction.top(2)
        runner_up = (
            f'<td class="text" data-head="runner-up" data-value="{second:.6f}"><bdi>{escaped(name)}</bdi> '
            f'<span class="note">{second:.3f}</span></td>'
        )
    probability = (
        prediction.reason if prediction.probability is None else f"{prediction.probability:.3f}"
    )
    label = f"<bdi>{escaped(label)}</bdi>"
    return (
        f'<tr><td>{label}</td><td>{probability}</td>{runner_up}<td class="text">{shown}</td></tr>'
    )


def render_attention(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """Make a page of attention maps, one for each layer and head, all on one scale from 0 to 1.

    Each text has a line above its maps. Texts are read one at a time, since the maps of a long text are large.
    """
    shown = [
        part
        for number, (line, maps) in enumerate(texts)
        for part in _maps_of_a_text(number, line, maps)
    ]
    return html_page(
        title, _ATTENTION.format(title=escaped(title), scale=_scale(), texts="\n".join(shown))
    )


def words_html(pieces: Iterable[tuple[str, float]]) -> str:
    """Render the pieces of a text (see `marked`), coloured by their weights."""
    shown = (
        f'<span class="{"for" if weight > 0 else "against"} {shade(abs(weight) / STRONG)}" '
        f'title="{weight_text(weight, digits=2)}">{escaped(piece)}</span>'
        if abs(weight) >= LEAST_WEIGHT
        else escaped(piece)
        for piece, weight in pieces
    )
    return f'<span class="words" dir="auto">{"".join(shown)}</span>'


def strongest_words(weights: Sequence[WordWeight]) -> str:
    """Render the words with the largest weights, for paper, where no pointer shows weights."""
    strongest = sorted(
        (word for word in weights if abs(word.weight) >= LEAST_WEIGHT),
        key=lambda it: -abs(it.weight),
    )
    named = (
        f"<bdi>{escaped(shortened(word.word, limit=LONGEST_NAME))}</bdi> "
        + weight_text(word.weight).replace("-", "\N{MINUS SIGN}")
        for word in strongest[:MOST_STRONGEST]
    )
    return ", ".join(f'<span class="nowrap">{words}</span>' for words in named)


def weight_text(weight: float, *, digits: int = 1) -> str:
    """Format a weight with its sign, up to the `LARGEST_WEIGHT`."""
    if abs(weight) > LARGEST_WEIGHT:
        return f"{'+' if weight > 0 else '-'}{LARGEST_WEIGHT} or more"
    return f"{weight:+.{digits}f}"


def _maps_of_a_text(number: int, line: str, maps: AttentionMaps) -> Iterator[str]:
    """The line about a text, then a row of maps for each layer; `number` is the index of the text on the page."""
    yield f'<h2 class="words" dir="auto">{escaped(line)}</h2>'
    size = maps.weights.shape[-1]
    notes = [f"A token that looked at all {size} alike would give each {1 / size:.3f}."]
    notes += [f"The first {MOST_MAP_TOKENS} tokens."] if size > MOST_MAP_TOKENS else []
    yield f'<p class="note">{" ".join(notes)}</p>'
    names = [
        replace_unprintable(shortened(token, limit=LONGEST_NAME))
        for token in maps.tokens[:MOST_MAP_TOKENS]
    ]
    margin = LETTERS + max(map(_width, names))
    yield _names_of_tokens(number, names, margin)
    least = round(LEAST_SCALE * (margin + CELL * len(names)))
    for layer, heads in enumerate(maps.weights, start=1):
        drawn = (
            _map(number, f"layer {layer}, head {head}", weights, margin)
            for head, weights in enumerate(heads, start=1)
        )
        yield "\n".join([f'<div class="maps" style="--least:{least}px">', *drawn, "</div>"])


def is_nearly_uniform(weights: NDArray[np.float32]) -> bool:
    """Whether each token looks at all tokens nearly alike, by the mean entropy of a map's rows, (tokens, tokens)."""
    if len(weights) < 2:
        return False
    entropy = -(weights * np.log(np.maximum(weights, 1e-12))).sum(axis=-1).mean()
    return bool(entropy >= NEARLY_UNIFORM * np.log(len(weights)))


def _names_of_tokens(number: int, names: Sequence[str], margin: int) -> str:
    """The names of tokens beside and below the maps of a text, drawn once, for all maps to refer to."""
    below, rows, columns = TITLE + CELL * len(names) + 4, "", ""
    for index, name in enumerate(map(escaped, names)):
        middle = (index + 0.5) * CELL + LETTERS / 3
        rows += f'<text class="row" x="{margin - 4}" y="{TITLE + middle:.0f}">{name}</text>'
        place = f"translate({margin + middle:.0f} {below}) rotate(-90)"
        columns += f'<text class="column" transform="{place}">{name}</text>'
    return (
        '<svg class="names" aria-hidden="true" width="0" height="0">'
        f'<g id="tokens-{number}" font-size="{LETTERS}" text-anchor="end">{rows}{columns}</g></svg>'
    )


def _map(number: int, title: str, weights: NDArray[np.float32], margin: int) -> str:
    """A map as SVG, its cells as an image, which takes a hundredth of the bytes of rectangles.

    The levels of colour are the square roots of weights, because each of many tokens gets little weight. An attribute
    has them for the script, a byte for each cell.
    """
    uniform = " (nearly uniform)" if is_nearly_uniform(weights) else ""
    shown = np.clip(weights[:MOST_MAP_TOKENS, :MOST_MAP_TOKENS], 0, 1)
    levels = (np.sqrt(shown) * (LEVELS - 1)).round().astype(np.uint8)
    side = CELL * len(levels)
    content = (
        f'<text class="strong" x="{margin}" y="{TITLE - 7}" font-size="{LETTERS + 1}">{title}{uniform}</text>'
        f'<use href="#tokens-{number}"/>{_image(levels, margin, TITLE, side, side)}'
    )
    values = f' data-levels="{base64.b64encode(levels.tobytes()).decode()}"'
    return _svg(
        margin + max(side, NARROWEST_MAP),
        TITLE + side + margin,
        f"{title}{uniform}",
        content,
        values,
    )


def _scale() -> str:
    """The scale of all maps, with weights at some places."""
    image = _image(np.arange(LEVELS, dtype=np.uint8)[None], 10, 4, 300, 14)
    ticks = "".join(
        f'<text x="{10 + 300 * weight**0.5:.0f}" y="34" text-anchor="middle">{weight:g}</text>'
        for weight in (0, 0.02, 0.1, 0.25, 0.5, 1)
    )
    return _svg(330, 40, "scale", image + ticks, f' font-size="{LETTERS}"')


def _svg(width: int, height: int, label: str, content: str, attributes: str) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" aria-label="{label}"{attributes}>{content}</svg>'


def _image(levels: NDArray[np.uint8], x: int, y: int, width: int, height: int) -> str:
    source = f"data:image/png;base64,{base64.b64encode(_png(levels)).decode()}"
    size = f'width="{width}" height="{height}" preserveAspectRatio="none"'
    return f'<image x="{x}" y="{y}" {size} href="{source}"/>'


def _png(levels: NDArray[np.uint8]) -> bytes:
    """Levels as an image in PNG (RFC 2083), one pixel each, from light to dark blue."""
    points = np.array([list(bytes.fromhex(colour)) for colour in BLUES.split()])
    positions = np.linspace(0, len(points) - 1, LEVELS)
    palette = np.stack(
        [np.interp(positions, np.arange(len(points)), channel) for channel in points.T], axis=1
    )
    rows = np.pad(levels, ((0, 0), (1, 0)))  # the 0 before each row: no filter
    parts = {
        b"IHDR": struct.pack(
            ">2I5B", levels.shape[1], levels.shape[0], 8, 3, 0, 0, 0
        ),  # a byte a pixel, of a palette
        b"PLTE": palette.round().astype(np.uint8).tobytes(),
        b"IDAT": zlib.compress(rows.tobytes()),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _width(name: str) -> int:
    """The approximate width of a name in pixels: East Asian letters and pictures are as wide as they are high."""
    return round(
        LETTERS * sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in name)
    )
