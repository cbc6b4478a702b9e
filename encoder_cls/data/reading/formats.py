"""The list of all formats of data files, and the format of a file by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.delimited import CSV, TSV
from encoder_cls.data.reading.excel import EXCEL
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.json_files import JSON, JSON_LINES
from encoder_cls.data.reading.parquet import PARQUET
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.data.reading.text_lines import FASTTEXT, TEXT
from encoder_cls.system.encodings import ending_of, is_gzipped

# In the order in which messages list their endings.
FORMATS = (
    CSV,
    TSV,
    JSON_LINES,
    JSON,
    PARQUET,
    EXCEL,
    FASTTEXT,
    TEXT,
)
KNOWN_ENDINGS = ", ".join(known.ending for known in FORMATS)

_BY_ENDING = {known.ending: known for known in FORMATS}


def format_of(path: Path) -> Format | None:
    """The format of a file, by its name; None if it is unknown."""
    file_format = _BY_ENDING.get(ending_of(path))
    if file_format and is_gzipped(path) and not file_format.may_be_gzipped:
        return None
    return file_format


def file_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read a file of a known format."""
    return _BY_ENDING[ending_of(path)].records(path, columns, reading)


def header_of(path: Path, text_columns: Sequence[str], reading: Reading) -> list[str]:
    """The columns of a file; none if its format has no header."""
    file_format = format_of(path)
    if file_format is None or file_format.header is None:
        return []
    return file_format.header(path, text_columns, reading)


def count_rows(files: Iterable[Path]) -> dict[str, int]:
    """The lines, or rows, of each file; empty if one cannot be counted quickly.

    Files of unknown formats are left out, since they are not read.
    """
    lines: dict[str, int] = {}
    for path in files:
        if not path.is_file():
            return {}

        file_format = format_of(path)
        if file_format is None:
            continue
        if file_format.count_rows is None or is_gzipped(path):
            return {}
        lines[str(path)] = file_format.count_rows(path)
    return lines
