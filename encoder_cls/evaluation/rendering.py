"""Render the Jinja templates of this package."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from encoder_cls.evaluation.terminal_text import score_text
from encoder_cls.metrics.intervals import Interval
from encoder_cls.system.display import capitalized, replace_unprintable, shortened
from encoder_cls.system.html_pages import escaped, isolated, shade
from encoder_cls.system.markdown import markdown_code

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Render a file in the folder `templates` with these values."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """The environment of all templates, in which HTML is escaped and undefined names are errors."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("encoder_cls.evaluation"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Filters for numbers.
    environment.filters["percent"] = "{:.1%}".format
    environment.filters["whole_percent"] = "{:.0%}".format
    environment.filters["thousands"] = "{:,}".format
    environment.filters["digits"] = "{:.4f}".format
    environment.filters["units"] = "{:.1f}".format
    environment.filters["score"] = score_text
    environment.filters["interval"] = _interval

    # Filters for texts.
    environment.filters["shortened"] = shortened
    environment.filters["sentence"] = _sentence
    environment.filters["isolated"] = _isolated
    environment.filters["isolated_attribute"] = _isolated_attribute
    environment.filters["breakable"] = _breakable
    environment.filters["shade"] = shade
    environment.filters["code"] = markdown_code
    return environment


def _without_control_characters(value: Any) -> Any:
    """Replace the control characters in a text; HTML and other values stay as they are."""
    from markupsafe import Markup

    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return replace_unprintable(value, keep="\n\t")


def _interval(interval: Interval) -> str:
    low, high = interval
    return f"{low:.4f} to {high:.4f}"


def _sentence(words: str) -> Markup:
    """Write words as a sentence; names that are written from right to left are isolated."""
    from markupsafe import Markup

    return Markup(isolated(f"{capitalized(words)}."))


def _isolated(words: str) -> Markup:
    """Escape words for HTML; names that are written from right to left are isolated."""
    from markupsafe import Markup

    return Markup(isolated(words))


def _isolated_attribute(words: str) -> Markup:
    """Escape words for an attribute; names that are written from right to left are isolated."""
    from markupsafe import Markup

    return Markup(isolated(words, in_attribute=True))


def _breakable(name: str) -> Markup:
    """Escape a name, in which a line may break after an underscore."""
    from markupsafe import Markup

    return Markup(f"<bdi>{escaped(name).replace('_', '_<wbr>')}</bdi>")
