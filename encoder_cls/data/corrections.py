"""Apply the labels that a person has corrected in a CSV file (`data.corrections`).

`encoder-cls review` writes such a file, `evaluation/files` the like into each report: the columns of the data, then
where a row is. Its label is that of the row there if text and `id` are still the same, else of the row with this text
and id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.config import DataConfig
from encoder_cls.data.rows import Corrected, Reading, Row, SourceLocation
from encoder_cls.data.sources import every_file, read_again, read_rows_and_columns
from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown, unguarded
from encoder_cls.system.encodings import is_utf8

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
    """The corrections of a data set; the rows of each of its sources are to be passed through `applied`."""

    def __init__(self, config: DataConfig) -> None:
        reading = Reading(delimiter=config.delimiter, encoding=config.encoding, is_sure=False)
        self.notes = reading.notes
        self._config = config
        self._by_place: dict[tuple[str, int], Correction] = {}
        self._by_id: dict[str, list[Correction]] = {}
        for correction in _read(config.corrections, config, reading) if config.corrections else ():
            first = self._by_place.setdefault(_place(correction.of), correction) if correction.of else correction
            _check_agree(first, correction)
            if correction.id and first is correction:
                self._by_id.setdefault(correction.id, []).append(correction)
        self._all = dict.fromkeys([*self._by_place.values(), *(it for its in self._by_id.values() for it in its)])
        self._resolved = lru_cache(_resolved)  # of the current folder
        self._left = dict(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def applied(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows with their corrections."""
        for row in rows:
            correction = self._of(row) if self._all else None
            if correction:
                self._left.pop(correction, None)
                if row.label is None or row.label == "":
                    raise DataError(correction.where, f"{row.where} has no label to correct", "write one there")
                row = row._replace(corrected=Corrected(correction.label, correction.where))  # noqa: PLW2901
            yield row

    def _of(self, row: Row) -> Correction | None:
        """The correction of a row: that of its place, unless that has another id or text; else that of its id."""
        number = _comparable_id(row.id)
        here = self._by_place.get((self._resolved(row.where.file), row.where.line))
        if here and (not here.id or not number):
            if here.fits(row.text):
                return here
            what = f"the text is not that of {here.of} ({shown(row.text, limit=60)}): the data or the cell was "
            what += "changed since the review"
            raise DataError(here.where, what, "remove the row, or review again")
        if here and here.id == number and here.fits(row.text):
            return here
        moved = [it for it in self._by_id.get(number, ()) if it.fits(row.text) and it in self._moved]
        for one in moved:
            _check_agree(moved[0], one)
            self._left.pop(one, None)
        return moved[0] if moved else None

    @cached_property
    def _moved(self) -> set[Correction]:
        """Corrections with an id whose rows are not where they were, so that no equal row is corrected beside one."""
        config = self._config
        named = (source for source in (config.train, config.validation, config.test) if source)
        files = {self._resolved(str(file)) for source in named for file in every_file(source)}
        places = [it.of for it in self._all if it.id and it.of and self._resolved(it.of.file) in files]
        reading = Reading(delimiter=config.delimiter, encoding=config.encoding)
        found = read_again(places, text_columns=config.text_column, label_column=config.label_column, reading=reading)
        rows = {it: found[it.of][0] for it in self._all if it.of in found}
        there = {it for it, row in rows.items() if it.fits(row.text) and it.id == _comparable_id(row.id)}
        return {it for it in self._all if it.id} - there

    def check_all_applied(self) -> None:
        """Raise a DataError, once all sources are read, if a correction has no row."""
        for correction in self._left:
            if correction.id:
                what = f"no row of the data has the id {shown(correction.id)} and this text: have cells been changed "
                raise DataError(correction.where, f"{what}since the review? Correct them, or remove the row")
            what = f"no row of the data is at {correction.of}: has the data been moved or changed since the review?"
            raise DataError(correction.where, f"{what} Correct the columns file and line, or remove the row")


def added_name(name: str, data: DataConfig) -> str:
    """The name of one of `ADDED`: another one where the config names a column of the data so."""
    return f"review_{name}" if name in {*data.text_column, data.label_column, data.group_column} else name


def _read(source: str, config: DataConfig, reading: Reading) -> Iterator[Correction]:
    try:
        for row, record in read_rows_and_columns(source, text_columns=config.text_column, reading=reading):
            yield _correction(source, row, record, config)
    except EncodingError as error:
        if is_utf8(reading.encoding):
            raise DataError(error.where, error.what, "save it as CSV UTF-8") from None
        raise


def _check_agree(one: Correction, other: Correction) -> None:
    if one.label != other.label:
        what = f"gives {other.of or shown(other.id)} the label {shown(other.label)}"
        what += f", and {one.where} gives it {shown(one.label)}"
        raise DataError(other.where, what, "remove one of both")


def _correction(source: str, row: Row, record: Mapping[str, Any], data: DataConfig) -> Correction:
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


def _place(of: SourceLocation) -> tuple[str, int]:
    return _resolved(of.file), of.line


def _comparable(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _resolved(file: str) -> str:
    """One name for a file, however it is written; data of the Hub has no file."""
    return file if file.startswith("hub:") else str(Path(file).resolve())
