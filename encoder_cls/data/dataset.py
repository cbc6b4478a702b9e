"""Labelled sources in; `Dataset` (texts, class numbers, class names, in splits) out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.holdout import equal_texts, rows_to_hold_out
from encoder_cls.data.labelled_rows import (
    DiskBackedLocations,
    LabelledRows,
    check_unicode,
    collect_labelled,
    new_reading,
    read_labelled,
)
from encoder_cls.data.labels import LabelsAre, class_name, what_labels_are
from encoder_cls.data.multi_label_holdout import rows_to_hold_out_of_several_labels
from encoder_cls.data.readers import Row, read_rows
from encoder_cls.data.reading import Reading
from encoder_cls.data.records import SourceLocation
from encoder_cls.data.split import NO_TEXTS, Split, Unlabelled
from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import DiskBackedTexts, in_chunks
from encoder_cls.system.display import counted, shown

SHOWN_NAMES = 8
MOST_UNSEEN = 0.05  # of the rows of a split: labels that never occur in train


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one classification task; class number `c` is called `label_names[c]`.

    Attributes:
        label_names: the classes that occur in train.
        train: what is learned from.
        validation: what the training is judged by, also rows whose labels never occur in train: see `selection`.
        test: what the final report is on, if there is any.
        unlabelled: further texts of the kind, none where none are named.
        labels_are: what the labels of all its files are: `names`, or `indices` into `data.label_names`.
        of_two_types: labels that are an integer in one row and a text in another: where the first of each are.
        several: where the first row is that has several labels, or a list of them, by which the data is multi-label.
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = NO_TEXTS
    labels_are: LabelsAre = "names"
    of_two_types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    several: str | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.train.is_multi_label

    @cached_property
    def selection(self) -> Split:
        """The validation rows that choose the weights: those whose labels occur in train."""
        return self.validation.known(len(self.label_names))

    @property
    def notes(self) -> list[str]:
        """What a person should know of how its sources were read."""
        splits = (self.train, self.validation, self.test, self.unlabelled)
        return list(dict.fromkeys(note for split in splits if split is not None for note in split.notes))

    @property
    def reported(self) -> tuple[str, Split]:
        """Name and examples of the split that a final report is on: test, else validation."""
        return ("test", self.test) if self.test else ("validation", self.validation)


def load_dataset(config: DataConfig, *, train_rows: Iterable[Row] | None = None) -> Dataset:
    """Read all splits that the config names, and hold out a validation split where none is named.

    Args:
        config: what to read, and how.
        train_rows: the rows to train on, where they are in memory; then `data.train` is a name for messages.

    Raises:
        DataError: a source is missing or malformed, train has fewer than two classes (multi-label: none), or too many
            labels of another split never occur in train.
    """
    sources = {"train": config.train, "validation": config.validation, "test": config.test}
    rows: dict[str, LabelledRows] = {}
    if train_rows is not None:
        rows["train"] = collect_labelled(
            train_rows, config.train, empty_texts=config.empty_texts, label_separator=config.label_separator
        )
        del sources["train"]
    rows |= {role: read_labelled(source, role, config) for role, source in sources.items() if source is not None}
    is_multi_label = config.label_separator is not None or any(of_role.several for of_role in rows.values())
    if not is_multi_label:
        for of_role in rows.values():
            of_role.leave_out_unlabelled()
    labels_are = what_labels_are(_first_locations(rows.values()), config.label_names)
    label_names = _class_names(rows["train"], config, labels_are, is_multi_label=is_multi_label)
    splits = {
        role: _to_split(of_role, label_names, config, labels_are, is_multi_label=is_multi_label)
        for role, of_role in rows.items()
    }
    train, validation = splits["train"], splits.get("validation")
    if validation is None:
        train, validation = hold_out(train, fraction=config.validation_fraction, seed=config.split_seed)
    return Dataset(
        label_names=label_names,
        train=train,
        validation=validation,
        test=splits.get("test"),
        unlabelled=_unlabelled(config),
        labels_are=labels_are,
        of_two_types=_of_two_types(rows.values()),
        several=next((str(of_role.several) for of_role in rows.values() if of_role.several), None),
    )


def load_split(
    source: str,
    config: DataConfig,
    label_names: tuple[str, ...],
    *,
    labels_are: LabelsAre | None = None,
    is_multi_label: bool = False,
) -> Split:
    """Read one labelled source whose classes are known.

    Args:
        source: the source.
        config: how to read it.
        label_names: the classes.
        labels_are: what labels are in the data set that the classes are from; none: the source alone tells.
        is_multi_label: whether a text may have any number of labels.

    Raises:
        DataError: as `load_dataset`; or a row has several labels where each is to have one.
    """
    rows = read_labelled(source, "test", config)
    if not is_multi_label:
        if config.label_separator is not None or rows.several:
            raise DataError(
                f"{rows.several or source}: texts may have several labels here; of this model they have one"
            )
        rows.leave_out_unlabelled()
    labels_are = labels_are or what_labels_are(rows.labels, config.label_names)
    return _to_split(rows, label_names, config, labels_are, is_multi_label=is_multi_label)


def hold_out(split: Split, *, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide a split in two, the second part holding about `fraction` of all examples, and of each class if it can.

    Texts that differ in case and white space at most are all in one of both, whatever their labels.

    Raises:
        DataError: each class has a single text, so none can be held out.
    """
    choose = rows_to_hold_out_of_several_labels if split.is_multi_label else rows_to_hold_out
    is_held_out = choose(split.labels, equal_texts(split.texts), fraction=fraction, seed=seed)
    if not is_held_out.any():
        raise DataError(
            f"{split.where[0]}: each class has only one text, so none is left to validate with; add examples, or "
            "name a file in data.validation"
        )
    kept = split.subset(np.flatnonzero(~is_held_out)).of_source(split)
    return kept, split.subset(np.flatnonzero(is_held_out))


def _unlabelled(config: DataConfig) -> Unlabelled:
    if config.unlabelled is None:
        return Unlabelled()
    texts, where = DiskBackedTexts(), DiskBackedLocations()
    reading = new_reading(config)
    rows = read_rows(
        config.unlabelled, role="train", text_columns=config.text_column, label_column=None, reading=reading
    )
    for chunk in in_chunks(_readable(rows, reading)):
        texts.append([row.text for row in chunk])
        where.append([row.where for row in chunk])
    if not len(texts):
        raise DataError(f"{config.unlabelled}: no rows with a text")
    return Unlabelled(texts=texts, where=where, skipped=reading.skipped, notes=tuple(reading.notes))


def _readable(rows: Iterable[Row], reading: Reading) -> Iterator[Row]:
    """Rows with a text: an empty one says nothing, and there is no label to go with it."""
    for row in rows:
        if not row.text.strip():
            continue
        try:
            check_unicode(row)
        except DataError as error:
            reading.bad_row(row.where, error)
            continue
        yield row


def _first_locations(all_rows: Iterable[LabelledRows]) -> dict[str, SourceLocation]:
    locations: dict[str, SourceLocation] = {}
    for rows in all_rows:
        locations = rows.labels | locations
    return locations


def _of_two_types(all_rows: Iterable[LabelledRows]) -> dict[str, tuple[str, str]]:
    """Of each label that is an integer in one row and a text in another, where the first of each are."""
    types: dict[str, dict[type, SourceLocation]] = defaultdict(dict)
    for rows in all_rows:
        for label, locations in rows.types.items():
            types[label] = locations | types[label]
    return {label: (str(it[int]), str(it[str])) for label, it in types.items() if len(it) > 1}


def _class_names(
    rows: LabelledRows, config: DataConfig, labels_are: LabelsAre, *, is_multi_label: bool
) -> tuple[str, ...]:
    """The classes of the rows of train."""
    found = {class_name(label, where, config.label_names, labels_are) for label, where in rows.labels.items()}
    if not found:
        raise DataError(f"{config.train}: no row has a label, so there is nothing to learn")
    if len(found) < 2 and not is_multi_label:
        raise DataError(
            f"{config.train}: every row has the label {shown(found.pop())}; at least two classes are needed"
        )
    return _in_order(found, config)


def _in_order(found: set[str], config: DataConfig) -> tuple[str, ...]:
    """Class names in the order of `data.label_names`, of their numbers, or of the alphabet."""
    if config.label_names is not None:
        return tuple(name for name in config.label_names if name in found)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))  # `1` and `01` are two classes
    return tuple(sorted(found))


def _to_split(
    rows: LabelledRows,
    label_names: tuple[str, ...],
    config: DataConfig,
    labels_are: LabelsAre,
    *,
    is_multi_label: bool,
) -> Split:
    names = [class_name(label, where, config.label_names, labels_are) for label, where in rows.labels.items()]
    unseen = _in_order(set(names) - set(label_names), config)
    numbers = {name: number for number, name in enumerate((*label_names, *unseen))}
    of_rows, offsets = rows.numbers.arrays()
    labels: NDArray[Any] = np.array([numbers[name] for name in names], dtype=np.int64)[of_rows]
    if is_multi_label:
        labels = _label_matrix(labels, np.diff(offsets), num_classes=len(numbers))
    split = Split(
        texts=rows.texts,
        labels=labels,
        where=rows.where,
        left_out=rows.left_out,
        first_left_out=tuple(map(str, rows.first_left_out)),
        unseen_names=unseen,
        skipped=rows.reading.skipped,
        notes=tuple(rows.reading.notes),
    )
    num_unseen = int(split.has_unseen_label(len(label_names)).sum())
    if num_unseen > MOST_UNSEEN * len(split):
        first, location = next(it for it in zip(names, rows.labels.values(), strict=True) if it[0] in unseen)
        raise DataError(
            f"{location}: label {shown(first)} never occurs in train ({listed(label_names)}); {num_unseen:,} of "
            f"{counted(len(split), 'row')} have such labels ({listed(unseen)}): is this the right data?"
        )
    return split


def _label_matrix(labels: NDArray[np.int64], counts: NDArray[np.int64], *, num_classes: int) -> NDArray[np.int8]:
    """The labels of rows, which have so many each, as 0 and 1, (rows, classes)."""
    matrix = np.zeros((len(counts), num_classes), dtype=np.int8)
    matrix[np.repeat(np.arange(len(counts)), counts), labels] = 1
    return matrix


def listed(names: Sequence[str], *, most: int = SHOWN_NAMES) -> str:
    """Some of several names, for a message."""
    return ", ".join(map(shown, names[:most])) + (", …" if len(names) > most else "")
