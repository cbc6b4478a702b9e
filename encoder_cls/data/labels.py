"""Collect the labelled rows of a source, and decide the classes that their labels become."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Corrections
from encoder_cls.data.dataset import NO_GROUP, NO_TEXTS, LabelsAre, Unlabelled, group_number, label_key
from encoder_cls.data.readers import read_rows
from encoder_cls.data.rows import DiskBackedLocations, LeftOut, Reading, Row, SourceLocation
from encoder_cls.data.sources import FASTTEXT, JSON, TEXT
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedTexts, in_chunks
from encoder_cls.system.display import json_text, kind, shown
from encoder_cls.system.encodings import ending_of

_NUMBER = re.compile(r"[0-9]{1,9}")  # a longer one is a name
MOST_PASTED = 200  # names of classes in a message that is to be copied


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
        empty: the rows whose cell for the label is empty.
    """

    texts: DiskBackedTexts
    where: DiskBackedLocations
    labels: Mapping[str | int, SourceLocation]
    numbers: NDArray[np.int32]
    counts: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    corrected: Mapping[int, str]
    several: SourceLocation | None
    empty: LeftOut = field(default_factory=LeftOut)

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

    def by_frequency(self) -> list[str]:
        """Labels before corrections, without spaces around them: the most frequent first, of equally many the first."""
        labels, numbers = [*map(str, self.labels), *self.corrected.values()], self.numbers
        if self.corrected:
            numbers = numbers.copy()
            numbers[[*self.corrected]] = np.arange(len(self.labels), len(labels))
        counts: dict[str, int] = defaultdict(int)
        found, firsts, of_each = np.unique(numbers, return_index=True, return_counts=True)
        for place in np.argsort(firsts):
            counts[labels[found[place]].strip()] += int(of_each[place])
        return sorted(counts, key=lambda label: -counts[label])

    def respelled(self, spelling: Mapping[str, str]) -> LabelledRows:
        """The same rows with some labels written otherwise, of which several may become one."""
        new = [spelling.get(str(label), label) for label in self.labels]
        labels: dict[str | int, SourceLocation] = {}
        for label, where in zip(new, self.labels.values(), strict=True):
            labels.setdefault(label, where)
        places = {label: place for place, label in enumerate(labels)}
        numbers = np.array([places[label] for label in new], dtype=np.int32)[self.numbers]
        corrected = {row: spelling.get(label, label) for row, label in self.corrected.items()}
        changed = {row: label for row, label in corrected.items() if str(new[self.numbers[row]]) != label}
        return replace(self, labels=labels, numbers=numbers, corrected=changed)


def read_labelled(
    source: str, role: str, config: DataConfig, reading: Reading, corrections: Corrections | None = None
) -> LabelledRows:
    """Read a source whose rows have labels, and correct these."""
    rows = read_rows(
        source,
        role=role,
        text_columns=config.text_column,
        label_column=config.label_column,
        group_column=config.group_column,
        reading=reading,
    )
    if corrections:
        rows = corrections.applied(rows)
    if role != "train":
        return collect_labelled(rows, source, config, reading)
    empty = LeftOut()
    may_have_none = config.label_names is not None or not reading.skips
    collected = collect_labelled(_noted(rows, empty, config), source, config, reading, may_have_none=may_have_none)
    return replace(collected, empty=empty)


def _noted(rows: Iterable[Row], empty: LeftOut, config: DataConfig) -> Iterator[Row]:
    """Count rows whose label is empty, which of several labels in a cell means none."""
    for row in rows:
        if _is_empty(row.label) and (row.label is None or config.label_separator is None) and row.text.strip():
            empty.add(row.where)
        yield row


def collect_labelled(
    rows: Iterable[Row], source: str, config: DataConfig, reading: Reading, *, may_have_none: bool = False
) -> LabelledRows:
    """Collect rows with a text; `may_have_none`: whether an empty cell means no label."""
    texts, where = DiskBackedTexts(), DiskBackedLocations()
    numbers, counts, groups = DiskBackedArray(np.int32), DiskBackedArray(np.int64), DiskBackedArray(np.int64)
    labels: dict[str | int, SourceLocation] = {}
    indices: dict[str | int, int] = {}
    corrected: dict[int, str] = {}
    several = None
    for chunk in in_chunks(_with_text(rows, config, reading, may_have_none)):
        for at, (row, of_row) in enumerate(chunk, len(texts)):
            if row.corrected_from is not None:
                corrected[at] = str(row.corrected_from)
            if several is None and (len(of_row) > 1 if _is_fasttext(row.where) else isinstance(row.label, list)):
                several = row.where
            for label in of_row:
                indices.setdefault(label, len(indices))
                labels.setdefault(label, row.where)
        numbers.append([indices[label] for _, of_row in chunk for label in of_row])
        counts.append([len(of_row) for _, of_row in chunk])
        groups.append([NO_GROUP if row.group is None else group_number(row.group) for row, _ in chunk])
        texts.append([row.text for row, _ in chunk])
        where.append([row.where for row, _ in chunk])
    _check_left_out(source, len(texts), config, reading)
    of_rows = groups.array() if config.group_column else None
    return LabelledRows(texts, where, labels, numbers.array(), counts.array(), of_rows, corrected, several)


def _with_text(
    rows: Iterable[Row], config: DataConfig, reading: Reading, may_have_none: bool
) -> Iterator[tuple[Row, list[str | int]]]:
    """Rows with their labels; those without a text are counted."""
    for row in rows:
        if not row.text.strip():
            reading.notes.empty.add(row.where)
            continue
        try:
            _check_unicode(row)
            labels = [] if may_have_none and _is_empty(row.label) else _labels(row, config.label_separator)
        except DataError as error:
            reading.bad_row(error)
            continue
        yield row, labels


def _check_left_out(source: str, num_texts: int, config: DataConfig, reading: Reading) -> None:
    empty, skipped = reading.notes.empty, reading.notes.skipped
    total = empty.count + num_texts
    if empty.count > {"auto": math.ceil(total / 100), "drop": total, "error": 0}[config.empty_texts]:
        locations = str(empty).partition(" ")[2]
        several = f", as in {empty.count:,} of {total:,} rows {locations}" if empty.count > 1 else ""
        hint = "correct the file, or leave such rows out with data.empty_texts=drop"
        raise DataError(empty.first[0], f"the text is empty{several}", hint)
    if not num_texts:
        left_out = f" ({skipped.count:,} are left out; {skipped.first[0]}: {skipped.reason})" if skipped.count else ""
        raise DataError(source, f"no rows with a text{left_out}")


def _is_empty(label: object) -> bool:
    return label is None or (isinstance(label, str) and not label.strip())


def check_none_empty(all_rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool) -> None:
    """Raise a DataError if rows of train have an empty label and no class has a name."""
    empty = all_rows["train"].empty if "train" in all_rows else LeftOut()
    if not empty.count or config.label_names is not None or config.bad_rows == "skip":
        return
    several = f", as in {empty.count:,} of {len(all_rows['train'].texts):,} rows" if empty.count > 1 else ""
    hint = use_of_empty(all_rows, config, is_multi_label=is_multi_label)
    raise DataError(empty.first[0], f"the label is empty{several}", hint)


def use_of_empty(all_rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool = False) -> str:
    """What can be done with rows of train that have no label."""
    if not all_rows["train"].labels:
        return "name the classes in data.label_names to learn from their names"
    skip = "data.bad_rows=skip leaves such rows out"
    if is_multi_label:
        return f"write [] where a text has none of the labels; {skip}"
    spelling = spellings(all_rows.values(), config)
    written = first_locations(all_rows.values())
    names = Classes(None, "names").in_order(spelling.get(it, it).strip() for it in written)
    setting = f"data.label_names=[{', '.join(map(json_text, names))}]"
    how = f"add --set {shlex.quote(setting)}"
    if len(names) > MOST_PASTED:
        how = f"list the names of the {len(names):,} classes in data.label_names"
    return f"to use such rows as texts without labels, {how}; {skip}"


def _check_unicode(row: Row) -> None:
    """Raise a DataError if a row cannot be written as UTF-8."""
    labels = row.label if isinstance(row.label, list | tuple) else [row.label]
    for name, value in (("text", row.text), *(("label", str(label)) for label in labels)):
        try:
            if not value.isascii():
                value.encode()
        except UnicodeEncodeError as error:
            what = f"the {name} holds half of a surrogate pair at character {error.start}"
            raise DataError(row.where, what) from None


def _is_fasttext(where: SourceLocation) -> bool:
    """Whether a row is a line of a fastText file, where one label is written as several are."""
    return where.line >= 0 and _ending(where.file) in (FASTTEXT, TEXT)


@lru_cache
def _ending(file: str) -> str:
    return ending_of(Path(file))


def _labels(row: Row, separator: str | None) -> list[str | int]:
    if separator is not None and isinstance(row.label, str):
        labels: list[str | int] = [part.strip() for part in row.label.split(separator) if part.strip()]
    else:
        labels = [_label(row, it) for it in (row.label if isinstance(row.label, list | tuple) else [row.label])]
    return list({str(label): label for label in reversed(labels)}.values())[::-1] if len(labels) > 1 else labels


def _label(row: Row, label: object) -> str | int:
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(row.where, f"the label is {kind(label)}; a name or an integer is expected")
    if isinstance(label, str) and not label.strip():
        raise DataError(row.where, "the label is empty", "only in train may it be, with data.label_names")
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


def spellings(all_rows: Iterable[LabelledRows], config: DataConfig, known: Sequence[str] = ()) -> dict[str, str]:
    """The class of each label that is written otherwise, as `data.fold_labels` and `data.label_names` have it.

    Args:
        all_rows: those of train first, whose spelling holds.
        config: of this data.
        known: further classes, which are written so.

    Raises:
        ConfigError: two classes that have a name are one with `data.fold_labels`.
    """
    every, names = list(all_rows), config.label_names or ()
    labels = {str(label) for rows in every for label in (*rows.labels, *rows.corrected.values())}
    if not config.fold_labels:
        return {label: label.strip() for label in labels if names and label not in names}
    classes: dict[str, str] = {}
    for name in (*known, *names):
        other = classes.setdefault(label_key(name), name)
        if other != name:
            where = "data.label_names" if name in names else "the run"
            what = f"data.fold_labels=true makes one class of {other!a} and {name!a}, which are two in {where}"
            raise ConfigError(what)
    for rows in every:
        for label in rows.by_frequency():
            classes.setdefault(label_key(label), label)
    return {label: classes[label_key(label)] for label in labels}


def what_labels_are(found: Mapping[str, str], names: Sequence[str] | None) -> LabelsAre:
    """Decide whether all labels, given with their first locations, are names, or all are indices into the names.

    Raises:
        DataError: they can be both, which would give other classes, or they are neither.
    """
    if names is None:
        return "names"
    are_names = all(label in names for label in found)
    are_indices = all(_NUMBER.fullmatch(label) and int(label) < len(names) for label in found)
    if are_names and are_indices and all(label == str(int(label)) for label in found):  # nobody writes an index as 01
        for label, where in found.items():
            meant = names[int(label)]
            if meant != label:
                what = f"label {label} may be the name {shown(label)} or the number of {shown(meant)} in "
                what += "data.label_names"
                hint = "if labels are names, set data.label_names=null; if they are numbers, give it other names, "
                hint += f"such as {shown('class ' + label)}"
                raise DataError(where, what, hint)
    if are_names or are_indices:
        return "names" if are_names else "indices"
    first = next(iter(found))
    nearest = Classes(names, "indices" if _NUMBER.fullmatch(first) and first not in names else "names")
    for label, where in found.items():
        nearest.name(label, where)
    raise AssertionError("each label fits")


@dataclass(frozen=True)
class Classes:
    """How labels become classes."""

    names: Sequence[str] | None  # data.label_names
    labels_are: LabelsAre

    def of(self, labels: Mapping[str | int, str]) -> list[str]:
        """The class of each label, given with its location."""
        return [self.name(str(label), where) for label, where in labels.items()]

    def name(self, label: str, where: str) -> str:
        """The class of a label; a DataError with its location if it has none."""
        names = self.names
        if names is None:
            return label
        is_number = bool(_NUMBER.fullmatch(label))
        if self.labels_are == "indices" and is_number:
            if int(label) >= len(names):
                raise DataError(where, f"label {label} has no name", f"data.label_names holds {len(names)} names")
            return names[int(label)]
        if self.labels_are == "names" and label in names:
            return label
        both = "labels are either all names, or all numbers from 0 on"
        if label in names:
            raise DataError(where, f"label {shown(label)} is a name where others are numbers", both)
        raise DataError(where, f"label {shown(label)} is not in data.label_names", both if is_number else "")

    def in_order(self, classes: Iterable[str]) -> tuple[str, ...]:
        """Each class once, as in `data.label_names`, or else by number if all are numbers, or by alphabet."""
        distinct = set(classes)
        if self.names is not None:
            return tuple(name for name in self.names if name in distinct)
        if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in distinct):
            return tuple(sorted(distinct, key=lambda name: (int(name), name)))  # `1` and `01` are two classes
        return tuple(sorted(distinct))


def names_as_texts(names: Sequence[str]) -> list[str]:
    """The words of the name of each class; empty where it has no letter, as in a number."""
    return [_words(name) if any(map(str.isalpha, name)) else "" for name in names]


def _words(name: str) -> str:
    """Split at characters other than letters and digits, and before a capital after a small letter."""
    starts = [False, *(one.islower() and two.isupper() for one, two in pairwise(name))]
    spaced = "".join(f" {letter}" if is_start else letter for letter, is_start in zip(name, starts, strict=True))
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
