"""Results in, pages out: HTML in one file that needs no network and runs nothing but its own few lines.

Texts and names are escaped; a content security policy stops what would get through nevertheless.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from encoder_cls.evaluation.plots import MOST_TOKENS, attention, to_svg
from encoder_cls.inference.explain import AttentionMaps, WordWeight

if TYPE_CHECKING:
    from jinja2 import Environment

STRONG = 2.0  # log odds from which a word has its full colour


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


def explanations_page(title: str, rows: Sequence[Mapping[str, Any]], *, note: str | None = None) -> str:
    """Predictions with their texts, the words in the colours of what they did.

    Args:
        title: of the page.
        rows: each with `text`, `label`, `probability` and `weights` (of `WordWeight`), and perhaps `left_out`: how many
            words have no weight since there are too many.
        note: what the page holds where it is not all, such as "the first 10 texts".
    """
    shown = [{"left_out": 0, **row, "pieces": marked(row["text"], row["weights"])} for row in rows]
    return render("explanations.html", title=title, rows=shown, note=note)


def attention_page(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """The attention maps of texts, one for each layer and head.

    Args:
        title: of the page.
        texts: each with a line about it; made one at a time, since the maps of a long text are large.
    """
    shown = [
        {
            "line": line,
            "picture": to_svg(attention(maps.tokens, maps.weights)),
            "is_cut": len(maps.tokens) > MOST_TOKENS,
        }
        for line, maps in texts
    ]
    return render("attention.html", title=title, texts=shown, most_tokens=MOST_TOKENS)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("encoder_cls.evaluation"),
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
