"""The labelled rows of a source, with their labels as they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import NO_TEXTS, Unlabelled
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import DiskBackedLocations, SourceLocation
from encoder_cls.data.reading.options import LeftOut, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.data.text_groups import NO_GROUP, group_number
from encoder_cls.errors import DataError, NoRowsError
from encoder_cls.system.disk_arrays import DiskBackedArray
from encoder_cls.system.display import kind
from encoder_cls.system.lazy_sequences import DiskBackedTexts, in_chunks

# With data.empty_texts=auto, one row without a text in so many is left out.
ROWS_OF_AN_EMPTY_TEXT = 100


@dataclass(frozen=True)
class LabelledRows:
    """The labelled rows of a source.

    Attributes:
        texts: the texts.
        where: the locations.
        labels: the first location of each label, an integer as its digits.
        numbers: the labels of all rows in turn: indices into `labels`, later into `Classes.every`.
        counts: how many labels each row has, (rows,).
        groups: the number of the group of each row, (rows,), where `data.group_column` names them.
        first_multi_label_row: the first row with labels in a list, or with several labels on a
            fastText line; None if there is no such row.
        empty: rows of train with an empty label.
    """

    texts: DiskBackedTexts
    where: DiskBackedLocations
    labels: Mapping[str, SourceLocation]
    numbers: NDArray[np.integer[Any]]
    counts: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    first_multi_label_row: SourceLocation | None
    empty: LeftOut

    def divided(self) -> tuple[LabelledRows, Unlabelled]:
        """Separate the rows that have a label from the texts of the others."""
        rows = np.flatnonzero(self.counts)
        others = np.flatnonzero(self.counts == 0)
        if not len(others):
            return self, NO_TEXTS

        groups = self.groups
        if groups is not None:
            groups = groups[rows]
        labelled = replace(
            self,
            texts=self.texts.select(rows),
            where=self.where.select(rows),
            counts=self.counts[rows],
            groups=groups,
        )
        unlabelled = Unlabelled(texts=self.texts.select(others), where=self.where.select(others))
        return labelled, unlabelled


def read_labelled(source: str, role: str, config: DataConfig, reading: Reading) -> LabelledRows:
    """Read a source whose rows have labels."""
    columns = Columns(config.text_column, config.label_column, config.group_column)
    rows = read_rows(source, columns, reading, role=role)

    # Without names of classes, empty labels of train are counted for one error about all of them.
    may_have_none = role == "train" and (config.label_names is not None or not reading.skips)
    return collect_labelled(rows, source, config, reading, may_have_none=may_have_none)


def collect_labelled(
    rows: Iterable[Row],
    source: str,
    config: DataConfig,
    reading: Reading,
    *,
    may_have_none: bool = False,
) -> LabelledRows:
    """Collect the rows that have a text; with `may_have_none` a label may be empty."""
    texts = DiskBackedTexts()
    where = DiskBackedLocations()
    numbers = DiskBackedArray(np.int32)
    counts = DiskBackedArray(np.int64)
    groups = DiskBackedArray(np.int64)

    # The first location, and the index of each label.
    locations: dict[str, SourceLocation] = {}
    indices: dict[str, int] = {}
    first_multi_label_row: SourceLocation | None = None
    empty = LeftOut()

    rows_with_text = _rows_with_text(rows, config, reading, may_have_none=may_have_none)
    for chunk in in_chunks(rows_with_text):
        chunk_numbers = []
        for row, labels in chunk:
            # Where a cell may have several labels, an empty one has none.
            if _is_empty(row.label) and (row.label is None or config.label_separator is None):
                empty.add(row.where)
            if first_multi_label_row is None and isinstance(row.label, list):
                first_multi_label_row = row.where
            for label in labels:
                locations.setdefault(label, row.where)
                chunk_numbers.append(indices.setdefault(label, len(indices)))

        numbers.append(chunk_numbers)
        counts.append([len(labels) for _, labels in chunk])
        groups.append([_group_of(row) for row, _ in chunk])
        texts.append([row.text for row, _ in chunk])
        where.append([row.where for row, _ in chunk])

    _check_left_out(source, len(texts), config, reading)
    return LabelledRows(
        texts=texts,
        where=where,
        labels=locations,
        numbers=numbers.array(),
        counts=counts.array(),
        groups=groups.array() if config.group_column else None,
        first_multi_label_row=first_multi_label_row,
        empty=empty,
    )


def _group_of(row: Row) -> int:
    if row.group is None:
        return NO_GROUP
    return group_number(row.group)


def _rows_with_text(
    rows: Iterable[Row], config: DataConfig, reading: Reading, *, may_have_none: bool
) -> Iterator[tuple[Row, list[str]]]:
    """Rows that have a text, with their labels."""
    for row in rows:
        if not row.text.strip():
            reading.notes.empty.add(row.where)
            continue
        try:
            labels = _labels(row, config.label_separator, may_have_none=may_have_none)
            _check_is_unicode(row, labels)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield row, labels


def _labels(row: Row, separator: str | None, *, may_have_none: bool) -> list[str]:
    """The labels of a row, each once; a `DataError` for other values."""
    # The keys of a dictionary are in order, each once.
    labels: dict[str, None] = {}
    for label in _written_labels(row.label, separator, may_have_none=may_have_none):
        if _is_empty(label):
            hint = "only in train may it be, with data.label_names"
            raise DataError(row.where, "the label is empty", hint)
        if isinstance(label, bool) or not isinstance(label, str | int):
            what = f"the label is {kind(label)}; a name or an integer is expected"
            raise DataError(row.where, what)
        labels[str(label)] = None
    return list(labels)


def _written_labels(cell: Any, separator: str | None, *, may_have_none: bool) -> Sequence[Any]:
    """The labels in a cell, as they are written."""
    if separator is not None and isinstance(cell, str):
        return [part.strip() for part in cell.split(separator) if part.strip()]
    if may_have_none and _is_empty(cell):
        return []
    if isinstance(cell, list | tuple):
        return [_whole(label) for label in cell]
    return [_whole(cell)]


def _check_is_unicode(row: Row, labels: Sequence[str]) -> None:
    """Raise a `DataError` for what cannot be written as UTF-8."""
    for name, values in (("text", [row.text]), ("label", labels)):
        for value in values:
            if value.isascii():
                continue
            try:
                value.encode()
            except UnicodeEncodeError as error:
                what = f"the {name} holds half of a surrogate pair at character {error.start}"
                raise DataError(row.where, what) from None


def _whole(label: Any) -> Any:
    """A whole number as an integer: columns of integers with empty cells come as floats."""
    if isinstance(label, float) and label.is_integer():
        return int(label)
    return label


def _is_empty(label: object) -> bool:
    """Whether there is no label: nothing, an empty text, or NaN, as pandas writes nothing."""
    if isinstance(label, float):
        return math.isnan(label)
    return label is None or (isinstance(label, str) and not label.strip())


def _check_left_out(source: str, num_texts: int, config: DataConfig, reading: Reading) -> None:
    """Raise a `DataError` if too many rows have no text, or no row has one."""
    empty = reading.notes.empty
    skipped = reading.notes.skipped
    total = empty.count + num_texts

    if config.empty_texts == "auto":
        most_empty = math.ceil(total / ROWS_OF_AN_EMPTY_TEXT)
    elif config.empty_texts == "drop":
        most_empty = total
    else:
        most_empty = 0
    if empty.count > most_empty:
        what = "the text is empty"
        if empty.count > 1:
            locations = str(empty).partition(" ")[2]
            what += f", as in {empty.count:,} of {total:,} rows {locations}"
        hint = "correct the file, or leave such rows out with data.empty_texts=drop"
        raise DataError(empty.first[0], what, hint)

    if not num_texts:
        what = "no rows with a text"
        if skipped.count:
            what += f" ({skipped.count:,} are left out; {skipped.first[0]}: {skipped.reason})"
        if skipped.count or empty.count:
            raise DataError(source, what)
        raise NoRowsError(source, what)
