"""What a format of data files is: how its files are read, and what else varies between formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record

RecordReader = Callable[[Path, Columns, Reading], Iterator[Record]]
"""Reads the rows of a file; they have at least the given columns, but for features of JSON."""

HeaderReader = Callable[[Path, Sequence[str], Reading], list[str]]
"""Reads the names of all columns, in order; the given ones show where the header is."""

RowCounter = Callable[[Path], int]
"""Counts the rows of a file, or its lines where the locations of rows are lines."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format, which the module that reads it defines; `formats` lists all.

    Attributes:
        ending: of files' names, in lower case.
        header: reads the columns; None if there is no header.
        count_rows: None if only reading a file shows its number of rows.
        may_be_gzipped: `.gz` may follow the ending.
        may_lack_features: a row may lack some that other rows have.
        needs_label_separator: several labels are one text and no list.
        is_delimited: text with a separator between fields.
        is_spreadsheet: a double click opens it in a spreadsheet.
    """

    ending: str
    records: RecordReader
    header: HeaderReader | None = None
    count_rows: RowCounter | None = None
    may_be_gzipped: bool = False
    may_lack_features: bool = False
    has_fixed_columns: bool = False
    has_only_texts: bool = False
    needs_label_separator: bool = False
    is_delimited: bool = False
    is_spreadsheet: bool = False
