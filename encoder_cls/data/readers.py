"""Read files, folders, globs and Hub data sets row by row.

Every reader is strict: a text is passed on exactly as it is in the file, or the row is refused with its location.
Nothing is guessed, coerced or skipped silently: `Reading` collects what came up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from encoder_cls.data.formats.csv import USUAL, csv_records, header_of
from encoder_cls.data.formats.tables import EXCEL, excel_header, excel_records, parquet_header, parquet_records
from encoder_cls.data.formats.text import folder_records, json_records, jsonl_records, line_records
from encoder_cls.data.hub import hub_folder_or_commit, hub_records
from encoder_cls.data.rows import Columns, Reading, Record, Row, SourceLocation, group_named, numbered
from encoder_cls.data.sources import FASTTEXT, JSON, TEXT, class_folders, data_files, every_file
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.files import reporting_os_errors
from encoder_cls.system.machine import check_installed

EXAMPLE = Path(__file__).parent / "example"  # the bundled data

FORMATS: dict[str, Callable[[Path, Columns, Reading], Iterator[Record]]] = {
    **dict.fromkeys(USUAL, csv_records),
    EXCEL: excel_records,
    ".jsonl": jsonl_records,
    JSON: json_records,
    ".parquet": parquet_records,
    **dict.fromkeys((FASTTEXT, TEXT), line_records),
}
NEEDED = {".parquet": ("pyarrow", None), EXCEL: ("openpyxl", "'encoder-cls[excel]'")}  # a library, how to install it


def read_rows(
    source: str,
    *,
    role: str,
    text_columns: Sequence[str],
    label_column: str | None,
    group_column: str | None = None,
    reading: Reading | None = None,
) -> Iterator[Row]:
    """Read a source, as `DataConfig.train` describes it, row by row.

    Args:
        source: what to read.
        role: train, validation or test: the split of a Hub data set that is named without one.
        text_columns: the columns whose texts, joined by a space, are the text.
        label_column: the column with the class; None: the rows have no labels.
        group_column: the column whose rows of equal values belong together.
        reading: how files are read, and the notes.
    """
    columns, reading = Columns(text_columns, label_column, group_column), reading or Reading()
    return (row for row, _ in _rows(_records(source, role, columns, reading), columns, reading))


def read_rows_and_columns(
    source: str, *, text_columns: Sequence[str], reading: Reading | None = None
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Read a source without labels row by row, each with all columns of its file."""
    columns, reading = Columns(text_columns, every=True), reading or Reading()
    return _rows(_records(source, "test", columns, reading), columns, reading)


def read_again(
    places: Iterable[str], *, text_columns: Sequence[str], label_column: str, reading: Reading
) -> dict[str, tuple[Row, dict[str, Any]]]:
    """Read labelled rows once more, each with all columns of its file, as far as they are still in files."""
    lines_of: dict[str, set[int]] = {}
    for place in places:
        if isinstance(place, SourceLocation) and place.line >= 0 and ending_of(Path(place.file)) in FORMATS:
            lines_of.setdefault(place.file, set()).add(place.line)
    columns, found = Columns(text_columns, label_column, every=True), {}
    for file, lines in lines_of.items():
        path, last = Path(file), max(lines)
        if not path.is_file():  # such as a pipe, which can be read but once
            continue
        with suppress(DataError, OSError):
            for row, record in _rows(FORMATS[ending_of(path)](path, columns, reading), columns, reading):
                if row.where.line in lines:
                    found[str(SourceLocation(file, row.where.line))] = row, record
                if row.where.line >= last:
                    break
    return found


def column_names(path: Path, *, text_columns: Sequence[str], reading: Reading | None = None) -> list[str]:
    """All columns of a file that has these, in order; none where its format has no header."""
    suffix = ending_of(path)
    _check_library(path)
    try:
        if suffix == ".parquet":
            return parquet_header(path)
        if suffix in USUAL:
            return numbered(header_of(path, text_columns, reading or Reading()))
        return numbered(excel_header(path, text_columns)) if suffix == EXCEL else []
    except OSError as error:
        raise _unreadable(path, error) from None


def content_hash(source: str) -> str | None:
    """A hash of the files of a source; None if its content is unknown."""
    scheme, colon, rest = source.partition(":")
    files: Iterable[Path]
    if colon and scheme == "example":
        files = [EXAMPLE / f"{rest}.csv"]
    elif colon and scheme == "hub":
        content = hub_folder_or_commit(rest)
        if not isinstance(content, Path):
            return content
        files = sorted(content.rglob("*"))
    else:
        files = every_file(source)
    digest = hashlib.sha256()
    with reporting_os_errors(Path(source), "be read"):
        for file in filter(Path.is_file, files):
            with file.open("rb") as opened:
                of_file = hashlib.file_digest(opened, "sha256").hexdigest()
            digest.update(f"{file}\n{of_file}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _rows(records: Iterable[Record], columns: Columns, reading: Reading) -> Iterator[tuple[Row, dict[str, Any]]]:
    for where, record in records:
        try:
            row = _row(where, record, columns)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield row, record


def _row(where: SourceLocation, record: dict[str, Any], columns: Columns) -> Row:
    texts = [record[column] for column in columns.text if column in record]  # text files have only the first
    for column, text in zip(columns.text, texts, strict=False):
        if not isinstance(text, str):
            raise DataError(where, f"column {shown(column)} holds {kind(text)} where a text is expected")
    number = record.get("id")
    return Row(
        text=" ".join(texts),
        label=record[columns.label] if columns.label else None,
        id=number if isinstance(number, str | int | None) else str(number),
        where=where,
        group=group_named(where, record[columns.group]) if columns.group else None,
    )


def _records(source: str, role: str, columns: Columns, reading: Reading) -> Iterator[Record]:
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "hub":
        yield from hub_records(rest, role, columns)
        return
    if colon and scheme == "example":
        source, reading = str(EXAMPLE / f"{rest}.csv"), Reading()
    location: Path | str = source
    try:
        folders = class_folders(Path(source), is_labelled=columns.label is not None)
        if folders:
            yield from folder_records(folders, columns, reading)
            return
        files = data_files(source, is_labelled=columns.label is not None)
        for file in files:  # before any row is read
            _check_library(file)
        for file in files:
            location = file
            yield from FORMATS[ending_of(file)](file, columns, reading)
    except OSError as error:
        raise _unreadable(location, error) from None


def _check_library(file: Path) -> None:
    library, install = NEEDED.get(ending_of(file), (None, None))
    if library:
        check_installed(library, needed_by=str(file), install=install)


def _unreadable(location: Path | str, error: OSError) -> DataError:
    return DataError(error.filename or location, f"cannot be read: {error.strerror or error}")
