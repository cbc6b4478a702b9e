"""The page to try texts: one file that needs nothing else, whose own few lines are all that may run in it."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from encoder_cls.system.html_page import html_page

_BODY, _SCRIPT = (files("encoder_cls.serving").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "js"))
PAGE = html_page("encoder-cls", _BODY, script=_SCRIPT, connect="'self'").encode()


def _hash_of(element: str) -> str:
    """The source of a content security policy that allows this element, and no other of its kind."""
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>".encode(), PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hash_of('script')}; style-src {_hash_of('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
