"""The columns of a table: those to read, their names, and headers that occur once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError, MissingColumnError
from encoder_cls.system.display import listed, shown

# The column names that an error lists.
MAX_LISTED = 20
# What may separate fields where a header looks like one column.
OTHER_SEPARATORS = ";|\t"


class Columns(NamedTuple):
    """The columns to read.

    Attributes:
        text: those of the text, whose texts are joined.
        label: that of the label; None: rows without labels.
        group: that of the group.
        every: whether rows keep all columns.
    """

    text: Sequence[str]
    label: str | None = None
    group: str | None = None
    every: bool = False

    @property
    def named(self) -> list[str]:
        """The names of the columns that must be there, each once."""
        names = []
        for name in (*self.text, self.label, self.group):
            if name and name not in names:
                names.append(name)
        return names

    def check_present(self, where: Path | str, names: Sequence[str]) -> None:
        """Raise a MissingColumnError that lists these names if a column is missing from them."""
        for column in self.named:
            if column not in names:
                hint = self._hint_for_missing(column, names)
                what = (
                    f"no column {shown(column)}; it has {listed(names, most=MAX_LISTED)} ({hint})"
                )
                raise MissingColumnError(where, column, what)

    def _hint_for_missing(self, missing: str, names: Sequence[str]) -> str:
        hint = f"name the right one with --set data.{self._use_of(missing)}_column=NAME"
        if self.label is None:
            # As in predict.
            hint = "name the right one with --text-column NAME, in a config with data.text_column"

        for name in names:
            if name.strip().lower() == missing.lower():
                return f"did you mean {shown(name)}? {hint}"

        if len(names) == 1:
            for separator in OTHER_SEPARATORS:
                if separator in names[0]:
                    separated = f"its fields seem to be separated by {shown(separator)}"
                    return f"{separated}, which data.delimiter can name; {hint}"
        return hint

    def _use_of(self, column: str) -> str:
        if column == self.label:
            return "label"
        if column == self.group:
            return "group"
        return "text"

    def checked(self, path: Path | str, header: Sequence[str], *, line: str = "") -> list[str]:
        """The names of a table's columns; with `every`, repeated ones are numbered.

        Raises:
            DataError: a wanted column is missing, or occurs twice.
        """
        self.check_present(path, header)

        wanted: Sequence[str] = [*self.named, "id"]
        if self.every and not line:
            wanted = header
        counts = Counter(header)
        for name in wanted:
            if counts[name] > 1:
                raise DataError(f"{path}{line}", f"two columns are called {shown(name)}")

        if self.every:
            return numbered(header)
        return list(header)


def numbered(header: Sequence[str]) -> list[str]:
    """Number repeated column names, such as the empty ones of a spreadsheet."""
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
    """Whether a row is the header once more, as in files that were joined.

    A single word is a header only with the byte order mark of the file that it began: it could be a
    text.

    Raises:
        DataError: it is a header with its columns in another order.
    """
    if not values or not isinstance(values[0], str):
        return False

    first = values[0].removeprefix("\ufeff")
    is_marked = first != values[0]
    if is_marked and first.startswith('"') and first.endswith('"'):
        # Quotes after the mark were not at the beginning of the field.
        first = first[1:-1]
    names = [first, *values[1:]]

    if len(names) < 2 and not is_marked:
        return False
    if names == list(header):
        return True
    if len(set(header)) == len(header) > 1 and set(names) == set(header):
        order = listed(names, most=MAX_LISTED)
        what = f"a second header, with its columns in another order ({order})"
        raise DataError(where, what, "the files that were joined here must have equal columns")
    return False
