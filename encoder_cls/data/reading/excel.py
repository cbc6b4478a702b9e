"""Read Excel files: the rows of the sheet that has the columns to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.reading.columns import Columns, numbered, repeats_header
from encoder_cls.data.reading.content_errors import content_errors
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.data.reading.xlsx import (
    NO_RESULT,
    Cells,
    ColumnLayout,
    ErrorCell,
    Sheet,
    Workbook,
    opened_workbook,
)
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import SKIP
from encoder_cls.system.libraries import WHOLE, check_installed, installed_version

# What messages call the value `NO_RESULT`.
WITHOUT_RESULT = "a formula without a stored result"


def excel_header(path: Path, columns: Sequence[str], reading: Reading) -> list[str]:
    """List the names of all columns of the sheet that has the given columns.

    Repeated names are numbered.
    """
    with _open_excel(path) as workbook:
        _, header = _sheet_with(path, workbook, columns, reading.sheet)
    return numbered(header)


def visible_sheets(path: Path) -> list[str]:
    """List the names of the sheets that are not hidden and have a header in their first row."""
    with _open_excel(path) as workbook:
        in_sight = [sheet for sheet in workbook.sheets if not sheet.is_hidden]
        return [sheet.title for sheet in in_sight if _header(workbook, sheet)]


class SheetLayout(NamedTuple):
    """How a spreadsheet shows a sheet.

    Attributes:
        title: the name of the sheet.
        columns: how it shows the columns, by the names that `excel_header` lists.
    """

    title: str
    columns: dict[str, ColumnLayout]


def sheet_layout(path: Path, columns: Sequence[str], reading: Reading) -> SheetLayout:
    """Find out how a spreadsheet shows the sheet that has the given columns."""
    with _open_excel(path) as workbook:
        sheet, header = _sheet_with(path, workbook, columns, reading.sheet)
        by_number = workbook.layout(sheet)

    by_name = {}
    for number, name in enumerate(numbered(header), start=1):
        by_name[name] = by_number.get(number, ColumnLayout())
    return SheetLayout(sheet.title, by_name)


def excel_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows of the sheet that has the columns, whose first row is the header.

    In text columns, a number becomes a text of its digits, and an empty cell an empty text. In
    other columns, values keep their types.
    """
    with _open_excel(path) as workbook:
        sheet, header = _sheet_with(path, workbook, columns.named, reading.sheet)
        names = columns.checked(path, header, line=":1")
        for number, cells in workbook.rows(sheet):
            if number == 1 or all(cell is None for cell in cells):
                continue
            if reading.leaves_out_row():
                continue

            where = SourceLocation(str(path), number)
            try:
                values = _values(where, cells, len(header))
                if repeats_header(where, values, header):
                    reading.notes.repeated_headers.add(where)
                    continue
                record = dict(zip(names, values, strict=True))
                _check_values(where, record, columns)
            except DataError as error:
                reading.bad_row(error)
                continue

            is_kept = columns.every or record.get("id") is NO_RESULT
            if is_kept and any(value is NO_RESULT for value in values):
                reading.note(f"warning: {path}: cells that hold {WITHOUT_RESULT} are read as empty")
            yield where, _plain_values(record, columns.text)


def _values(where: SourceLocation, cells: Cells, num_columns: int) -> Cells:
    """Fill up the cells of a row to the number of columns of the header with None.

    Raises:
        DataError: a cell to the right of these columns is not empty.
    """
    for cell in cells[num_columns:]:
        if cell is not None:
            what = f"a cell to the right of the header's {num_columns} columns: {shown(str(cell))}"
            raise DataError(where, what)

    num_missing = num_columns - len(cells)
    return cells[:num_columns] + [None] * num_missing


def _check_values(where: SourceLocation, record: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError if a column to read has an error or a formula without a result."""
    for name in columns.named:
        value = record[name]
        if value is NO_RESULT:
            what = f"column {shown(name)} holds {WITHOUT_RESULT}"
            raise DataError(where, f"{what}; save the file in a spreadsheet program", SKIP)
        if isinstance(value, ErrorCell):
            what = f"column {shown(name)} shows the error {value}; correct the cell"
            raise DataError(where, what, SKIP)


def _plain_values(record: dict[str, Any], text_columns: Sequence[str]) -> dict[str, Any]:
    """Turn values into the types that other formats have.

    The values of text columns become texts. A formula without a result becomes None, and an error
    becomes the text that the cell shows.
    """
    plain: dict[str, Any] = {}
    for name, value in record.items():
        if value is NO_RESULT:
            plain[name] = None
        elif isinstance(value, ErrorCell):
            plain[name] = str(value)
        else:
            plain[name] = value

    for name in text_columns:
        if name in plain:
            plain[name] = _as_text(plain[name])
    return plain


def _as_text(value: Any) -> Any:
    """Turn an empty cell or a number into a text; other values are returned unchanged."""
    if value is None:
        return ""
    if type(value) in {int, float}:
        return str(value)
    return value


def _sheet_with(
    path: Path, workbook: Workbook, columns: Sequence[str], title: str | None
) -> tuple[Sheet, list[str]]:
    """Find the sheet with these columns.

    A hidden sheet is chosen only if no other sheet has the columns, or if it is named.

    Args:
        path: the file, for messages.
        workbook: the open file.
        columns: the names of the columns.
        title: the name of the sheet to choose if several sheets have the columns.

    Returns:
        The sheet and its header. If no sheet has the columns, the first sheet that is not empty.

    Raises:
        DataError: the file is empty, or several sheets have the columns.
    """
    filled = []
    for sheet in workbook.sheets:
        header = _header(workbook, sheet)
        if header:
            filled.append((sheet, header))
    if not filled:
        raise DataError(path, "the file is empty")

    fitting = [(sheet, header) for sheet, header in filled if set(columns) <= set(header)]
    if not fitting:
        # The caller raises an error that lists the columns of this sheet.
        return filled[0]

    named = [(sheet, header) for sheet, header in fitting if sheet.title == title]
    in_sight = [(sheet, header) for sheet, header in fitting if not sheet.is_hidden]
    if named:
        fitting = named
    elif in_sight:
        fitting = in_sight
    if len(fitting) > 1:
        titles = ", ".join(shown(sheet.title) for sheet, _ in fitting)
        what = f"several sheets have these columns ({titles})"
        hint = "name one of them in data.sheet, or save it as a file"
        raise DataError(path, what, hint)
    return fitting[0]


def _header(workbook: Workbook, sheet: Sheet) -> list[str]:
    """List the texts of the first row, up to the last text that is not empty."""
    number, cells = next(workbook.rows(sheet), (1, []))
    if number != 1:
        return []

    names = []
    for cell in cells:
        has_text = cell is not None and cell is not NO_RESULT
        names.append(str(cell) if has_text else "")
    while names and not names[-1]:
        names.pop()
    return names


def check_excel_installed(needed_by: str) -> None:
    """Check that the library for Excel files is installed.

    Args:
        needed_by: the file or the option that needs the library, for the message.

    Raises:
        ConfigError: the library is not installed.
    """
    distribution, _ = installed_version() or (WHOLE, "")
    check_installed("openpyxl", needed_by=needed_by, install=f"'{distribution}[excel]'")


@contextmanager
def _open_excel(path: Path) -> Iterator[Workbook]:
    """Open a file; errors about its content become a DataError."""
    check_excel_installed(str(path))
    with content_errors(path, "Excel"), opened_workbook(path) as workbook:
        yield workbook


EXCEL = Format(
    ending=".xlsx",
    records=excel_records,
    header=excel_header,
    has_fixed_columns=True,
    needs_label_separator=True,
    is_spreadsheet=True,
)
