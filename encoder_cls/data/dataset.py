"""Labelled texts in splits, texts without labels, and the data set of one classification task."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.rows import Notes
from encoder_cls.system.disk_arrays import Column, ConcatenatedTexts, DiskBackedTexts, in_chunks
from encoder_cls.system.display import shown

LabelsAre = Literal["names", "indices"]  # into data.label_names

SHOWN_NAMES = 8
NO_GROUP = 0  # the number of rows that belong to no group
MOST_ALIKE, MOST_ALIKE_SHARE = 10, 0.01  # texts, or this share of all, that differ in punctuation and digits alone


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`.

    Attributes:
        labels: the classes, (texts,); numbers beyond the classes of the data set are indices into `unseen_names`.
            Multi-label: 1 where a text has a label, else 0, (texts, classes), as int8.
        groups: the number of the group of each text, equal in all splits, where `data.group_column` names them.
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

    def has_unseen_label(self, num_classes: int) -> NDArray[np.bool_]:
        """Which examples have a label that never occurs in train, which has so many classes, (texts,)."""
        if self.is_multi_label:
            return np.asarray(self.labels[:, num_classes:].any(axis=1))
        return self.labels >= num_classes

    def label_sets(self) -> NDArray[np.int64]:
        """A number for each example, the same for equal labels, (texts,)."""
        if not self.is_multi_label:
            return self.labels
        _, numbers = np.unique(np.packbits(self.labels > 0, axis=1), axis=0, return_inverse=True)
        return numbers.reshape(-1)

    def label_text(self, index: int, label_names: Sequence[str]) -> str:
        """The label of an example, or its labels, for a person; empty without labels."""
        numbers = np.flatnonzero(self.labels[index]).tolist() if self.is_multi_label else [int(self.labels[index])]
        return ", ".join(label_names[number] for number in numbers)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples with these indices, in this order."""
        chosen = replace(
            self,
            texts=_selected(self.texts, indices),
            labels=self.labels[indices],
            where=_selected(self.where, indices),
            groups=None if self.groups is None else self.groups[indices],
        )
        if "together" in vars(self):  # not computed twice: of millions of texts it takes seconds
            vars(chosen)["together"] = self.together[indices]
        return chosen

    def known(self, num_classes: int) -> Split:
        """The examples whose labels occur in train, which has so many classes; the split itself if all do.

        Multi-label: all examples, without the labels that do not.
        """
        if self.is_multi_label:
            return replace(self, labels=self.labels[:, :num_classes], unseen_names=()) if self.unseen_names else self
        is_known = self.labels < num_classes
        return self if is_known.all() else replace(self.subset(np.flatnonzero(is_known)), unseen_names=())

    @cached_property
    def together(self) -> NDArray[np.int64]:
        """A number that an example shares with those held out with it: of its group, or else of texts alike."""
        of_texts = texts_alike(self.texts)
        if not self.is_multi_label and len(self):  # a class that is one group could not be held out
            first = np.full(self.labels.max() + 1, of_texts.max())
            last = np.full_like(first, of_texts.min())
            np.minimum.at(first, self.labels, of_texts)
            np.maximum.at(last, self.labels, of_texts)
            of_texts = np.where(np.isin(of_texts, first[first == last]), equal_texts(self.texts), of_texts)
        # Not texts alike as well: a phrase that is in all groups would make one of them.
        return of_texts if self.groups is None else np.where(self.groups == NO_GROUP, of_texts, self.groups)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all texts, labels and groups in order."""
        unseen = json.dumps(self.unseen_names).encode() if self.unseen_names else b""
        groups = b"" if self.groups is None else self.groups.tobytes()
        return _hash_of(self.texts, self.labels.tobytes() + unseen + groups)


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Texts of unknown class: `texts[i]` was read at `where[i]`."""

    texts: Sequence[str] = ()
    where: Sequence[str] = ()

    def joined(self, more: Unlabelled) -> Unlabelled:
        """These texts, then others."""
        if not more.texts or not self.texts:
            return self if self.texts else more
        return Unlabelled(texts=concatenated(self.texts, more.texts), where=concatenated(self.where, more.where))

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all texts in order."""
        return _hash_of(self.texts)


NO_TEXTS = Unlabelled()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one classification task; class number `c`, which occurs in train, is called `label_names[c]`.

    Attributes:
        validation: the examples that judge training, also those whose labels never occur in train: see `selection`.
        labels_are: what the labels of all its files are: `names`, or `indices` into `data.label_names`.
        corrected: by location, the previous class of each row to which `data.corrections` gives another.
        several: the location of the first row with several labels, or a list of them, by which data is multi-label.
        has_names_alone: whether no text has a label: `train` has the words of the name of each class.
        of_two_types: labels that are an integer in one row and a text in another: the first location of each.
        sources: the name and notes of each source that was read.
        base: the data set of the base run; its texts come first in each split.
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = NO_TEXTS
    labels_are: LabelsAre = "names"
    corrected: Mapping[str, str] = field(default_factory=dict)
    several: str | None = None
    has_names_alone: bool = False
    of_two_types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    sources: tuple[tuple[str, Notes], ...] = ()
    base: Dataset | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.train.is_multi_label

    @property
    def splits(self) -> dict[str, Split]:
        """Train, validation and, if it exists, test, by name."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    @property
    def notes(self) -> list[str]:
        """How its sources were read, where that is not as usual."""
        return list(dict.fromkeys(message for _, notes in self.sources for message in notes.messages))

    @cached_property
    def selection(self) -> Split:
        """The validation rows that choose the weights: those whose labels occur in train."""
        return self.validation.known(len(self.label_names))

    @property
    def reported(self) -> tuple[str, Split]:
        """Name and examples of the split of a final report: test, else validation, which may be empty."""
        return ("test", self.test) if self.test else ("validation", self.validation)


def group_number(group: str, *, kind: bytes = b"") -> int:
    """The number of a group, the same in all splits and at any time: 64 bits of a hash of its name and kind."""
    digest = hashlib.blake2b(group.encode("utf-8", "surrogatepass"), digest_size=8, person=kind).digest()
    return int.from_bytes(digest, "little", signed=True)


def label_key(label: str) -> str:
    """What a person sees of a label: no case, doubled spaces, or characters that only format (zero-width)."""
    visible = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", visible.casefold()).split())


def equal_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, the same for texts that differ in case and white space at most; no group has it."""
    numbers = (group_number(" ".join(text.casefold().split()), kind=b"text") for text in texts)
    return np.fromiter(numbers, dtype=np.int64, count=len(texts))


def texts_alike(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, as `equal_texts`, and the same for texts that differ in punctuation and digits at most.

    Texts without letters, and patterns of more than `MOST_ALIKE` different texts, such as "order 1", "order 2" and so
    on, are what the data is about: of these only equal texts have the same number.
    """
    equal = equal_texts(texts)
    letters = (" ".join(text.casefold().translate(_LETTERS).split()) for text in texts)
    numbers = (group_number(it, kind=b"alike") if it else NO_GROUP for it in letters)
    alike = np.fromiter(numbers, dtype=np.int64, count=len(texts))
    different = np.unique(equal, return_index=True)[1]
    names, counts = np.unique(alike[different], return_counts=True)
    are_alike = (counts > 1) & (counts <= max(MOST_ALIKE, MOST_ALIKE_SHARE * len(different))) & (names != NO_GROUP)
    return np.where(np.isin(alike, names[are_alike]), alike, equal)


class _Letters(dict[int, int | str]):
    """For `str.translate`: letters of any script with their marks stay, all else is a space."""

    def __missing__(self, code: int) -> int | str:
        self[code] = code if unicodedata.category(chr(code))[0] in "LM" else " "
        return self[code]


_LETTERS = _Letters()


def concatenated(*columns: Sequence[str]) -> Sequence[str]:
    """The items of several columns of one kind, one after the other."""
    make: Any = next((type(it) for it in columns if isinstance(it, Column)), DiskBackedTexts)
    joined: Sequence[str] = make(ConcatenatedTexts(*columns))
    return joined


def listed(names: Sequence[str], *, most: int = SHOWN_NAMES) -> str:
    """Some of several names, for a message."""
    return ", ".join(map(shown, names[:most])) + (", …" if len(names) > most else "")


def _hash_of(texts: Iterable[str], before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        contents = [text.encode() for text in chunk]
        # Each after its length, since a text may hold any separator.
        digest.update(b"".join(part for it in contents for part in (len(it).to_bytes(8, "little"), it)))
    return digest.hexdigest()


def _selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    return column.select(indices) if isinstance(column, Column) else [column[i] for i in indices]
