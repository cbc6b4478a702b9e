"""Any text in Markdown, without markup of its own."""

from __future__ import annotations

import re

from encoder_cls.system.display import printable

# Characters that can be markup, or HTML.
_MARKUP = "<>&|*_`[]()#\\!~"


def markdown_text(text: str) -> str:
    """Any text on one line, with its markup escaped."""
    characters = []
    for character in text:
        if character in _MARKUP:
            characters.append(f"&#{ord(character)};")
        elif character.isprintable():
            characters.append(character)
        else:
            characters.append(" ")
    return "".join(characters)


def markdown_code(text: str) -> str:
    """Any text as code, between more backticks than it has in a row."""
    runs_of_backticks = re.findall("`+", text)
    longest = max((len(run) for run in runs_of_backticks), default=0)
    fence = "`" * (1 + longest)

    space = " " if longest else ""
    return f"{fence}{space}{printable(text)}{space}{fence}"
