"""Texts from outside in, texts that are safe to show out: no character in them can steer a terminal."""

from __future__ import annotations

import json
from typing import Any


def shown(text: str, *, limit: int = 80) -> str:
    """A text in quotes for a message: short, on one line, control characters escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def kind(value: Any) -> str:
    """What a value is, for a message."""
    return "nothing" if value is None else f"{type(value).__name__} {shown(str(value), limit=40)}"


def printable(text: str) -> str:
    """A text on one line in which control, formatting and half surrogate characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON in which every character that is not printable is escaped; NaN and infinity are refused.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    # What JSON leaves as it is can still steer a terminal: C1 controls, marks that reverse the direction.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
