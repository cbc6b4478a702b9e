"""Rows and cells of CSV, safe for spreadsheets.

A cell that a spreadsheet could take for a formula gets an apostrophe before it: OWASP, "CSV
Injection", https://owasp.org/www-community/attacks/CSV_Injection.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

from encoder_cls.system.json_values import record_text

# Characters with which a formula of a spreadsheet starts.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# A negative number is no formula.
_NEGATIVE = re.compile(r"-[0-9]+(?:\.[0-9]+)?")

LINE_END = "\r\n"


def csv_row(fields: Iterable[str], *, separator: str = ",", is_guarded: bool = True) -> str:
    """A row of CSV without its line end; its fields are guarded, unless they are for programs."""
    if is_guarded:
        fields = [guarded(field) for field in fields]

    line = io.StringIO()
    # Fields with a character of this line end are quoted.
    csv.writer(line, delimiter=separator, lineterminator=LINE_END).writerow(fields)
    return line.getvalue().removesuffix(LINE_END)


def guarded(cell: str) -> str:
    """A cell, with an apostrophe before it if a spreadsheet could take it for a formula."""
    if cell.startswith(_FORMULA) and not _NEGATIVE.fullmatch(cell):
        return f"'{cell}"
    return cell


def unguarded(cell: str) -> str:
    """A cell without the apostrophe of `guarded`."""
    if cell.startswith("'") and cell[1:].startswith(_FORMULA):
        return cell[1:]
    return cell


def cell(value: Any) -> str:
    """A value as a cell: None as an empty one, lists and objects as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | dict | list):
        return record_text(value)
    return str(value)
