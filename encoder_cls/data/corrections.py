"""A CSV file in which a person has mended labels in; the rows of the data with these labels out (`data.corrections`).

`encoder-cls review` writes such a file, `evaluation/labels` the like into each report. A row of it names file and
line of a row of the data. Its cell `label` is what that row's label is to be, where its text is the same still.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.readers import Row, read_rows_and_columns
from encoder_cls.data.rows import Reading, SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown, unguarded
from encoder_cls.system.encodings import is_utf8

COLUMNS = ("split", "file", "line", "text", "label", "suggested", "score")
NEEDED = ("file", "line", "label")  # besides `text`
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0+)?")  # a line, also as a spreadsheet may have it


class Correction(NamedTuple):
    """What the row at a place of the data is to have: its text, as it was read, and its label.

    Attributes:
        where: the row of the file of corrections.
        of: the place in the data, as it is written there.
        text: with line feeds for all line ends, since spreadsheets change these.
        label: the name of a class.
    """

    where: SourceLocation
    of: SourceLocation
    text: str
    label: str


class Corrections:
    """The corrections of a data set, whose rows are to be passed through `applied`, source by source.

    Args:
        source: the file; none: there are no corrections.
        encoding: of the data, which the file may have, too; UTF-8 is seen.
        label_names: as `data.label_names`.

    Raises:
        DataError: the file is missing or malformed.
    """

    def __init__(self, source: str | None, *, encoding: str, label_names: Sequence[str] | None) -> None:
        self._source = source or ""
        self._label_names = label_names
        self._reading = Reading(encoding=encoding, is_sure=False)
        self._by_place = _by_place(source, self._reading) if source else {}
        self._files: dict[str, str] = {}
        self._not_found = dict(self._by_place)
        self._known: set[str] = set(label_names or ())

    def __len__(self) -> int:
        return len(self._by_place)

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of how the file was read."""
        return self._reading.notes

    def applied(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows with mended labels; those that had another are in `corrected_from`.

        Raises:
            DataError: the text of a row is another than in the file.
        """
        if not self._by_place:
            yield from rows
            return
        for row in rows:
            if isinstance(row.label, str | int):
                self._known.add(self._name(row.label))
            place = self._place(row.where)
            correction = self._not_found.pop(place, None) or self._by_place.get(place)
            yield self._corrected(row, correction) if correction else row

    def check_all_applied(self) -> None:
        """Make sure, once all sources have been read, that each row has been found, with a label that occurs.

        Raises:
            DataError: one has not, or its label occurs nowhere in the data.
        """
        for correction in self._not_found.values():
            raise DataError(
                f"{correction.where}: no row of the data is at {correction.of}: has the data been moved or changed "
                "since the review? Mend the columns file and line, or remove the row"
            )
        for correction in self._by_place.values():
            if correction.label not in self._known and correction.label.strip() not in self._known:
                names = ", ".join(map(shown, sorted(self._known)[:20]))
                raise DataError(
                    f"{correction.where}: label {shown(correction.label)} occurs nowhere in the data ({names}); mend "
                    "the cell, or give the row its new label in the data itself"
                )

    def _place(self, where: SourceLocation) -> tuple[str, int]:
        file = self._files.get(where.file)
        if file is None:
            file = self._files[where.file] = _resolved(where.file)
        return file, where.line

    def _name(self, label: str | int) -> str:
        """The name of a label that may be an index into `data.label_names`."""
        names, written = self._label_names, str(label)
        if names is None or written in names:
            return written
        return names[int(written)] if re.fullmatch(r"[0-9]{1,9}", written) and int(written) < len(names) else written

    def _corrected(self, row: Row, correction: Correction) -> Row:
        if _comparable(row.text) not in (correction.text, unguarded(correction.text)):
            raise DataError(
                f"{correction.where}: the text is not that of {correction.of} ({shown(row.text, limit=60)}): the data "
                "or the cell was changed since the review; remove the row, or review again"
            )
        label, names = correction.label.strip(), self._label_names  # what is typed may have a blank behind it
        if not isinstance(row.label, str | int) or self._name(row.label) in (correction.label, label):
            return row
        # As the source writes its labels: a name, or an index into the names.
        if names and label in names and str(row.label) not in names:
            label = str(names.index(label))
        is_integer = isinstance(row.label, int) and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label)
        return row._replace(label=int(label) if is_integer else label, corrected_from=row.label)


def _by_place(source: str, reading: Reading) -> dict[tuple[str, int], Correction]:
    """The corrections of a file by the place of the row in the data."""
    found: dict[tuple[str, int], Correction] = {}
    rows = read_rows_and_columns(source, text_columns=("text",), reading=reading)
    try:
        for correction in (_correction(source, row, record) for row, record in rows):
            other = found.setdefault((_resolved(correction.of.file), correction.of.line), correction)
            _check_same(correction, other)
    except DataError as error:
        if "data.encoding" in str(error) and is_utf8(reading.encoding):
            raise DataError(f"{str(error).partition(';')[0]}; save it as CSV UTF-8") from None
        raise
    return found


def _check_same(correction: Correction, other: Correction) -> None:
    if other.label != correction.label:
        raise DataError(
            f"{correction.where}: gives {correction.of} the label {shown(correction.label)}, and {other.where} "
            f"gives it {shown(other.label)}; remove one of both"
        )


def _correction(source: str, row: Row, record: Mapping[str, Any]) -> Correction:
    missing = next((name for name in NEEDED if name not in record), None)
    if missing:
        raise DataError(
            f"{source}: no column {shown(missing)}; data.corrections names a file with the columns "
            f"{', '.join(COLUMNS)}, as encoder-cls review writes it"
        )
    file, line, label = (record[name] for name in NEEDED)
    written = "" if line is None else str(line).strip()
    if written and not _WHOLE.fullmatch(written):
        raise DataError(f"{row.where}: the line is {shown(written)}; a whole number is expected")
    if label is None or not str(label).strip():
        raise DataError(f"{row.where}: the label is empty; give it one, or remove the row")
    if "\0" in str(file):
        raise DataError(f"{row.where}: the file is {shown(str(file))}; no file has such a name")
    of = SourceLocation(unguarded(str(file or "")), int(written.partition(".")[0]) if written else -1)
    return Correction(row.where, of, _comparable(row.text), unguarded(str(label)))


def _comparable(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _resolved(file: str) -> str:
    """One name for a file, however it is written; data of the Hub has no file."""
    return file if file.startswith("hub:") else str(Path(file).resolve())
