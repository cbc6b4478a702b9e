"""How text is shown to people: safe to print, short, counted, in columns; times in words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

# Joiners of letters in Persian and Indic scripts, and of emoji: without them it is another word.
JOINERS = "\u200c\u200d"


def printable(text: str, *, keep: str = "") -> str:
    """Escape control characters, formatting characters and half surrogates of a text.

    Joiners and the characters in `keep` stay as they are.
    """
    # The usual case is fast: a table asks for each field.
    if text.isprintable():
        return text

    characters = []
    for character in text:
        if character.isprintable() or character in keep or character in JOINERS:
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode())
    return "".join(characters)


# Characters that show what follows in another order.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def replace_unprintable(text: str, *, keep: str = "") -> str:
    """Make a text safe for HTML: U+FFFD is in place of each unsafe character.

    These are half surrogates, marks of direction, and control characters that are not in `keep`.
    """
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
    """Whether a character is a space or a mark of formatting that does not change the order."""
    return unicodedata.category(character) in {"Cf", "Zs"} and character not in _DIRECTIONS


# An escape sequence as `repr` writes it; that of a joiner has its last digit as a group.
_ESCAPE = re.compile(r"\\(?:u200([cd])|.)")
_JOINERS_BY_DIGIT = {"c": "\u200c", "d": "\u200d"}


def shown(text: str, *, limit: int = 80) -> str:
    """A text in quotes for a message: short, on one line, control characters escaped."""

    def unescape_joiner(match: re.Match[str]) -> str:
        return _JOINERS_BY_DIGIT.get(match[1], match[0])

    return _ESCAPE.sub(unescape_joiner, repr(shortened(text, limit=limit)))


def shortened(text: str, *, limit: int) -> str:
    """A text cut to this many characters, the last one an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def listed(names: Sequence[str], *, most: int = 8, limit: int = 80) -> str:
    """The first names of a list, each in quotes and up to this many characters, for a message."""
    parts = [shown(name, limit=limit) for name in names[:most]]
    if len(names) > most:
        parts.append("…")
    return ", ".join(parts)


def kind(value: Any) -> str:
    """Type and start of a value, for a message."""
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {shown(str(value), limit=40)}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with a noun: `1 text`, `2,000 texts`; `many` is an irregular plural."""
    if number == 1:
        return f"1 {one}"
    return f"{number:,} {many or f'{one}s'}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of cells as lines; the first column is to the left, all others to the right."""
    widths = []
    for column in zip(*rows, strict=True):
        widths.append(max(len(cell) for cell in column))

    for first, *others in rows:
        cells = [f"{first:<{widths[0]}}"]
        for cell, width in zip(others, widths[1:], strict=True):
            cells.append(f"{cell:>{width}}")
        yield "  ".join(cells)


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# Seconds of a unit of time.
_SECONDS_OF_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_named(text: str) -> float:
    """The seconds of a time such as `90s`, `30m` or `1.5h`; `ValueError` if it is not a time."""
    try:
        seconds = float(text[:-1]) * _SECONDS_OF_UNITS[text[-1:]]
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("write a time with its unit, such as 90s, 30m or 2h")
    return seconds
