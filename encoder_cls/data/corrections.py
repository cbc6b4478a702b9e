"""Apply the labels that a person has corrected in a table of `encoder-cls review`.

A correction finds its texts by a key, a short hash of the text, and not by the text or its
location: spreadsheets sort rows, cut long cells and change line ends, and data files are moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import NamedTuple

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.classes import Classes
from encoder_cls.data.label_names import label_key
from encoder_cls.data.labelled_rows import LabelledRows
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import Notes, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError, EncodingError, MissingColumnError
from encoder_cls.system.csv_cells import unguarded
from encoder_cls.system.display import listed, shown
from encoder_cls.system.encodings import WINDOWS, is_utf8

# The names of the columns of a correction, besides the column with the corrected label.
KEY = "key"
LABEL_IN_DATA = "label_in_data"


class Correction(NamedTuple):
    """A corrected label, read at `where`, for all texts with this key."""

    where: SourceLocation
    key: str
    label: str


# The number of letters of a key after the first one. They encode 56 bits, so that the keys of
# millions of texts differ.
KEY_LETTERS = 12


def correction_key(text: str) -> str:
    """Make the key of a text: the letter k, followed by letters that encode its SHA-256.

    A key has no digits, so that no spreadsheet takes it for a number or a date. Texts that differ
    only in their line ends have the same key, since spreadsheets change line ends.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    digest = hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()

    number = int.from_bytes(digest[:8])
    letters = []
    for _ in range(KEY_LETTERS):
        number, letter = divmod(number, len(ascii_lowercase))
        letters.append(ascii_lowercase[letter])
    return "k" + "".join(letters)


def added_column(name: str, config: DataConfig) -> str:
    """Name a column that `encoder-cls review` adds to the columns of the data.

    If the data has a column with this name already, the name gets the prefix `review_`.
    """
    if name in {*config.text_column, config.label_column, config.group_column}:
        return f"review_{name}"
    return name


def read_corrections(config: DataConfig) -> tuple[list[Correction], Notes]:
    """Read the file of corrections, if the config names one.

    Returns:
        The corrections, without the rows whose label is still the label in the data; and notes,
        which warn of a file without rows.

    Raises:
        DataError: a column is missing, or the cell of a key or of a label is empty.
    """
    reading = Reading(delimiter=config.delimiter, encoding=config.encoding, is_sure=False)
    if config.corrections is None:
        return [], reading.notes

    key_column = added_column(KEY, config)
    columns = Columns((key_column,), config.label_column, every=True)
    corrections = []
    has_rows = False
    try:
        rows, reading = _rows_of(config.corrections, columns, reading)
        for row in rows:
            has_rows = True
            correction = _correction(row)
            if correction.label.strip() != _label_in_data(row, config):
                corrections.append(correction)
    except MissingColumnError as error:
        if error.column != key_column:
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


def _rows_of(source: str, columns: Columns, reading: Reading) -> tuple[list[Row], Reading]:
    """Read the rows of a file of corrections.

    A file that is not UTF-8, as it should be, is read as Windows-1252, in which Excel saves CSV. A
    wrong guess does no harm: keys are ASCII, and a label that is read wrongly is no class of the
    data.

    Returns:
        The rows, and the options by which they were read, with their notes.

    Raises:
        DataError: the file is missing or malformed, or is in another encoding.
    """
    try:
        return list(read_rows(source, columns, reading)), reading
    except EncodingError as error:
        if not is_utf8(reading.encoding):
            raise
        utf8_error = error

    reading = Reading(delimiter=reading.delimiter, encoding=WINDOWS)
    try:
        rows = list(read_rows(source, columns, reading))
    except EncodingError:
        raise DataError(utf8_error.where, utf8_error.what, "save it as CSV UTF-8") from None
    reading.note(f"{source}: read as Windows-1252, since it is not UTF-8")
    return rows, reading


def _correction(row: Row) -> Correction:
    """Make a correction of a row of the table; raise a `DataError` if its key or label is empty."""
    key = row.text.strip()
    if not key:
        raise DataError(row.where, "the key is empty", "remove the row, or review again")

    label = "" if row.label is None else unguarded(str(row.label))
    if not label.strip():
        raise DataError(row.where, "the label is empty", "fill in a label, or remove the row")
    return Correction(row.where, key, label)


def _label_in_data(row: Row, config: DataConfig) -> str | None:
    """The label that the row had in the data; None if the table has no column for it."""
    label = (row.record or {}).get(added_column(LABEL_IN_DATA, config))
    if label is None:
        return None
    return unguarded(str(label)).strip()


def with_corrections(
    rows_by_role: Mapping[str, LabelledRows],
    corrections: Sequence[Correction],
    classes: Classes,
    config: DataConfig,
) -> tuple[dict[str, LabelledRows], dict[str, str]]:
    """Correct the label of each row whose text has the key of a correction.

    Args:
        rows_by_role: the rows of each split by its name. Each row has one label, as an index into
            `classes.every`.
        corrections: the corrections.
        classes: the classes of the data.
        config: says by `fold_labels` how labels are compared.

    Returns:
        The rows with corrected labels, by split; and for the location of each row whose label has
        changed, the name of the class that it had before.

    Raises:
        DataError: a correction has the key of no row, its label is no class of the data, or two
            corrections give the same text two classes.
    """
    corrected_rows = dict(rows_by_role)
    labels_before: dict[str, str] = {}
    if not corrections:
        return corrected_rows, labels_before

    class_numbers = _class_numbers(corrections, classes, config)
    found_keys: set[str] = set()
    for role, rows in rows_by_role.items():
        numbers = rows.numbers.copy()
        for row, text in enumerate(rows.texts):
            key = correction_key(text)
            if key not in class_numbers:
                continue

            found_keys.add(key)
            if numbers[row] != class_numbers[key]:
                labels_before[rows.where[row]] = classes.every[numbers[row]]
                numbers[row] = class_numbers[key]
        corrected_rows[role] = replace(rows, numbers=numbers)

    _check_keys_are_found(corrections, found_keys)
    return corrected_rows, labels_before


def _class_numbers(
    corrections: Sequence[Correction], classes: Classes, config: DataConfig
) -> dict[str, int]:
    """Find the number of the corrected class for each key.

    Raises:
        DataError: the label of a correction is no class of the data, or two corrections give the
            same text two classes.
    """
    numbers: dict[str, int] = {}
    firsts: dict[str, Correction] = {}
    numbers_by_label = _numbers_by_label(classes, config)
    for correction in corrections:
        number = _class_number(correction, numbers_by_label, classes, config)
        first = firsts.setdefault(correction.key, correction)
        if numbers.setdefault(correction.key, number) != number:
            what = (
                f"the label is {shown(correction.label)}, but the same text has "
                f"{shown(first.label)} at {first.where}"
            )
            raise DataError(correction.where, what, "equal texts must have equal labels")
    return numbers


def _numbers_by_label(classes: Classes, config: DataConfig) -> dict[str, int]:
    """The number of each class, by its name in the form in which labels are compared."""
    return {_comparable(name, config): number for number, name in enumerate(classes.every)}


def _comparable(label: str, config: DataConfig) -> str:
    """Turn a label into the form in which labels are compared."""
    if config.fold_labels:
        return label_key(label)
    return label


# The number of classes that an error lists.
MAX_LISTED = 20


def _class_number(
    correction: Correction,
    numbers_by_label: Mapping[str, int],
    classes: Classes,
    config: DataConfig,
) -> int:
    """The number of the class of a correction; raise a `DataError` if its label is no class."""
    # A label of the data may belong to a class with another name: the class of the label 1.0 is 1.
    label = classes.of_labels.get(correction.label, correction.label)

    # Try the label without outer spaces, too: a space may have been added in the spreadsheet.
    for candidate in (label, label.strip()):
        number = numbers_by_label.get(_comparable(candidate, config))
        if number is not None:
            return number

    names = listed(classes.every, most=MAX_LISTED)
    what = f"label {shown(label)} occurs nowhere in the data ({names})"
    hint = "correct the cell, or give the row its new label in the data itself"
    raise DataError(correction.where, what, hint)


def _check_keys_are_found(corrections: Sequence[Correction], found_keys: set[str]) -> None:
    """Raise a `DataError` if no row of the data has the key of a correction."""
    missing = [correction for correction in corrections if correction.key not in found_keys]
    if not missing:
        return

    what = f"no labelled row of the data has the key {shown(missing[0].key)}"
    if len(missing) > 1:
        what += f", nor the keys of {len(missing) - 1:,} further corrections"
    hint = "the data has changed since the review: remove such rows, or review again"
    raise DataError(missing[0].where, what, hint)
