"""Files, folders, globs and Hub data sets in, rows out, each with its location.

Every reader is strict: a text is passed on exactly as it stands in the file, or the row is refused with
its location (file:line). Nothing is guessed, coerced or skipped in silence: `Reading` keeps count of what is skipped
where that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.formats import fasttext as fasttext_format
from encoder_cls.data.formats.csv import USUAL, delimited_records, header_of
from encoder_cls.data.formats.excel import EXCEL, check_openpyxl, excel_header, excel_records
from encoder_cls.data.hub import hub_records
from encoder_cls.data.rows import (
    SKIP,
    Reading,
    Record,
    SourceLocation,
    check_columns,
    check_undoubled,
    class_names_in,
    group_named,
    numbered,
    with_class_names,
)
from encoder_cls.data.sources import FASTTEXT, JSON, class_folders, data_files, texts_of
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.installed import check_installed

EXAMPLE = Path(__file__).parent / "example"  # the bundled data


class Row(NamedTuple):
    """One row of a source with its group; several labels, or none of several, are a list or a tuple.

    It is unchanged but for a mended label, whose former one is in `corrected_from`.
    """

    text: str
    label: str | int | Sequence[str | int] | None
    id: str | int | None
    where: SourceLocation
    group: str | None = None
    corrected_from: str | int | None = None


def read_rows(
    source: str,
    *,
    role: str,
    text_columns: Sequence[str],
    label_column: str | None,
    reading: Reading | None = None,
) -> Iterator[Row]:
    """Read a source row by row.

    Args:
        source: what `DataConfig.train` describes.
        role: train, validation or test: the split taken from a Hub data set that is named without one.
        text_columns: the columns whose texts, joined by a space, are the text.
        label_column: the column with the class; none where the rows have no labels: then each line of a `.txt` file is
            a text, else these files are fastText's.
        reading: how files are read, and where is kept what comes up; none: as is usual.

    Raises:
        ConfigError: a library that the format needs is not installed.
        DataError: with file and line.
    """
    for row, _ in _rows(source, role, text_columns, label_column, reading or Reading(), False):
        yield row


def read_rows_and_columns(
    source: str, *, text_columns: Sequence[str], reading: Reading | None = None
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Read a source without labels row by row, each with all the columns that its file has; else as `read_rows`."""
    return _rows(source, "test", text_columns, None, reading or Reading(), True)


def _rows(
    source: str,
    role: str,
    text_columns: Sequence[str],
    label_column: str | None,
    reading: Reading,
    all_columns: bool,
) -> Iterator[tuple[Row, dict[str, Any]]]:
    for where, record in _records(source, role, text_columns, label_column, reading, all_columns):
        try:
            row = _row(where, record, text_columns, label_column, reading.group_column)
        except DataError as error:
            reading.bad_row(where, error)
            continue
        yield row, record


def _row(
    where: SourceLocation,
    record: dict[str, Any],
    text_columns: Sequence[str],
    label_column: str | None,
    group_column: str | None,
) -> Row:
    texts = [record[column] for column in text_columns if column in record]  # text files have but the first
    for column, text in zip(text_columns, texts, strict=False):
        if not isinstance(text, str):
            raise DataError(f"{where}: column {shown(column)} holds {kind(text)} where a text is expected")
    label = record[label_column] if label_column else None
    number = record.get("id")
    number = number if isinstance(number, str | int | None) else str(number)
    group = group_named(where, record[group_column]) if group_column else None
    return Row(" ".join(texts), label, number, where, group)


def _columns(text_columns: Sequence[str], label_column: str | None, reading: Reading) -> list[str]:
    """The columns that are read, each once."""
    return list(dict.fromkeys(name for name in (*text_columns, label_column, reading.group_column) if name))


def column_names(path: Path, *, text_columns: Sequence[str], reading: Reading | None = None) -> list[str]:
    """The columns that a file has, whatever its rows hold, in order; none of formats that do not say.

    Args:
        path: of the file.
        text_columns: those that it has by all means.
        reading: as in `read_rows`.

    Raises:
        DataError: the file is missing or malformed.
    """
    suffix = ending_of(path)
    try:
        if suffix == ".parquet":
            with _open_parquet(path) as file:
                return list(file.schema_arrow.names)
        if suffix in USUAL:
            return numbered(header_of(path, text_columns, reading or Reading()))
        if suffix == EXCEL:
            return numbered(excel_header(path, text_columns))
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None
    return []


def _records(
    source: str,
    role: str,
    text_columns: Sequence[str],
    label_column: str | None,
    reading: Reading,
    all_columns: bool,
) -> Iterator[Record]:
    columns = _columns(text_columns, label_column, reading)
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "hub":
        yield from hub_records(rest, role, columns, all_columns=all_columns)
        return
    if colon and scheme == "example":
        source = str(EXAMPLE / f"{rest}.csv")
        reading = Reading(group_column=reading.group_column)
    location: Path | str = source
    try:
        folders = class_folders(Path(source), is_labelled=label_column is not None)
        if folders:
            _check_no_group(source, reading)
            yield from _text_file_records(folders, text_columns, label_column, reading)
            return
        files = data_files(source, is_labelled=label_column is not None)
        for file in files:  # before any row: what a later file needs is told of first
            if ending_of(file) == ".parquet":
                check_installed("pyarrow", needed_by=str(file))
            elif ending_of(file) == EXCEL:
                check_openpyxl(file)
        for file in files:
            location = file
            yield from _file_records(file, text_columns, label_column, reading, all_columns=all_columns)
    except OSError as error:
        raise DataError(f"{error.filename or location}: cannot be read: {error.strerror or error}") from None


def _file_records(
    file: Path, text_columns: Sequence[str], label_column: str | None, reading: Reading, *, all_columns: bool
) -> Iterator[Record]:
    """The records of one file, whose ending tells its format."""
    columns = _columns(text_columns, label_column, reading)
    suffix = ending_of(file)
    if suffix in USUAL:
        yield from delimited_records(file, columns, reading, all_columns=all_columns)
    elif suffix == EXCEL:
        yield from excel_records(file, columns, text_columns, reading, all_columns=all_columns)
    elif suffix == ".jsonl":
        yield from _jsonl_records(file, columns, reading)
    elif suffix == JSON:
        yield from _json_records(file, columns, reading)
    elif suffix == ".parquet":
        yield from _parquet_records(file, columns, reading, all_columns=all_columns)
    elif label_column is not None:
        _check_single(text_columns, file)
        _check_no_group(file, reading)
        yield from _fasttext_records(file, text_columns[0], label_column, reading)
    else:
        yield from _line_records(file, text_columns[0], reading, has_labels=suffix == FASTTEXT)


def _line_records(path: Path, text_column: str, reading: Reading, *, has_labels: bool) -> Iterator[Record]:
    """Each line as a text, the blank ones too, so that answers keep to their lines; of fastText's no labels."""
    for where, line in _numbered_lines(path, reading):
        text = fasttext_format.parse_line(line).text if has_labels else line.removesuffix("\n").removesuffix("\r")
        yield where, {text_column: text}


def _numbered_lines(path: Path, reading: Reading) -> Iterator[tuple[SourceLocation, str]]:
    """The lines of a text file, each with where it is; what is not valid is left out where that is asked for."""
    name = str(path)
    for number, line in enumerate(reading.lines(path), start=1):
        where = SourceLocation(name, number)
        try:
            reading.check_valid(path, where, line)
        except DataError as error:
            reading.bad_row(where, error)
            continue
        yield where, line


def _fasttext_records(path: Path, text_column: str, label_column: str, reading: Reading) -> Iterator[Record]:
    for where, line in _numbered_lines(path, reading):
        if not line.strip():
            continue
        labels, text = fasttext_format.parse_line(line)
        if labels and not fasttext_format.is_labelled(line):
            reading.bad_row(where, DataError(f"{where}: the line has no label at its beginning, where labels stand"))
            continue
        yield where, {text_column: text, label_column: labels[0] if len(labels) == 1 else labels}


def _jsonl_records(path: Path, columns: Sequence[str], reading: Reading) -> Iterator[Record]:
    for where, line in _numbered_lines(path, reading):
        if not line.strip():
            continue
        try:
            record = _json_object(where, _parsed(where, line, hint=f"; {SKIP}"), columns)
        except DataError as error:
            reading.bad_row(where, error)
            continue
        yield where, record


def _json_records(path: Path, columns: Sequence[str], reading: Reading) -> Iterator[Record]:
    """The objects of an array, each with its number; of a file that does not begin as one, of its lines."""
    name, first = str(path), next((line for line in reading.lines(path) if line.strip()), "")
    if not first.lstrip().startswith("["):
        yield from _jsonl_records(path, columns, reading)
        return
    content = "".join(reading.lines(path))
    reading.check_valid(path, SourceLocation(name), content)
    for number, found in enumerate(_parsed(path, content), start=1):
        where = SourceLocation(name, number)
        try:
            record = _json_object(where, found, columns)
        except DataError as error:
            reading.bad_row(where, error)
            continue
        yield where, record


def _parsed(where: SourceLocation | Path, text: str, *, hint: str = "") -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON: {error}{hint}") from None


def _json_object(where: SourceLocation, record: Any, columns: Sequence[str]) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise DataError(f"{where}: a JSON object is expected, not {kind(record)}")
    check_columns(where, list(record), columns)
    return record


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _parquet_records(path: Path, columns: Sequence[str], reading: Reading, *, all_columns: bool) -> Iterator[Record]:
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        check_columns(path, schema.names, columns)
        check_undoubled(path, schema.names, schema.names if all_columns else [*columns, "id"])
        wanted = [*columns, *({"id"} & set(schema.names) - set(columns))]
        names = class_names_in(schema.metadata)
        number, name = 0, str(path)
        for batch in file.iter_batches(batch_size=4096, columns=None if all_columns else wanted):
            for record in batch.to_pylist():
                number += 1
                where = SourceLocation(name, number)
                try:
                    named = with_class_names(record, names, where)
                except DataError as error:
                    reading.bad_row(where, error)
                    continue
                yield where, named


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file; what fails while it is read is told as bad data."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f"{path}: Parquet files need pyarrow: pip install pyarrow") from None

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # the disk's; all others are about the content, the middle two about values Python cannot hold
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path}: not a readable Parquet file: {shown(reason, limit=200)[1:-1]}") from None


def _check_single(text_columns: Sequence[str], where: Path) -> None:
    if len(text_columns) > 1:
        raise DataError(f"{where}: text files have no columns; name a single one in data.text_column")


def _check_no_group(where: Path | str, reading: Reading) -> None:
    if reading.group_column:
        raise DataError(
            f"{where}: text files have no columns, so none is called {shown(reading.group_column)}; save the data as a "
            "table, or leave groups out with data.group_column=null"
        )


def _text_file_records(
    folders: Sequence[Path], text_columns: Sequence[str], label_column: str | None, reading: Reading
) -> Iterator[Record]:
    if label_column:
        _check_single(text_columns, folders[0].parent)
    for folder in folders:
        for file in texts_of(folder):
            where = SourceLocation(str(file))
            try:
                text = "".join(reading.lines(file))
                reading.check_valid(file, where, text)
            except DataError as error:
                reading.bad_row(where, error)
                continue
            record: dict[str, Any] = {text_columns[0]: text, "id": file.name}
            yield where, record | ({label_column: folder.name} if label_column else {})
