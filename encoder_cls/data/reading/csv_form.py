"""Find the form of CSV output that a spreadsheet opens just as it opens the input."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from encoder_cls.data.reading.delimited import CSV, separator_of
from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.source_files import files_named
from encoder_cls.errors import DataError
from encoder_cls.system.csv_cells import CsvForm
from encoder_cls.system.encodings import is_utf8, opened


def csv_form(source: str, columns: Sequence[str], reading: Reading) -> CsvForm:
    """The form of the first file of a source, which has these columns."""
    files = files_named(source)
    form = CsvForm(has_mark=False)
    if files and files[0].is_file():
        form = form_of(files[0], columns, reading)

    formats = [format_of(file) for file in files]
    are_delimited = all(known is not None and known.is_delimited for known in formats)
    return form._replace(is_guarded=not are_delimited)


def form_of(path: Path, columns: Sequence[str], reading: Reading) -> CsvForm:
    """The form of output for an input file, whose header must have these columns.

    It has a byte order mark if the input is not UTF-8: a spreadsheet then reads UTF-8.
    """
    file_format = format_of(path)
    is_delimited = file_format is not None and file_format.is_delimited
    is_workbook = file_format is not None and file_format.is_spreadsheet and not is_delimited

    separator = ","
    has_mark = is_workbook or not is_utf8(reading.options.encoding)

    # Ignore errors here: the same errors are reported when the rows are read.
    with suppress(OSError, DataError):
        if file_format is CSV:
            separator = separator_of(path, columns, reading)
        with opened(path) as file:
            if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
                has_mark = True
    return CsvForm(separator, has_mark, is_guarded=not is_delimited)
