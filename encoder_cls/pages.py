"""Results in, pages out: HTML in one file that needs no network and runs nothing but its own few lines.

Texts and names are escaped; a content security policy stops what would get through nevertheless.
"""

from __future__ import annotations

import base64
import hashlib
import io
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_cls.explain import AttentionMaps, WordWeight

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

STRONG = 2.0  # log odds from which a word has its full colour
MOST_TOKENS = 48  # of a text whose attention is drawn: in more cells nothing can be seen


def render(template: str, **values: Any) -> str:
    """Fill a template of this package."""
    environment = _environment()
    source, _, _ = environment.loader.get_source(environment, "script.js")  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return environment.get_template(template).render(script=source, script_sha256=digest, **values)


def marked(text: str, weights: Sequence[WordWeight]) -> list[tuple[str, float]]:
    """A text cut into pieces, each with its weight; what is between words has none."""
    pieces, place = [], 0
    for word in weights:
        pieces += [(text[place : word.start], 0.0), (text[word.start : word.end], word.weight)]
        place = word.end
    return [(piece, weight) for piece, weight in [*pieces, (text[place:], 0.0)] if piece]


def explanations_page(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Predictions with their texts, the words in the colours of what they did.

    Args:
        title: of the page.
        rows: each with `text`, `label`, `probability` and `weights` (of `WordWeight`).
    """
    shown = [{**row, "pieces": marked(row["text"], row["weights"])} for row in rows]
    return render("explanations.html", title=title, rows=shown)


def attention_page(title: str, texts: Sequence[tuple[str, AttentionMaps]]) -> str:
    """The attention maps of texts, one for each layer and head.

    Args:
        title: of the page.
        texts: each with a line about it.
    """
    shown = [
        {"line": line, "picture": to_svg(attention_figure(maps)), "is_cut": len(maps.tokens) > MOST_TOKENS}
        for line, maps in texts
    ]
    return render("attention.html", title=title, texts=shown, most_tokens=MOST_TOKENS)


def to_svg(figure: Figure) -> str:
    """A figure as SVG that equal figures have in common; its texts are escaped by matplotlib."""
    import matplotlib as mpl

    content = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "encoder-cls", "svg.fonttype": "none", "font.size": 9}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return content.getvalue()[content.getvalue().index("<svg") :]


def to_png(figure: Figure) -> bytes:
    """A figure as PNG."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # such a character is drawn as a box
        figure.savefig(content, format="png")
    return content.getvalue()


def attention_figure(maps: AttentionMaps) -> Figure:
    """The maps of all heads, one row a layer, of the first `MOST_TOKENS` tokens."""
    from matplotlib.figure import Figure

    layers, heads = maps.weights.shape[:2]
    names = [plain_label(token, limit=14) for token in maps.tokens[:MOST_TOKENS]]
    size = 0.6 + 0.12 * len(names)
    figure = Figure(figsize=(size * heads, size * layers), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    for (layer, head), axes in np.ndenumerate(grid):
        weights = maps.weights[layer, head, :MOST_TOKENS, :MOST_TOKENS]
        axes.imshow(weights, cmap="Blues", vmin=0, vmax=max(float(weights.max()), 1e-6))
        axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
    grid[0, 0].set_xticks(range(len(names)), names)
    grid[0, 0].set_yticks(range(len(names)), names)
    for axes in grid[-1, :]:
        axes.tick_params("x", rotation=90, labelsize=6)
    for axes in grid[:, 0]:
        axes.tick_params("y", labelsize=6)
    return figure


def plain_label(text: str, *, limit: int) -> str:
    """A text for an axis: one line, short, no formula, nothing that cannot be in XML."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in short).replace("$", r"\$")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("encoder_cls"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: f"{value:.1%}"
    environment.filters["colour"] = _colour
    return environment


def _harmless(value: Any) -> Any:
    """A value without control characters, which could steer a terminal, and without half surrogate pairs."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value)


def _colour(weight: float) -> str:
    """Green for what speaks for the class, red for what speaks against it, the stronger the fuller."""
    strength = min(abs(weight) / STRONG, 1.0)
    return f"rgba({'46,160,67' if weight > 0 else '218,54,51'},{0.75 * strength:.2f})"
