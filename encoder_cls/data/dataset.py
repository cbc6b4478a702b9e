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

from encoder_cls.data.reading.reading import Notes
from encoder_cls.data.text_groups import NO_GROUP, equal_texts, texts_alike
from encoder_cls.system.display import counted
from encoder_cls.system.lazy_sequences import Column, ConcatenatedTexts, in_chunks

LabelsAre = Literal["names", "indices"]
"""Whether the labels in files are names of classes, or indices into `data.label_names`."""


# The name of the random sample of a table of `label` among the sources of a data set.
RANDOM_SAMPLE = "the random sample"


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled rows: `texts[i]` belongs to class `labels[i]`, and was read at `where[i]`.

    Attributes:
        labels: class numbers, (rows,); multi-label, 1 or 0, (rows, classes), int8. Those beyond the
            C classes of the data set are unseen: C + i is `unseen_names[i]`.
        groups: of each row, the same number in all splits, or `NO_GROUP`, (rows,). None without
            `data.group_column`.
        weights: of rows in the loss, above 0, (rows,); None if all rows count alike.
        unseen_names: labels that never occur in train.
    """

    texts: Sequence[str]
    labels: NDArray[Any]
    where: Sequence[str]
    groups: NDArray[np.int64] | None = None
    weights: NDArray[np.float32] | None = None
    unseen_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.labels.ndim == 2

    def class_counts(self, num_classes: int) -> NDArray[np.int64]:
        """The rows of each of the first classes, (classes,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, :num_classes].sum(axis=0, dtype=np.int64))
        return np.bincount(self.labels, minlength=num_classes)[:num_classes]

    def has_class(self, number: int) -> NDArray[np.bool_]:
        """Whether each row has this class, (rows,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, number] > 0)
        return np.asarray(self.labels == number)

    def has_unseen_label(self, num_classes: int) -> NDArray[np.bool_]:
        """Whether each row has a label that is none of these classes, (rows,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, num_classes:].any(axis=1))
        return self.labels >= num_classes

    def label_text(self, index: int, label_names: Sequence[str]) -> str:
        """The label of a row by name; several are joined by commas."""
        if not self.is_multi_label:
            return label_names[int(self.labels[index])]
        numbers = np.flatnonzero(self.labels[index]).tolist()
        return ", ".join(label_names[number] for number in numbers)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The rows with these indices, in this order."""
        groups = self.groups
        if groups is not None:
            groups = groups[indices]
        weights = self.weights
        if weights is not None:
            weights = weights[indices]
        chosen = replace(
            self,
            texts=selected(self.texts, indices),
            labels=self.labels[indices],
            where=selected(self.where, indices),
            groups=groups,
            weights=weights,
        )

        # If `split_groups` has been computed, keep its result: to compute it again would take
        # seconds for millions of texts.
        if "split_groups" in vars(self):
            vars(chosen)["split_groups"] = self.split_groups[indices]
        return chosen

    def are_among(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Whether each row has one of some texts, (rows,)."""
        found = set(self.texts).intersection(texts)
        return np.fromiter((text in found for text in self.texts), dtype=np.bool_, count=len(self))

    def shares_group_with(self, other: Split) -> NDArray[np.bool_]:
        """Whether the group of each row is in another split, too, (rows,)."""
        if other.groups is None or self.groups is None:
            return np.zeros(len(self), dtype=bool)
        has_group = self.groups != NO_GROUP
        return np.asarray(np.isin(self.groups, np.unique(other.groups)) & has_group)

    @cached_property
    def split_groups(self) -> NDArray[np.int64]:
        """Equal numbers for rows that must not be divided between splits, (rows,).

        They are rows of a group or, without one, with similar texts (`texts_alike`).
        """
        numbers = texts_alike(self.texts)
        if not self.is_multi_label and len(self):
            numbers = self._with_divided_classes(numbers)

        if self.groups is None:
            return numbers
        # Do not join the rows of a group with similar texts of other groups: a phrase that occurs
        # in every group would join all groups into one.
        return np.where(self.groups == NO_GROUP, numbers, self.groups)

    def _with_divided_classes(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number different texts differently in a class whose texts are all similar."""
        # A class whose texts are all similar has one number: its lowest is also its highest.
        lowest = np.full(self.labels.max() + 1, numbers.max())
        highest = np.full_like(lowest, numbers.min())
        np.minimum.at(lowest, self.labels, numbers)
        np.maximum.at(highest, self.labels, numbers)

        only_numbers = lowest[lowest == highest]
        if not len(only_numbers):
            return numbers
        return np.where(np.isin(numbers, only_numbers), equal_texts(self.texts), numbers)

    @cached_property
    def texts_fingerprint(self) -> str:
        """A SHA-256 of the texts."""
        return _hash_of(self.texts)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of texts, labels, groups and weights."""
        content = self.labels.tobytes()
        if self.unseen_names:
            content += json.dumps(self.unseen_names).encode()
        if self.groups is not None:
            content += self.groups.tobytes()
        if self.weights is not None:
            content += self.weights.tobytes()
        return _hash_of(self.texts, before=content)


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Texts of unknown class: `texts[i]` was read at `where[i]`."""

    texts: Sequence[str] = ()
    where: Sequence[str] = ()

    def joined(self, more: Unlabelled) -> Unlabelled:
        """These texts, and others behind them."""
        if not more.texts:
            return self
        if not self.texts:
            return more
        return Unlabelled(
            texts=concatenated(self.texts, more.texts), where=concatenated(self.where, more.where)
        )

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of the texts."""
        return _hash_of(self.texts)


NO_TEXTS = Unlabelled()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one classification task.

    Attributes:
        label_names: all of them occur in train.
        validation: may have texts of train, and labels that train lacks; `known_validation` is
            without these.
        unlabelled: to learn from as well.
        labels_before_corrections: the label before `data.corrections`, by location of the row.
        sources: the sources that were read, with notes.
        base: whose rows come first in each split.
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = NO_TEXTS
    labels_are: LabelsAre = "names"
    labels_before_corrections: Mapping[str, str] = field(default_factory=dict)
    first_multi_label_row: str | None = None
    sources: tuple[tuple[str, Notes], ...] = ()
    base: Dataset | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.train.is_multi_label

    @property
    def splits(self) -> dict[str, Split]:
        """The splits by name; `test` only if there is one."""
        splits = {"train": self.train, "validation": self.validation}
        if self.test is not None:
            splits["test"] = self.test
        return splits

    @property
    def sample_note(self) -> str:
        """Which texts could be held out; empty if any could."""
        for source, notes in self.sources:
            if source == RANDOM_SAMPLE and notes.messages:
                return notes.messages[0]
        return ""

    @property
    def notes(self) -> list[str]:
        """The notes on all sources, without repetitions."""
        messages = []
        for _, notes in self.sources:
            for message in notes.messages:
                if message not in messages:
                    messages.append(message)
        return messages

    @property
    def num_unread(self) -> int:
        """The rows that `data.train_fraction` leaves out."""
        return sum(notes.num_unread for _, notes in self.sources)

    @cached_property
    def new_validation_rows(self) -> NDArray[np.int64]:
        """The indices of the validation rows whose texts are not in train.

        A row of a group counts as new: new groups have such texts, too.
        """
        is_learned = self.validation.are_among(self.train.texts)
        if self.validation.groups is not None:
            is_learned &= self.validation.groups == NO_GROUP
        return np.flatnonzero(~is_learned)

    @cached_property
    def known_validation_rows(self) -> NDArray[np.int64]:
        """The indices of `known_validation` in `validation`."""
        rows = self.new_validation_rows
        if self.is_multi_label:
            return rows
        return rows[self.validation.labels[rows] < len(self.label_names)]

    @cached_property
    def known_validation(self) -> Split:
        """The new validation rows whose labels occur in train; they select the best weights.

        Multi-label, they are all new rows, without labels that train lacks.
        """
        known = self.validation
        if len(self.known_validation_rows) < len(known):
            known = known.subset(self.known_validation_rows)
        if not known.unseen_names:
            return known

        labels = known.labels
        if known.is_multi_label:
            labels = labels[:, : len(self.label_names)]
        return replace(known, labels=labels, unseen_names=())

    @property
    def texts_to_learn(self) -> Iterable[str]:
        """The training texts, followed by the texts without labels."""
        return ConcatenatedTexts(self.train.texts, self.unlabelled.texts)

    @property
    def groups_to_learn(self) -> NDArray[np.int64]:
        """Equal for those of `texts_to_learn` that belong together, (texts,)."""
        return np.concatenate([self.train.split_groups, texts_alike(self.unlabelled.texts)])

    @property
    def report_split(self) -> tuple[str, Split]:
        """The split that the final report scores, by name: test if there is one."""
        if self.test:
            return "test", self.test
        return "validation", self.validation


def relative_weights(*splits: Split) -> NDArray[np.float32] | None:
    """The weights of all rows of splits, divided by their mean, (rows,); None if all count alike.

    The rows of a split without weights have the weight 1 before that.
    """
    weights_of_splits = []
    for split in splits:
        weights = split.weights
        if weights is None:
            weights = np.ones(len(split), dtype=np.float32)
        weights_of_splits.append(weights)

    all_weights = np.concatenate(weights_of_splits)
    if not len(all_weights) or (all_weights == all_weights[0]).all():
        return None
    mean = all_weights.mean(dtype=np.float64)
    relative: NDArray[np.float32] = (all_weights / mean).astype(np.float32)
    return relative


def without_labelled_texts(dataset: Dataset) -> Dataset:
    """Leave out texts without a label that are similar to a labelled one.

    Otherwise a model would learn its own prediction for a text that it is scored on.
    """
    texts = dataset.unlabelled.texts
    if not texts:
        return dataset
    labelled = [split.texts for split in dataset.splits.values()]

    # Compare all texts in one call, because `texts_alike` ignores patterns that are frequent among
    # the texts it is given.
    alike = texts_alike(concatenated(*labelled, texts))
    num_labelled = sum(map(len, labelled))
    is_labelled = np.isin(alike[num_labelled:], alike[:num_labelled])
    if not is_labelled.any():
        return dataset

    notes = Notes()
    notes.messages.append(
        f"left out {is_labelled.sum():,} of {counted(len(texts), 'text')} without labels, equal or "
        "similar to a training, validation or test text"
    )
    rest = np.flatnonzero(~is_labelled)
    unlabelled = Unlabelled(
        texts=selected(texts, rest), where=selected(dataset.unlabelled.where, rest)
    )
    sources = (*dataset.sources, ("data.unlabelled", notes))
    return replace(dataset, unlabelled=unlabelled, sources=sources)


def renumbered(labels: NDArray[Any], names: Sequence[str], order: Sequence[str]) -> NDArray[Any]:
    """Number labels by `order` instead of by `names`.

    Labels are indices, which become -1 if they are not in `order`, or columns, (rows, names), which
    must all be in it.
    """
    places = {name: place for place, name in enumerate(order)}
    numbers = np.array([places.get(name, -1) for name in names], dtype=np.int64)
    if labels.ndim == 1:
        return np.asarray(numbers[labels])

    if (numbers < 0).any():
        unknown = names[int(numbers.argmin())]
        raise ValueError(f"the label {unknown!r} has no column in the new order")
    columns = np.zeros((len(labels), len(order)), dtype=labels.dtype)
    columns[:, numbers] = labels
    return columns


def joined_splits(first: Split, second: Split) -> Split:
    """The rows of two splits of the same classes."""
    return Split(
        texts=concatenated(first.texts, second.texts),
        labels=np.concatenate([first.labels, second.labels]),
        where=concatenated(first.where, second.where),
    )


def concatenated(*columns: Sequence[str]) -> Sequence[str]:
    """Join columns, in the type of the first."""
    make: Any = type(columns[0])
    all_items: Sequence[str] = make(chain.from_iterable(columns))
    return all_items


def selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    """The items with these indices."""
    if isinstance(column, Column):
        return column.select(indices)
    return [column[index] for index in indices]


# The number of bytes that the length of a text takes in a hash.
LENGTH_BYTES = 8


def _hash_of(texts: Iterable[str], *, before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        parts = []
        for text in chunk:
            content = text.encode()
            # Put the length before each text, since no separator could mark its end: a text may
            # contain any character.
            parts.append(len(content).to_bytes(LENGTH_BYTES, "little"))
            parts.append(content)
        digest.update(b"".join(parts))
    return digest.hexdigest()
