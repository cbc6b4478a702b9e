"""Read tables in binary formats: Parquet files with pyarrow, Excel files with openpyxl."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from encoder_cls.data.rows import (
    Columns,
    Reading,
    Record,
    SourceLocation,
    class_names_of,
    with_class_names,
)
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import SKIP
from encoder_cls.system.machine import check_installed

ROWS_AT_ONCE = 4096  # of a Parquet file
EXCEL = ".xlsx"
NO_RESULT = "a formula without a stored result"


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
            chain.from_iterable(batch.to_pylist() for batch in batches), start=1
        ):
            where = SourceLocation(str(path), number)
            try:
                yield where, with_class_names(record, names, where)
            except DataError as error:
                reading.bad_row(error)


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
        for number, cells in _rows(sheet):
            if number == 1 or all(cell is None for cell in cells):
                continue
            values = [*cells[: len(header)], *[None] * (len(header) - len(cells))]
            beyond = [cell for cell in cells[len(header) :] if cell is not None]
            where, record = SourceLocation(str(path), number), dict(zip(names, values, strict=True))
            without = [name for name, value in record.items() if value is NO_RESULT]
            missing = next((name for name in without if name in columns.named), None)
            if beyond:
                what = f"a cell to the right of the header's {len(header)} columns: {shown(str(beyond[0]))}"
                reading.bad_row(DataError(where, what))
            elif missing is not None:
                what = f"column {shown(missing)} holds {NO_RESULT}; save the file in a spreadsheet program"
                reading.bad_row(DataError(where, what, SKIP))
            else:
                if without and (columns.every or "id" in without):
                    reading.note(f"warning: {path}: cells that hold {NO_RESULT} are read as empty")
                record |= dict.fromkeys(without)
                yield (
                    where,
                    record
                    | {text: _as_text(record[text]) for text in columns.text if text in record},
                )


def excel_header(path: Path, columns: Sequence[str]) -> list[str]:
    """The names of the columns of the sheet that has these columns."""
    with _open_excel(path) as workbook:
        return _sheet_with(path, workbook, columns)[1]


def _as_text(value: Any) -> Any:
    """Turn a cell into a text, also one that a spreadsheet has made a number."""
    return "" if value is None else str(value) if type(value) in {int, float} else value


def _sheet_with(path: Path, workbook: Any, columns: Sequence[str]) -> tuple[Any, list[str]]:
    headers = [(sheet, _header(sheet)) for sheet in workbook.worksheets]
    filled = [(sheet, header) for sheet, header in headers if header]
    if not filled:
        raise DataError(path, "the file is empty")
    fitting = [(sheet, header) for sheet, header in filled if set(columns) <= set(header)]
    if len(fitting) > 1:
        names = ", ".join(shown(sheet.title) for sheet, _ in fitting)
        raise DataError(
            path,
            f"several sheets have these columns ({names})",
            "save the one that is meant as a file",
        )
    return fitting[0] if fitting else filled[0]


def _header(sheet: Any) -> list[str]:
    number, first = next(_rows(sheet), (1, []))
    names = ["" if cell is None else str(cell) for cell in first] if number == 1 else []
    while names and not names[-1]:
        names.pop()
    return names


def _rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """The number and the values of each row, with `NO_RESULT` where openpyxl itself reads an empty cell."""
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    class Parser(WorkSheetParser):  # type: ignore[misc]
        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell: dict[str, Any] = super().parse_cell(element)
            # An empty text is also a result.
            if (
                cell["value"] is None
                and element.get("t") != "str"
                and element.find(FORMULA_TAG) is not None
            ):
                cell["value"] = NO_RESULT
            return cell

    book = sheet.parent
    formats = {"date_formats": book._date_formats, "timedelta_formats": book._timedelta_formats}
    with sheet._get_source() as source:
        for number, cells in Parser(
            source, sheet._shared_strings, data_only=True, epoch=book.epoch, **formats
        ).parse():
            values = [None] * max((cell["column"] for cell in cells), default=0)
            for cell in cells:
                values[cell["column"] - 1] = cell["value"]
            yield number, values


@contextmanager
def _open_excel(path: Path) -> Iterator[Any]:
    check_installed("openpyxl", needed_by=str(path), install="'encoder-cls[excel]'")
    from openpyxl import load_workbook

    warnings.filterwarnings("ignore", module="openpyxl")  # about formats of cells
    with (
        _content_errors(path, "Excel"),
        path.open("rb") as file,
        closing(load_workbook(file, read_only=True, data_only=True)) as workbook,
    ):
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
