"""Rows with their locations; options and notes of reading."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import DataError, MissingColumnError
from encoder_cls.system.columns import Column, in_chunks
from encoder_cls.system.disk_arrays import DiskBackedArray
from encoder_cls.system.display import kind, listed, shown
from encoder_cls.system.encodings import (
    INVALID,
    LONGEST_LINE,
    SKIP,
    UTF8,
    is_utf8,
    seems_utf8,
    text_lines,
    undecodable,
)

SHOWN_ROWS = 3


class SourceLocation(str):
    """Where a row was read: `file:line`, or the file alone where it is one row (line -1).

    `row` is its number in a spreadsheet, if known: in CSV it is not the line once a field has had a line feed.
    """

    __slots__ = ("file", "line", "row")
    file: str
    line: int
    row: int

    def __new__(cls, file: str, line: int = -1, row: int = -1) -> SourceLocation:  # noqa: D102
        self = super().__new__(cls, file if line < 0 else f"{file}:{line}")
        self.file, self.line, self.row = file, line, line if row < 0 else row
        return self


class DiskBackedLocations(Column[SourceLocation]):
    """The locations of rows: a number for the file of each, and its line."""

    def __init__(self, locations: Iterable[SourceLocation] = ()) -> None:
        self._files: dict[str, int] = {}
        self._numbers, self._lines = DiskBackedArray(np.int32), DiskBackedArray(np.int64)
        for chunk in in_chunks(locations):
            self.append(chunk)

    @classmethod
    def from_arrays(
        cls, files: Sequence[str], numbers: NDArray[np.int32], lines: NDArray[np.int64]
    ) -> Self:
        """Wrap what `arrays` returns; no location can be appended."""
        locations = cls()
        locations._files = {file: number for number, file in enumerate(files)}
        locations._numbers = DiskBackedArray.from_array(numbers)
        locations._lines = DiskBackedArray.from_array(lines)
        return locations

    def arrays(self) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64]]:
        """All files, and of each row the index of its file and its line, both (rows,)."""
        if self._rows is not None:
            return DiskBackedLocations(self).arrays()
        return list(self._files), self._numbers.array(), self._lines.array()

    def append(self, locations: Sequence[SourceLocation]) -> None:
        """Add locations at the end."""
        self._numbers.append(
            [self._files.setdefault(it.file, len(self._files)) for it in locations]
        )
        self._lines.append([it.line for it in locations])

    def _count(self) -> int:
        return len(self._lines.array())

    def _items(self, rows: NDArray[np.int64]) -> list[SourceLocation]:
        files = list(self._files)
        numbers = zip(
            self._numbers.array()[rows].tolist(), self._lines.array()[rows].tolist(), strict=True
        )
        return [SourceLocation(files[number], line) for number, line in numbers]


Record = tuple[SourceLocation, dict[str, Any]]  # a location, and the columns of its row


class Row(NamedTuple):
    """A text with its columns; one that is not from a source has no location.

    Several labels, or none of several, are a list or a tuple. The `record` has all columns, where these are wanted.
    """

    text: str
    label: str | int | Sequence[str | int] | None = None
    id: str | int | None = None
    where: SourceLocation = SourceLocation("")
    group: str | None = None
    record: dict[str, Any] | None = None


class Columns(NamedTuple):
    """The columns to read: of the text, the label (None: rows without labels) and the group; with `every`, all."""

    text: Sequence[str]
    label: str | None = None
    group: str | None = None
    every: bool = False

    @property
    def named(self) -> list[str]:
        """Each name once."""
        return list(dict.fromkeys(name for name in (*self.text, self.label, self.group) if name))

    def check_present(self, where: Path | str, names: Sequence[str]) -> None:
        """Raise a DataError that lists these names if a column is missing from them."""
        missing = next((column for column in self.named if column not in names), None)
        if missing is None:
            return
        key = "label" if missing == self.label else "group" if missing == self.group else "text"
        hint = f"name the right one with --set data.{key}_column=NAME"
        if self.label is None:  # as in predict
            hint = "name the right one with --text-column NAME, in a config with data.text_column"
        alike = next((name for name in names if name.strip().lower() == missing.lower()), None)
        if alike is not None:
            hint = f"did you mean {shown(alike)}? {hint}"
        elif len(names) == 1 and (separator := next((it for it in ";|\t" if it in names[0]), None)):
            hint = f"its fields seem to be separated by {shown(separator)}, which data.delimiter can name; {hint}"
        what = f"no column {shown(missing)}; it has {listed(names, most=20)} ({hint})"
        raise MissingColumnError(where, missing, what)

    def checked(self, path: Path | str, header: Sequence[str], *, line: str = "") -> list[str]:
        """Number the names of a table's columns; a DataError if a wanted column is missing or occurs twice."""
        self.check_present(path, header)
        wanted = header if self.every and not line else [*self.named, "id"]
        counts = Counter(header)
        doubled = next((name for name in wanted if counts[name] > 1), None)
        if doubled is not None:
            raise DataError(f"{path}{line}", f"two columns are called {shown(doubled)}")
        return numbered(header) if self.every else list(header)


def numbered(header: Sequence[str]) -> list[str]:
    """Number repeated column names, such as the empty ones of a spreadsheet, so that each occurs once."""
    taken = set(header)
    last_number: dict[str, int] = {}
    names = []
    for name in header:
        if name not in last_number:
            last_number[name] = 0
            names.append(name)
            continue

        number = last_number[name] + 1
        while f"{name}.{number}" in taken:
            number += 1
        last_number[name] = number
        taken.add(f"{name}.{number}")
        names.append(f"{name}.{number}")
    return names


def repeats_header(where: SourceLocation, values: Sequence[Any], header: Sequence[str]) -> bool:
    """Whether a row is the header once more, as in files that were joined; a `DataError` if its columns moved.

    A single word is a header only with the byte order mark of the file that it began: it could be a text.
    """
    if not values or not isinstance(values[0], str):
        return False

    first = values[0].removeprefix("\ufeff")
    is_marked = first != values[0]
    if is_marked and first.startswith('"') and first.endswith('"'):
        first = first[1:-1]  # quotes after the mark were not at the beginning of the field
    names = [first, *values[1:]]

    if len(names) < 2 and not is_marked:
        return False
    if names == list(header):
        return True
    if len(set(header)) == len(header) > 1 and set(names) == set(header):
        what = f"a second header, with its columns in another order ({listed(names, most=20)})"
        raise DataError(where, what, "the files that were joined here must have equal columns")
    return False


def group_name(where: SourceLocation, value: Any) -> str | None:
    """The value of a group column, of any type, as text; None for an empty cell."""
    if isinstance(value, dict | list):
        raise DataError(
            where, f"the group is {kind(value)}; a name or a number is expected (data.group_column)"
        )
    if isinstance(value, float):  # as tables have whole numbers where cells are empty
        value = None if math.isnan(value) else int(value) if value.is_integer() else value
    return None if value is None or value == "" else str(value)


def class_names_of(features: dict[str, Any]) -> dict[str, list[str]]:
    """The class names of columns of integer labels, by the features of a data set as `datasets` writes them."""
    # A column of lists has the names in the feature of its items.
    of_items = {column: feature.get("feature", feature) for column, feature in features.items()}
    return {
        column: list(it["names"])
        for column, it in of_items.items()
        if it.get("_type") == "ClassLabel"
    }


def with_class_names(
    record: dict[str, Any], names: dict[str, list[str]], where: SourceLocation
) -> dict[str, Any]:
    """Replace integer labels, or lists of them, by the class names of their data set."""
    for column in names.keys() & record.keys():
        of_column, value = names[column], record[column]
        for label in value if isinstance(value, list) else [value]:
            if not isinstance(label, int) or not 0 <= label < len(of_column):
                what = f"label {label} of column {shown(column)} has no name: is this split unlabelled?"
                raise DataError(where, what)
        record[column] = (
            [of_column[it] for it in value] if isinstance(value, list) else of_column[value]
        )
    return record


@dataclass
class LeftOut:
    """Rows that are left out: their number, the first locations, and the reason of the first."""

    count: int = 0
    first: list[str] = field(default_factory=list)
    reason: str = ""

    def add(self, where: str, reason: str = "") -> None:
        """Count a row."""
        self.count += 1
        self.reason = self.reason or reason
        if len(self.first) < SHOWN_ROWS:
            self.first.append(where)

    def __str__(self) -> str:
        return f"{self.count:,} ({', '.join(self.first)}{', …' if self.count > len(self.first) else ''})"


@dataclass
class Notes:
    """Notes on a source: messages, rows that cannot be read, rows without a text, and headers between rows."""

    messages: list[str] = field(default_factory=list)
    skipped: LeftOut = field(default_factory=LeftOut)
    empty: LeftOut = field(default_factory=LeftOut)
    repeated_headers: LeftOut = field(default_factory=LeftOut)

    def warnings(self, of: str) -> Iterator[str]:
        """Warn of each kind of rows that were left out."""
        if self.skipped.count:
            first = self.skipped.reason
            yield f"rows of {of} that cannot be read, which are left out: {self.skipped}; the first: {first}"
        if self.empty.count:
            yield f"rows of {of} without a text, which are left out: {self.empty}"
        if self.repeated_headers.count:
            yield f"rows of {of} that repeat the header, which are left out: {self.repeated_headers}"


@dataclass
class Reading:
    """Options for reading a source, and the notes made meanwhile."""

    delimiter: str | None = None  # of the fields of a table; None: the usual one for its ending
    encoding: str = UTF8  # of text files
    is_sure: bool = True  # if not, a file that seems to be UTF-8 is read as UTF-8
    bad_rows: str = "error"  # or `skip`, to leave out and count rows that cannot be read
    notify: Callable[[str], None] = lambda _: None  # receives each message once
    notes: Notes = field(default_factory=Notes)

    @property
    def skips(self) -> bool:
        """Whether rows that cannot be read are left out."""
        return self.bad_rows == "skip"

    def note(self, message: str) -> None:
        """Pass on a message about a file, once."""
        if message not in self.notes.messages:
            self.notes.messages.append(message)
            self.notify(message)

    def bad_row(self, error: DataError) -> None:
        """Leave out the row that an error names, or raise the error, as `bad_rows` asks for."""
        if not self.skips:
            raise error
        self.notes.skipped.add(error.where, error.what)

    def lines(self, path: Path, *, longest: int = LONGEST_LINE) -> Iterator[str]:
        """The lines of a text file; where bad rows are skipped, invalid bytes are kept for `is_valid`.

        A line of more bytes than the `longest` raises a `DataError`; -1 means no limit.
        """
        encoding = self.encoding
        if not is_utf8(encoding) and seems_utf8(path):
            if self.is_sure:
                self.note(
                    f"warning: {path}: is read as {encoding} (data.encoding), but seems to be UTF-8; "
                    "--set data.encoding=utf-8 reads it so"
                )
            else:
                self.note(
                    f"{path}: read as UTF-8, which it seems to be, not as {encoding} as in training"
                )
                encoding = UTF8
        yield from text_lines(path, encoding, keep_invalid=self.skips, longest=longest)

    def is_valid(self, path: Path, where: SourceLocation, text: str) -> bool:
        """Whether a row has no invalid bytes; else count it as a bad row."""
        invalid = INVALID.search(text) if self.skips else None
        if invalid is None:
            return True
        reason = ""
        if not self.notes.skipped.count:  # only the reason of the first is shown
            line, start = (
                text.encode("utf-8", "surrogateescape"),
                len(text[: invalid.start()].encode()),
            )
            reason = "; ".join(
                it for it in undecodable(path, line, start, self.encoding) if it != SKIP
            )
        self.notes.skipped.add(where, reason)
        return False
