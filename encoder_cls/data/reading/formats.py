"""The formats of data files, by the endings of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from encoder_cls.data.reading.columns import Columns, numbered
from encoder_cls.data.reading.delimited import CSV, TSV, USUAL, csv_header, csv_records
from encoder_cls.data.reading.excel import EXCEL, excel_header, excel_records
from encoder_cls.data.reading.json_files import JSON, JSON_LINES, json_line_records, json_records
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.parquet import PARQUET, parquet_header, parquet_records
from encoder_cls.data.reading.rows import Record
from encoder_cls.data.reading.text_lines import FASTTEXT, TEXT, line_records
from encoder_cls.system.encodings import ending_of

Reader = Callable[[Path, Columns, Reading], Iterator[Record]]

FORMATS: dict[str, Reader] = {
    CSV: csv_records,
    TSV: csv_records,
    JSON_LINES: json_line_records,
    JSON: json_records,
    PARQUET: parquet_records,
    EXCEL: excel_records,
    FASTTEXT: line_records,
    TEXT: line_records,
}


def file_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read a file of a known format."""
    return FORMATS[ending_of(path)](path, columns, reading)


def header_of(path: Path, text_columns: Sequence[str], reading: Reading) -> list[str]:
    """The names of all columns of a file, in order; none if its format has no header."""
    ending = ending_of(path)
    if ending == PARQUET:
        return parquet_header(path)
    if ending in USUAL:
        return numbered(csv_header(path, text_columns, reading))
    if ending == EXCEL:
        return numbered(excel_header(path, text_columns))
    return []
