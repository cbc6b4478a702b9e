"""Files, folders, globs and Hub data sets in, rows out, each with its location.

Every reader is strict: a text is passed on exactly as it stands in the file, or the row is refused with
its location (file:line). Nothing is guessed, coerced or skipped in silence.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data import fasttext_format
from encoder_cls.data.hub import hub_records
from encoder_cls.data.named_files import FASTTEXT, class_folders, data_files, texts_of
from encoder_cls.data.records import Record, SourceLocation, check_columns, check_undoubled, with_class_names
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.installed import check_installed

SHOWN_LABELS = 5
LONGEST_FIELD = 2**31 - 1  # of a CSV file; the most that a C long holds on every system


class Row(NamedTuple):
    """One row of a source, unchanged."""

    text: str
    label: str | int | None
    id: str | int | None
    where: SourceLocation


def read_rows(source: str, *, role: str, text_columns: Sequence[str], label_column: str | None) -> Iterator[Row]:
    """Read a source row by row.

    Args:
        source: what `DataConfig.train` describes.
        role: train, validation or test: the split taken from a Hub data set that is named without one.
        text_columns: the columns whose texts, joined by a space, are the text.
        label_column: the column with the class; none where the rows have no labels: then each line of a `.txt` file is
            a text, else these files are fastText's.

    Raises:
        ConfigError: a library that the format needs is not installed.
        DataError: with file and line.
    """
    for where, record in _records(source, role, text_columns, label_column, False):
        yield _row(where, record, text_columns, label_column)


def read_rows_and_columns(source: str, *, text_columns: Sequence[str]) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Read a source without labels row by row, each with all the columns that its file has; else as `read_rows`."""
    for where, record in _records(source, "test", text_columns, None, True):
        yield _row(where, record, text_columns, None), record


def _row(where: SourceLocation, record: dict[str, Any], text_columns: Sequence[str], label_column: str | None) -> Row:
    texts = [record[column] for column in text_columns if column in record]  # text files have but the first
    for column, text in zip(text_columns, texts, strict=False):
        if not isinstance(text, str):
            raise DataError(f"{where}: column {shown(column)} holds {kind(text)} where a text is expected")
    label = record[label_column] if label_column else None
    number = record.get("id")
    return Row(" ".join(texts), label, number if isinstance(number, str | int | None) else str(number), where)


def column_names(path: Path) -> list[str]:
    """The columns that a file has, whatever its rows hold, in order; none of formats that do not say.

    Raises:
        DataError: the file is missing or malformed.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            with _open_parquet(path) as file:
                return list(file.schema_arrow.names)
        if suffix in {".csv", ".tsv"}:
            _, header = next(_csv_rows(path) if suffix == ".csv" else _tsv_rows(path), (1, []))
            return _numbered(header)
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None
    return []


def _records(
    source: str, role: str, text_columns: Sequence[str], label_column: str | None, all_columns: bool
) -> Iterator[Record]:
    columns = [*text_columns, *([label_column] if label_column else [])]
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "hub":
        yield from hub_records(rest, role, columns, all_columns=all_columns)
        return
    if colon and scheme == "example":
        source = str(Path(__file__).parent / "example" / f"{rest}.csv")
    location: Path | str = source
    tables = {".csv": _csv_records, ".tsv": _tsv_records, ".jsonl": _jsonl_records, ".parquet": _parquet_records}
    try:
        folders = class_folders(Path(source), is_labelled=label_column is not None)
        if folders:
            yield from _text_file_records(folders, text_columns, label_column)
            return
        files = data_files(source, is_labelled=label_column is not None)
        for file in files:  # before any row: what a later file needs is told of first
            if file.suffix.lower() == ".parquet":
                check_installed("pyarrow", needed_by=str(file))
        for file in files:
            location = file
            suffix = file.suffix.lower()
            if suffix in tables:
                yield from tables[suffix](file, columns, all_columns)
            elif label_column is not None:
                _check_single(text_columns, file)
                yield from _fasttext_records(file, text_columns[0], label_column)
            else:
                yield from _line_records(file, text_columns[0], has_labels=suffix == FASTTEXT)
    except OSError as error:
        raise DataError(f"{error.filename or location}: cannot be read: {error.strerror or error}") from None


def _text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without the mark that Excel puts first; ends are kept."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 text (byte {error.start} of the line); save the file as UTF-8"
                ) from None
            yield text


def _table_records(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: Sequence[str], all_columns: bool
) -> Iterator[Record]:
    """Rows of strings, the first being the header, as records; each must have as many fields."""
    _, header = next(rows, (1, []))
    if not header:
        raise DataError(f"{path}: the file is empty")
    check_columns(path, header, columns)
    check_undoubled(f"{path}:1", header, [*columns, "id"])
    names = _numbered(header) if all_columns else header
    name = str(path)
    for line, fields in rows:
        if not fields and len(header) > 1:
            continue  # an empty line
        values = fields or [""]
        if len(values) != len(header):
            raise DataError(f"{path}:{line}: {len(values)} fields where the header has {len(header)}")
        yield SourceLocation(name, line), dict(zip(names, values, strict=True))


def _numbered(header: Sequence[str]) -> list[str]:
    """The names of columns, each once: of equal ones, such as a spreadsheet's empty names, the later get numbers."""
    names: dict[str, None] = {}
    for name in header:
        numbers = (f"{name}.{number}" for number in count(1))
        names[name if name not in names else next(it for it in numbers if it not in names and it not in header)] = None
    return list(names)


def _csv_records(path: Path, columns: Sequence[str], all_columns: bool) -> Iterator[Record]:
    yield from _table_records(path, _csv_rows(path), columns, all_columns)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, and the line on which it begins."""
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(_text_lines(path), strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            hint = "a carriage return without a line feed" if "new-line" in str(error) else f"{error}"
            raise DataError(f"{path}:{first_line}: not valid CSV: {hint} (is a quote left open?)") from None
        yield first_line, fields


def _tsv_records(path: Path, columns: Sequence[str], all_columns: bool) -> Iterator[Record]:
    yield from _table_records(path, _tsv_rows(path), columns, all_columns)


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Tab-separated values have no quoting: a quote is a character like any other."""
    lines = (line.removesuffix("\n").removesuffix("\r") for line in _text_lines(path))
    yield from ((number, line.split("\t") if line else []) for number, line in enumerate(lines, start=1))


def _line_records(path: Path, text_column: str, *, has_labels: bool) -> Iterator[Record]:
    """Each line as a text, the blank ones too, so that answers keep to their lines; of fastText's no labels."""
    name = str(path)
    for number, line in enumerate(_text_lines(path), start=1):
        text = fasttext_format.parse_line(line).text if has_labels else line.removesuffix("\n").removesuffix("\r")
        yield SourceLocation(name, number), {text_column: text}


def _fasttext_records(path: Path, text_column: str, label_column: str) -> Iterator[Record]:
    name = str(path)
    for number, line in enumerate(_text_lines(path), start=1):
        if not line.strip():
            continue
        where = SourceLocation(name, number)
        if not fasttext_format.is_labelled(line):
            raise DataError(
                f"{where}: the line has no label; labelled .txt and .ft files are fastText's, each line beginning with "
                "__label__ (or put each text in a file in a folder of its class, or save a CSV file)"
            )
        labels, text = fasttext_format.parse_line(line)
        if len(labels) > 1:
            several = ", ".join(map(shown, labels[:SHOWN_LABELS])) + (", …" if len(labels) > SHOWN_LABELS else "")
            raise DataError(f"{where}: the line has several labels ({several}); a text has one label: leave one")
        yield where, {text_column: text, label_column: labels[0]}


def _jsonl_records(path: Path, columns: Sequence[str], _all_columns: bool) -> Iterator[Record]:
    name = str(path)
    for number, line in enumerate(_text_lines(path), start=1):
        if not line.strip():
            continue
        where = SourceLocation(name, number)
        try:
            record = json.loads(line, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{where}: a JSON object is expected, not {kind(record)}")
        check_columns(where, list(record), columns)
        yield where, record


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _parquet_records(path: Path, columns: Sequence[str], all_columns: bool) -> Iterator[Record]:
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        check_columns(path, schema.names, columns)
        check_undoubled(path, schema.names, schema.names if all_columns else [*columns, "id"])
        wanted = [*columns, *({"id"} & set(schema.names) - set(columns))]
        names = _class_label_names(schema.metadata)
        number, name = 0, str(path)
        for batch in file.iter_batches(batch_size=4096, columns=None if all_columns else wanted):
            for record in batch.to_pylist():
                number += 1
                where = SourceLocation(name, number)
                yield where, with_class_names(record, names, where)


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


def _class_label_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names that the `datasets` library keeps in a Parquet file beside integer labels."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {column: list(feature["names"]) for column, feature in features.items() if "names" in feature}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _check_single(text_columns: Sequence[str], where: Path) -> None:
    if len(text_columns) > 1:
        raise DataError(f"{where}: text files have no columns; name a single one in data.text_column")


def _text_file_records(
    folders: Sequence[Path], text_columns: Sequence[str], label_column: str | None
) -> Iterator[Record]:
    if label_column:
        _check_single(text_columns, folders[0].parent)
    for folder in folders:
        for file in texts_of(folder):
            record: dict[str, Any] = {text_columns[0]: "".join(_text_lines(file)), "id": file.name}
            yield SourceLocation(str(file)), record | ({label_column: folder.name} if label_column else {})
