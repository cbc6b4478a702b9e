"""Read JSON files: an object per line, or an array of objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.fields import field_names, has_field
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.data.reading.text_lines import numbered_lines
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind
from encoder_cls.system.encodings import (
    MAX_UNPACKED_JSON,
    SKIP,
    count_lines,
    is_gzipped,
    longer_than,
)


def json_line_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the object of each line."""
    for where, line in numbered_lines(path, reading):
        if not line.strip():
            continue
        try:
            record = _checked_object(where, _parsed(where, line, hint=SKIP), columns)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield where, record


def json_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the objects of an array, or the object of each line if the file is no array."""
    max_bytes = MAX_UNPACKED_JSON if is_gzipped(path) else -1
    if not _is_array(path, reading, max_bytes):
        yield from json_line_records(path, columns, reading)
        return

    # Make undecodable bytes an error even if bad rows are skipped: an array is read as a whole, so
    # to skip them would be to skip the whole array.
    strict = replace(reading, bad_rows="error")
    content = _joined(path, strict.lines(path, longest=max_bytes), max_bytes)
    for number, item in enumerate(_parsed(str(path), content), start=1):
        if reading.leaves_out_row():
            continue
        where = SourceLocation(str(path), number)
        try:
            record = _checked_object(where, item, columns)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield where, record


def _is_array(path: Path, reading: Reading, max_bytes: int) -> bool:
    """Whether the first line that is not blank begins an array."""
    for line in reading.lines(path, longest=max_bytes):
        if line.strip():
            return line.lstrip().startswith("[")
    return False


def _joined(path: Path, lines: Iterable[str], max_bytes: int) -> str:
    """Join lines; raise a DataError if they are longer than `max_bytes` (-1 for no limit)."""
    kept: list[str] = []
    length = 0
    for line in lines:
        kept.append(line)
        length += len(line)
        if 0 <= max_bytes < length:
            what = f"a packed JSON array that {longer_than(max_bytes)}"
            raise DataError(path, what, "save it as JSON lines, which are read one by one")
    return "".join(kept)


def _checked_object(where: SourceLocation, item: Any, columns: Columns) -> dict[str, Any]:
    """Check that an item is an object with all columns to read, and return it.

    A column such as `payload.body` is the field `body` of the object `payload`.
    """
    if not isinstance(item, dict):
        raise DataError(where, f"a JSON object is expected, not {kind(item)}")
    if not all(has_field(item, column) for column in columns.named):
        columns.check_present(where, field_names(item))
    return item


def _parsed(where: str, text: str, *, hint: str = "") -> Any:
    """Parse JSON; raise a DataError with a hint if it is not valid."""
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"not valid JSON: {error}", hint) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary of pairs; raise a ValueError if two pairs have the same key."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


JSON_LINES = Format(
    ending=".jsonl",
    records=json_line_records,
    count_rows=count_lines,
    may_be_gzipped=True,
)
JSON = Format(
    ending=".json",
    records=json_records,
    may_be_gzipped=True,
)
