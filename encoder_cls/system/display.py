"""Text that is safe to show, and counts, durations and lists in words."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from typing import Any

# What a spreadsheet takes for the beginning of a formula, unless an apostrophe is before it (OWASP, "CSV Injection",
# https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NEGATIVE = re.compile(r"-[0-9]+(?:\.[0-9]+)?")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with what is counted: `1 text`, `2,000 texts`; the plural is given where it has more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def shown(text: str, *, limit: int = 80) -> str:
    """A text in quotes for a message: short, on one line, control characters escaped."""
    return repr(shortened(text, limit=limit))


def shortened(text: str, *, limit: int) -> str:
    """A text of so many characters at most, an ellipsis at the end of one that is cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def kind(value: Any) -> str:
    """What a value is, for a message."""
    return "nothing" if value is None else f"{type(value).__name__} {shown(str(value), limit=40)}"


def printable(text: str, *, keep: str = "") -> str:
    """A text on one line in which control, formatting and half surrogate characters are escaped; some may be kept."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def replace_unprintable(text: str, *, keep: str = "") -> str:
    """A text in which U+FFFD stands for control, formatting and half surrogate characters.

    For formats in which an escaped character would say nothing, such as HTML; of these characters some may be kept.
    """
    return "".join(c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in text)


def markdown_code(text: str) -> str:
    """A text as Markdown code, whatever is in it."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{printable(text)}{space}{fence}"


def markdown_text(text: str) -> str:
    """A text as Markdown on one line in which nothing is markup, whatever is in it."""
    return "".join(f"&#{ord(c)};" if c in "<>&|*_`[]()#\\!~" else c if c.isprintable() else " " for c in text)


def guarded(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: with an apostrophe before what could be one."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NEGATIVE.fullmatch(cell) else cell


def unguarded(cell: str) -> str:
    """A cell without such an apostrophe."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def csv_row(fields: Iterable[str], *, separator: str = ",", is_guarded: bool = True) -> str:
    """A row of CSV without its line end, for spreadsheets; not guarded, for programs that want fields as they are."""
    line = io.StringIO()
    # What is in a line end is quoted, so in both of them.
    csv.writer(line, delimiter=separator, lineterminator="\r\n").writerow(
        map(guarded, fields) if is_guarded else fields
    )
    return line.getvalue()[:-2]


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


SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds_named(text: str) -> float:
    """The seconds of a time with its unit.

    Raises:
        ValueError: it is none.
    """
    try:
        seconds = float(text[:-1]) * SECONDS[text[-1:]]
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("write a time with its unit, such as 90s, 30m or 2h")
    return seconds
