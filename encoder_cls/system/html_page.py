"""The body of an HTML page in, the whole page out: one file that needs no network and runs its own few lines alone.

Style and script of all pages are beside this file. A content security policy stops what would get through escaping
nevertheless: a script runs only if it has the hash that the policy names.
"""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from pathlib import Path

from encoder_cls.system.display import replace_unprintable

SHADES = 9  # that the style has
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
script-src 'sha256-{digest}'; connect-src {connect}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""


def html_page(title: str, body: str, *, script: str | None = None, connect: str = "'none'") -> str:
    """A page.

    Args:
        title: of the page, as plain text.
        body: its content, as HTML in which every text is `escaped`.
        script: its own in place of that of all pages.
        connect: where it may connect, as a content security policy says it.
    """
    script = _beside("js") if script is None else script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _PAGE.format(
        title=escaped(title), style=_beside("css"), body=body, script=script, digest=digest, connect=connect
    )


def escaped(text: str) -> str:
    """A text as HTML, also within quotes: nothing in it is markup, a control character or half a surrogate pair."""
    return html.escape(replace_unprintable(text, keep="\n\t"))


def shade(strength: float) -> str:
    """The class of a colour as strong as a number from 0 to 1, in `SHADES` steps; nothing is the weakest of them."""
    return f"a{min(SHADES, max(1, round(strength * SHADES)))}"


@cache
def _beside(ending: str) -> str:
    return Path(__file__).with_suffix(f".{ending}").read_text(encoding="utf-8")
