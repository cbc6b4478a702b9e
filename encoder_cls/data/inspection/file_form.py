"""Find out how the files of a source are written: encoding, separator, sheet."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.delimited import CSV, guessed_separator
from encoder_cls.data.reading.excel import EXCEL, visible_sheets
from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.parquet import PARQUET
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import UTF8, guessed_encoding


class FileForm(NamedTuple):
    """How a file is written.

    Attributes:
        delimiter: None if the file has no separator between fields.
        is_usual_delimiter: whether the files of this format usually have this separator.
        sheets: the visible sheets of an Excel file; empty for other files.
    """

    encoding: str = UTF8
    delimiter: str | None = None
    is_usual_delimiter: bool = True
    sheets: tuple[str, ...] = ()


def file_form_of(path: Path, *, encoding: str | None, delimiter: str | None) -> FileForm:
    """Find out how a file is written; an encoding or a separator that is None is guessed.

    Raises:
        DataError: the encoding cannot be guessed, or the file is damaged.
    """
    file_format = format_of(path)
    if file_format is EXCEL:
        sheets = visible_sheets(path)
        if not sheets:
            raise DataError(path, "all of its sheets are empty or hidden")
        return FileForm(sheets=tuple(sheets))
    if file_format is PARQUET or file_format is None:
        return FileForm()

    if encoding is None:
        encoding = guessed_encoding(path)
    if encoding is None:
        what = "the encoding is unknown: neither UTF-8 nor Windows-1252"
        raise DataError(path, what, "save the file as UTF-8, or name it in data.encoding")
    if not file_format.is_delimited:
        return FileForm(encoding)

    options = ReadingOptions(delimiter=delimiter, encoding=encoding, bad_rows="skip")
    separator = guessed_separator(path, Reading(options))
    usual = "," if file_format is CSV else "\t"
    return FileForm(encoding, separator, is_usual_delimiter=separator == usual)
