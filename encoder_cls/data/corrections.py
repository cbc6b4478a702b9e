"""Apply the labels that a person has corrected in a CSV file (`data.corrections`).

`encoder-cls review` writes such a file, `evaluation/files` the like into each report. A row of it names file and
line of a row of the data; its cell `label` is the label of that row, where its text is still the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.config import DataConfig
from encoder_cls.data.dataset import label_key
from encoder_cls.data.readers import read_rows_and_columns
from encoder_cls.data.rows import Reading, Row, SourceLocation
from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown, unguarded
from encoder_cls.system.encodings import is_utf8

COLUMNS = ("split", "file", "line", "text", "label", "suggested", "score")
NEEDED = ("file", "line", "label")  # besides `text`
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0+)?")  # a line, also as a spreadsheet may have it


class Correction(NamedTuple):
    """A row of the file, read at `where`: the row of the data at `of` gets a label if it has this text."""

    where: SourceLocation
    of: SourceLocation
    text: str  # with line feeds for all line ends, since spreadsheets change these
    label: str


class Corrections:
    """The corrections of a data set; the rows of each of its sources are to be passed through `applied`."""

    def __init__(self, config: DataConfig) -> None:
        self._label_names = config.label_names
        self._key: Callable[[str], str] = label_key if config.fold_labels else str
        reading = Reading(encoding=config.encoding, is_sure=False)
        self.notes = reading.notes
        self._by_place = _by_place(config.corrections, reading) if config.corrections else {}
        self._resolved = lru_cache(_resolved)  # of the current folder
        self._left = dict(self._by_place)
        self._named = {self._key(name): name for name in config.label_names or ()}
        self._known = dict(self._named)

    def __len__(self) -> int:
        return len(self._by_place)

    def applied(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows with corrected labels, and their labels in the data as `corrected_from`."""
        if not self._by_place:
            yield from rows
            return
        for row in rows:
            if isinstance(row.label, str | int):
                name = self._name(row.label)
                self._known.setdefault(self._key(name), name)
            place = (self._resolved(row.where.file), row.where.line)
            correction = self._left.pop(place, None) or self._by_place.get(place)
            yield self._corrected(row, correction) if correction else row

    def check_all_applied(self) -> None:
        """Raise a DataError, once all sources are read, if a correction has no row, or a label that never occurs."""
        for correction in self._left.values():
            what = f"no row of the data is at {correction.of}: has the data been moved or changed since the review?"
            raise DataError(correction.where, f"{what} Mend the columns file and line, or remove the row")
        for correction in self._by_place.values():
            if not self._keys(correction.label) & self._known.keys():
                names = ", ".join(map(shown, sorted(self._known.values())[:20]))
                what = f"label {shown(correction.label)} occurs nowhere in the data ({names})"
                hint = "mend the cell, or give the row its new label in the data itself"
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
        if _comparable(row.text) not in (correction.text, unguarded(correction.text)):
            what = f"the text is not that of {correction.of} ({shown(row.text, limit=60)}): the data or the cell was "
            what += "changed since the review"
            raise DataError(correction.where, what, "remove the row, or review again")
        label, names = correction.label.strip(), self._label_names  # what is typed may have a blank behind it
        if not isinstance(row.label, str | int) or self._key(self._name(row.label)) in self._keys(correction.label):
            return row
        # As the source writes its labels: a name, or an index into the names.
        label = self._named.get(self._key(label), label)
        if names and label in names and not self._keys(str(row.label)) & self._named.keys():
            label = str(names.index(label))
        is_integer = isinstance(row.label, int) and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label)
        return row._replace(label=int(label) if is_integer else label, corrected_from=row.label)


def _by_place(source: str, reading: Reading) -> dict[tuple[str, int], Correction]:
    found: dict[tuple[str, int], Correction] = {}
    try:
        for row, record in read_rows_and_columns(source, text_columns=("text",), reading=reading):
            correction = _correction(source, row, record)
            other = found.setdefault((_resolved(correction.of.file), correction.of.line), correction)
            if other.label != correction.label:
                what = f"gives {correction.of} the label {shown(correction.label)}"
                what += f", and {other.where} gives it {shown(other.label)}"
                raise DataError(correction.where, what, "remove one of both")
    except EncodingError as error:
        if is_utf8(reading.encoding):
            raise DataError(error.where, error.what, "save it as CSV UTF-8") from None
        raise
    return found


def _correction(source: str, row: Row, record: Mapping[str, Any]) -> Correction:
    missing = next((name for name in NEEDED if name not in record), None)
    if missing:
        hint = f"data.corrections names a file with the columns {', '.join(COLUMNS)}, as encoder-cls review writes it"
        raise DataError(source, f"no column {shown(missing)}", hint)
    file, line, label = (record[name] for name in NEEDED)
    written = "" if line is None else str(line).strip()
    if written and not _WHOLE.fullmatch(written):
        raise DataError(row.where, f"the line is {shown(written)}; a whole number is expected")
    if label is None or not str(label).strip():
        raise DataError(row.where, "the label is empty", "give it one, or remove the row")
    if "\0" in str(file):
        raise DataError(row.where, f"the file is {shown(str(file))}; no file has such a name")
    of = SourceLocation(unguarded(str(file or "")), int(written.partition(".")[0]) if written else -1)
    return Correction(row.where, of, _comparable(row.text), unguarded(str(label)))


def _comparable(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _resolved(file: str) -> str:
    """One name for a file, however it is written; data of the Hub has no file."""
    return file if file.startswith("hub:") else str(Path(file).resolve())
