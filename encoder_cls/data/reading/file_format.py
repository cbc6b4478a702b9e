"""What a format of data files is: how its files are read, and what else varies between formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record

RecordReader = Callable[[Path, Columns, Reading], Iterator[Record]]
"""Reads the rows of a file; they have at least the given columns."""

HeaderReader = Callable[[Path, Sequence[str], Reading], list[str]]
"""Reads the names of all columns, in order; the given ones show where the header is."""

RowCounter = Callable[[Path], int]
"""Counts the rows of a file, or its lines where the locations of rows are lines."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of data files. The module that reads it defines it; `formats` lists all of them.

    Attributes:
        ending: the ending of its files' names, in lower case.
        header: reads the names of the columns; None if files have no header.
        count_rows: counts the rows for progress; None if only reading a file shows how many there
            are.
        may_be_gzipped: whether `.gz` may follow the ending.
        has_fixed_columns: whether all rows of a file have the same columns.
        has_only_texts: whether all values are texts.
        needs_label_separator: whether several labels of a row are one text, which
            `data.label_separator` splits, and no list.
        is_delimited: whether it is text with a separator between the fields.
        is_spreadsheet: whether a double click opens its files in a spreadsheet program.
    """

    ending: str
    records: RecordReader
    header: HeaderReader | None = None
    count_rows: RowCounter | None = None
    may_be_gzipped: bool = False
    has_fixed_columns: bool = False
    has_only_texts: bool = False
    needs_label_separator: bool = False
    is_delimited: bool = False
    is_spreadsheet: bool = False
