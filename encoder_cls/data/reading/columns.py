"""The columns of a table: which to read, what they are called, and rows that repeat the header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError, MissingColumnError
from encoder_cls.system.added_columns import numbered
from encoder_cls.system.display import listed, shown
from encoder_cls.system.fields import field_names, has_field

# The number of column names that an error lists.
MAX_LISTED = 20
# The separators that a table may have if its header seems to be a single column.
OTHER_SEPARATORS = ";|\t"


class Columns(NamedTuple):
    """The columns to read, by name; a role without a column is not read.

    Attributes:
        text: several are the fields of a text.
        every: whether rows keep the values of all columns.
    """

    text: Sequence[str]
    label: str | None = None
    group: str | None = None
    weight: str | None = None
    every: bool = False
    features: Sequence[str] = ()

    @property
    def named(self) -> list[str]:
        """The columns that a source must have."""
        names = []
        for name in (*self.text, *self.features, self.label, self.group, self.weight):
            if name and name not in names:
                names.append(name)
        return names

    @property
    def without_features(self) -> Columns:
        """The same columns without the features, which a row of JSON or Python may lack."""
        return self._replace(features=())

    def to_read(self, names: Sequence[str]) -> list[str]:
        """The columns to read of a source: all, or the named ones and `id`."""
        if self.every:
            return list(names)

        wanted = self.named
        if "id" in names and "id" not in wanted:
            wanted.append("id")
        return wanted

    def found_in(self, record: Mapping[str, Any]) -> list[str]:
        """The names of the fields of a record, and of those to read that it has."""
        to_read = [name for name in self.named if has_field(record, name)]
        return list(dict.fromkeys([*field_names(record), *to_read]))

    def check_present(self, where: Path | str, names: Sequence[str]) -> None:
        """Raise a MissingColumnError if one to read is missing."""
        for column in self.named:
            if column not in names:
                hint = self._hint_for_missing(column, names)
                what = (
                    f"no column {shown(column)}; it has {listed(names, most=MAX_LISTED)} ({hint})"
                )
                raise MissingColumnError(where, column, what)

    def _hint_for_missing(self, missing: str, names: Sequence[str]) -> str:
        hint = f"name the right one with --set data.{self._use_of(missing)}_column=NAME"
        if missing in self.features:
            hint = "it is one of data.features; without a value, a cell is empty, in JSON null"
        elif self.label is None:
            # Rows without labels are read by commands such as predict.
            hint = (
                "rename the right one, or name it in predict with --text-column NAME, in a config "
                "with data.text_column"
            )

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
        if column == self.weight:
            return "weight"
        return "text"

    def checked(self, path: Path | str, header: Sequence[str], *, line: str = "") -> list[str]:
        """Check the header of a table, and return all its columns.

        If all columns are kept, repeated names are numbered; `line`, such as `:1`, is for messages.

        Raises:
            DataError: a column to read is missing, or two columns have its name.
        """
        self.check_present(path, header)

        # Two columns that are read may not have the same name. If all are read, repeated names of
        # other columns are numbered, except in a file without lines (Parquet), whose values are
        # found by name.
        distinct: Sequence[str] = [*self.named, "id"]
        if self.every and not line:
            distinct = header
        counts = Counter(header)
        for name in distinct:
            if counts[name] > 1:
                raise DataError(f"{path}{line}", f"two columns are called {shown(name)}")

        if self.every:
            return numbered(header)
        return list(header)


def repeats_header(where: SourceLocation, values: Sequence[Any], header: Sequence[str]) -> bool:
    """Whether a row repeats the header, as in files that were joined.

    A single word could be a text, unless it has the byte order mark of such a file.

    Raises:
        DataError: the row is a header with its columns in another order.
    """
    if not values or not isinstance(values[0], str):
        return False

    first = values[0].removeprefix("\ufeff")
    is_marked = first != values[0]
    if is_marked and first.startswith('"') and first.endswith('"'):
        # Remove the quotes, which the reader has kept because the mark comes before them.
        first = first[1:-1]
    # Most rows differ from the header already in this value.
    if first not in header:
        return False

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
