"""Text that is safe to show; CSV, JSON and Markdown of any text; tables, counts and durations."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, SupportsFloat

from encoder_cls.errors import DataError

# Characters with which a formula of a spreadsheet starts, unless an apostrophe comes first (OWASP, "CSV Injection",
# https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
JOINERS = "\u200c\u200d"  # of letters in Persian and Indic scripts, and of emoji: without them it is another word
_ESCAPE = re.compile(r"\\(?:u200([cd])|.)")
# Characters that show what follows in another order.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_NEGATIVE = re.compile(r"-[0-9]+(?:\.[0-9]+)?")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with a noun: `1 text`, `2,000 texts`; `many` is an irregular plural."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def shown(text: str, *, limit: int = 80) -> str:
    """A text in quotes for a message: short, on one line, control characters escaped."""
    joiners = {"c": JOINERS[0], "d": JOINERS[1]}
    return _ESCAPE.sub(lambda it: joiners.get(it[1], it[0]), repr(shortened(text, limit=limit)))


def shortened(text: str, *, limit: int) -> str:
    """A text cut to this many characters, the last one an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(names: Sequence[str], *, most: int = 8, limit: int = 80) -> str:
    """The first names of a list, each in quotes and up to this many characters, for a message."""
    return ", ".join(shown(name, limit=limit) for name in names[:most]) + (
        ", …" if len(names) > most else ""
    )


def kind(value: Any) -> str:
    """Type and start of a value, for a message."""
    return "nothing" if value is None else f"{type(value).__name__} {shown(str(value), limit=40)}"


def is_missing(value: Any) -> bool:
    """Whether a value is None or a missing one of NumPy or pandas, of which pandas' own is not comparable."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    return value is None or (isinstance(value, SupportsFloat) and value != value)  # noqa: PLR0124 - NaN


def printable(text: str, *, keep: str = "") -> str:
    """A text with control, formatting and half surrogate characters escaped, except joiners and those in `keep`."""
    if text.isprintable():  # a table asks for each field
        return text
    keep += JOINERS
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def replace_unprintable(text: str, *, keep: str = "") -> str:
    """A text for HTML, U+FFFD in place of half surrogates, marks of direction and control characters not in `keep`."""

    def is_safe(c: str) -> bool:
        return (
            c.isprintable()
            or c in keep
            or (unicodedata.category(c) in {"Cf", "Zs"} and c not in _DIRECTIONS)
        )

    if "\n" in keep:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if is_safe(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


def markdown_code(text: str) -> str:
    """Any text as Markdown code."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{printable(text)}{space}{fence}"


def markdown_text(text: str) -> str:
    """Any text as Markdown on one line without markup."""
    return "".join(
        f"&#{ord(c)};" if c in "<>&|*_`[]()#\\!~" else c if c.isprintable() else " " for c in text
    )


def guarded(cell: str) -> str:
    """A cell, with an apostrophe before it if a spreadsheet could take it for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NEGATIVE.fullmatch(cell) else cell


def unguarded(cell: str) -> str:
    """A cell without the apostrophe of `guarded`."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def csv_row(fields: Iterable[str], *, separator: str = ",", is_guarded: bool = True) -> str:
    """A row of CSV without its line end; guarded for spreadsheets, or with fields as they are for programs."""
    line = io.StringIO()
    # Quotes fields with either character.
    writer = csv.writer(line, delimiter=separator, lineterminator="\r\n")
    writer.writerow(map(guarded, fields) if is_guarded else fields)
    return line.getvalue()[:-2]


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON with every unprintable character escaped; NaN and infinity raise a `ValueError`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    # JSON leaves characters as they are that can steer a terminal: C1 controls, marks that reverse the direction.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def cell(value: Any) -> str:
    """A value as a cell of a table without types: None as an empty one, lists and objects as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return record_text(value) if isinstance(value, bool | dict | list) else str(value)


def record_text(record: Any) -> str:
    """A value as a line of JSON, also where JSON has no type for it (times); `DataError` if it is nested too deeply."""
    try:
        try:
            return json_text(record)
        except (TypeError, ValueError):
            return json_text(plain(record))
    except RecursionError:
        raise DataError(
            "a row has lists or objects that are nested too deeply to be kept"
        ) from None


def plain(value: Any) -> Any:
    """A value as JSON knows it: a number that is not finite becomes null, what JSON has no type for becomes text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else str(value)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of cells as lines; the first column is to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([f"{first:<{widths[0]}}", *cells])


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def seconds_named(text: str) -> float:
    """The seconds of a time such as `90s`, `30m` or `1.5h`; `ValueError` if it is not a time."""
    seconds = 0.0
    with suppress(KeyError, ValueError):
        seconds = float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1:]]
    if not 0 < seconds < math.inf:
        raise ValueError("write a time with its unit, such as 90s, 30m or 2h")
    return seconds
