"""Write rows and cells of CSV.

In predictions, a cell that a spreadsheet could take for a formula gets an apostrophe before it
(OWASP, "CSV Injection", https://owasp.org/www-community/attacks/CSV_Injection). Tables in which a
person fills in labels have none: they are trained on, and must say what was written.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from encoder_cls.system.json_values import record_text

# The first characters by which a spreadsheet recognizes a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# A negative number, which is not a formula.
_NEGATIVE = re.compile(r"-[0-9]+(?:\.[0-9]+)?")

LINE_END = "\r\n"


def csv_row(fields: Iterable[str], *, separator: str = ",") -> str:
    """Write a row of CSV without a line end and without guards."""
    (line,) = csv_lines([fields], separator=separator)
    return line


def csv_lines(rows: Iterable[Iterable[str]], *, separator: str = ",") -> list[str]:
    """Write rows of CSV without line ends and without guards."""
    # The writer writes each row with one call, so each row becomes an item of the list.
    lines: list[str] = []
    output = SimpleNamespace(write=lines.append)

    # The writer quotes fields that contain a character of its line end, so pass "\r\n".
    csv.writer(output, delimiter=separator, lineterminator=LINE_END).writerows(rows)
    return [line.removesuffix(LINE_END) for line in lines]


def guarded(cell: str) -> str:
    """Put an apostrophe before a cell if a spreadsheet could take the cell for a formula."""
    if cell.startswith(_FORMULA) and not _NEGATIVE.fullmatch(cell):
        return f"'{cell}"
    return cell


def cell(value: Any) -> str:
    """Write a value as a cell: None is empty; truth values, lists and objects are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return record_text(value)
    return str(value)
