"""An HTML page around a body: one file that needs no network.

A content security policy stops what would get through escaping nevertheless: the only script that runs has the hash
that the policy names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path

from encoder_cls.system.display import replace_unprintable

SHADES = 9  # in the style sheet
_RIGHT_TO_LEFT = re.compile(
    r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+(?:[\W_]+[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+)*"
)


def html_page(title: str, body: str, *, script: str | None = None, connect: str = "'none'") -> str:
    """A page around HTML in which every text is `escaped`.

    `script` replaces the script of all pages; `connect` is where it may connect, as a content security policy has it.
    """
    script = _beside("js") if script is None else script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {"title": escaped(title), "style": _beside("css"), "body": body, "script": script}
    return _beside("html").format(**parts, digest=digest, connect=connect)


def escaped(text: str) -> str:
    """A text as HTML, also within quotes, without markup, control characters and halves of surrogate pairs."""
    return html.escape(replace_unprintable(text, keep="\n\t"))


def isolated(text: str, *, in_attribute: bool = False) -> str:
    """A sentence as HTML in which words from right to left, such as the names of classes, move nothing beside them.

    `in_attribute`, such as a title, has no tags: there characters of Unicode isolate them.
    """
    before, after = ("\u2068", "\u2069") if in_attribute else ("<bdi>", "</bdi>")
    return _RIGHT_TO_LEFT.sub(rf"{before}\g<0>{after}", escaped(text))


def shade(strength: float) -> str:
    """The CSS class of a colour whose strength is a number from 0 to 1, in `SHADES` steps."""
    return f"a{min(SHADES, max(1, round(strength * SHADES)))}"


@cache
def _beside(ending: str) -> str:
    return Path(__file__).with_suffix(f".{ending}").read_text(encoding="utf-8")
