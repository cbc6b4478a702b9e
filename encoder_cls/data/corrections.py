"""Apply the labels that a person has corrected in a CSV file (`data.corrections`), as `encoder-cls review` writes it.

A corrected label is for the row at its file and line if text and `id` are unchanged there, else for the row with both.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import label_key
from encoder_cls.data.labels import Classes, LabelledRows
from encoder_cls.data.rows import Columns, Notes, Reading, Row, SourceLocation
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import listed, shown, unguarded
from encoder_cls.system.encodings import is_utf8

# Columns that are added to those of the data; `row` is that of a spreadsheet.
ADDED = (
    "suggested",
    "score",
    "split",
    "file",
    "line",
    "row",
)
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0+)?")  # a line, also as a spreadsheet may have it


class Correction(NamedTuple):
    """The label, read at `where`, of the row at `place` or with this id, if the text fits.

    Numbers among ids have no leading zeros, since spreadsheets drop them.
    """

    where: SourceLocation
    place: SourceLocation | None
    id: str
    text: str  # line ends are line feeds, since spreadsheets change them
    label: str

    def fits(self, text: str) -> bool:
        """Whether the text of a row is that of the correction."""
        return _comparable(text) in {self.text, unguarded(self.text)}


# By file and line of the row; the key of one without is itself.
Corrections = Mapping[Hashable, Correction]


def read_corrections(config: DataConfig) -> tuple[Corrections, Notes]:
    """Read the file of corrections, if one is named; a `DataError` where two give one row different labels."""
    corrections: dict[Hashable, Correction] = {}
    reading = Reading(delimiter=config.delimiter, encoding=config.encoding, is_sure=False)
    source, columns = config.corrections, Columns(config.text_column, every=True)
    try:
        for row in read_rows(source, columns, reading) if source else ():
            correction = _correction(row, config)
            key = correction.place and (_resolved(correction.place.file), correction.place.line)
            _check_agree(corrections.setdefault(key or correction, correction), correction)
    except EncodingError as error:
        if is_utf8(reading.encoding):
            raise DataError(error.where, error.what, "save it as CSV UTF-8") from None
        raise
    return corrections, reading.notes


def with_corrections(
    all_rows: Mapping[str, LabelledRows],
    corrections: Corrections,
    classes: Classes,
    config: DataConfig,
) -> tuple[dict[str, LabelledRows], dict[str, str]]:
    """Correct the labels of rows, one each and numbered by class; also returns the class before, by location.

    A `DataError` where a correction has no row or no class, or a row has corrections that differ.
    """
    key: Callable[[str], str] = label_key if config.fold_labels else str
    numbers = {key(name): number for number, name in enumerate(classes.every)}
    corrected, before = dict(all_rows), dict[str, str]()
    for role, of_role in _matched(all_rows, corrections).items():
        rows = all_rows[role]
        corrected[role] = replace(rows, numbers=rows.numbers.copy())
        for row, correction in of_role.items():
            label = classes.of_labels.get(correction.label, correction.label)  # as 1 for 1.0
            # A spreadsheet may have put a space after it.
            number = numbers.get(key(label), numbers.get(key(label.strip())))
            if number is None:
                what = f"label {shown(label)} occurs nowhere in the data ({listed(classes.every, most=20)})"
                hint = "correct the cell, or give the row its new label in the data itself"
                raise DataError(correction.where, what, hint)
            if number != rows.numbers[row]:
                corrected[role].numbers[row] = number
                before[rows.where[row]] = classes.every[rows.numbers[row]]
    return corrected, before


def _matched(
    all_rows: Mapping[str, LabelledRows], corrections: Corrections
) -> dict[str, dict[int, Correction]]:
    """Match rows with corrections: the correction of each corrected row, by split and row.

    Of several rows with the id and text, the one at the correction's place is corrected, or all if none is there.
    """
    by_id: dict[str, list[Correction]] = defaultdict(list)
    for correction in corrections.values():
        by_id[correction.id].append(correction)
    matches: list[tuple[str, int, Correction, bool]] = []
    resolved = lru_cache(_resolved)  # in the current folder
    for role, rows in all_rows.items() if corrections else ():
        for row, (where, text, written) in enumerate(
            zip(rows.where, rows.texts, rows.ids, strict=True)
        ):
            number = _comparable_id(written)
            here = corrections.get((resolved(where.file), where.line))
            if here and here.fits(text) and (here.id == number or not here.id or not number):
                matches.append((role, row, here, True))
            elif here and not (here.id and number):
                what = f"the text is not that of {here.place} ({shown(text, limit=60)})"
                why = "the data or the cell was changed since the review"
                raise DataError(here.where, f"{what}: {why}", "remove the row, or review again")
            elif number:
                matches += ((role, row, it, False) for it in by_id.get(number, ()) if it.fits(text))
    matched: dict[str, dict[int, Correction]] = defaultdict(dict)
    in_place = {correction for *_, correction, is_in_place in matches if is_in_place}
    unused = dict.fromkeys(corrections.values())
    for role, row, correction, is_in_place in matches:
        if is_in_place or correction not in in_place:
            _check_agree(matched[role].setdefault(row, correction), correction)
            unused.pop(correction, None)
    for correction in unused:
        which = (
            f"has the id {shown(correction.id)} and this text"
            if correction.id
            else f"is at {correction.place}"
        )
        what = f"no row of the data {which}, or it has no label: has the data been moved or changed since the review?"
        raise DataError(correction.where, what, "correct the cells of this row, or remove it")
    return matched


def added_name(name: str, data: DataConfig) -> str:
    """The name of one of the `ADDED` columns, with a prefix where the config names a column of the data so."""
    return (
        f"review_{name}"
        if name in {*data.text_column, data.label_column, data.group_column}
        else name
    )


def _check_agree(one: Correction, other: Correction) -> None:
    if one.label != other.label:
        what = f"gives {other.place or shown(other.id)} the label {shown(other.label)}"
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
    place = SourceLocation(
        unguarded(str(file or "")), int(written.partition(".")[0]) if written else -1
    )
    known_place = place if file or not number else None
    return Correction(row.where, known_place, number, _comparable(row.text), unguarded(str(label)))


def _comparable_id(value: object) -> str:
    written = "" if value is None else unguarded(str(value).strip())
    return str(int(written.partition(".")[0])) if _WHOLE.fullmatch(written) else written


def _comparable(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _resolved(file: str) -> str:
    """One name for a file, however it is written; data of the Hub has no file."""
    return file if file.startswith("hub:") else str(Path(file).resolve())
