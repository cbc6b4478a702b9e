"""Read the labelled rows of a source, with their labels as they are written."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import NO_TEXTS, Unlabelled
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import DiskBackedLocations, SourceLocation
from encoder_cls.data.reading.reading import LeftOut, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.data.text_groups import NO_GROUP, group_number
from encoder_cls.errors import DataError, NoRowsError
from encoder_cls.system.disk_arrays import DiskBackedArray
from encoder_cls.system.display import counted, listed
from encoder_cls.system.fields import is_empty
from encoder_cls.system.lazy_sequences import DiskBackedTexts, in_chunks
from encoder_cls.system.row_text import plain_text


@dataclass(frozen=True)
class LabelledRows:
    """The labelled rows of a source.

    Attributes:
        labels: each label, with the location of its first row.
        numbers: the labels of all rows, in order, as indices into `labels`; after
            `Classes.numbered`, into `Classes.every`.
        counts: the number of labels of each row.
        groups: the number of the group of each row; None without `data.group_column`.
        weights: of rows, above 0; None if no row has one.
        first_multi_label_row: with a list, or several labels on a fastText line.
        empty: rows of train with an empty label.
    """

    texts: DiskBackedTexts
    where: DiskBackedLocations
    labels: Mapping[str, SourceLocation]
    numbers: NDArray[np.integer[Any]]
    counts: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    weights: NDArray[np.float32] | None
    first_multi_label_row: SourceLocation | None
    empty: LeftOut

    def divided(self) -> tuple[LabelledRows, Unlabelled]:
        """Divide the rows into those with labels and the texts of the others."""
        rows = np.flatnonzero(self.counts)
        others = np.flatnonzero(self.counts == 0)
        if not len(others):
            return self, NO_TEXTS

        groups = self.groups
        if groups is not None:
            groups = groups[rows]
        weights = self.weights
        if weights is not None:
            weights = weights[rows]
        labelled = replace(
            self,
            texts=self.texts.select(rows),
            where=self.where.select(rows),
            counts=self.counts[rows],
            groups=groups,
            weights=weights,
        )
        unlabelled = Unlabelled(texts=self.texts.select(others), where=self.where.select(others))
        return labelled, unlabelled

    def with_numbers(self, new_numbers: Mapping[int, Sequence[int]]) -> LabelledRows:
        """Give these rows other labels, as indices like `numbers`."""
        if not new_numbers:
            return self

        # Join the labels of the other rows, as they are, and those of the changed rows.
        ends = np.cumsum(self.counts)
        counts = self.counts.copy()
        parts = []
        next_start = 0
        for row in sorted(new_numbers):
            parts.append(self.numbers[next_start : ends[row] - self.counts[row]])
            parts.append(np.array(new_numbers[row], dtype=self.numbers.dtype))
            counts[row] = len(new_numbers[row])
            next_start = ends[row]
        parts.append(self.numbers[next_start:])
        return replace(self, numbers=np.concatenate(parts), counts=counts)


def read_labelled(source: str, role: str, config: DataConfig, reading: Reading) -> LabelledRows:
    """Read a source whose rows have labels."""
    weight_column = None
    if role == "train":
        weight_column = config.weight_column
    columns = Columns(
        config.text_column,
        config.label_column,
        config.group_column,
        weight_column,
        features=config.features,
    )
    rows = read_rows(source, columns, reading, role=role)

    # Rows of train may lack a label if the classes are named. If they are not named, let empty
    # labels pass here, too, unless bad rows are skipped: a later error counts all of them.
    skips_bad_rows = reading.options.skips_bad_rows
    may_have_none = role == "train" and (config.label_names is not None or not skips_bad_rows)
    return collect_labelled(rows, source, config, reading, may_have_none=may_have_none)


def collect_labelled(
    rows: Iterable[Row],
    source: str,
    config: DataConfig,
    reading: Reading,
    *,
    may_have_none: bool,
) -> LabelledRows:
    """Collect rows with a text, whose labels may be empty only if `may_have_none`.

    Raises:
        DataError: a row is not valid, or too many, or all, have no text.
    """
    texts = DiskBackedTexts()
    where = DiskBackedLocations()
    numbers = DiskBackedArray(np.int32)
    counts = DiskBackedArray(np.int64)
    groups = DiskBackedArray(np.int64)
    weights = DiskBackedArray(np.float32)
    has_weights = False

    # The first location of each label, and its index.
    locations: dict[str, SourceLocation] = {}
    indices: dict[str, int] = {}
    first_multi_label_row: SourceLocation | None = None
    empty = LeftOut()

    # The first location of each label of a row without a text, or of weight 0.
    left_out: dict[str, SourceLocation] = {}
    rows_with_text = _rows_with_text(rows, config, reading, left_out, may_have_none=may_have_none)
    for chunk in in_chunks(rows_with_text):
        chunk_numbers = []
        for row, labels in chunk:
            # With a label separator, an empty cell is a list of no labels, and no missing label.
            if is_empty(row.label) and (row.label is None or config.label_separator is None):
                empty.add(row.where)
            if first_multi_label_row is None and isinstance(row.label, list):
                first_multi_label_row = row.where
            for label in labels:
                locations.setdefault(label, row.where)
                chunk_numbers.append(indices.setdefault(label, len(indices)))

        numbers.append(chunk_numbers)
        counts.append([len(labels) for _, labels in chunk])
        groups.append([_group_of(row) for row, _ in chunk])
        weights.append([1.0 if row.weight is None else row.weight for row, _ in chunk])
        has_weights = has_weights or any(row.weight is not None for row, _ in chunk)
        texts.append([row.text for row, _ in chunk])
        where.append([row.where for row, _ in chunk])

    _check_left_out(source, len(texts), config, reading)
    _warn_of_lost_labels(source, left_out.keys() - locations.keys(), left_out, reading)
    return LabelledRows(
        texts=texts,
        where=where,
        labels=locations,
        numbers=numbers.array(),
        counts=counts.array(),
        groups=groups.array() if config.group_column else None,
        weights=weights.array() if has_weights else None,
        first_multi_label_row=first_multi_label_row,
        empty=empty,
    )


def _group_of(row: Row) -> int:
    if row.group is None:
        return NO_GROUP
    return group_number(row.group)


def _rows_with_text(
    rows: Iterable[Row],
    config: DataConfig,
    reading: Reading,
    left_out: dict[str, SourceLocation],
    *,
    may_have_none: bool,
) -> Iterator[tuple[Row, list[str]]]:
    """Rows with a text and a weight above 0; labels of the others are added to `left_out`."""
    for row in rows:
        if row.weight == 0 or not plain_text(row.text).strip():
            notes = reading.notes
            reasons = notes.weightless if row.weight == 0 else notes.empty
            reasons.add(row.where)
            with suppress(DataError):
                for label in row.labels(config.label_separator):
                    left_out.setdefault(label, row.where)
            continue
        try:
            labels = row.labels(config.label_separator, may_be_empty=may_have_none)
            _check_is_unicode(row, labels)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield row, labels


def _warn_of_lost_labels(
    source: str,
    lost: Collection[str],
    left_out: Mapping[str, SourceLocation],
    reading: Reading,
) -> None:
    labels = [label for label in left_out if label in lost]
    if labels:
        reading.note(
            f"warning: labels of {source} whose rows are all left out, because they have no text "
            f"or the weight 0: {len(labels):,} ({listed(labels)}, the first at "
            f"{left_out[labels[0]]})"
        )


def _check_is_unicode(row: Row, labels: Sequence[str]) -> None:
    for name, values in (("text", [row.text]), ("label", labels)):
        for value in values:
            if value.isascii():
                continue
            try:
                value.encode()
            except UnicodeEncodeError as error:
                what = f"the {name} holds half of a surrogate pair at character {error.start}"
                raise DataError(row.where, what) from None


# With data.empty_texts=auto, one row without a text is left out for each 100 rows.
ROWS_OF_AN_EMPTY_TEXT = 100


def _check_left_out(source: str, num_texts: int, config: DataConfig, reading: Reading) -> None:
    weightless = reading.notes.weightless
    if weightless.count:
        reading.note(f"{source}: left out {counted(weightless.count, 'row')} of weight 0")

    empty = reading.notes.empty
    skipped = reading.notes.skipped
    total = empty.count + num_texts

    if config.empty_texts == "auto":
        max_empty = math.ceil(total / ROWS_OF_AN_EMPTY_TEXT)
    elif config.empty_texts == "drop":
        max_empty = total
    else:
        max_empty = 0
    if empty.count > max_empty:
        what = "the text is empty"
        if empty.count > 1:
            what += f", as in {empty.count:,} of {total:,} rows ({empty.locations})"
        hint = "correct the file, or leave such rows out with data.empty_texts=drop"
        raise DataError(empty.first[0], what, hint)

    if not num_texts:
        what = "no rows with a text"
        if skipped.count:
            left_out = counted(skipped.count, "row")
            what += f" ({left_out} left out; {skipped.first[0]}: {skipped.reason})"
        if skipped.count or empty.count:
            raise DataError(source, what)
        raise NoRowsError(source, what)
