"""Apply the labels that a person has corrected in a CSV file (`data.corrections`), as `encoder-cls review` writes it.

A label belongs to the row at its file and line if text and `id` are still the same, else to the row with both.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from encoder_cls.config import DataConfig
from encoder_cls.data.dataset import label_key, listed
from encoder_cls.data.labels import Classes, LabelledRows
from encoder_cls.data.rows import Notes, Reading, Row, SourceLocation
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown, unguarded
from encoder_cls.system.encodings import is_utf8

ADDED = ("suggested", "score", "split", "file", "line", "row")  # to the columns of the data; `row` of a spreadsheet
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0+)?")  # a line, also as a spreadsheet may have it


class Correction(NamedTuple):
    """A row of the file, read at `where`: the label of the row at `of`, or with this id, if its text fits.

    Numbers among ids have no leading zeros, since spreadsheets drop them.
    """

    where: SourceLocation
    of: SourceLocation | None
    id: str
    text: str  # line ends are line feeds, since spreadsheets change them
    label: str

    def fits(self, text: str) -> bool:
        """Whether a row has this text."""
        return _comparable(text) in {self.text, unguarded(self.text)}


Corrections = Mapping[Hashable, Correction]  # by file and line of its row; one without these by itself


def read_corrections(config: DataConfig) -> tuple[Corrections, Notes]:
    """Read the file of corrections, if one is named; a `DataError` where two give one row different labels."""
    corrections: dict[Hashable, Correction] = {}
    reading = Reading(delimiter=config.delimiter, encoding=config.encoding, is_sure=False)
    source, names = config.corrections, config.text_column
    try:
        for row in read_rows(source, text_columns=names, every=True, reading=reading) if source else ():
            correction = _correction(row, config)
            place = correction.of and (_resolved(correction.of.file), correction.of.line)
            _check_agree(corrections.setdefault(place or correction, correction), correction)
    except EncodingError as error:
        if is_utf8(reading.encoding):
            raise DataError(error.where, error.what, "save it as CSV UTF-8") from None
        raise
    return corrections, reading.notes


def with_corrections(
    all_rows: Mapping[str, LabelledRows], corrections: Corrections, classes: Classes, config: DataConfig
) -> dict[str, LabelledRows]:
    """Replace corrected labels in rows of one label each, numbered by class.

    A `DataError` where a correction has no row or no class, or a row has two labels.
    """
    key: Callable[[str], str] = label_key if config.fold_labels else str
    numbers = {key(name): number for number, name in enumerate(classes.every)}
    corrected = dict(all_rows)
    for role, of_role in _matched(all_rows, corrections).items():
        corrected[role] = replace(all_rows[role], numbers=all_rows[role].numbers.copy())
        for row, correction in of_role.items():
            label = correction.label
            number = numbers.get(key(label), numbers.get(key(label.strip())))  # with a space after it
            if number is None:
                what = f"label {shown(label)} occurs nowhere in the data ({listed(classes.every, most=20)})"
                hint = "correct the cell, or give the row its new label in the data itself"
                raise DataError(correction.where, what, hint)
            corrected[role].numbers[row] = number
    return corrected


def _matched(all_rows: Mapping[str, LabelledRows], corrections: Corrections) -> dict[str, dict[int, Correction]]:
    """Match rows with corrections: the correction of each corrected row, by split and row.

    Of several rows with the id and text, the one at the correction's place is corrected, or all if none is there.
    """
    by_id: dict[str, list[Correction]] = defaultdict(list)
    for correction in corrections.values():
        by_id[correction.id].append(correction)
    in_place: set[Correction] = set()
    matches: list[tuple[str, int, Correction, bool]] = []
    resolved = lru_cache(_resolved)  # in the current folder
    for role, rows in all_rows.items() if corrections else ():
        for row, (where, text, written) in enumerate(zip(rows.where, rows.texts, rows.ids, strict=True)):
            number = _comparable_id(written)
            here = corrections.get((resolved(where.file), where.line))
            if here and here.fits(text) and (here.id == number or not here.id or not number):
                in_place.add(here)
                matches.append((role, row, here, True))
            elif here and not (here.id and number):
                what = f"the text is not that of {here.of} ({shown(text, limit=60)}): the data or the cell was changed "
                raise DataError(here.where, f"{what}since the review", "remove the row, or review again")
            elif number:
                matches += ((role, row, it, False) for it in by_id.get(number, ()) if it.fits(text))
    matched: dict[str, dict[int, Correction]] = defaultdict(dict)
    unused = dict.fromkeys(corrections.values())
    for role, row, correction, is_in_place in matches:
        if is_in_place or correction not in in_place:
            _check_agree(matched[role].setdefault(row, correction), correction)
            unused.pop(correction, None)
    for correction in unused:
        which = f"has the id {shown(correction.id)} and this text" if correction.id else f"is at {correction.of}"
        what = f"no row of the data {which}, or it has no label: has the data been moved or changed since the review?"
        raise DataError(correction.where, what, "correct the cells of this row, or remove it")
    return matched


def added_name(name: str, data: DataConfig) -> str:
    """The name of one of `ADDED`, with a prefix where a column of the data is called so in the config."""
    return f"review_{name}" if name in {*data.text_column, data.label_column, data.group_column} else name


def _check_agree(one: Correction, other: Correction) -> None:
    if one.label != other.label:
        what = f"gives {other.of or shown(other.id)} the label {shown(other.label)}"
        what += f", and {one.where} gives it {shown(one.label)}"
        raise DataError(other.where, what, "remove one of both")


def _correction(row: Row, data: DataConfig) -> Correction:
    record = row.record or {}
    names = [added_name("file", data), added_name("line", data), data.label_column]
    number = _comparable_id(row.id)
    missing = next((name for name in (names[2:] if number else names) if name not in record), None)
    if missing:
        hint = "data.corrections names a file with the columns of the data, file and line, as encoder-cls review has it"
        raise DataError(f"{data.corrections}", f"no column {shown(missing)}", hint)
    file, line, label = (record.get(name) for name in names)
    written = "" if line is None else str(line).strip()
    if written and not _WHOLE.fullmatch(written):
        raise DataError(row.where, f"the line is {shown(written)}; a whole number is expected")
    if label is None or not str(label).strip():
        raise DataError(row.where, "the label is empty", "give it one, or remove the row")
    if "\0" in str(file):
        raise DataError(row.where, f"the file is {shown(str(file))}; no file has such a name")
    of = SourceLocation(unguarded(str(file or "")), int(written.partition(".")[0]) if written else -1)
    return Correction(
        row.where, of if file or not number else None, number, _comparable(row.text), unguarded(str(label))
    )


def _comparable_id(value: object) -> str:
    written = "" if value is None else unguarded(str(value).strip())
    return str(int(written.partition(".")[0])) if _WHOLE.fullmatch(written) else written


def _comparable(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _resolved(file: str) -> str:
    """One name for a file, however it is written; data of the Hub has no file."""
    return file if file.startswith("hub:") else str(Path(file).resolve())
