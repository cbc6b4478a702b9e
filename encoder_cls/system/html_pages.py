"""The frame of all HTML pages, and the templates of what is in them.

A page is one file that needs no network; its content security policy allows only the script whose
hash it contains, so that no text can run one even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from encoder_cls.system.display import capitalized, replace_unprintable, shortened
from encoder_cls.system.markdown import markdown_code

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
) -> str:
    """Make a page of its body, in which every text must be escaped.

    The script replaces the common one, and the style is added to the common one. `connect` and
    `worker` are the `connect-src` and `worker-src` of the content security policy.
    """
    if script is None:
        script = _file_beside("js")
    digest = hashlib.sha256(script.encode()).digest()
    page = render(
        "system/html_pages.html",
        title=title,
        style=_file_beside("css") + style,
        body=body,
        script=script,
        digest=base64.b64encode(digest).decode(),
        connect=connect,
        worker=worker,
    )
    return f"{page}\n"


def render(template: str, **values: Any) -> str:
    """Render a template, named by its path in the package."""
    return _environment().get_template(template).render(**values)


@cache
def macro(template: str, name: str) -> Callable[..., Markup]:
    """A macro of a template, to call it from Python."""
    module = _environment().get_template(template).module
    function: Callable[..., Markup] = getattr(module, name)
    return function


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("encoder_cls", ""),
        autoescape=select_autoescape(),
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    environment.filters["percent"] = "{:.1%}".format
    environment.filters["whole_percent"] = "{:.0%}".format
    environment.filters["thousands"] = "{:,}".format
    environment.filters["digits"] = "{:.4f}".format
    environment.filters["units"] = "{:.1f}".format
    environment.filters["whole_units"] = "{:.0f}".format
    environment.filters["interval"] = _interval
    environment.filters["shade"] = shade

    environment.filters["shortened"] = shortened
    environment.filters["sentence"] = _sentence
    environment.filters["isolated"] = isolated
    environment.filters["isolated_attribute"] = _isolated_attribute
    environment.filters["breakable"] = _breakable
    environment.filters["code"] = markdown_code
    return environment


def _without_control_characters(value: Any) -> Any:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return replace_unprintable(value, keep="\n\t")


def _interval(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{low:.4f} to {high:.4f}"


def shade(strength: float) -> str:
    """The CSS class of a strength from 0 to 1, of `SHADES` shades."""
    return f"a{min(SHADES, max(1, round(strength * SHADES)))}"


def isolated(sentence: str) -> Markup:
    """Escape a sentence, and isolate words that are written from right to left.

    Such names of classes would change the order of the words around them.
    """
    return Markup(_RIGHT_TO_LEFT.sub(r"<bdi>\g<0></bdi>", _escaped(sentence)))


def _isolated_attribute(sentence: str) -> Markup:
    """Isolate by characters in place of tags, which an attribute cannot have."""
    around = "\N{FIRST STRONG ISOLATE}\\g<0>\N{POP DIRECTIONAL ISOLATE}"
    return Markup(_RIGHT_TO_LEFT.sub(around, _escaped(sentence)))


def _sentence(words: str) -> Markup:
    return isolated(f"{capitalized(words)}.")


def _breakable(name: str) -> Markup:
    """Let a line break after an underscore."""
    return Markup(f"<bdi>{_escaped(name).replace('_', '_<wbr>')}</bdi>")


def _escaped(text: str) -> str:
    return str(escape(replace_unprintable(text, keep="\n\t")))


@cache
def _file_beside(ending: str) -> str:
    return Path(__file__).with_suffix(f".{ending}").read_text(encoding="utf-8")
