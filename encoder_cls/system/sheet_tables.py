"""The tables in the sheets of an Excel file, below their rows with the names of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from encoder_cls.system.content_errors import content_errors
from encoder_cls.system.header import FIRST_ROWS, likely_header, row_with
from encoder_cls.system.xlsx import NO_RESULT, Cells, Sheet, Workbook, opened_workbook


class SheetTable(NamedTuple):
    """A sheet that is not empty, the number of its row with the names of columns, and the names."""

    sheet: Sheet
    header_row: int
    header: list[str]


@contextmanager
def opened_excel(path: Path) -> Iterator[Workbook]:
    """Open an Excel file; a `DataError` that names it if its content is wrong."""
    with content_errors(path, "Excel"), opened_workbook(path) as workbook:
        yield workbook


def sheet_tables(workbook: Workbook, columns: Sequence[str]) -> list[SheetTable]:
    """The sheets that are not empty; the header of each has the given columns if any row has."""
    tables = []
    for sheet in workbook.sheets:
        filled_rows = (row for row in workbook.rows(sheet) if row.cells)
        rows = list(islice(filled_rows, FIRST_ROWS))
        names = [_names_in(row.cells) for row in rows]
        if not any(names):
            continue

        number = row_with(names, columns)
        if number is None:
            number = likely_header(names)
        tables.append(SheetTable(sheet, rows[number].number, names[number]))
    return tables


def in_sight(tables: Sequence[SheetTable]) -> Sequence[SheetTable]:
    """The tables whose sheets are not hidden; all tables if all are."""
    return [table for table in tables if not table.sheet.is_hidden] or tables


def _names_in(cells: Cells) -> list[str]:
    names = []
    for column in range(1, max(cells) + 1):
        cell = cells.get(column, NO_RESULT)
        names.append("" if cell is NO_RESULT else str(cell))
    while names and not names[-1]:
        names.pop()
    return names
