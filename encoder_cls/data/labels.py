"""Collect the labelled rows of a source, and decide the classes that their labels become."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Correction, Corrections
from encoder_cls.data.dataset import NO_GROUP, NO_TEXTS, LabelsAre, Unlabelled, group_number, label_key, listed
from encoder_cls.data.rows import DiskBackedLocations, LeftOut, Reading, Row, SourceLocation
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedTexts, in_chunks
from encoder_cls.system.display import json_text, kind, shown

_NUMBER = re.compile(r"[0-9]{1,9}")  # a longer one is a name


# ---------------------------------------------------------------- rows with labels


@dataclass(frozen=True)
class LabelledRows:
    """The labelled rows of a source."""

    texts: DiskBackedTexts
    where: DiskBackedLocations
    labels: Mapping[str, SourceLocation]  # the first location of each label, an integer as its digits
    numbers: NDArray[np.int32]  # the indices in `labels`, later in `Classes.every`, of the labels of each row in turn
    counts: NDArray[np.int64]  # how many labels each row has
    groups: NDArray[np.int64] | None  # the number of the group of each row, where `data.group_column` names them
    corrected: Mapping[int, Sequence[Correction]]  # by row; one at most, once they are settled
    several: SourceLocation | None  # of the first row whose labels are in a list, or several in a fastText line
    empty: LeftOut  # rows of train whose cell for the label is empty

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
            corrected={int(np.searchsorted(rows, row)): it for row, it in self.corrected.items()},
        )
        return labelled, Unlabelled(texts=self.texts.select(others), where=self.where.select(others))

    def by_frequency(self) -> list[str]:
        """Labels without spaces around them: the most frequent first, of equally many the first."""
        counts: dict[str, int] = defaultdict(int)
        for label, count in zip(self.labels, np.bincount(self.numbers).tolist(), strict=True):
            counts[label.strip()] += count
        return sorted(counts, key=lambda label: -counts[label])


def read_labelled(
    source: str, role: str, config: DataConfig, reading: Reading, corrections: Corrections | None = None
) -> LabelledRows:
    """Read a source whose rows have labels, with the corrections of these."""
    rows = read_rows(
        source,
        role=role,
        text_columns=config.text_column,
        label_column=config.label_column,
        group_column=config.group_column,
        reading=reading,
    )
    # Without names of classes, empty labels of train are one error about all of them (`check_none_empty`).
    may_have_none = role == "train" and (config.label_names is not None or not reading.skips)
    return collect_labelled(rows, source, config, reading, corrections, may_have_none=may_have_none)


def collect_labelled(
    rows: Iterable[Row],
    source: str,
    config: DataConfig,
    reading: Reading,
    corrections: Corrections | None = None,
    *,
    may_have_none: bool = False,
) -> LabelledRows:
    """Collect rows with a text; `may_have_none`: whether an empty cell means no label."""
    texts, where = DiskBackedTexts(), DiskBackedLocations()
    numbers, counts, groups = DiskBackedArray(np.int32), DiskBackedArray(np.int64), DiskBackedArray(np.int64)
    labels: dict[str, SourceLocation] = {}
    indices: dict[str, int] = {}
    corrected: dict[int, Sequence[Correction]] = {}
    several, empty = None, LeftOut() if may_have_none else None
    for chunk in in_chunks(_with_text(rows, config, reading, empty)):
        for at, (row, of_row) in enumerate(chunk, len(texts)):
            if corrections and (its := corrections.of(row)):
                corrected[at] = its
            if several is None and isinstance(row.label, list):
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
    return LabelledRows(
        texts,
        where,
        labels,
        numbers.array(),
        counts.array(),
        groups=groups.array() if config.group_column else None,
        corrected=corrected,
        several=several,
        empty=empty or LeftOut(),
    )


def _with_text(
    rows: Iterable[Row], config: DataConfig, reading: Reading, empty: LeftOut | None
) -> Iterator[tuple[Row, list[str]]]:
    """Rows with their labels; those without a text are counted, and so are empty labels, where they are allowed."""
    for row in rows:
        if not row.text.strip():
            reading.notes.empty.add(row.where)
            continue
        try:
            labels = _labels(row, config.label_separator, may_have_none=empty is not None)
        except DataError as error:
            reading.bad_row(error)
            continue
        # Of several labels in a cell, an empty one means none.
        if empty is not None and _is_empty(row.label) and (row.label is None or config.label_separator is None):
            empty.add(row.where)
        yield row, labels


def _labels(row: Row, separator: str | None, *, may_have_none: bool) -> list[str]:
    """The labels of a row, each once; a DataError for what is none, and for what cannot be written as UTF-8."""
    written: Sequence[Any] = row.label if isinstance(row.label, list | tuple) else [row.label]
    for name, value in (("text", row.text), *(("label", str(label)) for label in written)):
        try:
            if not value.isascii():
                value.encode()
        except UnicodeEncodeError as error:
            what = f"the {name} holds half of a surrogate pair at character {error.start}"
            raise DataError(row.where, what) from None
    if may_have_none and _is_empty(row.label):
        return []
    if separator is not None and isinstance(row.label, str):
        written = [part.strip() for part in row.label.split(separator) if part.strip()]
    for label in written:
        if _is_empty(label):
            raise DataError(row.where, "the label is empty", "only in train may it be, with data.label_names")
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise DataError(row.where, f"the label is {kind(label)}; a name or an integer is expected")
    return list(dict.fromkeys(map(str, written)))


def _is_empty(label: object) -> bool:
    return label is None or (isinstance(label, str) and not label.strip())


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


def check_none_empty(all_rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool) -> None:
    """Raise a DataError if rows of train have an empty label; for data whose classes have no names."""
    empty = all_rows["train"].empty if "train" in all_rows else LeftOut()
    if empty.count:
        several = f", as in {empty.count:,} of {len(all_rows['train'].texts):,} rows" if empty.count > 1 else ""
        hint = use_of_empty(all_rows, config, is_multi_label=is_multi_label)
        raise DataError(empty.first[0], f"the label is empty{several}", hint)


def use_of_empty(all_rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool = False) -> str:
    """What can be done with rows of train that have no label, where the classes have no names."""
    if not all_rows["train"].labels:
        return "name the classes in data.label_names to learn from their names"
    skip = "data.bad_rows=skip leaves such rows out"
    if is_multi_label:
        return f"write [] where a text has none of the labels; {skip}"
    classes = decide_classes(all_rows.values(), config)
    names = classes.in_order(name.strip() for rows in all_rows.values() for name in classes.of(rows.labels))
    setting = f"data.label_names=[{', '.join(map(json_text, names))}]"
    return f"to use such rows as texts without labels, add --set {shlex.quote(setting)}; {skip}"


# ---------------------------------------------------------------- classes


@dataclass(frozen=True)
class Classes:
    """How labels become classes: as `data.label_names` has them, after labels that are written otherwise."""

    names: Sequence[str] | None
    labels_are: LabelsAre
    spelling: Mapping[str, str] = field(default_factory=dict)
    every: Sequence[str] = ()  # all classes, which numbers of rows are indices into

    def of(self, labels: Mapping[str, str]) -> list[str]:
        """The class of each label, given with its location."""
        return [self.name(label, where) for label, where in labels.items()]

    def name(self, label: str, where: str) -> str:
        """The class of a label; a DataError with its location if it has none."""
        names, label = self.names, self.spelling.get(label, label)
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

    def present(self, numbers: NDArray[np.integer[Any]]) -> tuple[str, ...]:
        """The classes with these indices in `every`, in order."""
        return self.in_order(self.every[number] for number in np.unique(numbers))

    def renumbered(self, numbers: NDArray[np.integer[Any]], order: Sequence[str]) -> NDArray[np.int64]:
        """Indices in another order of classes, given those in `every`."""
        places = {name: place for place, name in enumerate(order)}
        in_order = np.array([places.get(name, -1) for name in self.every], dtype=np.int64)
        return np.asarray(in_order[numbers])


def decide_classes(
    all_rows: Iterable[LabelledRows], config: DataConfig, known: Sequence[str] = (), labels_are: LabelsAre | None = None
) -> Classes:
    """Decide how the labels of all rows, those of train first, become classes; `known` and `labels_are` are decided.

    A `ConfigError` where `data.fold_labels` makes one of two named classes; a `DataError` where labels can be names as
    well as numbers, which would give other classes, or neither.
    """
    every = list(all_rows)
    spelling = _spelling(every, config, known)
    found: dict[str, str] = {}
    for rows in every:
        for label, where in rows.labels.items():
            found.setdefault(spelling.get(label, label), where)
    return Classes(config.label_names, labels_are or what_labels_are(found, config.label_names), spelling)


def with_classes(
    all_rows: Mapping[str, LabelledRows], classes: Classes, config: DataConfig
) -> tuple[Classes, dict[str, LabelledRows], dict[str, LabelledRows]]:
    """Number the classes of all rows: before corrections, and after; a DataError where a label has none."""
    found = [name for rows in all_rows.values() for name in classes.of(rows.labels)]
    names = classes.in_order((*(config.label_names or ()), *found))
    numbers = {name: number for number, name in enumerate(names)}
    key: Callable[[str], str] = label_key if config.fold_labels else str
    by_key = {key(name): name for name in reversed([*(config.label_names or ()), *found])}

    def corrected(correction: Correction) -> int:
        label = correction.label
        name = by_key.get(key(label)) or by_key.get(key(label.strip()))  # what is typed may have a blank behind it
        if name is None:
            what = f"label {shown(label)} occurs nowhere in the data ({listed(sorted(by_key.values()), most=20)})"
            hint = "correct the cell, or give the row its new label in the data itself"
            raise DataError(correction.where, what, hint)
        return numbers[name]

    before, after = {}, {}
    for role, rows in all_rows.items():
        of_labels = np.array([numbers[name] for name in classes.of(rows.labels)], dtype=np.int32)
        before[role] = after[role] = replace(rows, numbers=of_labels[rows.numbers])
        if rows.corrected:
            after[role] = replace(rows, numbers=before[role].numbers.copy())
            after[role].numbers[[*rows.corrected]] = [corrected(it) for (it,) in rows.corrected.values()]
    return replace(classes, every=names), before, after


def _spelling(every: Sequence[LabelledRows], config: DataConfig, known: Sequence[str]) -> dict[str, str]:
    """The class of each label that is written otherwise, as `data.fold_labels` and `data.label_names` have it."""
    names = config.label_names or ()
    labels = {label for rows in every for label in rows.labels}
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
    """Decide whether all labels, given with their first locations, are names, or all are indices into the names."""
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
    first = next(iter(found))  # `Classes.name` refuses those that are none of it
    return "indices" if _NUMBER.fullmatch(first) and first not in names else "names"


def names_as_texts(names: Sequence[str]) -> list[str]:
    """The words of the name of each class; empty where it has no letter, as in a number."""
    return [_words(name) if any(map(str.isalpha, name)) else "" for name in names]


def _words(name: str) -> str:
    """Split at characters other than letters and digits, and before a capital after a small letter."""
    starts = [False, *(one.islower() and two.isupper() for one, two in pairwise(name))]
    spaced = "".join(f" {letter}" if is_start else letter for letter, is_start in zip(name, starts, strict=True))
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
