"""Read plain text: a text per line, fastText lines with labels, or a file per text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import count_lines, ending_of

# The prefix of each label in a fastText line.
LABEL_PREFIX = "__label__"
# The characters that separate words for fastText. Other blanks, such as U+00A0, are part of a word.
_BLANKS = " \t\v\f\r\n\0"
_LABEL = re.compile(rf"(?:^|(?<=[{_BLANKS}])){LABEL_PREFIX}([^{_BLANKS}]*)")
_LATER_LABEL = re.compile(rf"[{_BLANKS}]+{LABEL_PREFIX}[^{_BLANKS}]*")
_LEADING_LABELS = re.compile(rf"^[{_BLANKS}]*(?:{LABEL_PREFIX}[^{_BLANKS}]*(?:[{_BLANKS}]+|$))+")


def numbered_lines(path: Path, reading: Reading) -> Iterator[tuple[SourceLocation, str]]:
    """The lines of a file; if bad rows are skipped, without those that cannot be decoded."""
    for number, line in enumerate(reading.lines(path), start=1):
        if reading.leaves_out_row():
            continue
        where = SourceLocation(str(path), number)
        if reading.is_valid(path, where, line):
            yield where, line


def line_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read each line as a text, without the labels of fastText lines.

    If the label column is read, each line must have labels.
    """
    if columns.label:
        _check_no_columns(path, columns)
        yield from _labelled_lines(path, columns.text[0], columns.label, reading)
        return

    # Read blank lines as texts, too, so that the predictions have the same line numbers.
    is_fasttext = ending_of(path) == FASTTEXT.ending
    for where, line in numbered_lines(path, reading):
        text = line.removesuffix("\n").removesuffix("\r")
        if is_fasttext:
            text = _without_labels(text)
        yield where, {columns.text[0]: text}


def _labelled_lines(
    path: Path, text_column: str, label_column: str, reading: Reading
) -> Iterator[Record]:
    """Read lines, in which each word with the prefix is a label, at any place."""
    for where, line in numbered_lines(path, reading):
        text = line.removesuffix("\n").removesuffix("\r")
        labels = list(dict.fromkeys(_LABEL.findall(text)))
        if labels and not line.lstrip(_BLANKS).startswith(LABEL_PREFIX):
            what = "the line has labels, but none at its beginning"
            reading.bad_row(DataError(where, what))
            continue
        if not line.strip():
            continue

        # One label is a text, several labels are a list, and no labels are an empty tuple.
        label: str | list[str] | tuple[str, ...] = ()
        if len(labels) == 1:
            label = labels[0]
        elif labels:
            label = labels
        yield where, {text_column: _without_labels(text), label_column: label}


def _without_labels(text: str) -> str:
    return _LATER_LABEL.sub("", _LEADING_LABELS.sub("", text))


def class_folder_records(
    source: Path, labelled_files: Iterable[tuple[str, Path]], columns: Columns, reading: Reading
) -> Iterator[Record]:
    """Read each file of class folders in `source` as a text."""
    _check_no_columns(source, columns)
    for label, file in labelled_files:
        if reading.leaves_out_row():
            continue
        where = SourceLocation(str(file))
        try:
            text = "".join(reading.lines(file))
        except DataError as error:
            reading.bad_row(error)
            continue
        if not reading.is_valid(file, where, text):
            continue

        record = {columns.text[0]: text, "id": file.name}
        if columns.label:
            record[columns.label] = label
        yield where, record


def _check_no_columns(where: Path, columns: Columns) -> None:
    if columns.label and len(columns.text) > 1:
        what = "text files have no columns; name a single one in data.text_column"
        raise DataError(where, what)

    other_columns = [
        ("data.group_column=null", columns.group),
        ("data.weight_column=null", columns.weight),
    ]
    if columns.label:
        other_columns += [("data.features=[]", feature) for feature in columns.features]
    for setting, column in other_columns:
        if column:
            what = f"text files have no columns, so none is called {shown(column)}"
            raise DataError(where, what, f"save the data as a table, or set {setting}")


# Each line is labels and a text.
FASTTEXT = Format(
    ending=".ft",
    records=line_records,
    count_rows=count_lines,
    has_fixed_columns=True,
    has_only_texts=True,
)
# Each line is a text; where labels are wanted, it is one of fastText's lines.
TEXT = Format(
    ending=".txt",
    records=line_records,
    count_rows=count_lines,
    has_fixed_columns=True,
    has_only_texts=True,
)
