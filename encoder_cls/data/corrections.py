"""Apply the labels that a person has corrected in a table of `encoder-cls review`.

A correction finds its texts by a key, a short hash: spreadsheets sort rows, cut long cells and
change line ends, and data files are moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.classes import Classes
from encoder_cls.data.key_of_text import KEY, key_of_text
from encoder_cls.data.labelled_rows import LabelledRows
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Notes, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.errors import DataError, EncodingError, MissingColumnError
from encoder_cls.system.added_columns import added_name, longest_like
from encoder_cls.system.display import listed, shown
from encoder_cls.system.encodings import WINDOWS, is_utf8
from encoder_cls.system.label_cells import (
    SEPARATORS,
    cell_separator,
    joined_labels,
    label_key,
    split_labels,
)

# The column of a table of corrections with the label that the data has.
LABEL_IN_DATA = "label_in_data"
# What stands before the name of an added column that the data has, too.
PREFIX = "review_"


class Correction(NamedTuple):
    """A correction of all texts with a key, as it is written; several labels have a separator."""

    where: SourceLocation
    key: str
    label: str


def role_columns(config: DataConfig) -> set[str]:
    """The columns of the data that training reads."""
    columns = (config.group_column, config.weight_column)
    given = {name for name in columns if name}
    return {*config.text_column, *config.features, config.label_column, *given}


def added_column(name: str, config: DataConfig, columns: Iterable[str] = ()) -> str:
    """Name a column that `encoder-cls review` adds beside those that training reads."""
    return added_name(name, {*role_columns(config), *columns}, PREFIX)


def _column_in(names: Iterable[str], name: str, config: DataConfig) -> str:
    expected = added_column(name, config)
    found = longest_like(name, names, PREFIX)
    if found is None:
        return expected
    return max(expected, found, key=len)


def read_corrections(config: DataConfig) -> tuple[list[Correction], Notes]:
    """Read the corrections, without rows whose label is still that of the data.

    Raises:
        DataError: a column is missing, or the cell of a key is empty.
    """
    reading = Reading(config.reading_options.for_other_files())
    if config.corrections is None:
        return [], reading.notes

    key_column = added_column(KEY, config)
    corrections = []
    has_rows = False
    try:
        rows, reading = _rows_of(config.corrections, config, reading)
        for row in rows:
            has_rows = True
            correction = _correction(row)
            if correction.label.strip() != _label_in_data(row, config):
                corrections.append(correction)
    except MissingColumnError as error:
        if error.column == config.label_column:
            raise
        what = f"no column {shown(key_column)}, by which corrections find their texts"
        hint = "run encoder-cls review again, which writes it"
        raise DataError(error.where, what, hint) from None

    if not has_rows:
        reading.note(
            f"warning: {config.corrections}: no rows in this file of corrections (data.corrections)"
            ", so no label is changed"
        )
    return corrections, reading.notes


def _rows_of(source: str, config: DataConfig, reading: Reading) -> tuple[list[Row], Reading]:
    """A file that is not UTF-8 is read as Windows-1252, in which Excel saves CSV.

    A wrong guess does no harm: keys are ASCII, and a label that is read wrongly is no class.
    """
    try:
        return list(_rows_in(source, config, reading)), reading
    except EncodingError as error:
        if not is_utf8(reading.options.encoding):
            raise
        utf8_error = error

    reading = Reading(ReadingOptions(delimiter=reading.options.delimiter, encoding=WINDOWS))
    try:
        rows = list(_rows_in(source, config, reading))
    except EncodingError:
        raise DataError(utf8_error.where, utf8_error.what, "save it as CSV UTF-8") from None
    reading.note(f"{source}: read as Windows-1252, since it is not UTF-8")
    return rows, reading


def _rows_in(source: str, config: DataConfig, reading: Reading) -> Iterator[Row]:
    names: list[str] = []
    for file in files_named(source)[:1]:
        if file.is_file():
            names = column_names(file, (config.label_column,), reading)
    key_column = _column_in(names, KEY, config)
    yield from read_rows(source, Columns((key_column,), config.label_column, every=True), reading)


def _correction(row: Row) -> Correction:
    key = row.text.strip()
    if not key:
        raise DataError(row.where, "the key is empty", "remove the row, or review again")

    label = "" if row.label is None else str(row.label)
    return Correction(row.where, key, label)


def _label_in_data(row: Row, config: DataConfig) -> str | None:
    record = row.record or {}
    label = record.get(_column_in(record, LABEL_IN_DATA, config))
    if label is None:
        return None
    return str(label).strip()


def with_corrections(
    rows_by_role: Mapping[str, LabelledRows],
    corrections: Sequence[Correction],
    classes: Classes,
    config: DataConfig,
    *,
    is_multi_label: bool,
) -> tuple[dict[str, LabelledRows], dict[str, str]]:
    """Correct the label of each row whose text has the key of a correction.

    In multi-label data, it gives all labels.

    Returns:
        The rows with corrected labels, by split; and the earlier label of each row that has
        changed, by its location.

    Raises:
        DataError: a key is of no row, a label is empty or no class, or equal texts get different
            labels.
    """
    corrected_rows = dict(rows_by_role)
    labels_before: dict[str, str] = {}
    if not corrections:
        return corrected_rows, labels_before

    reader = _LabelReader(classes, config, is_multi_label=is_multi_label)
    numbers_by_key = _numbers_by_key(corrections, reader)
    separator = cell_separator(classes.every, config.label_separator)
    found_keys: set[str] = set()
    for role, rows in rows_by_role.items():
        ends = np.cumsum(rows.counts)
        new_numbers: dict[int, Sequence[int]] = {}
        for row, text in enumerate(rows.texts):
            key = key_of_text(text)
            if key not in numbers_by_key:
                continue

            found_keys.add(key)
            before = sorted(rows.numbers[ends[row] - rows.counts[row] : ends[row]].tolist())
            if before != numbers_by_key[key]:
                names = [classes.every[number] for number in before]
                labels_before[rows.where[row]] = joined_labels(names, separator)
                new_numbers[row] = numbers_by_key[key]
        corrected_rows[role] = rows.with_numbers(new_numbers)

    _check_keys_are_found(corrections, found_keys)
    return corrected_rows, labels_before


def _numbers_by_key(
    corrections: Sequence[Correction], reader: _LabelReader
) -> dict[str, list[int]]:
    numbers_by_key: dict[str, list[int]] = {}
    firsts: dict[str, Correction] = {}
    for correction in corrections:
        numbers = reader.numbers(correction)
        first = firsts.setdefault(correction.key, correction)
        if numbers_by_key.setdefault(correction.key, numbers) != numbers:
            what = (
                f"the label is {shown(correction.label)}, but the same text has "
                f"{shown(first.label)} at {first.where}"
            )
            raise DataError(correction.where, what, "equal texts must have equal labels")
    return numbers_by_key


MAX_LISTED = 20


class _LabelReader:
    def __init__(self, classes: Classes, config: DataConfig, *, is_multi_label: bool) -> None:
        self._classes = classes
        self._folds_labels = config.fold_labels
        self._is_multi_label = is_multi_label
        self._separator = cell_separator(classes.every, config.label_separator)

        # If the data has lists of labels, a person may have written any of the usual separators.
        self._separators: Sequence[str] = SEPARATORS
        if config.label_separator is not None:
            self._separators = (config.label_separator,)

        # The number of each class, by its name in the form in which labels are compared.
        self._numbers = {}
        for number, name in enumerate(classes.every):
            self._numbers[self._comparable(name)] = number

    def numbers(self, correction: Correction) -> list[int]:
        if not self._is_multi_label:
            if not correction.label.strip():
                hint = "fill in a label, or remove the row"
                raise DataError(correction.where, "the label is empty", hint)
            return [self._known_number(correction.label, correction.where)]

        # The separator may occur in the name of a class, so try the whole cell first.
        whole = self._number(correction.label)
        if whole is not None:
            return [whole]
        for separator in self._separators:
            numbers = [self._number(label) for label in split_labels(correction.label, separator)]
            known_numbers = [number for number in numbers if number is not None]
            if len(known_numbers) == len(numbers):
                return sorted(set(known_numbers))

        # A label is unknown. Name the first one.
        for label in split_labels(correction.label, self._separator):
            self._known_number(label, correction.where)
        raise AssertionError("a label that is known by no separator")

    def _known_number(self, label: str, where: SourceLocation) -> int:
        number = self._number(label)
        if number is not None:
            return number
        names = listed(self._classes.every, most=MAX_LISTED)
        what = f"label {shown(label)} occurs nowhere in the data ({names})"
        hint = "correct the cell, or give the row its new label in the data itself"
        raise DataError(where, what, hint)

    def _number(self, label: str) -> int | None:
        # A label of the data may belong to a class with another name: the class of the label 1.0
        # is 1.
        name = self._classes.of_labels.get(label, label)

        # Try the label without outer spaces, too: a space may have been added in the spreadsheet.
        for candidate in (name, name.strip()):
            number = self._numbers.get(self._comparable(candidate))
            if number is not None:
                return number
        return None

    def _comparable(self, label: str) -> str:
        if self._folds_labels:
            return label_key(label)
        return label


def _check_keys_are_found(corrections: Sequence[Correction], found_keys: set[str]) -> None:
    missing = [correction for correction in corrections if correction.key not in found_keys]
    if not missing:
        return

    what = f"no labelled row of the data has the key {shown(missing[0].key)}"
    if len(missing) > 1:
        what += f", nor the keys of {len(missing) - 1:,} further corrections"
    hint = "the data has changed since the review: remove such rows, or review again"
    raise DataError(missing[0].where, what, hint)
