"""Labelled sources in; `Dataset` (texts, class numbers, class names, in splits) out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Corrections
from encoder_cls.data.holdout import equal_texts, in_groups, rows_to_hold_out
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
from encoder_cls.data.labels import FORMER, LabelsAre, class_name, in_order, what_labels_are
from encoder_cls.data.readers import Row, read_rows
from encoder_cls.data.reading import NONE_SKIPPED, Reading, SkippedRows
from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import DiskBackedTexts, LazyTexts, in_chunks
from encoder_cls.system.display import counted, shown

SHOWN_NAMES = 8
MOST_UNSEEN = 0.05  # of the rows of a split: labels that never occur in train


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`.

    Attributes:
        texts: the texts.
        labels: their classes; those from the number of the data set's classes on are indices into `unseen_names`.
        where: file and line of each.
        groups: the number of the group of each, equal in all splits, where `data.group_column` names them.
        left_out: how many rows of their source had no text, where that is allowed.
        first_left_out: where the first of these are.
        unseen_names: labels of the source that never occur in train.
        skipped: the rows of their source that cannot be read, where these are left out.
        notes: what a person should know of how their source was read.
    """

    texts: Sequence[str]
    labels: NDArray[np.int64]
    where: Sequence[str]
    groups: NDArray[np.int64] | None = None
    left_out: int = 0
    first_left_out: tuple[str, ...] = ()
    unseen_names: tuple[str, ...] = ()
    skipped: SkippedRows = NONE_SKIPPED
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples with these indices, in this order."""
        return Split(
            texts=_selected(self.texts, indices),
            labels=self.labels[indices],
            where=_selected(self.where, indices),
            groups=None if self.groups is None else self.groups[indices],
            unseen_names=self.unseen_names,
        )

    def known(self, num_classes: int) -> Split:
        """The examples whose labels occur in train, which has so many classes; all of them: the split itself."""
        is_known = self.labels < num_classes
        if is_known.all():
            return self
        kept = self.subset(np.flatnonzero(is_known)).of_source(self)
        return replace(kept, unseen_names=())

    def of_source(self, whole: Split) -> Split:
        """This part of a split, with what is known of the whole one's source."""
        return replace(
            self,
            left_out=whole.left_out,
            first_left_out=whole.first_left_out,
            skipped=whole.skipped,
            notes=whole.notes,
        )

    def fingerprint(self) -> str:
        """A SHA-256 of all texts, labels and groups in order: equal data, equal fingerprint."""
        unseen = json.dumps(self.unseen_names).encode() if self.unseen_names else b""
        groups = b"" if self.groups is None else self.groups.tobytes()
        return _fingerprint(self.texts, self.labels.tobytes() + unseen + groups)


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Texts whose classes nobody knows: `texts[i]` was read at `where[i]`; `skipped` and `notes` as of a split."""

    texts: Sequence[str] = ()
    where: Sequence[str] = ()
    skipped: SkippedRows = NONE_SKIPPED
    notes: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """As that of a split."""
        return _fingerprint(self.texts)


def _fingerprint(texts: Iterable[str], before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        contents = [text.encode() for text in chunk]
        # Each after its length, since a text may hold any separator.
        digest.update(b"".join(part for it in contents for part in (len(it).to_bytes(8, "little"), it)))
    return digest.hexdigest()


def _selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    return column.select(indices) if isinstance(column, LazyTexts) else [column[i] for i in indices]


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
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = Unlabelled()
    labels_are: LabelsAre = "names"
    of_two_types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    corrected: Mapping[str, str] = field(default_factory=dict)
    correction_notes: tuple[str, ...] = ()

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
        """Name and examples of the split that a final report is on: test, else validation."""
        return ("test", self.test) if self.test else ("validation", self.validation)


def load_dataset(config: DataConfig, *, train_rows: Iterable[Row] | None = None) -> Dataset:
    """Read all splits that the config names, and hold out a validation split where none is named.

    Args:
        config: what to read, and how.
        train_rows: the rows to train on, where they are in memory; then `data.train` is a name for messages.

    Raises:
        DataError: a source is missing or malformed, train has fewer than two classes, or too many labels of another
            split never occur in train.
    """
    sources = {"train": config.train, "validation": config.validation, "test": config.test}
    rows: dict[str, LabelledRows] = {}
    if train_rows is not None:
        rows["train"] = collect_labelled(train_rows, config.train, empty_texts=config.empty_texts)
        del sources["train"]
    corrections = Corrections(config.corrections, encoding=config.encoding, label_names=config.label_names)
    rows |= {
        role: read_labelled(source, role, config, corrections) for role, source in sources.items() if source is not None
    }
    corrections.check_all_applied()
    labels_are = what_labels_are(first_locations(rows.values()), config.label_names)
    label_names = _class_names(rows["train"], config, labels_are)
    splits = {role: _to_split(of_role, label_names, config, labels_are) for role, of_role in rows.items()}
    train, validation = splits["train"], splits.get("validation")
    if validation is None:
        former = former_labels(rows["train"], config.label_names, labels_are)
        fraction, seed = config.validation_fraction, config.split_seed
        train, validation = hold_out(train, fraction=fraction, seed=seed, former_labels=former)
    return Dataset(
        label_names=label_names,
        train=train,
        validation=validation,
        test=splits.get("test"),
        unlabelled=_unlabelled(config),
        labels_are=labels_are,
        of_two_types=labels_of_two_types(rows.values()),
        corrected={
            it.where[row]: class_name(label, FORMER, config.label_names, labels_are)
            for it in rows.values()
            for row, label in it.corrected.items()
        },
        correction_notes=tuple(corrections.notes),
    )


def load_split(
    source: str, config: DataConfig, label_names: tuple[str, ...], *, labels_are: LabelsAre | None = None
) -> Split:
    """Read one labelled source whose classes are known.

    Args:
        source: the source.
        config: how to read it.
        label_names: the classes.
        labels_are: what labels are in the data set that the classes are from; none: the source alone tells.

    Raises:
        DataError: as `load_dataset`.
    """
    rows = read_labelled(source, "test", config.model_copy(update={"group_column": None}))
    return _to_split(rows, label_names, config, labels_are or what_labels_are(rows.labels, config.label_names))


def hold_out(
    split: Split, *, fraction: float, seed: int, former_labels: NDArray[np.int64] | None = None
) -> tuple[Split, Split]:
    """Divide a split in two, the second part holding about `fraction` of all examples, and of each class if it can.

    Rows of a group are all in one of both, whatever their labels. So are, of rows without a group, texts that differ in
    case and white space at most.

    Args:
        split: the split.
        fraction: of all examples.
        seed: of the random numbers.
        former_labels: the classes before they were corrected, numbered in their own order; by these is held out, so
            that corrections change no row's side, unless a class would have no example left.

    Raises:
        DataError: each class has a single text, or a single group, so none can be held out.
    """
    groups = equal_texts(split.texts)
    if split.groups is not None:
        # Not equal texts as well: what everybody says would make one group of them all.
        groups = in_groups(split.groups, groups)
    is_held_out = rows_to_hold_out(
        split.labels if former_labels is None else former_labels, groups, fraction=fraction, seed=seed
    )
    if former_labels is not None and np.setdiff1d(split.labels, split.labels[~is_held_out]).size:
        is_held_out = rows_to_hold_out(split.labels, groups, fraction=fraction, seed=seed)
    if not is_held_out.any() and split.groups is not None:
        raise DataError(
            f"{split.where[0]}: no group can be held out to validate with, since a class would have no text left "
            f"({counted(len(np.unique(groups)), 'group')} in all); name a file in data.validation, or other groups in "
            "data.group_column"
        )
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


def _class_names(rows: LabelledRows, config: DataConfig, labels_are: LabelsAre) -> tuple[str, ...]:
    """The classes of the rows of train."""
    found = {class_name(label, where, config.label_names, labels_are) for label, where in rows.labels.items()}
    if len(found) < 2:
        raise DataError(
            f"{config.train}: every row has the label {shown(found.pop())}; at least two classes are needed"
        )
    return in_order(found, config.label_names)


def _to_split(rows: LabelledRows, label_names: tuple[str, ...], config: DataConfig, labels_are: LabelsAre) -> Split:
    names = [class_name(label, where, config.label_names, labels_are) for label, where in rows.labels.items()]
    unseen = in_order(set(names) - set(label_names), config.label_names)
    numbers = {name: number for number, name in enumerate((*label_names, *unseen))}
    labels = np.array([numbers[name] for name in names], dtype=np.int64)[rows.numbers.array()]
    num_unseen = int((labels >= len(label_names)).sum())
    if num_unseen > MOST_UNSEEN * len(labels):
        first, where = next(it for it in zip(names, rows.labels.values(), strict=True) if it[0] in unseen)
        raise DataError(
            f"{where}: label {shown(first)} never occurs in train ({listed(label_names)}); {num_unseen:,} of "
            f"{counted(len(labels), 'row')} have such labels ({listed(unseen)}): is this the right data?"
        )
    return Split(
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


def listed(names: Sequence[str], *, most: int = SHOWN_NAMES) -> str:
    """Some of several names, for a message."""
    return ", ".join(map(shown, names[:most])) + (", …" if len(names) > most else "")
