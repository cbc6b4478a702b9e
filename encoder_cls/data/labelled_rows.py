"""A labelled source in; its texts, labels and locations out, which memory need not hold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Corrections
from encoder_cls.data.holdout import NO_GROUP, group_number
from encoder_cls.data.labels import FORMER, LabelsAre, class_name, in_order
from encoder_cls.data.readers import Row, read_rows
from encoder_cls.data.rows import SHOWN_ROWS, Reading, SourceLocation
from encoder_cls.data.sources import FASTTEXT, JSON, TEXT
from encoder_cls.data.split import NO_TEXTS, Unlabelled
from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray, DiskBackedTexts, LazyTexts, in_chunks
from encoder_cls.system.display import kind
from encoder_cls.system.encodings import ending_of

_FASTTEXT_LINES = (
    "labelled .txt and .ft files are fastText's, each line beginning with __label__ (or put each text in a file in a "
    "folder of its class, or save a CSV file)"
)


class DiskBackedLocations(LazyTexts):
    """Where rows were read, each as a number for the file and one for the line."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._file_numbers = DiskBackedArray(np.int32)
        self._lines = DiskBackedArray(np.int64)
        self._rows_in_all = 0

    @classmethod
    def of(cls, files: Sequence[str], numbers: DiskBackedArray[np.int32], lines: DiskBackedArray[np.int64]) -> Self:
        """The locations that `columns` returned, none to be appended."""
        locations = cls()
        locations._files = {file: number for number, file in enumerate(files)}
        locations._file_numbers, locations._lines = numbers, lines
        locations._rows_in_all = len(lines.array())
        return locations

    def columns(self) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64]]:
        """All files, and of each row the number of its file among them, and its line."""
        return list(self._files), self._file_numbers.array(), self._lines.array()

    def append(self, locations: Sequence[SourceLocation]) -> None:
        """Add locations at the end."""
        self._file_numbers.append([self._files.setdefault(location.file, len(self._files)) for location in locations])
        self._lines.append([location.line for location in locations])
        self._rows_in_all += len(locations)

    def _count(self) -> int:
        return self._rows_in_all

    def _at(self, rows: NDArray[np.int64]) -> list[str]:
        files = list(self._files)
        numbers = zip(self._file_numbers.array()[rows].tolist(), self._lines.array()[rows].tolist(), strict=True)
        return [str(SourceLocation(files[file], line)) for file, line in numbers]


@dataclass(kw_only=True)
class LabelledRows:
    """The labelled rows of a source, as far as it is read.

    Attributes:
        labels: of each label, an integer as its digits, the location of its first row, in the order of these.
        types: of each label that a format has as an integer or as a text, the first location of each.
        numbers: of each row the indices of its labels in `labels`.
        several: where the first row is whose labels are in a list, or several in a fastText line; none: there is none.
        none: where the first row without a label is.
        groups: of each row the number of its group, where `data.group_column` names them, else nothing.
        corrected: the labels that rows had in the data, by index, where `data.corrections` has given them another.
        left_out: rows without a text.
        first_left_out: where the first of these are.
        reading: how they were read, and what came up.
    """

    texts: DiskBackedTexts = field(default_factory=DiskBackedTexts)
    where: DiskBackedLocations = field(default_factory=DiskBackedLocations)
    labels: dict[str, SourceLocation] = field(default_factory=dict)
    types: dict[str, dict[type, SourceLocation]] = field(default_factory=lambda: defaultdict(dict))
    numbers: DiskBackedRaggedArray[np.int32] = field(default_factory=lambda: DiskBackedRaggedArray(np.int32))
    several: SourceLocation | None = None
    none: SourceLocation | None = None
    groups: DiskBackedArray[np.int64] = field(default_factory=lambda: DiskBackedArray(np.int64))
    corrected: dict[int, str] = field(default_factory=dict)
    left_out: int = 0
    first_left_out: list[SourceLocation] = field(default_factory=list)
    reading: Reading = field(default_factory=Reading)

    def leave_out_unlabelled(self) -> None:
        """Keep the rows that have a label, where each is to have one; the others are bad rows.

        Raises:
            DataError: there are others, and bad rows are not to be left out.
        """
        for where in self.take_unlabelled().where:
            self.reading.bad_row(where, DataError(f"{where}: the line has no label; {_FASTTEXT_LINES}"))

    def take_unlabelled(self) -> Unlabelled:
        """Keep the rows that have a label, and return the others."""
        if self.none is None:
            return NO_TEXTS
        _, offsets = self.numbers.arrays()
        counts = np.diff(offsets)
        others = np.flatnonzero(counts == 0)
        unlabelled = Unlabelled(texts=self.texts.select(others), where=self.where.select(others))
        labelled, self.none = np.flatnonzero(counts), None
        self.texts, self.where = self.texts.select(labelled), self.where.select(labelled)
        self.corrected = {int(np.searchsorted(labelled, row)): label for row, label in self.corrected.items()}
        if self.reading.group_column:
            groups = self.groups.array()[labelled]
            self.groups = DiskBackedArray(np.int64)
            self.groups.append(groups)
        return unlabelled


def read_labelled(source: str, role: str, config: DataConfig, corrections: Corrections | None = None) -> LabelledRows:
    """Read a source whose rows have labels, which the corrections mend.

    Raises:
        DataError: it is malformed, has no text, or more rows without one than `data.empty_texts` allows.
    """
    reading = new_reading(config)
    found = read_rows(
        source, role=role, text_columns=config.text_column, label_column=config.label_column, reading=reading
    )
    if corrections:
        found = corrections.applied(found)
    return collect_labelled(
        found,
        source,
        empty_texts=config.empty_texts,
        label_separator=config.label_separator,
        may_have_none=role == "train" and config.label_names is not None,
        reading=reading,
    )


def new_reading(config: DataConfig) -> Reading:
    """How files are read as the config has it."""
    return Reading(
        delimiter=config.delimiter,
        encoding=config.encoding,
        bad_rows=config.bad_rows,
        group_column=config.group_column,
    )


def collect_labelled(
    found: Iterable[Row],
    source: str,
    *,
    empty_texts: str,
    label_separator: str | None = None,
    may_have_none: bool = False,
    reading: Reading | None = None,
) -> LabelledRows:
    """Collect rows that have labels.

    Args:
        found: the rows.
        source: what to call them in a message.
        empty_texts: as `data.empty_texts`.
        label_separator: as `data.label_separator`.
        may_have_none: whether an empty cell says that a row has no label.
        reading: how they are read.

    Raises:
        DataError: as `read_labelled`.
    """
    rows = LabelledRows(reading=reading or Reading())
    indices: dict[str, int] = {}
    numbers: dict[str | int, int] = {}  # 1 and "1" are two keys of one number
    for chunk in in_chunks(_with_text(found, rows, label_separator, may_have_none)):
        texts, labels_of_rows, locations, groups, former = zip(*chunk, strict=True)
        start = len(rows.texts)
        rows.corrected |= {start + at: str(label) for at, label in enumerate(former) if label is not None}
        for labels, location in zip(labels_of_rows, locations, strict=True):
            for label in labels:
                if label not in numbers:
                    rows.labels.setdefault(str(label), location)
                    numbers[label] = indices.setdefault(str(label), len(indices))
                    if _has_types(location):
                        rows.types[str(label)][type(label)] = location
        rows.texts.append(texts)
        rows.where.append(locations)
        of_chunk = np.array([numbers[label] for labels in labels_of_rows for label in labels], dtype=np.int32)
        rows.numbers.append(of_chunk, [*map(len, labels_of_rows)])
        if rows.reading.group_column:
            rows.groups.append([NO_GROUP if group is None else group_number(group) for group in groups])
    _check_left_out(rows, empty_texts)
    if not len(rows.texts):
        skipped = rows.reading.skipped
        left_out = (
            f" ({skipped.num_rows:,} are left out; {skipped.first[0]}: {skipped.reason})" if skipped.num_rows else ""
        )
        raise DataError(f"{source}: no rows with a text{left_out}")
    return rows


def _with_text(
    found: Iterable[Row], rows: LabelledRows, label_separator: str | None, may_have_none: bool
) -> Iterator[tuple[str, Sequence[str | int], SourceLocation, str | None, str | int | None]]:
    """Text, labels, location, group and former label of each row; those without a text are counted in `rows`."""
    for row in found:
        if not row.text.strip():
            if rows.left_out < SHOWN_ROWS:
                rows.first_left_out.append(row.where)
            rows.left_out += 1
            continue
        try:
            check_unicode(row)
            labels = [] if may_have_none and _is_empty(row.label) else _labels(row, label_separator)
        except DataError as error:
            rows.reading.bad_row(row.where, error)
            continue
        is_list, is_line = isinstance(row.label, list), is_fasttext(row.where)
        if rows.several is None and (len(labels) > 1 if is_line else is_list):
            rows.several = row.where
        if rows.none is None and not labels:
            rows.none = row.where
        yield row.text, labels, row.where, row.group, row.corrected_from


def _has_types(location: SourceLocation) -> bool:
    """Whether a format tells integers from texts; in a CSV file both are characters."""
    return location.file.startswith("hub:") or _ending(location.file) in (".jsonl", JSON, ".parquet", ".xlsx")


@lru_cache
def _ending(file: str) -> str:
    """Of a file's name; asked for each of its rows, of which there may be millions."""
    return ending_of(Path(file))


def _check_left_out(rows: LabelledRows, empty_texts: str) -> None:
    total = rows.left_out + len(rows.texts)
    most = {"auto": math.ceil(total / 100), "drop": total, "error": 0}[empty_texts]
    if rows.left_out > most:
        locations = ", ".join(map(str, rows.first_left_out)) + (", …" if rows.left_out > SHOWN_ROWS else "")
        several = f", as in {rows.left_out:,} of {total:,} rows ({locations})" if rows.left_out > 1 else ""
        raise DataError(
            f"{rows.first_left_out[0]}: the text is empty{several}; mend the file, or leave such rows out with "
            "data.empty_texts=drop"
        )


def check_unicode(row: Row) -> None:
    """Make sure that a row can be written as UTF-8.

    Raises:
        DataError: it cannot.
    """
    labels = row.label if isinstance(row.label, list | tuple) else [row.label]
    for name, value in (("text", row.text), *(("label", str(label)) for label in labels)):
        try:
            if not value.isascii():
                value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{row.where}: the {name} holds half of a surrogate pair at character {error.start}"
            ) from None


def is_fasttext(where: SourceLocation) -> bool:
    """Whether a row is a line of a fastText file, where one label is written as several are."""
    return where.line >= 0 and _ending(where.file) in (FASTTEXT, TEXT)


def _labels(row: Row, separator: str | None) -> list[str | int]:
    """The labels of a row, each once."""
    found: list[str | int] = []
    if isinstance(row.label, list | tuple):
        found = [_label(row, label) for label in row.label]
    elif separator is not None and isinstance(row.label, str):
        found = [part.strip() for part in row.label.split(separator) if part.strip()]
    else:
        found = [_label(row, row.label)]
    return list({str(label): label for label in reversed(found)}.values())[::-1] if len(found) > 1 else found


def _is_empty(label: object) -> bool:
    return label is None or (isinstance(label, str) and not label.strip())


def _label(row: Row, label: object) -> str | int:
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(f"{row.where}: the label is {kind(label)}; a name or an integer is expected")
    if isinstance(label, str) and not label.strip():
        raise DataError(
            f"{row.where}: the label is empty; only in train may it be, and where data.label_names is there"
        )
    return label


def former_labels(rows: LabelledRows, names: Sequence[str] | None, labels_are: LabelsAre) -> NDArray[np.int64] | None:
    """The classes of rows, of one label each, before they were corrected, numbered from 0 on; none: none was."""
    if not rows.corrected:
        return None
    named = partial(class_name, where=FORMER, names=names, labels_are=labels_are)
    former = {row: named(label) for row, label in rows.corrected.items()}
    current = [named(label) for label in rows.labels]
    numbers = {name: number for number, name in enumerate(in_order({*current, *former.values()}, names))}
    labels = np.array([numbers[name] for name in current], dtype=np.int64)[rows.numbers.arrays()[0]]
    labels[list(former)] = [numbers[name] for name in former.values()]
    dense: NDArray[np.int64] = np.unique(labels, return_inverse=True)[1].reshape(-1)
    return dense


def first_locations(all_rows: Iterable[LabelledRows]) -> dict[str, SourceLocation]:
    """All labels, each with where it is first."""
    locations: dict[str, SourceLocation] = {}
    for rows in all_rows:
        locations = rows.labels | locations
    return locations


def labels_of_two_types(all_rows: Iterable[LabelledRows]) -> dict[str, tuple[str, str]]:
    """Of each label that is an integer in one row and a text in another, where the first of each are."""
    types: dict[str, dict[type, SourceLocation]] = defaultdict(dict)
    for rows in all_rows:
        for label, locations in rows.types.items():
            types[label] = locations | types[label]
    return {label: (str(it[int]), str(it[str])) for label, it in types.items() if len(it) > 1}
