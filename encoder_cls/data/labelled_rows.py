"""Collect the labelled rows of a source on disk."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Corrections
from encoder_cls.data.dataset import NO_TEXTS, Unlabelled
from encoder_cls.data.holdout import NO_GROUP, group_number
from encoder_cls.data.readers import read_rows
from encoder_cls.data.rows import LeftOut, Reading, Row, SourceLocation
from encoder_cls.data.sources import FASTTEXT, JSON, TEXT
from encoder_cls.data.store import DiskBackedLocations
from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedTexts, in_chunks
from encoder_cls.system.display import kind
from encoder_cls.system.encodings import ending_of


@dataclass(frozen=True)
class LabelledRows:
    """The labelled rows of a source.

    Attributes:
        labels: the first location of each label, also of `1` and `"1"`.
        numbers: the indices in `labels` of the labels of all rows, one row after the other.
        counts: how many labels each row has.
        groups: the number of the group of each row, where `data.group_column` names them.
        corrected: by row, the label before `data.corrections` gave it another.
        several: the location of the first row whose labels are in a list, or several in a fastText line.
    """

    texts: DiskBackedTexts
    where: DiskBackedLocations
    labels: Mapping[str | int, SourceLocation]
    numbers: NDArray[np.int32]
    counts: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    corrected: Mapping[int, str]
    several: SourceLocation | None

    def divided(self) -> tuple[LabelledRows, Unlabelled]:
        """The rows that have a label, and the texts of the others."""
        rows, others = np.flatnonzero(self.counts), np.flatnonzero(self.counts == 0)
        if not len(others):
            return self, NO_TEXTS
        labelled = replace(
            self,
            texts=self.texts.select(rows),
            where=self.where.select(rows),
            counts=self.counts[rows],
            groups=None if self.groups is None else self.groups[rows],
            corrected={int(np.searchsorted(rows, row)): label for row, label in self.corrected.items()},
        )
        return labelled, Unlabelled(texts=self.texts.select(others), where=self.where.select(others))


def read_labelled(
    source: str, role: str, config: DataConfig, reading: Reading, corrections: Corrections | None = None
) -> LabelledRows:
    """Read a source whose rows have labels, and correct these."""
    found = read_rows(
        source,
        role=role,
        text_columns=config.text_column,
        label_column=config.label_column,
        group_column=config.group_column,
        reading=reading,
    )
    found = corrections.applied(found) if corrections else found
    may_have_none = role == "train" and config.label_names is not None
    return collect_labelled(found, source, config, reading, may_have_none=may_have_none)


def collect_labelled(
    found: Iterable[Row], source: str, config: DataConfig, reading: Reading, *, may_have_none: bool = False
) -> LabelledRows:
    """Collect labelled rows; `may_have_none`: whether an empty cell means no label."""
    texts, where = DiskBackedTexts(), DiskBackedLocations()
    numbers, counts, groups = DiskBackedArray(np.int32), DiskBackedArray(np.int64), DiskBackedArray(np.int64)
    labels: dict[str | int, SourceLocation] = {}
    indices: dict[str | int, int] = {}
    corrected: dict[int, str] = {}
    several = None
    for chunk in in_chunks(_with_text(found, config, reading, may_have_none)):
        for at, (row, of_row) in enumerate(chunk, len(texts)):
            if row.corrected_from is not None:
                corrected[at] = str(row.corrected_from)
            if several is None and (len(of_row) > 1 if is_fasttext(row.where) else isinstance(row.label, list)):
                several = row.where
            for label in of_row:
                if label not in indices:
                    indices[label], labels[label] = len(indices), row.where
        numbers.append([indices[label] for _, of_row in chunk for label in of_row])
        counts.append([len(of_row) for _, of_row in chunk])
        if config.group_column:
            groups.append([NO_GROUP if row.group is None else group_number(row.group) for row, _ in chunk])
        texts.append([row.text for row, _ in chunk])
        where.append([row.where for row, _ in chunk])
    _check_left_out(reading.notes.empty, len(texts), config.empty_texts)
    if not len(texts):
        skipped = reading.notes.skipped
        left_out = f" ({skipped.count:,} are left out; {skipped.first[0]}: {skipped.reason})" if skipped.count else ""
        raise DataError(source, f"no rows with a text{left_out}")
    of_rows = groups.array() if config.group_column else None
    return LabelledRows(texts, where, labels, numbers.array(), counts.array(), of_rows, corrected, several)


def _with_text(
    found: Iterable[Row], config: DataConfig, reading: Reading, may_have_none: bool
) -> Iterator[tuple[Row, list[str | int]]]:
    """Rows with their labels; those without a text are counted."""
    for row in found:
        if not row.text.strip():
            reading.notes.empty.add(row.where)
            continue
        try:
            check_unicode(row)
            is_empty = row.label is None or (isinstance(row.label, str) and not row.label.strip())
            labels = [] if may_have_none and is_empty else _labels(row, config.label_separator)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield row, labels


def _check_left_out(empty: LeftOut, num_texts: int, empty_texts: str) -> None:
    total = empty.count + num_texts
    if empty.count > {"auto": math.ceil(total / 100), "drop": total, "error": 0}[empty_texts]:
        locations = str(empty).partition(" ")[2]
        several = f", as in {empty.count:,} of {total:,} rows {locations}" if empty.count > 1 else ""
        raise DataError(
            empty.first[0],
            f"the text is empty{several}",
            "mend the file, or leave such rows out with data.empty_texts=drop",
        )


def check_unicode(row: Row) -> None:
    """Raise a DataError if a row cannot be written as UTF-8."""
    labels = row.label if isinstance(row.label, list | tuple) else [row.label]
    for name, value in (("text", row.text), *(("label", str(label)) for label in labels)):
        try:
            if not value.isascii():
                value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                row.where, f"the {name} holds half of a surrogate pair at character {error.start}"
            ) from None


def is_fasttext(where: SourceLocation) -> bool:
    """Whether a row is a line of a fastText file, where one label is written as several are."""
    return where.line >= 0 and _ending(where.file) in (FASTTEXT, TEXT)


@lru_cache
def _ending(file: str) -> str:
    return ending_of(Path(file))


def _labels(row: Row, separator: str | None) -> list[str | int]:
    found: list[str | int] = []
    if isinstance(row.label, list | tuple):
        found = [_label(row, label) for label in row.label]
    elif separator is not None and isinstance(row.label, str):
        found = [part.strip() for part in row.label.split(separator) if part.strip()]
    else:
        found = [_label(row, row.label)]
    return list({str(label): label for label in reversed(found)}.values())[::-1] if len(found) > 1 else found


def _label(row: Row, label: object) -> str | int:
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(row.where, f"the label is {kind(label)}; a name or an integer is expected")
    if isinstance(label, str) and not label.strip():
        raise DataError(row.where, "the label is empty", "only in train may it be, and where data.label_names is there")
    return label


def first_locations(all_rows: Iterable[LabelledRows]) -> dict[str, str]:
    """The first location of each label, an integer as its digits."""
    locations: dict[str, str] = {}
    for rows in all_rows:
        for label, where in rows.labels.items():
            locations.setdefault(str(label), where)
    return locations


def labels_of_two_types(all_rows: Iterable[LabelledRows]) -> dict[str, tuple[str, str]]:
    """The first locations of each label that is an integer in one row and a text in another."""
    types: dict[str, dict[type, str]] = defaultdict(dict)
    for rows in all_rows:
        for label, where in rows.labels.items():
            # In other formats both are characters.
            if where.file.startswith("hub:") or _ending(where.file) in (".jsonl", JSON, ".parquet", ".xlsx"):
                types[str(label)].setdefault(type(label), where)
    return {label: (it[int], it[str]) for label, it in types.items() if len(it) > 1}
