"""Read Excel files: the rows of the sheet that has the columns to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.reading.columns import MAX_LISTED, Columns, repeats_header
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError, MissingColumnError
from encoder_cls.system.added_columns import numbered
from encoder_cls.system.display import counted, listed, shown
from encoder_cls.system.encodings import SKIP
from encoder_cls.system.header import note_on_rows_above
from encoder_cls.system.sheet_tables import SheetTable, in_sight, opened_excel, sheet_tables
from encoder_cls.system.xlsx import NO_RESULT, Cells, ColumnLayout, ErrorCell

# What messages call the value `NO_RESULT`.
WITHOUT_RESULT = "a formula without a stored result"


def excel_header(path: Path, columns: Sequence[str], reading: Reading) -> list[str]:
    """The columns of the sheet that has the given ones; repeated names are numbered."""
    with opened_excel(path) as workbook:
        table = _chosen_table(path, sheet_tables(workbook, columns), columns, reading.options.sheet)
    return numbered(table.header)


def visible_sheets(path: Path) -> list[str]:
    """The sheets that are not hidden or empty."""
    with opened_excel(path) as workbook:
        tables = sheet_tables(workbook, ())
    return [table.sheet.title for table in tables if not table.sheet.is_hidden]


class SheetLayout(NamedTuple):
    """How a spreadsheet shows a sheet; columns are named as by `excel_header`."""

    title: str
    columns: dict[str, ColumnLayout]


def sheet_layout(path: Path, columns: Sequence[str], reading: Reading) -> SheetLayout:
    """The layout of the sheet that has the given columns."""
    with opened_excel(path) as workbook:
        table = _chosen_table(path, sheet_tables(workbook, columns), columns, reading.options.sheet)
        by_number = workbook.layout(table.sheet, header_row=table.header_row)

    by_name = {}
    for number, name in enumerate(numbered(table.header), start=1):
        by_name[name] = by_number.get(number, ColumnLayout())
    return SheetLayout(table.sheet.title, by_name)


def excel_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the sheet that has the columns.

    In text columns, a number becomes a text of its digits, and an empty cell an empty text.
    """
    with opened_excel(path) as workbook:
        tables = sheet_tables(workbook, columns.named)
        table = _chosen_table(path, tables, columns.named, reading.options.sheet)
        _check_present(path, table, tables, columns)
        header = table.header
        names = columns.checked(path, header, line=f":{table.header_row}")
        if table.header_row > 1:
            reading.note(note_on_rows_above(path, table.header_row))

        num_hidden = 0
        for row in workbook.rows(table.sheet):
            if row.number <= table.header_row or not row.cells:
                continue
            num_hidden += row.is_hidden
            if reading.leaves_out_row():
                continue

            where = SourceLocation(str(path), row.number)
            try:
                values = _values(where, row.cells, len(header))
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

    if num_hidden:
        reading.note(
            f"{path}: the sheet hides {counted(num_hidden, 'row')}, as a filter does; hidden rows "
            "are read, too"
        )


def _values(where: SourceLocation, cells: Cells, num_columns: int) -> list[Any]:
    last_column = max(cells)
    if last_column > num_columns:
        cell = shown(str(cells[last_column]))
        what = f"a cell to the right of the header's {num_columns} columns: {cell}"
        raise DataError(where, what)
    return [cells.get(column) for column in range(1, num_columns + 1)]


def _check_values(where: SourceLocation, record: dict[str, Any], columns: Columns) -> None:
    for name in columns.named:
        value = record[name]
        if value is NO_RESULT:
            what = f"column {shown(name)} holds {WITHOUT_RESULT}"
            raise DataError(where, f"{what}; save the file in a spreadsheet program", SKIP)
        if isinstance(value, ErrorCell):
            what = f"column {shown(name)} shows the error {value}; correct the cell"
            raise DataError(where, what, SKIP)


def _plain_values(record: dict[str, Any], text_columns: Sequence[str]) -> dict[str, Any]:
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
    if value is None:
        return ""
    if type(value) in {int, float}:
        return str(value)
    return value


def _chosen_table(
    path: Path, tables: Sequence[SheetTable], columns: Sequence[str], title: str | None
) -> SheetTable:
    """Choose the sheet to read.

    First that of this title, even without the columns; then one that has them, a hidden one last;
    then the one with most of them.
    """
    if not tables:
        raise DataError(path, "the file is empty")
    for table in tables:
        if table.sheet.title == title:
            return table

    fitting = [table for table in tables if set(columns) <= set(table.header)]
    if not fitting:
        in_sight_first = sorted(tables, key=lambda table: table.sheet.is_hidden)
        return max(in_sight_first, key=lambda table: len(set(columns) & set(table.header)))

    candidates = in_sight(fitting)
    if len(candidates) > 1:
        titles = ", ".join(shown(table.sheet.title) for table in candidates)
        what = f"several sheets have these columns ({titles})"
        hint = "name one of them in data.sheet, or save it as a file"
        raise DataError(path, what, hint)
    return candidates[0]


def _check_present(
    path: Path, table: SheetTable, tables: Sequence[SheetTable], columns: Columns
) -> None:
    try:
        columns.check_present(path, table.header)
    except MissingColumnError as error:
        others = [other.sheet.title for other in tables if other is not table]
        if not others:
            raise
        hint = (
            f"this is sheet {shown(table.sheet.title)}; data.sheet names another one "
            f"({listed(others, most=MAX_LISTED)})"
        )
        raise MissingColumnError(path, error.column, error.what, hint) from None


EXCEL = Format(
    ending=".xlsx",
    records=excel_records,
    header=excel_header,
    has_fixed_columns=True,
    needs_label_separator=True,
    is_spreadsheet=True,
)
