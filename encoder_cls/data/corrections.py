"""Apply the labels that a person has corrected in a CSV file (`data.corrections`).

`encoder-cls review` writes such a file, `evaluation/files` the like into each report: the columns of the data, then
where a row is. Its label is that of the row there if text and `id` are still the same, else of the row with this text
and id. Files of earlier versions have the columns `text` and `label`, whatever the data has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.config import DataConfig
from encoder_cls.data.dataset import label_key
from encoder_cls.data.readers import column_names, read_again, read_rows_and_columns
from encoder_cls.data.rows import Reading, Row, SourceLocation
from encoder_cls.data.sources import every_file
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
        self._label_names = config.label_names
        self._key: Callable[[str], str] = label_key if config.fold_labels else str
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
        self._named = {self._key(name): name for name in config.label_names or ()}
        self._known = dict(self._named)

    def __len__(self) -> int:
        return len(self._all)

    def applied(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows with corrected labels, and their labels in the data as `corrected_from`."""
        if not self._all:
            yield from rows
            return
        for row in rows:
            if isinstance(row.label, str | int):
                name = self._name(row.label)
                self._known.setdefault(self._key(name), name)
            correction = self._of(row)
            if correction:
                self._left.pop(correction, None)
            yield self._corrected(row, correction) if correction else row

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
        """Raise a DataError, once all sources are read, if a correction has no row, or a label that never occurs."""
        for correction in self._left:
            if correction.id:
                what = f"no row of the data has the id {shown(correction.id)} and this text: have cells been changed "
                raise DataError(correction.where, f"{what}since the review? Correct them, or remove the row")
            what = f"no row of the data is at {correction.of}: has the data been moved or changed since the review?"
            raise DataError(correction.where, f"{what} Correct the columns file and line, or remove the row")
        for correction in self._all:
            if not self._keys(correction.label) & self._known.keys():
                names = ", ".join(map(shown, sorted(self._known.values())[:20]))
                what = f"label {shown(correction.label)} occurs nowhere in the data ({names})"
                hint = "correct the cell, or give the row its new label in the data itself"
                raise DataError(correction.where, what, hint)

    def _keys(self, label: str) -> set[str]:
        """A label as it is and without spaces around it, in both as `data.fold_labels` compares it."""
        return {self._key(label), self._key(label.strip())}

    def _name(self, label: str | int) -> str:
        """The name of a label that may be an index into `data.label_names`."""
        names, written = self._label_names, str(label)
        if names is None or written in names:
            return written
        return names[int(written)] if re.fullmatch(r"[0-9]{1,9}", written) and int(written) < len(names) else written

    def _corrected(self, row: Row, correction: Correction) -> Row:
        label, names = correction.label.strip(), self._label_names  # what is typed may have a blank behind it
        if not isinstance(row.label, str | int) or self._key(self._name(row.label)) in self._keys(correction.label):
            return row
        # As the source writes its labels: a name, or an index into the names.
        label = self._named.get(self._key(label), label)
        if names and label in names and not self._keys(str(row.label)) & self._named.keys():
            label = str(names.index(label))
        is_integer = isinstance(row.label, int) and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label)
        return row._replace(label=int(label) if is_integer else label, corrected_from=row.label)


def added_name(name: str, data: DataConfig) -> str:
    """The name of one of `ADDED`: another one where the config names a column of the data so."""
    return f"review_{name}" if name in {*data.text_column, data.label_column, data.group_column} else name


def _read(source: str, config: DataConfig, reading: Reading) -> Iterator[Correction]:
    try:
        file = Path(source)
        names = column_names(file, text_columns=config.text_column, reading=reading) if file.is_file() else []
        is_of_data = _has_names_of(config, names)
        columns = config.text_column if is_of_data else ("text",)
        for row, record in read_rows_and_columns(source, text_columns=columns, reading=reading):
            yield _correction(source, row, record, config if is_of_data else None)
    except EncodingError as error:
        if is_utf8(reading.encoding):
            raise DataError(error.where, error.what, "save it as CSV UTF-8") from None
        raise


def _named(config: DataConfig) -> set[str]:
    return {*config.text_column, config.label_column}


def _has_names_of(config: DataConfig, columns: Sequence[str]) -> bool:
    """Whether text and label are in columns that are called as in the data, not as in earlier versions' files."""
    named = _named(config)
    is_added = named & {*ADDED} and not any(f"review_{name}" in columns for name in named)
    return named <= {*columns} and not (is_added and {"text", "label"} <= {*columns})


def _check_agree(one: Correction, other: Correction) -> None:
    if one.label != other.label:
        what = f"gives {other.of or shown(other.id)} the label {shown(other.label)}"
        what += f", and {one.where} gives it {shown(one.label)}"
        raise DataError(other.where, what, "remove one of both")


def _correction(source: str, row: Row, record: Mapping[str, Any], data: DataConfig | None) -> Correction:
    """The correction of a row; `data`: whose names its columns have."""
    names = ["file", "line", data.label_column if data else "label"]
    if data:
        names[:2] = [
            added if (added := added_name(it, data)) in record or it in _named(data) else it for it in names[:2]
        ]
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
