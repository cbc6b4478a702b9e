"""Read text files: a text a line, fastText's lines with labels, JSON lines, JSON arrays, class folders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from encoder_cls.data.rows import Columns, Reading, Record, SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.encodings import SKIP, ending_of

JSON = ".json"  # an array of objects, or an object a line
FASTTEXT = ".ft"  # a label and a text a line
TEXT = ".txt"  # a text a line; where labels are wanted, fastText's lines
LABEL_PREFIX = "__label__"  # of the labels of fastText's lines
# What separates words for fastText; other blanks, such as U+00A0, are part of a word.
_BLANKS = " \t\v\f\r\n\0"
_LABEL = re.compile(rf"(?:^|(?<=[{_BLANKS}])){LABEL_PREFIX}([^{_BLANKS}]*)")
_LATER_LABEL = re.compile(rf"[{_BLANKS}]+{LABEL_PREFIX}[^{_BLANKS}]*")
_LEADING_LABELS = re.compile(rf"^[{_BLANKS}]*(?:{LABEL_PREFIX}[^{_BLANKS}]*(?:[{_BLANKS}]+|$))+")


def is_labelled(line: str) -> bool:
    """Whether the first word of a line is a label."""
    return line.lstrip(_BLANKS).startswith(LABEL_PREFIX)


def parse_line(line: str) -> tuple[list[str], str]:
    """Split a line into its labels and its text, which stays as it is but for its line end and labels in it.

    As for fastText, each word with the prefix `__label__` is a label, wherever it is in the line.
    """
    text = line.removesuffix("\n").removesuffix("\r")
    return _LABEL.findall(text), _LATER_LABEL.sub("", _LEADING_LABELS.sub("", text))


def _check_no_columns(where: Path | str, columns: Columns) -> None:
    """Raise a DataError if columns are named, since text files have none."""
    if columns.label and len(columns.text) > 1:
        raise DataError(where, "text files have no columns; name a single one in data.text_column")
    if columns.group:
        what = f"text files have no columns, so none is called {shown(columns.group)}; save the data as a table, or "
        raise DataError(where, f"{what}leave groups out with data.group_column=null")


def line_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Each line as a text; with labels, fastText's lines.

    Without labels blank lines are texts, too, so that answers keep to their lines; of a `.ft` file labels are removed.
    """
    if columns.label:
        _check_no_columns(path, columns)
    for where, line in _numbered_lines(path, reading):
        if columns.label is None:
            text = parse_line(line)[1] if ending_of(path) == FASTTEXT else line.removesuffix("\n").removesuffix("\r")
            yield where, {columns.text[0]: text}
        elif line.strip():
            labels, text = parse_line(line)
            if labels and not is_labelled(line):
                reading.bad_row(DataError(where, "the line has no label at its beginning, where labels are"))
            else:
                distinct = list(dict.fromkeys(labels))
                yield where, {columns.text[0]: text, columns.label: labels[0] if len(distinct) == 1 else distinct or ()}


def text_records(
    source: Path, files: Iterable[tuple[str, Path]], columns: Columns, reading: Reading
) -> Iterator[Record]:
    """Each file of the class folders of a source as a text, given with its label."""
    _check_no_columns(source, columns)
    for label, file in files:
        where = SourceLocation(str(file))
        try:
            text = "".join(reading.lines(file))
        except DataError as error:
            reading.bad_row(error)
            continue
        if reading.is_valid(file, where, text):
            record = {columns.text[0]: text, "id": file.name}
            yield where, record | ({columns.label: label} if columns.label else {})


def jsonl_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """The object of each line."""
    for where, line in _numbered_lines(path, reading):
        if line.strip():
            try:
                yield where, _object(where, _parsed(where, line, hint=SKIP), columns)
            except DataError as error:
                reading.bad_row(error)


def json_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """The objects of an array, with their numbers; of a file of another form, of its lines."""
    first = next((line for line in reading.lines(path) if line.strip()), "")
    if not first.lstrip().startswith("["):
        yield from jsonl_records(path, columns, reading)
        return
    strict = replace(reading, bad_rows="error")  # not to leave out the whole file
    for number, item in enumerate(_parsed(str(path), "".join(strict.lines(path))), start=1):
        where = SourceLocation(str(path), number)
        try:
            yield where, _object(where, item, columns)
        except DataError as error:
            reading.bad_row(error)


def _object(where: SourceLocation, item: Any, columns: Columns) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise DataError(where, f"a JSON object is expected, not {kind(item)}")
    columns.check_present(where, list(item))
    return item


def _parsed(where: str, text: str, *, hint: str = "") -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"not valid JSON: {error}", hint) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _numbered_lines(path: Path, reading: Reading) -> Iterator[tuple[SourceLocation, str]]:
    name = str(path)
    for number, line in enumerate(reading.lines(path), start=1):
        where = SourceLocation(name, number)
        if reading.is_valid(path, where, line):
            yield where, line
