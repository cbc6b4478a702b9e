"""Apply the labels that a person has corrected in a CSV file (`data.corrections`), as `encoder-cls review` writes it.

A label is that of the row at file and line if text and `id` are still the same, else of the row with both.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.config import DataConfig
from encoder_cls.data.rows import Reading, Row, SourceLocation
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown, unguarded
from encoder_cls.system.encodings import is_utf8

if TYPE_CHECKING:
    from encoder_cls.data.labels import LabelledRows

ADDED = ("suggested", "score", "split", "file", "line", "row")  # to the columns of the data; `row` of a spreadsheet
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0+)?")  # a line, also as a spreadsheet may have it


class Correction(NamedTuple):
    """A row of the file, read at `where`: the row of the data at `of`, or with this id, gets a label if the text fits.

    Of ids, numbers are without leading zeros, since spreadsheets leave them out.
    """

    where: SourceLocation
    of: SourceLocation | None
    id: str
    text: str  # with line feeds for all line ends, since spreadsheets change these
    label: str

    def fits(self, text: str) -> bool:
        """Whether a row has this text."""
        return _comparable(text) in {self.text, unguarded(self.text)}


class Corrections:
    """The corrections of a data set: those of each row, and, once all sources are read, which of these apply."""

    def __init__(self, config: DataConfig) -> None:
        reading = Reading(delimiter=config.delimiter, encoding=config.encoding, is_sure=False)
        self.notes = reading.notes
        self._all: list[Correction] = []
        self._by_place: dict[tuple[str, int], Correction] = {}
        self._by_id: dict[str, list[Correction]] = defaultdict(list)
        self._in_place: dict[Correction, SourceLocation] = {}  # where a row is still the one that was reviewed
        self._resolved = lru_cache(_resolved)  # of the current folder
        for correction in _read(config.corrections, config, reading) if config.corrections else ():
            first = correction
            if of := correction.of:
                first = self._by_place.setdefault((self._resolved(of.file), of.line), correction)
            _check_agree(first, correction)
            if first is correction:
                self._all.append(correction)
                self._by_id[correction.id].append(correction)

    def of(self, row: Row) -> Sequence[Correction]:
        """The correction of a row's place, unless that has another id or text; else those of its id and text."""
        if not self._all:
            return ()
        number, has_label = _comparable_id(row.id), row.label is not None and row.label != ""
        here = self._by_place.get((self._resolved(row.where.file), row.where.line))
        if here and here.fits(row.text) and (here.id == number or not here.id or not number):
            if not has_label:
                raise DataError(here.where, f"{row.where} has no label to correct", "write one there")
            self._in_place[here] = row.where
            return [here]
        if here and not (here.id and number):
            what = f"the text is not that of {here.of} ({shown(row.text, limit=60)}): the data or the cell was "
            what += "changed since the review"
            raise DataError(here.where, what, "remove the row, or review again")
        return [it for it in self._by_id.get(number, ()) if it.fits(row.text)] if number and has_label else ()

    def settled(self, all_rows: Mapping[str, LabelledRows]) -> dict[str, LabelledRows]:
        """The rows of all sources with one correction each: that of a row in its place is not that of an equal row.

        A `DataError` where a correction has no row, or a row has two.
        """
        settled, unused = {}, dict.fromkeys(self._all)
        for role, rows in all_rows.items():
            corrected = {}
            for row, its in rows.corrected.items():
                own = [it for it in its if self._in_place.get(it, rows.where[row]) == rows.where[row]]
                for it in own:
                    _check_agree(own[0], it)
                    unused.pop(it, None)
                    corrected[row] = own[:1]
            settled[role] = replace(rows, corrected=corrected)
        for correction in unused:
            if correction.id:
                what = f"no row of the data has the id {shown(correction.id)} and this text: have cells been changed "
                raise DataError(correction.where, f"{what}since the review? Correct them, or remove the row")
            what = f"no row of the data is at {correction.of}: has the data been moved or changed since the review?"
            raise DataError(correction.where, f"{what} Correct the columns file and line, or remove the row")
        return settled


def added_name(name: str, data: DataConfig) -> str:
    """The name of one of `ADDED`: another one where the config names a column of the data so."""
    return f"review_{name}" if name in {*data.text_column, data.label_column, data.group_column} else name


def _read(source: str, config: DataConfig, reading: Reading) -> Iterator[Correction]:
    try:
        for row in read_rows(source, text_columns=config.text_column, every=True, reading=reading):
            yield _correction(source, row, config)
    except EncodingError as error:
        if is_utf8(reading.encoding):
            raise DataError(error.where, error.what, "save it as CSV UTF-8") from None
        raise


def _check_agree(one: Correction, other: Correction) -> None:
    if one.label != other.label:
        what = f"gives {other.of or shown(other.id)} the label {shown(other.label)}"
        what += f", and {one.where} gives it {shown(one.label)}"
        raise DataError(other.where, what, "remove one of both")


def _correction(source: str, row: Row, data: DataConfig) -> Correction:
    record = row.record or {}
    names = [added_name("file", data), added_name("line", data), data.label_column]
    number = _comparable_id(row.id)
    missing = next((name for name in (names[2:] if number else names) if name not in record), None)
    if missing:
        hint = "data.corrections names a file with the columns of the data, file and line, as encoder-cls review has it"
        raise DataError(source, f"no column {shown(missing)}", hint)
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
