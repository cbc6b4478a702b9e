"""Read tables in binary formats: Parquet files with pyarrow, Excel files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from encoder_cls.data.rows import (
    Columns,
    Reading,
    Record,
    SourceLocation,
    class_names_of,
    repeats_header,
    with_class_names,
)
from encoder_cls.data.xlsx import NO_RESULT, ErrorCell, Workbook, opened_workbook
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import SKIP
from encoder_cls.system.libraries import check_installed

ROWS_AT_ONCE = 4096  # of a Parquet file
EXCEL = ".xlsx"
WITHOUT_RESULT = "a formula without a stored result"


def parquet_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows of a file; integer labels become the class names of the `datasets` library."""
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        columns.checked(path, schema.names)
        wanted = [*columns.named, *({"id"} & set(schema.names) - set(columns.named))]
        names = {}
        with suppress(
            AttributeError, KeyError, TypeError, ValueError
        ):  # which only `datasets` has written
            names = class_names_of(json.loads(schema.metadata[b"huggingface"])["info"]["features"])
        batches = file.iter_batches(
            batch_size=ROWS_AT_ONCE, columns=None if columns.every else wanted
        )
        for number, record in enumerate(
            chain.from_iterable(_without_nanoseconds(batch).to_pylist() for batch in batches),
            start=1,
        ):
            where = SourceLocation(str(path), number)
            try:
                yield where, with_class_names(record, names, where)
            except DataError as error:
                reading.bad_row(error)


def _without_nanoseconds(batch: Any) -> Any:
    """A batch with times in microseconds, which Python has; where that would lose digits, as text.

    pyarrow converts nanoseconds to types of pandas, which may not be installed.
    """
    import pyarrow

    def has_nanoseconds(column: Any) -> bool:
        return getattr(column.type, "unit", "") == "ns"

    columns = [
        _in_microseconds(column) if has_nanoseconds(column) else column for column in batch.columns
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _in_microseconds(column: Any) -> Any:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_timestamp(kind):
        shorter = pyarrow.timestamp("us", tz=kind.tz)
    elif pyarrow.types.is_duration(kind):
        shorter = pyarrow.duration("us")
    else:
        shorter = pyarrow.time64("us")
    try:
        return column.cast(shorter)
    except pyarrow.ArrowInvalid:
        pass
    # A duration has no text of its own: its number of nanoseconds.
    return column.cast(pyarrow.int64() if pyarrow.types.is_duration(kind) else pyarrow.string())


def parquet_header(path: Path) -> list[str]:
    """The names of the columns."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    check_installed("pyarrow", needed_by=str(path))
    import pyarrow.parquet

    with _content_errors(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
        yield file


def excel_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows of the one sheet that has these columns; its first row is the header.

    In columns of texts a number is its digits, and an empty cell an empty text; other values are as they are.
    """
    with _open_excel(path) as workbook:
        sheet, header = _sheet_with(path, workbook, columns.named)
        names = columns.checked(path, header, line=":1")
        for number, cells in workbook.rows(sheet):
            if number == 1 or all(cell is None for cell in cells):
                continue

            where = SourceLocation(str(path), number)
            beyond = [cell for cell in cells[len(header) :] if cell is not None]
            if beyond:
                what = f"a cell to the right of the header's {len(header)} columns: {shown(str(beyond[0]))}"
                reading.bad_row(DataError(where, what))
                continue

            values = [*cells[: len(header)], *[None] * (len(header) - len(cells))]
            if repeats_header(where, values, header):
                reading.notes.repeated_headers.add(where)
                continue

            record = dict(zip(names, values, strict=True))
            try:
                _check_values(where, record, columns)
            except DataError as error:
                reading.bad_row(error)
                continue

            is_kept = columns.every or record.get("id") is NO_RESULT
            if is_kept and any(value is NO_RESULT for value in values):
                reading.note(f"warning: {path}: cells that hold {WITHOUT_RESULT} are read as empty")
            yield where, _plain_values(record, columns.text)


def excel_header(path: Path, columns: Sequence[str]) -> list[str]:
    """The names of the columns of the sheet that has these columns."""
    with _open_excel(path) as workbook:
        return _sheet_with(path, workbook, columns)[1]


def _check_values(where: SourceLocation, record: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError if a column that is read holds an error, or a formula that was never computed."""
    for name in columns.named:
        value = record[name]
        if value is NO_RESULT:
            what = f"column {shown(name)} holds {WITHOUT_RESULT}; save the file in a spreadsheet program"
            raise DataError(where, what, SKIP)
        if isinstance(value, ErrorCell):
            what = f"column {shown(name)} shows the error {value}; correct the cell"
            raise DataError(where, what, SKIP)


def _plain_values(record: dict[str, Any], text_columns: Sequence[str]) -> dict[str, Any]:
    """The values as other formats have them; in columns of texts, numbers are texts and empty cells are empty."""
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
    """Turn a cell into a text, also one that a spreadsheet has made a number."""
    if value is None:
        return ""
    if type(value) in {int, float}:
        return str(value)
    return value


def _sheet_with(path: Path, workbook: Any, columns: Sequence[str]) -> tuple[Any, list[str]]:
    """The sheet with these columns, and its header; a hidden sheet only where no other has them."""
    headers = [(sheet, _header(workbook, sheet)) for sheet in workbook.sheets]
    filled = [(sheet, header) for sheet, header in headers if header]
    if not filled:
        raise DataError(path, "the file is empty")

    fitting = [(sheet, header) for sheet, header in filled if set(columns) <= set(header)]
    in_sight = [(sheet, header) for sheet, header in fitting if not sheet.is_hidden]
    fitting = in_sight or fitting
    if len(fitting) > 1:
        names = ", ".join(shown(sheet.title) for sheet, _ in fitting)
        raise DataError(
            path,
            f"several sheets have these columns ({names})",
            "save the one that is meant as a file",
        )
    return fitting[0] if fitting else filled[0]


def _header(workbook: Any, sheet: Any) -> list[str]:
    number, first = next(workbook.rows(sheet), (1, []))
    names = []
    if number == 1:
        names = ["" if cell in {None, NO_RESULT} else str(cell) for cell in first]
    while names and not names[-1]:
        names.pop()
    return names


@contextmanager
def _open_excel(path: Path) -> Iterator[Workbook]:
    check_installed("openpyxl", needed_by=str(path), install="'encoder-cls[excel]'")
    with _content_errors(path, "Excel"), opened_workbook(path) as workbook:
        yield workbook


@contextmanager
def _content_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises about the content of a file into a DataError."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:  # the libraries raise many types on unexpected content
        if isinstance(error, OSError) and error.errno:
            raise  # of the disk
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(
            path, f"not a readable {kind} file: {shown(reason, limit=200)[1:-1]}"
        ) from None
