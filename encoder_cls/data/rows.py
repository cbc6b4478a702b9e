"""Rows with their locations, and how they are read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.encodings import UTF8, invalid_line, is_utf8, seems_utf8, text_lines, undecodable


class SourceLocation(NamedTuple):
    """Where a row was read: a file and the line, or the number, of the row in it; -1 where the file is one row."""

    file: str
    line: int = -1

    def __str__(self) -> str:
        return self.file if self.line < 0 else f"{self.file}:{self.line}"


Record = tuple[SourceLocation, dict[str, Any]]  # where it was read, and its columns


def check_columns(path: Path | SourceLocation | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Make sure that the columns that are wanted are there.

    Raises:
        DataError: one is not; the message names those that are.
    """
    missing = [column for column in wanted if column not in found]
    if missing:
        alike = [name for name in found if name.strip().lower() == missing[0].lower()]
        hint = (
            "name the right one: data.text_column, data.label_column and data.group_column in the config, "
            "--text-column in predict"
        )
        if alike:
            hint = f"did you mean {shown(alike[0])}? {hint}"
        elif len(found) == 1 and (separator := next((it for it in ";|\t" if it in found[0]), None)):
            hint = f"its fields seem to be separated by {shown(separator)}, which data.delimiter can name; {hint}"
        raise DataError(
            f"{path}: no column {shown(missing[0])}; it has {', '.join(shown(name) for name in found[:20])} ({hint})"
        )


def numbered(header: Sequence[str]) -> list[str]:
    """The names of columns, each once: of equal ones, such as a spreadsheet's empty names, the later get numbers."""
    names: dict[str, None] = {}
    for name in header:
        numbers = (f"{name}.{number}" for number in count(1))
        names[name if name not in names else next(it for it in numbers if it not in names and it not in header)] = None
    return list(names)


def check_undoubled(where: Path | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Make sure that no wanted column is there twice: nobody knows which of the two is meant.

    Raises:
        DataError: one is.
    """
    doubled = next((name for name in wanted if found.count(name) > 1), None)
    if doubled is not None:
        raise DataError(f"{where}: two columns are called {shown(doubled)}")


def group_named(where: SourceLocation, value: Any) -> str | None:
    """A group as text, whatever type a format has for it; none where the cell is empty.

    Raises:
        DataError: the value is none.
    """
    if isinstance(value, dict | list):
        raise DataError(f"{where}: the group is {kind(value)}; a name or a number is expected (data.group_column)")
    if isinstance(value, float):  # as tables have whole numbers where cells are empty
        value = None if math.isnan(value) else int(value) if value.is_integer() else value
    return None if value is None or value == "" else str(value)


def class_names_in(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names that the `datasets` library keeps in a Parquet file beside integer labels."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        # Of a list of labels the feature of its items is inside.
        of_items = {column: feature.get("feature") or feature for column, feature in features.items()}
        return {column: list(feature["names"]) for column, feature in of_items.items() if "names" in feature}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def with_class_names(record: dict[str, Any], names: dict[str, list[str]], where: SourceLocation) -> dict[str, Any]:
    """A record in which integers, or those of a list, are replaced by the class names that its data set has for them.

    Raises:
        DataError: an integer has no name.
    """
    for column in names.keys() & record.keys():
        found = record[column]
        for label in found if isinstance(found, list) else [found]:
            if not isinstance(label, int) or not 0 <= label < len(names[column]):
                raise DataError(
                    f"{where}: label {label} of column {shown(column)} has no name: is this split unlabelled?"
                )
        of_column = names[column]
        record[column] = [of_column[it] for it in found] if isinstance(found, list) else of_column[found]
    return record


SHOWN_ROWS = 3
SKIP = "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"


class SkippedRows(NamedTuple):
    """Rows that were left out since they cannot be read: where the first are, and what is wrong with the first."""

    num_rows: int = 0
    first: tuple[str, ...] = ()
    reason: str = ""

    def warning(self, of: str) -> Iterator[str]:
        """A sentence about those of a split or a source, if there are any."""
        if self.num_rows:
            locations = ", ".join(self.first) + (", …" if self.num_rows > len(self.first) else "")
            yield (
                f"rows of {of} that cannot be read, which are left out: {self.num_rows:,} ({locations}); the first: "
                f"{self.reason}"
            )


NONE_SKIPPED = SkippedRows()


class Reading:
    """How files are read, and what came up.

    Args:
        delimiter: what separates the fields of a table, `data.delimiter`; none: what is usual for its ending.
        encoding: of text files, `data.encoding`.
        is_sure: whether the encoding was asked for; else a file that seems to be UTF-8 is read as that.
        bad_rows: `error`, or `skip` for rows that cannot be read to be left out and counted.
        group_column: the column that says which rows belong together, `data.group_column`; none: there is none.
        tell: told what a person should know of how a file is read.

    Attributes:
        skipped: the rows that have been left out.
        notes: what has been told.
    """

    def __init__(
        self,
        *,
        delimiter: str | None = None,
        encoding: str = UTF8,
        is_sure: bool = True,
        bad_rows: str = "error",
        group_column: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.delimiter = delimiter
        self.encoding = encoding
        self._is_sure = is_sure
        self.skips = bad_rows == "skip"
        self.group_column = group_column
        self.skipped = NONE_SKIPPED
        self.notes: list[str] = []
        self._tell = tell

    def tell(self, message: str) -> None:
        """Tell a person how a file is read, once."""
        if message not in self.notes:
            self.notes.append(message)
            self._tell(message)

    def bad_row(self, where: SourceLocation | str, error: DataError) -> None:
        """A row that cannot be read, which is left out if that is asked for.

        Raises:
            DataError: the error, if it is not.
        """
        if not self.skips:
            raise error
        count, first, reason = self.skipped
        first += (str(where),) if count < SHOWN_ROWS else ()
        self.skipped = SkippedRows(
            count + 1, first, reason or str(error).removeprefix(f"{where}: ").removesuffix(f"; {SKIP}")
        )

    def lines(self, path: Path) -> Iterator[str]:
        """The lines of a text file; where bad rows are skipped, bytes that are not valid are kept: see `check_valid`.

        Raises:
            DataError: as `text_lines`.
        """
        encoding = self.encoding
        if not is_utf8(encoding) and seems_utf8(path):
            if self._is_sure:
                self.tell(
                    f"warning: {path}: is read as {encoding} (data.encoding), but seems to be UTF-8; "
                    "--set data.encoding=utf-8 reads it so"
                )
            else:
                self.tell(f"{path}: read as UTF-8, which it seems to be, not as {encoding} as in training")
                encoding = UTF8
        try:
            yield from text_lines(path, encoding, keep_invalid=self.skips)
        except DataError as error:
            if ", as other lines are; " in str(error):
                raise DataError(f"{error}, or {SKIP}") from None
            raise

    def check_valid(self, path: Path, where: SourceLocation, text: str) -> None:
        """Make sure that a row has no bytes that are not valid.

        Raises:
            DataError: it has.
        """
        line = invalid_line(text) if self.skips else None
        if line is None:
            return
        if self.skipped.num_rows:  # it is counted, and what is wrong with it is not told
            raise DataError(f"{where}: not {self.encoding} text")
        _refuse(path, where, line, self.encoding)


def _refuse(path: Path, where: SourceLocation, line: bytes, encoding: str) -> NoReturn:
    start = 0
    if is_utf8(encoding):
        try:
            line.decode(UTF8)
        except UnicodeDecodeError as error:
            start = error.start
    raise DataError(f"{where}: {undecodable(path, line, start, encoding)}")
