"""Labelled sources in; `Dataset` (texts, class numbers, class names, in splits) out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Corrections
from encoder_cls.data.labelled_rows import (
    DiskBackedLocations,
    LabelledRows,
    check_unicode,
    collect_labelled,
    first_locations,
    former_labels,
    labels_of_two_types,
    new_reading,
    read_labelled,
)
from encoder_cls.data.labels import FORMER, LabelsAre, class_name, in_order, names_as_texts, what_labels_are
from encoder_cls.data.readers import Row, read_rows
from encoder_cls.data.rows import Reading, SourceLocation
from encoder_cls.data.split import NO_TEXTS, Split, Unlabelled, hold_out
from encoder_cls.errors import ConfigError, DataError
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
        corrected: of each row to which `data.corrections` has given another label the class that it had.
        correction_notes: what a person should know of how these corrections were read.
        several: where the first row is that has several labels, or a list of them, by which the data is multi-label.
        former: the data set of the run that this one goes on from; its texts come first in each split.
        has_names_alone: whether no text has a label: what each name says is the one text of its class in `train`.
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = NO_TEXTS
    labels_are: LabelsAre = "names"
    of_two_types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    corrected: Mapping[str, str] = field(default_factory=dict)
    correction_notes: tuple[str, ...] = ()
    several: str | None = None
    has_names_alone: bool = False
    former: Dataset | None = None

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
        of_splits = (note for split in splits if split is not None for note in split.notes)
        return list(dict.fromkeys((*of_splits, *self.correction_notes)))

    @property
    def reported(self) -> tuple[str, Split]:
        """Name and examples of the split that a final report is on: test, else validation, which may be empty."""
        return ("test", self.test) if self.test else ("validation", self.validation)


def load_dataset(config: DataConfig, *, train_rows: Iterable[Row] | None = None, known: Sequence[str] = ()) -> Dataset:
    """Read all splits that the config names, and hold out a validation split where none is named.

    Where the classes have names, rows of train without a label are further unlabelled texts. Where no row has one,
    nothing is held out: `Dataset.has_names_alone`.

    Args:
        config: what to read, and how.
        train_rows: the rows to train on, where they are in memory; then `data.train` is a name for messages.
        known: the first of the classes, which need not occur in train.

    Raises:
        ConfigError: labels are to be corrected where a text may have several; or names of classes are to teach what
            they say, and say nothing.
        DataError: a source is missing or malformed, train has fewer than two classes (multi-label: none), or too many
            labels of another split never occur in train.
    """
    corrections = Corrections(config.corrections, encoding=config.encoding, label_names=config.label_names)
    rows = _labelled_sources(config, train_rows, corrections)
    several = next((str(of_role.several) for of_role in rows.values() if of_role.several), None)
    is_multi_label = config.label_separator is not None or several is not None
    unlabelled = _unlabelled(config)
    if is_multi_label:
        _check_uncorrected(config, several)
    else:
        if config.label_names is not None and "train" in rows:
            unlabelled = unlabelled.joined(rows["train"].take_unlabelled())
        for of_role in rows.values():
            of_role.leave_out_unlabelled()
    corrections.check_all_applied()
    labels_are = what_labels_are(first_locations(rows.values()), config.label_names)
    has_names_alone = not is_multi_label and config.label_names is not None and not _has_labels(rows)
    if has_names_alone:
        rows["train"] = _names_as_rows(config, labels_are, former=rows.get("train"))
    found = _class_names(rows, config, labels_are, is_multi_label=is_multi_label, are_others_known=bool(known))
    label_names = tuple(dict.fromkeys((*known, *found)))
    splits = {
        role: _to_split(of_role, label_names, config, labels_are, is_multi_label=is_multi_label)
        for role, of_role in rows.items()
    }
    train, validation = splits["train"], splits.get("validation")
    if validation is None and has_names_alone:
        validation = train.subset(np.zeros(0, dtype=np.int64))
    elif validation is None:
        former = former_labels(rows["train"], config.label_names, labels_are)
        fraction, seed = config.validation_fraction, config.split_seed
        train, validation = hold_out(train, fraction=fraction, seed=seed, former_labels=former)
    return Dataset(
        label_names=label_names,
        train=train,
        validation=validation,
        test=splits.get("test"),
        unlabelled=unlabelled,
        labels_are=labels_are,
        of_two_types=labels_of_two_types(rows.values()),
        corrected={
            it.where[row]: class_name(label, FORMER, config.label_names, labels_are)
            for it in rows.values()
            for row, label in it.corrected.items()
        },
        correction_notes=tuple(corrections.notes),
        several=several,
        has_names_alone=has_names_alone,
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
    rows = read_labelled(source, "test", config.model_copy(update={"group_column": None}))
    if not is_multi_label:
        if config.label_separator is not None or rows.several:
            raise DataError(
                f"{rows.several or source}: texts may have several labels here; of this model they have one"
            )
        rows.leave_out_unlabelled()
    labels_are = labels_are or what_labels_are(rows.labels, config.label_names)
    return _to_split(rows, label_names, config, labels_are, is_multi_label=is_multi_label)


def _labelled_sources(
    config: DataConfig, train_rows: Iterable[Row] | None, corrections: Corrections
) -> dict[str, LabelledRows]:
    """The rows of train, validation and test, as far as there are any."""
    rows: dict[str, LabelledRows] = {}
    sources = {"train": config.train, "validation": config.validation, "test": config.test}
    if train_rows is not None:
        rows["train"] = collect_labelled(
            train_rows, str(config.train), empty_texts=config.empty_texts, label_separator=config.label_separator
        )
        del sources["train"]
    return rows | {
        role: read_labelled(source, role, config, corrections) for role, source in sources.items() if source is not None
    }


def _has_labels(rows: Mapping[str, LabelledRows]) -> bool:
    """Whether there is a row to learn from."""
    return "train" in rows and len(rows["train"].labels) > 0


def _names_as_rows(config: DataConfig, labels_are: LabelsAre, *, former: LabelledRows | None) -> LabelledRows:
    """What each name says as the one text of its class, in place of rows of which none had a label."""
    names = config.label_names or ()
    texts = names_as_texts(names)
    silent = [name for name, text in zip(names, texts, strict=True) if not text]
    if silent or len(names) < 2:
        what = f"{shown(silent[0])} says nothing" if silent else "two classes are needed at least"
        raise ConfigError(
            f"data.label_names: {what}; no text has a label, so the names of the classes are all there is to learn from"
        )
    where = SourceLocation("data.label_names")
    labels = names if labels_are == "names" else tuple(map(str, range(len(names))))
    found = (Row(text, label, None, where) for text, label in zip(texts, labels, strict=True))
    rows = collect_labelled(
        found, where.file, empty_texts=config.empty_texts, reading=former.reading if former else new_reading(config)
    )
    if former:
        rows.left_out, rows.first_left_out = former.left_out, former.first_left_out
    return rows


def _unlabelled(config: DataConfig) -> Unlabelled:
    if config.unlabelled is None:
        return Unlabelled()
    texts, where = DiskBackedTexts(), DiskBackedLocations()
    reading = new_reading(config.model_copy(update={"group_column": None}))
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


def _check_uncorrected(config: DataConfig, several: str | None) -> None:
    if config.corrections is not None:
        where = f"as at {several}" if several else "as data.label_separator has it"
        raise ConfigError(
            f"{config.corrections}: data.corrections is for data with one label a text, and here a text may have "
            f"several, {where}; mend the labels in the data itself"
        )


def _class_names(
    rows: Mapping[str, LabelledRows],
    config: DataConfig,
    labels_are: LabelsAre,
    *,
    is_multi_label: bool,
    are_others_known: bool,
) -> tuple[str, ...]:
    """The classes of the rows of train."""
    if not _has_labels(rows):
        hint = "" if is_multi_label else "; name the classes in data.label_names to learn from their names"
        raise DataError(f"{config.train or 'data.train'}: no row has a label, so there is nothing to learn{hint}")
    labels = rows["train"].labels.items()
    found = {class_name(label, where, config.label_names, labels_are) for label, where in labels}
    if len(found) < 2 and not is_multi_label and not are_others_known:
        raise DataError(
            f"{config.train}: every row has the label {shown(found.pop())}; at least two classes are needed"
        )
    return in_order(found, config.label_names)


def _to_split(
    rows: LabelledRows,
    label_names: tuple[str, ...],
    config: DataConfig,
    labels_are: LabelsAre,
    *,
    is_multi_label: bool,
) -> Split:
    names = [class_name(label, where, config.label_names, labels_are) for label, where in rows.labels.items()]
    unseen = in_order(set(names) - set(label_names), config.label_names)
    numbers = {name: number for number, name in enumerate((*label_names, *unseen))}
    of_rows, offsets = rows.numbers.arrays()
    labels: NDArray[Any] = np.array([numbers[name] for name in names], dtype=np.int64)[of_rows]
    if is_multi_label:
        labels = _label_matrix(labels, np.diff(offsets), num_classes=len(numbers))
    split = Split(
        texts=rows.texts,
        labels=labels,
        where=rows.where,
        groups=rows.groups.array() if rows.reading.group_column else None,
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
