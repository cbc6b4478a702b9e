"""Read Excel files with openpyxl."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from encoder_cls.data.rows import SKIP, Reading, Record, SourceLocation, check_columns, check_undoubled, numbered
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.installed import check_installed

EXCEL = ".xlsx"
ROWS_AT_ONCE = 1000
CHUNK = 1 << 20  # bytes
MOST_ROW_CHUNKS = 16  # a row of full cells in all columns that Excel knows has as many when each has 1,000 characters
ROW_ENDS = (b"row>", b"si>", b"r>")  # of rows, of texts that sheets share, and of rows of pivot tables
NO_RESULT = "a formula without a stored result"


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
        DataError: the file cannot be read, a column is missing, or several sheets have these columns; a cell of these
            columns is a formula without a stored result.
    """
    with _open_excel(path) as workbook:
        sheet, header = _sheet_with(path, workbook, columns)
        check_columns(path, header, columns)
        check_undoubled(f"{path}:1", header, [*columns, "id"])
        names = numbered(header) if all_columns else header
        name = str(path)
        for number, cells in _rows(path, sheet):
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
            without = [name for name, value in record.items() if value is NO_RESULT]
            missing = next((name for name in without if name in columns), None)
            if missing is not None:
                reason = f"column {shown(missing)} holds {NO_RESULT}; save the file in a spreadsheet program; {SKIP}"
                reading.bad_row(where, DataError(f"{where}: {reason}"))
                continue
            if without and (all_columns or "id" in without):
                reading.tell(f"warning: {path}: cells that hold {NO_RESULT} are read as empty")
            record |= dict.fromkeys(without)
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
    number, first = next(_rows(path, sheet), (1, []))
    names = ["" if cell is None else str(cell) for cell in first] if number == 1 else []
    while names and not names[-1]:
        names.pop()
    return names


def _rows(path: Path, sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """The number and the values of each row."""
    rows = _parsed(sheet)
    while True:
        with _reading_errors(path):
            some = list(islice(rows, ROWS_AT_ONCE))
        yield from some
        if len(some) < ROWS_AT_ONCE:
            return


def _parsed(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """The number and the values of each row; `NO_RESULT`, which openpyxl itself reads as an empty cell, is one."""
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    class Parser(WorkSheetParser):  # type: ignore[misc]
        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell: dict[str, Any] = super().parse_cell(element)
            # An empty text is a result, too.
            if cell["value"] is None and element.get("t") != "str" and element.find(FORMULA_TAG) is not None:
                cell["value"] = NO_RESULT
            return cell

    book = sheet.parent
    formats = {"date_formats": book._date_formats, "timedelta_formats": book._timedelta_formats}
    with sheet._get_source() as source:
        for number, cells in Parser(source, sheet._shared_strings, data_only=True, epoch=book.epoch, **formats).parse():
            values = [None] * max((cell["column"] for cell in cells), default=0)
            for cell in cells:
                values[cell["column"] - 1] = cell["value"]
            yield number, values


def _check_row_sizes(file: Any) -> None:
    """Refuse files of which a row would take too much memory: 2 MB can unpack to 2 GB.

    Raises:
        ValueError: there is one, or what is no row is as large.
    """
    with zipfile.ZipFile(file) as archive:
        for part in archive.namelist():
            if not part.endswith((".xml", ".rels")):
                continue
            with archive.open(part) as content:
                chunks = 0
                while chunk := content.read(CHUNK):
                    chunks = 0 if any(end in chunk for end in ROW_ENDS) else chunks + 1
                    if chunks > MOST_ROW_CHUNKS:
                        raise ValueError(f"{part}: more than {MOST_ROW_CHUNKS} MiB in one row")


@contextmanager
def _open_excel(path: Path) -> Iterator[Any]:
    check_openpyxl(path)
    with path.open("rb") as file:
        with _reading_errors(path):
            from openpyxl import load_workbook

            _check_row_sizes(file)
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
