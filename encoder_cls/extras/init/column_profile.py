"""Describe the columns of a source by what their cells hold."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from encoder_cls.system.fields import field_names, field_of, is_empty

_NUMBER = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)*%?")
# A date such as 2024-05-01, 1.5.2024 or 05/01/24, with or without a time of day.
_DATE = re.compile(
    r"(?:[0-9]{4}([-./])[0-9]{1,2}\1[0-9]{1,2}|[0-9]{1,2}([-./])[0-9]{1,2}\2[0-9]{2,4})"
    r"(?:[T ].*)?"
)
# An address, a path or another code: a single word with digits or signs inside.
_CODE = re.compile(r"(?=.*[0-9@/:_.-])\S+")


@dataclass
class ColumnProfile:
    """What a column holds, in the rows of a sample.

    Attributes:
        cells: texts or lists of texts; None for an empty cell.
        kinds: numbers of cells: text, code, number, truth value, time, list and other.
        counts: numbers of cells by value; of lists, by item.
    """

    name: str
    cells: list[str | list[str] | None] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def num_filled(self) -> int:
        """The cells that are not empty."""
        return sum(self.kinds.values())

    @property
    def kind(self) -> str:
        """The most frequent kind; empty if all cells are."""
        if not self.kinds:
            return ""
        return self.kinds.most_common(1)[0][0]

    @property
    def distinct_share(self) -> float:
        """The number of different values, as a share of filled cells."""
        return len(self.counts) / max(1, self.num_filled)

    @property
    def mean_words(self) -> float:
        """The mean number of words of a filled cell."""
        num_words = sum(len(cell.split()) for cell in self.cells if isinstance(cell, str))
        return num_words / max(1, self.num_filled)

    def add(self, value: Any) -> None:
        """Add the cell of a row."""
        if is_empty(value):
            self.cells.append(None)
            return

        kind = _kind(value)
        self.kinds[kind] += 1
        if kind == "list":
            items = [str(item) for item in value if not is_empty(item)]
            self.cells.append(items)
            self.counts.update(items)
        else:
            text = _as_text(value)
            self.cells.append(text)
            self.counts[text] += 1


def column_profiles(records: Iterable[Mapping[str, Any]]) -> list[ColumnProfile]:
    """Describe columns; objects are replaced by the fields inside."""
    profiles: dict[str, ColumnProfile] = {}
    for row, record in enumerate(records):
        for name in field_names(record):
            if name not in profiles:
                # The column is missing in all earlier rows.
                profiles[name] = ColumnProfile(name, cells=[None] * row)
            profiles[name].add(field_of(record, name))
        _fill_up(profiles.values(), row + 1)
    return list(profiles.values())


class Sample(NamedTuple):
    """Records spread over a source, and the number of all."""

    records: list[Mapping[str, Any]]
    num_rows: int


def sample_of(records: Iterable[Mapping[str, Any]], *, most: int) -> Sample:
    """Take records spread over a source of unknown length.

    Whenever the sample has `most`, an even number, every second one goes, and from there on half as
    many are taken.
    """
    sample: list[Mapping[str, Any]] = []
    stride = 1
    num_rows = 0
    for record in records:
        if num_rows % stride == 0:
            if len(sample) == most:
                sample = sample[::2]
                stride *= 2
            sample.append(record)
        num_rows += 1
    return Sample(sample, num_rows)


def _fill_up(profiles: Iterable[ColumnProfile], num_rows: int) -> None:
    for profile in profiles:
        if len(profile.cells) < num_rows:
            profile.cells.append(None)


def _as_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return _kind_of_text(value.strip())
    for kind, types in _TYPES.items():
        if isinstance(value, types):
            return kind
    return "other"


# The types of the values of each kind, beside texts. Truth values come first: they are integers.
_TYPES: dict[str, tuple[type, ...]] = {
    "truth value": (bool,),
    "number": (int, float),
    "list": (list, tuple),
    "time": (datetime.date, datetime.time, datetime.timedelta),
}


def _kind_of_text(text: str) -> str:
    if text.lower() in {"true", "false"}:
        return "truth value"
    for kind, pattern in (("number", _NUMBER), ("time", _DATE), ("code", _CODE)):
        if pattern.fullmatch(text):
            return kind
    return "text"
