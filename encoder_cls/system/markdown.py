"""Write any text in Markdown so that none of its characters is taken for markup."""

from __future__ import annotations

import re

from encoder_cls.system.display import printable

# The characters that can be part of Markdown or HTML markup.
_MARKUP = "<>&|*_`[]()#\\!~"


def markdown_text(text: str) -> str:
    """A text on one line, with markup escaped."""
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
    """A text as code, between more backticks than it has in a row."""
    runs_of_backticks = re.findall("`+", text)
    longest = max((len(run) for run in runs_of_backticks), default=0)
    fence = "`" * (1 + longest)

    space = " " if longest else ""
    return f"{fence}{space}{printable(text)}{space}{fence}"
