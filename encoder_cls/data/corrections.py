"""Labels that a person has corrected in a table that `encoder-cls review` has written.

A correction finds its texts by a key, a short hash of the text. Spreadsheets sort rows, cut long
cells and change line ends, and data is moved: the key stays.
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
from encoder_cls.system.encodings import is_utf8

# The columns of a correction beside the corrected label.
KEY = "key"
LABEL_IN_DATA = "label_in_data"

# The letters of a key after its first one: 56 bits, so that millions of texts have different keys.
KEY_LETTERS = 12
# The classes that an error lists.
MAX_LISTED = 20


class Correction(NamedTuple):
    """The label, read at `where`, of all texts with a key."""

    where: SourceLocation
    key: str
    label: str


def correction_key(text: str) -> str:
    """The key of a text: the letter k, and letters that stand for its SHA-256.

    There are no digits in it, so that no spreadsheet makes a number or a date of it. Line ends do
    not count, since spreadsheets change them.
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
    """The name of a column beside those of the data, with a prefix where these have it already."""
    if name in {*config.text_column, config.label_column, config.group_column}:
        return f"review_{name}"
    return name


def read_corrections(config: DataConfig) -> tuple[list[Correction], Notes]:
    """Read the file of corrections, if one is named.

    A row whose label is still the one in the data corrects nothing. The notes warn of a file
    without rows.

    Raises:
        DataError: a column is missing, or a cell of a key or of a label is empty.
    """
    reading = Reading(delimiter=config.delimiter, encoding=config.encoding, is_sure=False)
    if config.corrections is None:
        return [], reading.notes

    key_column = added_column(KEY, config)
    columns = Columns((key_column,), config.label_column, every=True)
    corrections = []
    has_rows = False
    try:
        for row in read_rows(config.corrections, columns, reading):
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
    except EncodingError as error:
        if not is_utf8(reading.encoding):
            raise
        raise DataError(error.where, error.what, "save it as CSV UTF-8") from None

    if not has_rows:
        reading.note(
            f"warning: {config.corrections}: no rows in this file of corrections (data.corrections)"
            ", so no label is changed"
        )
    return corrections, reading.notes


def _correction(row: Row) -> Correction:
    key = row.text.strip()
    if not key:
        raise DataError(row.where, "the key is empty", "remove the row, or review again")

    label = "" if row.label is None else unguarded(str(row.label))
    if not label.strip():
        raise DataError(row.where, "the label is empty", "give it one, or remove the row")
    return Correction(row.where, key, label)


def _label_in_data(row: Row, config: DataConfig) -> str | None:
    """The label that the data has, as far as a table of corrections says it."""
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
    """Correct the label of each row with the key of a correction.

    Rows have one label each, numbered by class.

    Returns:
        The rows, and by location the class before of each label that has changed.

    Raises:
        DataError: a correction has no row or no class, or two give the same text two classes.
    """
    corrected_rows = dict(rows_by_role)
    classes_before: dict[str, str] = {}
    if not corrections:
        return corrected_rows, classes_before

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
                classes_before[rows.where[row]] = classes.every[numbers[row]]
                numbers[row] = class_numbers[key]
        corrected_rows[role] = replace(rows, numbers=numbers)

    _check_keys_are_found(corrections, found_keys)
    return corrected_rows, classes_before


def _class_numbers(
    corrections: Sequence[Correction], classes: Classes, config: DataConfig
) -> dict[str, int]:
    """The number of the class that each key is given."""
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
    """The number of each class, by its name as labels are compared."""
    return {_comparable(name, config): number for number, name in enumerate(classes.every)}


def _comparable(label: str, config: DataConfig) -> str:
    if config.fold_labels:
        return label_key(label)
    return label


def _class_number(
    correction: Correction,
    numbers_by_label: Mapping[str, int],
    classes: Classes,
    config: DataConfig,
) -> int:
    # A label of the data may have a class of another name, as 1 for 1.0.
    label = classes.of_labels.get(correction.label, correction.label)

    # A spreadsheet may have put a space after the label.
    for candidate in (label, label.strip()):
        number = numbers_by_label.get(_comparable(candidate, config))
        if number is not None:
            return number

    names = listed(classes.every, most=MAX_LISTED)
    what = f"label {shown(label)} occurs nowhere in the data ({names})"
    hint = "correct the cell, or give the row its new label in the data itself"
    raise DataError(correction.where, what, hint)


def _check_keys_are_found(corrections: Sequence[Correction], found_keys: set[str]) -> None:
    missing = [correction for correction in corrections if correction.key not in found_keys]
    if not missing:
        return

    what = f"no labelled row of the data has the key {shown(missing[0].key)}"
    if len(missing) > 1:
        what += f", nor the keys of {len(missing) - 1:,} further corrections"
    hint = "the data has changed since the review: remove such rows, or review again"
    raise DataError(missing[0].where, what, hint)
