"""Excel files as an office has them, and what is in those that the program writes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import xlsxwriter

from encoder_cls.system.xlsx import opened_workbook

OF_DATES = "yyyy-mm-dd"
OF_DURATIONS = "[h]:mm:ss"


def write_excel(name: str | Path, *rows: Sequence[object], title: str = "Sheet1") -> str:
    """Write an Excel file with one sheet; returns its name."""
    return write_sheets(name, {title: rows})


def write_sheets(name: str | Path, sheets: dict[str, Iterable[Sequence[object]]]) -> str:
    """Write an Excel file with these sheets by title; returns its name.

    A text that begins with an equals sign is a formula whose result is not stored.
    """
    with xlsxwriter.Workbook(str(name), {"nan_inf_to_errors": True}) as book:
        formats = {
            date: book.add_format({"num_format": OF_DATES}),
            datetime: book.add_format({"num_format": OF_DATES}),
            timedelta: book.add_format({"num_format": OF_DURATIONS}),
        }
        for title, rows in sheets.items():
            sheet = book.add_worksheet(title)
            for number, row in enumerate(rows):
                for column, value in enumerate(row):
                    write_cell(sheet, number, column, value, formats.get(type(value)))
    return str(name)


def write_cell(sheet: Any, row: int, column: int, value: object, number_format: Any) -> None:
    """Write a value into a cell by its type."""
    if isinstance(value, str) and value.startswith("="):
        sheet.write_formula(row, column, value, number_format, "")
    elif isinstance(value, str):
        sheet.write_string(row, column, value, number_format)
    else:
        sheet.write(row, column, value, number_format)


def read_excel(name: str | Path) -> list[list[Any]]:
    """The rows of the only sheet of a file, filled up with None to the length of the first."""
    with opened_workbook(Path(name)) as book:
        (sheet,) = book.sheets
        rows = [row.cells for row in book.rows(sheet)]
    columns = range(1, max(rows[0]) + 1)
    return [[cells.get(column) for column in columns] for cells in rows]


def xml_of(name: str | Path, part: str = "xl/worksheets/sheet1.xml") -> str:
    """A part of an Excel file."""
    with zipfile.ZipFile(name) as archive:
        return archive.read(part).decode()
