"""The frame of all HTML pages, and how text is put into them.

A page is one file that needs no network. In case escaping fails, a content security policy lets
only the script run whose hash it names. There is no template engine, because predicting would
depend on it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path

from encoder_cls.system.display import replace_unprintable

# The shades of a colour in the style sheet.
SHADES = 9

_LETTERS = r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+"
_RIGHT_TO_LEFT = re.compile(rf"{_LETTERS}(?:[\W_]+{_LETTERS})*")


def html_page(title: str, body: str, *, script: str | None = None, connect: str = "'none'") -> str:
    """Wrap a page around HTML.

    Args:
        title: of the page.
        body: HTML in which every text is `escaped`.
        script: in place of the common script.
        connect: where the script may connect to, in the words of the security policy.
    """
    if script is None:
        script = _file_beside("js")
    digest = hashlib.sha256(script.encode()).digest()
    return _file_beside("html").format(
        title=escaped(title),
        style=_file_beside("css"),
        body=body,
        script=script,
        digest=base64.b64encode(digest).decode(),
        connect=connect,
    )


def escaped(text: str) -> str:
    """Escape a text for HTML, also within quotes, and replace what cannot be printed.

    That is control characters and half surrogate pairs.
    """
    return html.escape(replace_unprintable(text, keep="\n\t"))


def isolated(text: str, *, in_attribute: bool = False) -> str:
    """Escape a sentence, and isolate words from right to left, so that they move no others.

    Such words are names of classes. In an attribute, such as a title, Unicode characters isolate
    them in place of tags.
    """
    before = "<bdi>"
    after = "</bdi>"
    if in_attribute:
        before = "\N{FIRST STRONG ISOLATE}"
        after = "\N{POP DIRECTIONAL ISOLATE}"
    return _RIGHT_TO_LEFT.sub(rf"{before}\g<0>{after}", escaped(text))


def shade(strength: float) -> str:
    """The CSS class of a colour of this strength, from 0 to 1, in `SHADES` steps."""
    return f"a{min(SHADES, max(1, round(strength * SHADES)))}"


@cache
def _file_beside(ending: str) -> str:
    return Path(__file__).with_suffix(f".{ending}").read_text(encoding="utf-8")
