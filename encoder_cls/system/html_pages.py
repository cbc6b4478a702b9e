"""The frame of all HTML pages, and functions that escape the text in them.

A page is one file that needs no network. A content security policy allows only the script whose
hash it contains, so that a text cannot run a script even if it were not escaped. The pages of
predictions are made without a template engine, because predicting would then depend on one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path

from encoder_cls.system.display import replace_unprintable

# The functions of scripts that show a prediction, for pages on which texts are tried.
PREDICTION_VIEW = Path(__file__).with_name("prediction_view.js").read_text(encoding="utf-8")

# The number of shades of a colour in the style sheet.
SHADES = 9

_LETTERS = r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+"
_RIGHT_TO_LEFT = re.compile(rf"{_LETTERS}(?:[\W_]+{_LETTERS})*")


def html_page(
    title: str,
    body: str,
    *,
    script: str | None = None,
    style: str = "",
    connect: str = "'none'",
    worker: str = "'none'",
    uses_webassembly: bool = False,
) -> str:
    """Make a whole HTML page of its body, in which every text must be `escaped`.

    The script is in place of the common script, and the style is added to the common style sheet.
    `connect` and `worker` are addresses that the content security policy allows, as values of
    `connect-src` and `worker-src`. With `uses_webassembly`, scripts may compile WebAssembly, which
    can do no more than the script that calls it.
    """
    if script is None:
        script = _file_beside("js")
    digest = hashlib.sha256(script.encode()).digest()
    webassembly = ""
    if uses_webassembly:
        webassembly = " 'wasm-unsafe-eval'"
    return _file_beside("html").format(
        title=escaped(title),
        style=_file_beside("css") + style,
        body=body,
        script=script,
        digest=base64.b64encode(digest).decode(),
        webassembly=webassembly,
        connect=connect,
        worker=worker,
    )


def escaped(text: str) -> str:
    """Escape a text for HTML, also within the quotes of an attribute.

    Control characters and halves of surrogate pairs, which cannot be printed, are replaced.
    """
    return html.escape(replace_unprintable(text, keep="\n\t"))


def isolated(text: str, *, in_attribute: bool = False) -> str:
    """Escape a sentence, and isolate the words in it that are written from right to left.

    Such words are names of classes. Without isolation, they would change the order of the words
    around them. They are isolated by tags; `in_attribute`, where tags are not possible, by Unicode
    characters.
    """
    before = "<bdi>"
    after = "</bdi>"
    if in_attribute:
        before = "\N{FIRST STRONG ISOLATE}"
        after = "\N{POP DIRECTIONAL ISOLATE}"
    return _RIGHT_TO_LEFT.sub(rf"{before}\g<0>{after}", escaped(text))


def shade(strength: float) -> str:
    """The CSS class of the shade for a strength from 0 to 1; there are `SHADES` of them."""
    return f"a{min(SHADES, max(1, round(strength * SHADES)))}"


@cache
def _file_beside(ending: str) -> str:
    return Path(__file__).with_suffix(f".{ending}").read_text(encoding="utf-8")
