"""Read JSON files: an object per line, or an array of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.data.reading.text_lines import numbered_lines
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind
from encoder_cls.system.encodings import (
    LONGEST_LINE,
    MAX_UNPACKED_JSON,
    SKIP,
    count_lines,
    is_gzipped,
    longer_than,
)
from encoder_cls.system.fields import has_field


def json_line_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the object of each line."""
    for where, line in numbered_lines(path, reading):
        if not line.strip():
            continue
        try:
            record = _checked_object(where, _parsed(where, line), columns)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield where, record


def json_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read an array of objects, or the object of each line if the file has none, or is a pipe."""
    max_bytes = MAX_UNPACKED_JSON if is_gzipped(path) else -1
    # Do not look for an array in a pipe, since it can be read only once.
    if not path.is_file() or not _is_array(path, reading, max_bytes):
        yield from json_line_records(path, columns, reading)
        return

    # Make undecodable bytes an error even if bad rows are skipped: an array is often one line, so
    # to skip them would be to skip the whole array.
    strict = replace(reading, options=replace(reading.options, bad_rows="error"))
    for where, item in _array_items(path, strict.lines(path, longest=max_bytes)):
        if reading.leaves_out_row():
            continue
        try:
            record = _checked_object(where, item, columns)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield where, record


def _is_array(path: Path, reading: Reading, max_bytes: int) -> bool:
    for line in reading.lines(path, longest=max_bytes):
        if line.strip():
            return line.lstrip().startswith("[")
    return False


_BLANKS = re.compile(r"[ \t\r\n]*")
# The number of characters of an array that are read at once.
BLOCK_CHARACTERS = 1 << 16


class _UnparsedText:
    """A text read block by block, and the position up to which it is parsed."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._blocks = _blocks(lines)
        self.text = ""
        self.position = 0

    def read_on(self) -> bool:
        """Forget what has been parsed, and double the rest; False at the end of the text."""
        parts = [self.text[self.position :]]
        missing = max(len(parts[0]), BLOCK_CHARACTERS)
        for block in self._blocks:
            parts.append(block)
            missing -= len(block)
            if missing <= 0:
                break

        self.text = "".join(parts)
        self.position = 0
        return len(parts) > 1

    def next_character(self) -> str:
        while True:
            blanks = _BLANKS.match(self.text, self.position)
            assert blanks
            self.position = blanks.end()
            if self.position < len(self.text):
                return self.text[self.position]
            if not self.read_on():
                return ""


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for start in range(0, len(line), BLOCK_CHARACTERS):
            yield line[start : start + BLOCK_CHARACTERS]


def _array_items(path: Path, lines: Iterable[str]) -> Iterator[tuple[SourceLocation, Any]]:
    """Parse items one by one, since all may need far more memory than the text."""
    text = _UnparsedText(lines)
    text.next_character()
    text.position += 1

    separator = ","
    if text.next_character() == "]":
        separator = "]"
        text.position += 1

    number = 0
    while separator == ",":
        number += 1
        where = SourceLocation(str(path), number)
        yield where, _next_item(where, text)

        separator = text.next_character()
        text.position += 1
        if separator not in {",", "]"}:
            raise DataError(where, "not valid JSON: no ',' or ']' after the object")

    if text.next_character():
        raise DataError(path, "not valid JSON: there is something after the array")


def _next_item(where: SourceLocation, text: _UnparsedText) -> Any:
    text.next_character()
    while True:
        try:
            item, end = _DECODER.raw_decode(text.text, text.position)
        except json.JSONDecodeError as error:
            reason = error.msg
            # The longest word of JSON in which the text may end is `-Infinity`.
            is_cut = "Unterminated" in reason or error.pos + len("-Infinity") >= len(text.text)
        except (ValueError, RecursionError) as error:
            reason = str(error)
            is_cut = False
        else:
            text.position = end
            return item

        if is_cut and len(text.text) - text.position >= LONGEST_LINE:
            raise DataError(where, f"the object {longer_than(LONGEST_LINE)}")
        if not is_cut or not text.read_on():
            raise DataError(where, f"not valid JSON: {reason}")


def _checked_object(where: SourceLocation, item: Any, columns: Columns) -> dict[str, Any]:
    """Check that an item is an object with all columns to read, such as `payload.body`.

    It may lack features: many programs leave out what is null.
    """
    if not isinstance(item, dict):
        raise DataError(where, f"a JSON object is expected, not {kind(item)}")
    if not all(has_field(item, column) for column in columns.named):
        columns.without_features.check_present(where, columns.found_in(item))
    return item


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"not valid JSON: {error}", SKIP) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_without_doubles)


JSON_LINES = Format(
    ending=".jsonl",
    records=json_line_records,
    count_rows=count_lines,
    may_be_gzipped=True,
    may_lack_features=True,
)
JSON = Format(
    ending=".json",
    records=json_records,
    may_be_gzipped=True,
    may_lack_features=True,
)
