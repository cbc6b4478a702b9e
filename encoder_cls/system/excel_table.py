"""Tables in which a person labels texts or corrects labels, as an Excel sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from encoder_cls.errors import DataError
from encoder_cls.system.excel_sheet import (
    GENERAL,
    MAX_ROWS,
    MEASURED_ROWS,
    PROBABILITY_FORMAT,
    column_width,
    kept_cell,
    new_sheet,
)


def excel_table(
    columns: Sequence[str],
    records: Sequence[Mapping[str, Any]],
    *,
    title: str,
    probability_column: str,
) -> bytes:
    """Write records as an Excel file, whose header stays in view and has filters.

    Numbers, dates and truth values keep their types; all else is text, even what looks like a
    formula. What a record lacks is an empty cell; probabilities have three decimals.

    Raises:
        DataError: there are more rows than a sheet has.
    """
    if len(records) > MAX_ROWS:
        raise DataError(
            f"{len(records):,} rows are more than a sheet of Excel holds: name a .csv file"
        )
    rows = [[kept_cell(record.get(column)) for column in columns] for record in records]

    formats = []
    widths = []
    for number, column in enumerate(columns):
        formats.append(PROBABILITY_FORMAT if column == probability_column else GENERAL)
        widths.append(column_width(column, [row[number] for row in rows[:MEASURED_ROWS]]))

    with new_sheet(title, columns, formats) as sheet:
        sheet.begin(widths)
        for row in rows:
            sheet.append(row)
        return sheet.save().read_bytes()
