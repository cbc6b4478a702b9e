"""Collect the labelled rows of a source, and decide the classes that their labels become."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import (
    NO_GROUP,
    NO_TEXTS,
    LabelsAre,
    Unlabelled,
    group_number,
    label_key,
    renumbered,
)
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import DiskBackedLocations, SourceLocation
from encoder_cls.data.reading.options import LeftOut, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError, DataError, NoRowsError
from encoder_cls.system.columns import DiskBackedTexts, in_chunks
from encoder_cls.system.disk_arrays import DiskBackedArray
from encoder_cls.system.display import kind, shown
from encoder_cls.system.json_values import json_text

_NUMBER = re.compile(r"[0-9]{1,9}")  # a longer one is a name
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.0+)?")  # also as a table of floats has it


# ---------------------------------------------------------------- rows with labels


@dataclass(frozen=True)
class LabelledRows:
    """The labelled rows of a source."""

    texts: DiskBackedTexts
    where: DiskBackedLocations
    # The first location of each label, an integer as its digits.
    labels: Mapping[str, SourceLocation]
    # Indices into `labels`, later into `Classes.every`, of the labels of all rows in turn.
    numbers: NDArray[np.integer[Any]]
    counts: NDArray[np.int64]  # how many labels each row has
    # The number of the group of each row, where `data.group_column` names them.
    groups: NDArray[np.int64] | None
    # Of the first row with labels in a list, or with several on a fastText line.
    several: SourceLocation | None
    empty: LeftOut  # rows of train with an empty label

    def divided(self) -> tuple[LabelledRows, Unlabelled]:
        """Separate the rows that have a label from the texts of the others."""
        rows, others = np.flatnonzero(self.counts), np.flatnonzero(self.counts == 0)
        if not len(others):
            return self, NO_TEXTS
        labelled = replace(
            self,
            texts=self.texts.select(rows),
            where=self.where.select(rows),
            counts=self.counts[rows],
            groups=None if self.groups is None else self.groups[rows],
        )
        return labelled, Unlabelled(
            texts=self.texts.select(others), where=self.where.select(others)
        )

    def numbered(self, classes: Classes) -> LabelledRows:
        """Number the labels by class."""
        of_labels = [classes.of_labels[label] for label in self.labels]
        return replace(self, numbers=renumbered(self.numbers, of_labels, classes.every))


def read_labelled(source: str, role: str, config: DataConfig, reading: Reading) -> LabelledRows:
    """Read a source whose rows have labels."""
    columns = Columns(config.text_column, config.label_column, config.group_column)
    rows = read_rows(source, columns, reading, role=role)
    # Without names of classes, empty labels of train are counted for one error about all of them.
    may_have_none = role == "train" and (config.label_names is not None or not reading.skips)
    return collect_labelled(rows, source, config, reading, may_have_none=may_have_none)


def collect_labelled(
    rows: Iterable[Row],
    source: str,
    config: DataConfig,
    reading: Reading,
    *,
    may_have_none: bool = False,
) -> LabelledRows:
    """Collect the rows that have a text; with `may_have_none` a label may be empty."""
    texts, where = DiskBackedTexts(), DiskBackedLocations()
    numbers, counts, groups = (
        DiskBackedArray(np.int32),
        DiskBackedArray(np.int64),
        DiskBackedArray(np.int64),
    )
    labels: dict[str, SourceLocation] = {}
    indices: dict[str, int] = {}
    several, empty = None, LeftOut()
    for chunk in in_chunks(_with_text(rows, config, reading, may_have_none=may_have_none)):
        for row, of_row in chunk:
            # Where a cell may have several labels, an empty one has none.
            if _is_empty(row.label) and (row.label is None or config.label_separator is None):
                empty.add(row.where)
            if several is None and isinstance(row.label, list):
                several = row.where
            for label in of_row:
                indices.setdefault(label, len(indices))
                labels.setdefault(label, row.where)
        numbers.append([indices[label] for _, of_row in chunk for label in of_row])
        counts.append([len(of_row) for _, of_row in chunk])
        groups.append(
            [NO_GROUP if row.group is None else group_number(row.group) for row, _ in chunk]
        )
        texts.append([row.text for row, _ in chunk])
        where.append([row.where for row, _ in chunk])
    _check_left_out(source, len(texts), config, reading)
    named_groups = groups.array() if config.group_column else None
    return LabelledRows(
        texts, where, labels, numbers.array(), counts.array(), named_groups, several, empty
    )


def _with_text(
    rows: Iterable[Row], config: DataConfig, reading: Reading, *, may_have_none: bool
) -> Iterator[tuple[Row, list[str]]]:
    """Rows that have a text, with their labels."""
    for row in rows:
        if not row.text.strip():
            reading.notes.empty.add(row.where)
            continue
        try:
            labels = _labels(row, config.label_separator, may_have_none=may_have_none)
        except DataError as error:
            reading.bad_row(error)
        else:
            yield row, labels


def _labels(row: Row, separator: str | None, *, may_have_none: bool) -> list[str]:
    """The labels of a row, each once; a `DataError` for other values, and for what cannot be written as UTF-8."""
    written: Sequence[Any] = row.label if isinstance(row.label, list | tuple) else [row.label]
    written = [_whole(label) for label in written]
    if separator is not None and isinstance(row.label, str):
        written = [part.strip() for part in row.label.split(separator) if part.strip()]
    elif may_have_none and _is_empty(row.label):
        written = []
    for label in written:
        if _is_empty(label):
            raise DataError(
                row.where, "the label is empty", "only in train may it be, with data.label_names"
            )
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise DataError(
                row.where, f"the label is {kind(label)}; a name or an integer is expected"
            )
    labels = list(dict.fromkeys(map(str, written)))
    for name, value in (("text", row.text), *(("label", label) for label in labels)):
        if value.isascii():
            continue
        try:
            value.encode()
        except UnicodeEncodeError as error:
            what = f"the {name} holds half of a surrogate pair at character {error.start}"
            raise DataError(row.where, what) from None
    return labels


def _whole(label: Any) -> Any:
    """A number as the integer that is meant: columns of integers with empty cells often come as floats."""
    if isinstance(label, float) and label.is_integer():
        return int(label)
    return label


def _is_empty(label: object) -> bool:
    """Whether there is no label: nothing, an empty text, or NaN, as pandas has nothing in columns of numbers."""
    if isinstance(label, float):
        return math.isnan(label)
    return label is None or (isinstance(label, str) and not label.strip())


def _check_left_out(source: str, num_texts: int, config: DataConfig, reading: Reading) -> None:
    empty, skipped = reading.notes.empty, reading.notes.skipped
    total = empty.count + num_texts
    if (
        empty.count
        > {"auto": math.ceil(total / 100), "drop": total, "error": 0}[config.empty_texts]
    ):
        locations = str(empty).partition(" ")[2]
        several = (
            f", as in {empty.count:,} of {total:,} rows {locations}" if empty.count > 1 else ""
        )
        hint = "correct the file, or leave such rows out with data.empty_texts=drop"
        raise DataError(empty.first[0], f"the text is empty{several}", hint)
    if not num_texts:
        left_out = (
            f" ({skipped.count:,} are left out; {skipped.first[0]}: {skipped.reason})"
            if skipped.count
            else ""
        )
        error = DataError if skipped.count or empty.count else NoRowsError
        raise error(source, f"no rows with a text{left_out}")


def use_of_empty(
    all_rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool = False
) -> str:
    """Suggest how to use rows of train without a label, where `data.label_names` is not set."""
    skip = "data.bad_rows=skip leaves such rows out"
    if is_multi_label:
        return f"write [] where a text has none of the labels; {skip}"
    classes = decide_classes(all_rows.values(), config)
    names = in_order(map(str.strip, classes.every), classes.names)
    setting = f"data.label_names=[{', '.join(map(json_text, names))}]"
    return f"to use such rows as texts without labels, add --set {shlex.quote(setting)}; {skip}"


# ---------------------------------------------------------------- classes


@dataclass(frozen=True)
class Classes:
    """The classes that labels become."""

    names: Sequence[str] | None  # `data.label_names`
    labels_are: LabelsAre
    of_labels: Mapping[str, str]  # the class of each label
    every: Sequence[str]  # in order; numbers of rows are indices into it

    def present(self, numbers: NDArray[np.integer[Any]]) -> tuple[str, ...]:
        """The classes with these indices in `every`, in order."""
        return in_order((self.every[number] for number in np.unique(numbers)), self.names)


def decide_classes(
    all_rows: Iterable[LabelledRows],
    config: DataConfig,
    known: Sequence[str] = (),
    labels_are: LabelsAre | None = None,
) -> Classes:
    """Decide the class of each label, given the rows of train first; `known` and `labels_are` are decided already.

    A `ConfigError` where `data.fold_labels` makes one of two named classes; a `DataError` where labels can be names as
    well as numbers, which would give other classes, and where a label has no class.
    """
    every, names = list(all_rows), config.label_names
    spelling = _spelling(every, config, known)
    first: dict[str, SourceLocation] = {}
    for rows in every:
        for label, where in rows.labels.items():
            first.setdefault(spelling[label], where)
    labels_are = labels_are or _names_or_indices(first, names)
    classes = {label: _class_of(label, where, names, labels_are) for label, where in first.items()}
    of_labels = {label: classes[spelled] for label, spelled in spelling.items()}
    return Classes(
        names, labels_are, of_labels, in_order((*(names or ()), *classes.values()), names)
    )


def in_order(classes: Iterable[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """Each class once, as in `data.label_names`, or else by number if all are numbers, or by alphabet."""
    distinct = set(classes)
    if names is not None:
        return tuple(name for name in names if name in distinct)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in distinct):
        # `1` and `01` are two classes.
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def _spelling(
    every: Sequence[LabelledRows], config: DataConfig, known: Sequence[str]
) -> dict[str, str]:
    """Spell each label as `data.fold_labels` and `data.label_names` ask for."""
    names = config.label_names or ()
    labels = {label for rows in every for label in rows.labels}
    are_whole = all(_WHOLE_NUMBER.fullmatch(label) for label in labels)
    with_point = {label for label in labels if "." in label}
    if are_whole and with_point and not with_point & {*names, *known}:
        # In CSV a column of integers with an empty cell has 1.0, where JSON lines and Excel have 1.
        return {label: label.partition(".")[0] for label in labels}
    if not config.fold_labels:
        return {label: label.strip() if names and label not in names else label for label in labels}
    spelled: dict[str, str] = {}
    for name in (*known, *names):
        other = spelled.setdefault(label_key(name), name)
        if other != name:
            where = "data.label_names" if name in names else "the run"
            what = f"data.fold_labels=true makes one class of {other!a} and {name!a}, which are two in {where}"
            raise ConfigError(what)
    for rows in every:
        counts: Counter[str] = Counter()
        for label, count in zip(rows.labels, np.bincount(rows.numbers).tolist(), strict=True):
            counts[label.strip()] += count
        for label, _ in counts.most_common():
            spelled.setdefault(label_key(label), label)
    return {label: spelled[label_key(label)] for label in labels}


def _names_or_indices(
    first: Mapping[str, SourceLocation], names: Sequence[str] | None
) -> LabelsAre:
    """Decide whether labels, given with their first locations, are all names or all indices into the names."""
    if names is None:
        return "names"
    are_names = all(label in names for label in first)
    are_indices = all(_NUMBER.fullmatch(label) and int(label) < len(names) for label in first)
    if (
        are_names and are_indices and all(label == str(int(label)) for label in first)
    ):  # nobody writes an index as 01
        for label, where in first.items():
            meant = names[int(label)]
            if meant != label:
                what = f"{shown(label)} or the number of {shown(meant)} in data.label_names"
                hint = f"if names, set data.label_names=null; if numbers, give names such as {shown('class ' + label)}"
                raise DataError(where, f"label {label} may be the name {what}", hint)
    if are_names or are_indices:
        return "names" if are_names else "indices"
    label = next(iter(first))  # `_class_of` refuses those that are neither
    return "indices" if _NUMBER.fullmatch(label) and label not in names else "names"


def _class_of(
    label: str, where: SourceLocation, names: Sequence[str] | None, labels_are: LabelsAre
) -> str:
    """The class of a label; a `DataError` with its location if it has none."""
    if names is None or (labels_are == "names" and label in names):
        return label
    is_number = bool(_NUMBER.fullmatch(label))
    if labels_are == "indices" and is_number:
        if int(label) >= len(names):
            raise DataError(
                where, f"label {label} has no name", f"data.label_names holds {len(names)} names"
            )
        return names[int(label)]
    both = "labels are either all names, or all numbers from 0 on"
    if label in names:
        raise DataError(where, f"label {shown(label)} is a name where others are numbers", both)
    hint = ""
    if is_number:
        hint = both
    elif label == "-1":
        hint = 'if it means "no label", leave the label empty, which is possible in train only'
    raise DataError(where, f"label {shown(label)} is not in data.label_names", hint)
