"""Format text, numbers and times for people: safe to print, short and in columns."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

# Invisible characters that join or separate letters in Persian and Indic scripts, and join emoji.
# Without them a word would be another word.
JOINERS = "\u200c\u200d"


def printable(text: str, *, keep: str = "") -> str:
    """Escape control and formatting characters and half surrogates, but joiners and `keep`."""
    # Check the usual case first, because this function is called for each field of a table.
    if text.isprintable():
        return text

    characters = []
    for character in text:
        if character.isprintable() or character in keep or character in JOINERS:
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode())
    return "".join(characters)


# Characters that change the direction in which the following text is shown.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def replace_unprintable(text: str, *, keep: str = "") -> str:
    """Replace characters that are unsafe in HTML by U+FFFD.

    These are half surrogates, characters that change the direction of text, and control characters
    that are not in `keep`.
    """
    if text.isprintable():
        return text
    if "\n" in keep:
        text = text.replace("\r\n", "\n").replace("\r", "\n")

    characters = []
    for character in text:
        if character.isprintable() or character in keep or _is_harmless(character):
            characters.append(character)
        else:
            characters.append("\N{REPLACEMENT CHARACTER}")
    return "".join(characters)


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) in {"Cf", "Zs"} and character not in _DIRECTIONS


# An escape sequence as `repr` writes it. For a joiner, the group is the last digit.
_ESCAPE = re.compile(r"\\(?:u200([cd])|.)")
_JOINERS_BY_DIGIT = {"c": "\u200c", "d": "\u200d"}


def shown(text: str, *, limit: int = 80) -> str:
    """A text for a message: in quotes, on one line, shortened and escaped."""

    def unescape_joiner(match: re.Match[str]) -> str:
        return _JOINERS_BY_DIGIT.get(match[1], match[0])

    return _ESCAPE.sub(unescape_joiner, repr(shortened(text, limit=limit)))


def shortened(text: str, *, limit: int) -> str:
    """Cut a text to at most `limit` characters, with an ellipsis at the end."""
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def listed(names: Sequence[str], *, most: int = 8, limit: int = 80) -> str:
    """The first `most` names in quotes, each shortened to `limit`."""
    parts = [shown(name, limit=limit) for name in names[:most]]
    if len(names) > most:
        parts.append("…")
    return ", ".join(parts)


def kind(value: Any) -> str:
    """The type of a value and its first characters, for a message."""
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {shown(str(value), limit=40)}"


def capitalized(words: str) -> str:
    """Write the first letter in upper case."""
    return f"{words[:1].upper()}{words[1:]}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with a noun, such as `2,000 texts`; `many` is by default `one` with an "s"."""
    if number == 1:
        return f"1 {one}"
    return f"{number:,} {many or f'{one}s'}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of cells as lines: the first column to the left, others to the right."""
    widths = []
    for column in zip(*rows, strict=True):
        widths.append(max(len(cell) for cell in column))

    for first, *others in rows:
        cells = [f"{first:<{widths[0]}}"]
        for cell, width in zip(others, widths[1:], strict=True):
            cells.append(f"{cell:>{width}}")
        yield "  ".join(cells)


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours, such as `5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# The number of seconds in a unit of time.
_SECONDS_OF_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_named(text: str) -> float:
    """Parse a time such as `90s`, `30m` or `1.5h`; anything else is a `ValueError`."""
    try:
        seconds = float(text[:-1]) * _SECONDS_OF_UNITS[text[-1:]]
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("write a time with its unit, such as 90s, 30m or 2h")
    return seconds
