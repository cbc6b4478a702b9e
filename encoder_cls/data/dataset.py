"""Labelled texts in splits, texts without labels, and the data set of one classification task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.reading.options import Notes
from encoder_cls.data.text_groups import NO_GROUP, equal_texts, texts_alike
from encoder_cls.system.lazy_sequences import Column, ConcatenatedTexts, in_chunks

LabelsAre = Literal["names", "indices"]
"""Whether labels in files are names, or indices into `data.label_names`."""

# Bytes that hold the length of a text in a hash.
LENGTH_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class `labels[i]`, and was read at `where[i]`.

    Attributes:
        texts: the texts.
        labels: class numbers, (texts,); those beyond the classes of the data set are indices into
            `unseen_names`. Multi-label: 1 where a text has a label, else 0, (texts, classes), int8.
        where: the locations.
        groups: numbers that are equal in all splits, (texts,), where `data.group_column` names
            groups.
        unseen_names: labels that never occur in train.
    """

    texts: Sequence[str]
    labels: NDArray[Any]
    where: Sequence[str]
    groups: NDArray[np.int64] | None = None
    unseen_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.labels.ndim == 2

    def class_counts(self, num_classes: int) -> NDArray[np.int64]:
        """How many texts each class has, (classes,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, :num_classes].sum(axis=0, dtype=np.int64))
        return np.bincount(self.labels, minlength=num_classes)[:num_classes]

    def has_class(self, number: int) -> NDArray[np.bool_]:
        """Which examples belong to the class with this number, (texts,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, number] > 0)
        return np.asarray(self.labels == number)

    def has_unseen_label(self, num_classes: int) -> NDArray[np.bool_]:
        """Which examples have a label that is none of the classes of train, (texts,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, num_classes:].any(axis=1))
        return self.labels >= num_classes

    def label_text(self, index: int, label_names: Sequence[str]) -> str:
        """The label of an example, or its labels, as text; empty without labels."""
        if not self.is_multi_label:
            return label_names[int(self.labels[index])]
        numbers = np.flatnonzero(self.labels[index]).tolist()
        return ", ".join(label_names[number] for number in numbers)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples with these indices, in this order."""
        groups = self.groups
        if groups is not None:
            groups = groups[indices]
        chosen = replace(
            self,
            texts=selected(self.texts, indices),
            labels=self.labels[indices],
            where=selected(self.where, indices),
            groups=groups,
        )

        # If it is known, keep it: it takes seconds for millions of texts.
        if "split_groups" in vars(self):
            vars(chosen)["split_groups"] = self.split_groups[indices]
        return chosen

    def is_of_group_in(self, other: Split) -> NDArray[np.bool_]:
        """Which examples have a group that occurs in another split, (texts,)."""
        if other.groups is None or self.groups is None:
            return np.zeros(len(self), dtype=bool)
        has_group = self.groups != NO_GROUP
        return np.asarray(np.isin(self.groups, np.unique(other.groups)) & has_group)

    @cached_property
    def split_groups(self) -> NDArray[np.int64]:
        """Numbers that are equal for examples to hold out together, (texts,).

        These are the examples of a group, or else those with similar texts.
        """
        numbers = texts_alike(self.texts)
        if not self.is_multi_label and len(self):
            numbers = self._with_divided_classes(numbers)

        if self.groups is None:
            return numbers
        # Examples of a group are not joined with similar texts of others: a phrase in all groups
        # would join them into one.
        return np.where(self.groups == NO_GROUP, numbers, self.groups)

    def _with_divided_classes(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number equal texts alone in each class whose texts are all alike.

        No part of such a class could be held out.
        """
        # The lowest and the highest number in each class, (classes,).
        lowest = np.full(self.labels.max() + 1, numbers.max())
        highest = np.full_like(lowest, numbers.min())
        np.minimum.at(lowest, self.labels, numbers)
        np.maximum.at(highest, self.labels, numbers)

        numbers_of_classes = lowest[lowest == highest]
        return np.where(np.isin(numbers, numbers_of_classes), equal_texts(self.texts), numbers)

    @cached_property
    def texts_fingerprint(self) -> str:
        """A SHA-256 of all texts in order."""
        return _hash_of(self.texts)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all texts, labels and groups in order."""
        content = self.labels.tobytes()
        if self.unseen_names:
            content += json.dumps(self.unseen_names).encode()
        if self.groups is not None:
            content += self.groups.tobytes()
        return _hash_of(self.texts, before=content)


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Texts of unknown class: `texts[i]` was read at `where[i]`."""

    texts: Sequence[str] = ()
    where: Sequence[str] = ()

    def joined(self, more: Unlabelled) -> Unlabelled:
        """These texts, then others."""
        if not more.texts:
            return self
        if not self.texts:
            return more
        return Unlabelled(
            texts=concatenated(self.texts, more.texts), where=concatenated(self.where, more.where)
        )

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all texts in order."""
        return _hash_of(self.texts)


NO_TEXTS = Unlabelled()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one classification task.

    Attributes:
        label_names: the classes, which all occur in train: number `c` is called `label_names[c]`.
        train: the texts to learn from.
        validation: the texts that choose the weights; some may have labels that never occur in
            train (see `known_validation`).
        test: the texts of the final report.
        unlabelled: further texts to learn from.
        labels_are: the kind of labels in all files.
        corrected: by location, the class before `data.corrections`.
        several: the location of the first row with several labels, which make it multi-label.
        sources: the name and the notes of each source that was read.
        base: the data set of the base run, whose texts come first in each split.
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = NO_TEXTS
    labels_are: LabelsAre = "names"
    corrected: Mapping[str, str] = field(default_factory=dict)
    several: str | None = None
    sources: tuple[tuple[str, Notes], ...] = ()
    base: Dataset | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.train.is_multi_label

    @property
    def splits(self) -> dict[str, Split]:
        """Train, validation and, if it exists, test, by name."""
        splits = {"train": self.train, "validation": self.validation}
        if self.test is not None:
            splits["test"] = self.test
        return splits

    @property
    def notes(self) -> list[str]:
        """Notes on sources that were read in an unusual way, each once."""
        messages = []
        for _, notes in self.sources:
            for message in notes.messages:
                if message not in messages:
                    messages.append(message)
        return messages

    @cached_property
    def known_validation(self) -> Split:
        """The validation rows that choose the weights: those with labels of train.

        Multi-label, these are all rows, without the labels that train lacks.
        """
        split = self.validation
        num_classes = len(self.label_names)
        if not split.unseen_names:
            return split
        if split.is_multi_label:
            return replace(split, labels=split.labels[:, :num_classes], unseen_names=())
        seen = split.subset(np.flatnonzero(split.labels < num_classes))
        return replace(seen, unseen_names=())

    @property
    def texts_to_learn(self) -> Iterable[str]:
        """The texts of train, then those without labels."""
        return ConcatenatedTexts(self.train.texts, self.unlabelled.texts)

    @property
    def report_split(self) -> tuple[str, Split]:
        """Name and examples of the split of a final report: test, else validation."""
        if self.test:
            return "test", self.test
        return "validation", self.validation


def without_labelled_texts(dataset: Dataset) -> Dataset:
    """Leave out texts without labels that are similar to a labelled, validation or test text.

    A model that guessed the class of such a text would learn its own guess about a text that it is
    scored on.
    """
    texts = dataset.unlabelled.texts
    if not texts:
        return dataset
    labelled = [split.texts for split in dataset.splits.values()]

    # All at once, since `texts_alike` ignores patterns that are frequent among all texts.
    alike = texts_alike(concatenated(*labelled, texts))
    num_labelled = sum(map(len, labelled))
    is_labelled = np.isin(alike[num_labelled:], alike[:num_labelled])
    if not is_labelled.any():
        return dataset

    notes = Notes()
    notes.messages.append(
        f"{is_labelled.sum():,} of {len(texts):,} texts without labels are left out, which are "
        "labelled, validation or test texts, too, or like them"
    )
    rest = np.flatnonzero(~is_labelled)
    unlabelled = Unlabelled(
        texts=selected(texts, rest), where=selected(dataset.unlabelled.where, rest)
    )
    sources = (*dataset.sources, ("data.unlabelled", notes))
    return replace(dataset, unlabelled=unlabelled, sources=sources)


def renumbered(labels: NDArray[Any], names: Sequence[str], order: Sequence[str]) -> NDArray[Any]:
    """Turn indices into `names`, or columns of several labels, into those of another order.

    A name that is not in the order has number -1.
    """
    places = {name: place for place, name in enumerate(order)}
    numbers = np.array([places.get(name, -1) for name in names], dtype=np.int64)
    if labels.ndim == 1:
        return np.asarray(numbers[labels])

    columns = np.zeros((len(labels), len(order)), dtype=labels.dtype)
    columns[:, numbers] = labels
    return columns


def concatenated(*columns: Sequence[str]) -> Sequence[str]:
    """The items of several columns, one after the other, in the type of the first."""
    make: Any = type(columns[0])
    all_items: Sequence[str] = make(chain.from_iterable(columns))
    return all_items


def selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    """The items of a column with these indices, in this order."""
    if isinstance(column, Column):
        return column.select(indices)
    return [column[index] for index in indices]


def _hash_of(texts: Iterable[str], *, before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        parts = []
        for text in chunk:
            content = text.encode()
            # The length comes first, since a text may hold any separator.
            parts.append(len(content).to_bytes(LENGTH_BYTES, "little"))
            parts.append(content)
        digest.update(b"".join(parts))
    return digest.hexdigest()
