"""Write tables, rows and cells of CSV.

In predictions, a cell that a spreadsheet could take for a formula gets an apostrophe before it
(OWASP, "CSV Injection", https://owasp.org/www-community/attacks/CSV_Injection). Tables in which a
person fills in labels have none: they are trained on, and must say what was written.
"""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from encoder_cls.system.encodings import ending_of
from encoder_cls.system.json_values import record_text

# The first characters by which a spreadsheet recognizes a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# A negative number, which is not a formula.
_NEGATIVE = re.compile(r"-[0-9]+(?:\.[0-9]+)?")

LINE_END = "\r\n"


class CsvForm(NamedTuple):
    """The form of a CSV file that a spreadsheet opens just as it opens the input.

    Attributes:
        has_mark: whether it begins with a byte order mark.
        is_guarded: whether what looks like a formula is guarded, as it is unless the input is CSV
            or TSV.
    """

    separator: str = ","
    has_mark: bool = True
    is_guarded: bool = True

    def for_file(self, path: Path) -> CsvForm:
        """The form for a file of this name: .tsv has tabs."""
        if ending_of(path) == ".tsv":
            return self._replace(separator="\t")
        return self


# The form where there is no data file whose form could be taken.
SPREADSHEET = CsvForm()


def csv_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], form: CsvForm = SPREADSHEET
) -> Iterator[bytes]:
    """Yield a header and rows as CSV; half surrogates are escaped."""
    if form.has_mark:
        # A spreadsheet recognizes UTF-8 by this mark.
        yield BOM_UTF8
    for row in chain([columns], rows):
        line = csv_row(row, separator=form.separator)
        yield f"{line}{LINE_END}".encode("utf-8", "backslashreplace")


def csv_row(fields: Iterable[str], *, separator: str = ",") -> str:
    """A row without a line end and without guards."""
    (line,) = csv_lines([fields], separator=separator)
    return line


def csv_lines(rows: Iterable[Iterable[str]], *, separator: str) -> list[str]:
    """Rows without line ends and without guards."""
    # The writer writes each row with one call, so each row becomes an item of the list.
    lines: list[str] = []
    output = SimpleNamespace(write=lines.append)

    # The writer quotes fields that contain a character of its line end, so pass "\r\n".
    csv.writer(output, delimiter=separator, lineterminator=LINE_END).writerows(rows)
    return [line.removesuffix(LINE_END) for line in lines]


def guarded(cell: str) -> str:
    """Put an apostrophe before what a spreadsheet could take for a formula."""
    if cell.startswith(_FORMULA) and not _NEGATIVE.fullmatch(cell):
        return f"'{cell}"
    return cell


def cell(value: Any) -> str:
    """A value as a cell: None is empty; truth values, lists and objects are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return record_text(value)
    return str(value)
