"""Tables in which a person labels texts or corrects labels, as an Excel sheet."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from encoder_cls.bulk.excel_format import (
    GENERAL,
    MAX_ROWS,
    MEASURED_ROWS,
    PROBABILITY_FORMAT,
    SheetCells,
    column_width,
    kept_cell,
    save_workbook,
    sheet_title,
)
from encoder_cls.errors import DataError


def excel_table(
    columns: Sequence[str],
    records: Sequence[Mapping[str, Any]],
    *,
    title: str,
    probability_column: str,
) -> bytes:
    """Write records as an Excel file with one sheet, whose header stays in view and has filters.

    Numbers, dates and truth values keep their types. All else is text, also what looks like a
    formula.

    Args:
        columns: the names of the columns, in order.
        records: the values of each row by column; a column that is missing is an empty cell.
        title: the name of the sheet.
        probability_column: the column with a probability, which is shown with three decimals.

    Raises:
        DataError: there are more rows than a sheet has.
    """
    import openpyxl
    from openpyxl.utils import get_column_letter

    if len(records) > MAX_ROWS:
        raise DataError(
            f"{len(records):,} rows are more than a sheet of Excel holds: name a .csv file"
        )
    rows = [[kept_cell(record.get(column)) for column in columns] for record in records]

    formats = []
    for column in columns:
        formats.append(PROBABILITY_FORMAT if column == probability_column else GENERAL)

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet(sheet_title(title))
    sheet.freeze_panes = "A2"
    for number, column in enumerate(columns):
        first_values = [row[number] for row in rows[:MEASURED_ROWS]]
        letter = get_column_letter(number + 1)
        sheet.column_dimensions[letter].width = column_width(column, first_values)

    cells = SheetCells(sheet, columns, formats)
    sheet.append(cells.header())
    for row in rows:
        sheet.append(cells.row(row))
    last_column = get_column_letter(len(columns))
    sheet.auto_filter.ref = f"A1:{last_column}{len(rows) + 1}"

    file = io.BytesIO()
    save_workbook(book, file)
    return file.getvalue()
