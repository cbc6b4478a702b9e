"""Excel files in, the rows of their sheet out; needs openpyxl, which only functions import here."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from encoder_cls.data.reading import Reading
from encoder_cls.data.records import Record, SourceLocation, check_columns, check_undoubled, numbered
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.installed import check_installed

EXCEL = ".xlsx"
ROWS_AT_ONCE = 1000


def check_openpyxl(path: Path) -> None:
    """Make sure that Excel files can be read.

    Raises:
        ConfigError: openpyxl is not installed.
    """
    check_installed("openpyxl", needed_by=str(path), install="'encoder-cls[excel]'")


def excel_records(
    path: Path, columns: Sequence[str], text_columns: Sequence[str], reading: Reading, *, all_columns: bool
) -> Iterator[Record]:
    """The rows of the sheet that has these columns, the first row being the header; where are the rows' numbers.

    In columns of texts a number is its digits, and an empty cell an empty text; other values are as they are.

    Raises:
        ConfigError: openpyxl is not installed.
        DataError: the file cannot be read, a column is missing, or several sheets have these columns.
    """
    with _open_excel(path) as workbook:
        sheet, header = _sheet_with(path, workbook, columns)
        check_columns(path, header, columns)
        check_undoubled(f"{path}:1", header, [*columns, "id"])
        names = numbered(header) if all_columns else header
        name = str(path)
        for number, cells in enumerate(_rows(path, sheet), start=1):
            values = [*cells[: len(header)], *[None] * (len(header) - len(cells))]
            beyond = [cell for cell in cells[len(header) :] if cell is not None]
            if number == 1 or not (beyond or any(value is not None for value in values)):
                continue
            where = SourceLocation(name, number)
            if beyond:
                reason = f"{where}: a cell to the right of the header's {len(header)} columns: {shown(str(beyond[0]))}"
                reading.bad_row(where, DataError(reason))
                continue
            record = dict(zip(names, values, strict=True))
            yield where, record | {column: _as_text(record[column]) for column in text_columns if column in record}


def excel_header(path: Path, columns: Sequence[str]) -> list[str]:
    """The names of the columns of the sheet that has these columns.

    Raises:
        DataError: as `excel_records`.
    """
    with _open_excel(path) as workbook:
        return _sheet_with(path, workbook, columns)[1]


def _as_text(value: Any) -> Any:
    """A cell of a column of texts: a spreadsheet makes a number of what looks like one."""
    if value is None:
        return ""
    return str(value) if type(value) in {int, float} else value


def _sheet_with(path: Path, workbook: Any, columns: Sequence[str]) -> tuple[Any, list[str]]:
    """The one sheet that has these columns, or else the first that has anything, and its header."""
    headers = [(sheet, _header(path, sheet)) for sheet in workbook.worksheets]
    filled = [(sheet, header) for sheet, header in headers if header]
    if not filled:
        raise DataError(f"{path}: the file is empty")
    fitting = [(sheet, header) for sheet, header in filled if set(columns) <= set(header)]
    if len(fitting) > 1:
        names = ", ".join(shown(sheet.title) for sheet, _ in fitting)
        raise DataError(f"{path}: several sheets have these columns ({names}); save the one that is meant as a file")
    return fitting[0] if fitting else filled[0]


def _header(path: Path, sheet: Any) -> list[str]:
    first = next(_rows(path, sheet), ())
    names = ["" if cell is None else str(cell) for cell in first]
    while names and not names[-1]:
        names.pop()
    return names


def _rows(path: Path, sheet: Any) -> Iterator[tuple[Any, ...]]:
    """The values of each row."""
    sheet.reset_dimensions()  # what some programs write there is wrong
    rows = sheet.iter_rows(values_only=True)
    while True:
        with _reading_errors(path):
            some = list(islice(rows, ROWS_AT_ONCE))
        yield from some
        if len(some) < ROWS_AT_ONCE:
            return


@contextmanager
def _open_excel(path: Path) -> Iterator[Any]:
    check_openpyxl(path)
    with path.open("rb") as file:
        with _reading_errors(path):
            from openpyxl import load_workbook

            workbook = load_workbook(file, read_only=True, data_only=True)
        try:
            yield workbook
        finally:
            workbook.close()


@contextmanager
def _reading_errors(path: Path) -> Iterator[None]:
    """Whatever the library finds wrong with a file is told as bad data; what it leaves out of formats is not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except MemoryError:
        raise
    except Exception as error:  # the library raises of all kinds where a file is not as it expects
        if isinstance(error, OSError) and error.errno:
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path}: not a readable Excel file: {shown(reason, limit=200)[1:-1]}") from None
