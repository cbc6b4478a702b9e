"""Read the rows of a source: a file, a folder, a pattern, the bundled example, or a Hub data set.

A text is returned exactly as it is in the file, or its row is refused with its location.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.formats import file_records, format_of, header_of
from encoder_cls.data.reading.hub import hub_folder_or_commit, hub_records
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record, Row, row_of
from encoder_cls.data.reading.text_lines import class_folder_records
from encoder_cls.data.source_files import (
    class_folders,
    data_files,
    every_file,
    os_errors_as_data_errors,
    texts_of,
)
from encoder_cls.errors import DataError
from encoder_cls.system.hub import HUB

EXAMPLE = "example:"
EXAMPLE_FOLDER = Path(__file__).parent / "example"


def read_rows(
    source: str, columns: Columns, reading: Reading, *, role: str = "test"
) -> Iterator[Row]:
    """Read the rows of a source, in one of the forms that `DataConfig.train` describes.

    Of a data set of the Hub, `role` is the split if the source names none.

    Raises:
        DataError: the source is missing or malformed.
    """
    return _rows(_records(source, role, columns, reading), columns, reading)


def read_again(places: Iterable[str], columns: Columns, reading: Reading) -> dict[str, Row]:
    """Read rows again by their locations; one without a line, or lost, is left out."""
    lines_by_file: dict[str, set[int]] = {}
    for place in places:
        if not isinstance(place, SourceLocation) or place.line < 0:
            continue
        if format_of(Path(place.file)):
            lines_by_file.setdefault(place.file, set()).add(place.line)

    rows: dict[str, Row] = {}
    for file, lines in lines_by_file.items():
        path = Path(file)
        # Leave out what is not a file, such as a pipe, which can be read only once.
        if path.is_file():
            with suppress(DataError, OSError):
                _read_lines_again(path, lines, columns, reading, rows)
    return rows


def _read_lines_again(
    path: Path, lines: set[int], columns: Columns, reading: Reading, rows: dict[str, Row]
) -> None:
    last_line = max(lines)
    for row in _rows(file_records(path, columns, reading), columns, reading):
        if row.where.line in lines:
            rows[str(row.where)] = row
        if row.where.line >= last_line:
            return


def column_names(path: Path, text_columns: Sequence[str], reading: Reading) -> list[str]:
    """The columns of a file; none if its format has no header."""
    with os_errors_as_data_errors(path):
        return header_of(path, text_columns, reading)


def content_hash(source: str) -> str | None:
    """Hash the files of a source; of a Hub data set, it is the commit.

    None if it is unknown, or if a source, such as a pipe, can be read only once.
    """
    files: Iterable[Path]
    with os_errors_as_data_errors(source):
        if source.startswith(HUB):
            folder = hub_folder_or_commit(source)
            if not isinstance(folder, Path):
                return folder
            files = sorted(folder.rglob("*"))
        else:
            files = every_file(_bundled(source) or source)

        digest = hashlib.sha256()
        for file in files:
            if file.is_dir():
                continue
            if not file.is_file():
                return None

            with file.open("rb") as content:
                file_hash = hashlib.file_digest(content, "sha256").hexdigest()
            digest.update(f"{file}\n{file_hash}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _rows(records: Iterable[Record], columns: Columns, reading: Reading) -> Iterator[Row]:
    for where, record in records:
        try:
            row = row_of(where, record, columns)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield row


def _records(source: str, role: str, columns: Columns, reading: Reading) -> Iterator[Record]:
    if source.startswith(HUB):
        yield from hub_records(source, role, columns, reading)
        return

    bundled = _bundled(source)
    if bundled:
        # Its encoding and separator are known.
        source = bundled
        reading = replace(reading, options=ReadingOptions())

    is_labelled = columns.label is not None
    with os_errors_as_data_errors(source):
        folders = class_folders(Path(source), is_labelled=is_labelled)
        if folders:
            files_with_labels = (
                (folder.name, file) for folder in folders for file in texts_of(folder)
            )
            yield from class_folder_records(Path(source), files_with_labels, columns, reading)
            return
        files = data_files(source, is_labelled=is_labelled)
        if columns.features:
            _check_some_row_has_features(source, files, columns, reading.options)

    for file in files:
        with os_errors_as_data_errors(file):
            yield from file_records(file, columns, reading)


def _check_some_row_has_features(
    source: str, files: Sequence[Path], columns: Columns, options: ReadingOptions
) -> None:
    """Raise a `MissingColumnError` if all rows that may lack features lack one of them.

    What cannot be read is left to the reading itself; a pipe can be read only once.
    """
    names: dict[str, None] = {}
    for file in files:
        file_format = format_of(file)
        if file_format is None or not file_format.may_lack_features:
            continue
        if not file.is_file():
            return

        try:
            for _, record in file_records(file, columns, Reading(options)):
                names |= dict.fromkeys(columns.found_in(record))
                if names.keys() >= set(columns.features):
                    return
        except DataError:
            return
    if names:
        columns.check_present(source, list(names))


def _bundled(source: str) -> str | None:
    if not source.startswith(EXAMPLE):
        return None
    return str(EXAMPLE_FOLDER / f"{source.removeprefix(EXAMPLE)}.csv")
