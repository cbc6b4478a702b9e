"""Labelled texts in splits, texts without labels, and the data set of one classification task."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.reading.options import Notes
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.columns import Column, ConcatenatedTexts, in_chunks
from encoder_cls.system.display import listed

LabelsAre = Literal["names", "indices"]  # into data.label_names

NO_GROUP = 0  # the number of rows that belong to no group
# Texts, or this share of all, that differ in punctuation and digits alone.
MOST_ALIKE, MOST_ALIKE_SHARE = (
    10,
    0.01,
)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`.

    Labels are (texts,); numbers beyond the classes of the data set are indices into `unseen_names`. Multi-label: 1
    where a text has a label, else 0, (texts, classes), as int8.
    """

    texts: Sequence[str]
    labels: NDArray[Any]
    where: Sequence[str]
    # Numbers, equal in all splits, where `data.group_column` names them.
    groups: NDArray[np.int64] | None = None
    unseen_names: tuple[str, ...] = ()  # labels that never occur in train

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

    def label_text(self, index: int, label_names: Sequence[str]) -> str:
        """The label of an example, or its labels, as text; empty without labels."""
        numbers = (
            np.flatnonzero(self.labels[index]).tolist()
            if self.is_multi_label
            else [int(self.labels[index])]
        )
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
        if "together" in vars(self):  # which takes seconds for millions of texts
            vars(chosen)["together"] = self.together[indices]
        return chosen

    def is_of_group_in(self, other: Split) -> NDArray[np.bool_]:
        """Which examples have a group that occurs in another split, (texts,)."""
        if other.groups is None or self.groups is None:
            return np.zeros(len(self), dtype=bool)
        return np.asarray(np.isin(self.groups, np.unique(other.groups)) & (self.groups != NO_GROUP))

    @cached_property
    def together(self) -> NDArray[np.int64]:
        """Numbers that are equal for examples to hold out together: those of a group, or else with similar texts."""
        of_texts = texts_alike(self.texts)
        if not self.is_multi_label and len(self):  # a class that is one group could not be held out
            first = np.full(self.labels.max() + 1, of_texts.max())
            last = np.full_like(first, of_texts.min())
            np.minimum.at(first, self.labels, of_texts)
            np.maximum.at(last, self.labels, of_texts)
            of_texts = np.where(
                np.isin(of_texts, first[first == last]), equal_texts(self.texts), of_texts
            )
        # Not of texts that are alike as well: a phrase in all groups would join them into one.
        return (
            of_texts
            if self.groups is None
            else np.where(self.groups == NO_GROUP, of_texts, self.groups)
        )

    @cached_property
    def texts_fingerprint(self) -> str:
        """A SHA-256 of all texts in order."""
        return _hash_of(self.texts)

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
    """The splits of one classification task; class number `c`, which occurs in train, is called `label_names[c]`."""

    label_names: tuple[str, ...]
    train: Split
    validation: Split  # may have labels that never occur in train: see `selection`
    test: Split | None
    unlabelled: Unlabelled = NO_TEXTS
    labels_are: LabelsAre = "names"  # those of all files
    # By location, the class before `data.corrections`.
    corrected: Mapping[str, str] = field(default_factory=dict)
    # The location of the first row with several labels, which make it multi-label.
    several: str | None = None
    sources: tuple[tuple[str, Notes], ...] = ()  # the name and notes of each source that was read
    base: Dataset | None = None  # of the base run; its texts come first in each split

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
        """Notes on sources that were read in an unusual way, each once."""
        return list(
            dict.fromkeys(message for _, notes in self.sources for message in notes.messages)
        )

    @cached_property
    def selection(self) -> Split:
        """The validation rows that choose the weights: those with labels of train, multi-label only with these."""
        split, num_classes = self.validation, len(self.label_names)
        if not split.unseen_names:
            return split
        if split.is_multi_label:
            return replace(split, labels=split.labels[:, :num_classes], unseen_names=())
        return replace(split.subset(np.flatnonzero(split.labels < num_classes)), unseen_names=())

    @property
    def texts_to_learn(self) -> Iterable[str]:
        """The texts of train, then those without labels."""
        return ConcatenatedTexts(self.train.texts, self.unlabelled.texts)

    @property
    def reported(self) -> tuple[str, Split]:
        """Name and examples of the split of a final report: test, else validation, which may be empty."""
        return ("test", self.test) if self.test else ("validation", self.validation)


def check_same_kind(base: Dataset, *, run: str, is_multi_label: bool) -> None:
    """Raise a `ConfigError` if new data is of another kind than that of its base run."""
    if base.is_multi_label != is_multi_label:
        there, here = "one label", "several labels"
        if base.is_multi_label:
            there, here = here, there
        raise ConfigError(
            f"{run}: a text may have {there} there, and {here} in the new data; train one run of each"
        )


class NewRows(NamedTuple):
    """The rows of new data that a run adds to those of its base run.

    Attributes:
        of_splits: the indices of the rows, by split.
        must_stay: whether each of those of train must not be held out, since the base run learned from a similar text,
            or from one of the same group.
        notes: on the others.
    """

    of_splits: dict[str, NDArray[np.int64]]
    must_stay: NDArray[np.bool_]
    notes: Notes


def new_rows(
    base: Dataset, splits: Mapping[str, Split], label_names: Sequence[str], *, run: str
) -> NewRows:
    """Choose the rows of new data that a run adds to those of its base run.

    No text that the base run was validated or tested on is learned from, and none that it knows is scored as new: new
    training texts are left out if they are similar to one of those or were learned with the same label, new validation
    and test texts if they are similar to any, and all if their group is in another split of the base run.
    """
    learned = {*_labelled(base.train, base.label_names)}
    # All at once, since `texts_alike` ignores patterns that are frequent among all texts.
    of_both = [*base.splits.values(), *splits.values()]
    ends = np.cumsum([len(split) for split in of_both])[:-1]
    alike = np.split(texts_alike(concatenated(*(split.texts for split in of_both))), ends)
    base_alike = dict(zip(base.splits, alike, strict=False))
    new_alike = dict(zip(splits, alike[len(base_alike) :], strict=True))
    notes = Notes()

    kept: dict[str, NDArray[np.int64]] = {}
    for role, split in splits.items():
        others = base.splits.keys() - {role}
        of_base = [base_alike[name] for name in (others if role == "train" else base_alike)]
        is_known = np.isin(new_alike[role], np.concatenate(of_base))
        if role == "train":
            is_known |= np.array([key in learned for key in _labelled(split, label_names)])
        is_elsewhere = np.any(
            [split.is_of_group_in(base.splits[other]) for other in others], axis=0
        )

        for count, why in (
            (is_known.sum(), f"which {run} has already, or texts like them"),
            ((is_elsewhere & ~is_known).sum(), f"whose groups {run} has in another split"),
        ):
            if count:
                notes.messages.append(
                    f"{role}: {count:,} of {len(split):,} new texts are left out, {why}"
                )
        kept[role] = np.flatnonzero(~is_known & ~is_elsewhere)

    train = splits["train"]
    is_beside = np.isin(new_alike["train"], base_alike["train"]) | train.is_of_group_in(base.train)
    return NewRows(kept, is_beside[kept["train"]], notes)


def check_each_class_is_learned(
    split: Split, label_names: Sequence[str], known: int, *, run: str
) -> None:
    """Raise a `DataError` if a class after the `known` ones, which those of the base run are, has no training text."""
    is_lost = split.class_counts(len(label_names))[known:] == 0
    lost = [name for name, is_one in zip(label_names[known:], is_lost, strict=True) if is_one]
    if lost:
        what = f"no text of these new classes can be learned from: {listed(lost)}; {run} has held all of them out"
        raise DataError(run, what, "add other texts of these classes")


def joined(base: Dataset, new: Dataset, *, run: str) -> Dataset:
    """Join the data of a base run with new data, which has its `new_rows` and whose first classes are the base run's."""
    notes = Notes()
    if base.train.groups is not None and new.train.groups is None:
        message = f"{run} keeps groups together; name their column of the new data, too, in data.group_column"
        notes.messages.append(message)

    splits = new.splits
    for role, split in base.splits.items():
        more = [(splits[role], new.label_names)] if role in splits else []
        splits[role] = _concatenated([(split, base.label_names), *more], new.label_names)
    both = replace(
        new,
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=base.unlabelled.joined(new.unlabelled),
        corrected={**base.corrected, **new.corrected},
        several=new.several or base.several,
        sources=(*base.sources, *new.sources, (run, notes)),
        base=base,
    )
    return without_labelled_texts(both)


def without_labelled_texts(dataset: Dataset) -> Dataset:
    """Leave out of the texts without labels those that are similar to a labelled, validation or test text.

    A model that guessed the class of such a text would learn its own guess about a text that it is scored on.
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
        f"{is_labelled.sum():,} of {len(texts):,} texts without labels are left out, which are labelled, validation or "
        "test texts, too, or like them"
    )
    rest = np.flatnonzero(~is_labelled)
    unlabelled = Unlabelled(
        texts=_selected(texts, rest), where=_selected(dataset.unlabelled.where, rest)
    )
    return replace(
        dataset, unlabelled=unlabelled, sources=(*dataset.sources, ("data.unlabelled", notes))
    )


def _labelled(split: Split, label_names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """A number for the text of each example, the same for equal texts, and its label."""
    names = (*label_names, *split.unseen_names)
    return (
        (text, split.label_text(row, names))
        for row, text in enumerate(equal_texts(split.texts).tolist())
    )


def renumbered(labels: NDArray[Any], names: Sequence[str], order: Sequence[str]) -> NDArray[Any]:
    """Turn indices into `names`, or columns of several labels, into those of another order; -1 for a name not in it."""
    places = {name: place for place, name in enumerate(order)}
    numbers = np.array([places.get(name, -1) for name in names], dtype=np.int64)
    if labels.ndim == 1:
        return np.asarray(numbers[labels])
    columns = np.zeros((len(labels), len(order)), dtype=labels.dtype)
    columns[:, numbers] = labels
    return columns


def _concatenated(parts: Sequence[tuple[Split, Sequence[str]]], names: Sequence[str]) -> Split:
    """Concatenate splits, given with the names of their classes, into one with other names."""
    splits = [split for split, _ in parts]
    of_splits = [(*its, *split.unseen_names) for split, its in parts]
    order = tuple(dict.fromkeys(chain(names, *of_splits)))
    labels = [
        renumbered(split.labels, its, order) for split, its in zip(splits, of_splits, strict=True)
    ]
    has_groups = any(split.groups is not None for split in splits)
    groups = [
        np.full(len(split), NO_GROUP) if split.groups is None else split.groups for split in splits
    ]
    return Split(
        texts=concatenated(*(split.texts for split in splits)),
        labels=np.concatenate(labels),
        where=concatenated(*(split.where for split in splits)),
        groups=np.concatenate(groups) if has_groups else None,
        unseen_names=order[len(names) :],
    )


def group_number(group: str, *, kind: bytes = b"") -> int:
    """The number of a group, the same in all splits and at any time: 64 bits of a hash of its name and kind."""
    digest = hashlib.blake2b(
        group.encode("utf-8", "surrogatepass"), digest_size=8, person=kind
    ).digest()
    return int.from_bytes(digest, "little", signed=True)


def label_key(label: str) -> str:
    """Reduce a label to its visible letters: without case, doubled spaces and zero-width characters."""
    visible = "".join(
        c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf"
    )
    return " ".join(unicodedata.normalize("NFKC", visible.casefold()).split())


def names_as_texts(names: Sequence[str]) -> list[str]:
    """Split each class name into its words; one without a letter, such as a number, becomes empty."""
    return [_words(name) if any(map(str.isalpha, name)) else "" for name in names]


def _words(name: str) -> str:
    """Split at characters other than letters and digits, and before a capital after a small letter."""
    starts = [False, *(one.islower() and two.isupper() for one, two in pairwise(name))]
    spaced = "".join(
        f" {letter}" if is_start else letter for letter, is_start in zip(name, starts, strict=True)
    )
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())


def equal_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, the same for texts that differ at most in case and white space; never that of a group."""
    numbers = (group_number(" ".join(text.casefold().split()), kind=b"text") for text in texts)
    return np.fromiter(numbers, dtype=np.int64, count=len(texts))


def texts_alike(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, the same for texts that differ at most in case, white space, punctuation and digits.

    Texts without letters, and frequent patterns such as "order 1", "order 2", are numbered as by `equal_texts`.
    """
    equal = equal_texts(texts)
    letters = (" ".join(text.casefold().translate(_LETTERS).split()) for text in texts)
    numbers = (group_number(it, kind=b"alike") if it else NO_GROUP for it in letters)
    alike = np.fromiter(numbers, dtype=np.int64, count=len(texts))
    different = np.unique(equal, return_index=True)[1]
    names, counts = np.unique(alike[different], return_counts=True)
    are_alike = (
        (counts > 1)
        & (counts <= max(MOST_ALIKE, MOST_ALIKE_SHARE * len(different)))
        & (names != NO_GROUP)
    )
    return np.where(np.isin(alike, names[are_alike]), alike, equal)


class _Letters(dict[int, int | str]):
    """A table for `str.translate` that keeps letters of any script with their marks, and makes all else a space."""

    def __missing__(self, code: int) -> int | str:
        self[code] = code if unicodedata.category(chr(code))[0] in "LM" else " "
        return self[code]


_LETTERS = _Letters()


def concatenated(*columns: Sequence[str]) -> Sequence[str]:
    """The items of several columns of one type, one after the other."""
    make: Any = type(columns[0])
    all_items: Sequence[str] = make(chain.from_iterable(columns))
    return all_items


def _hash_of(texts: Iterable[str], before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        contents = [text.encode() for text in chunk]
        # The length comes first, since a text may hold any separator.
        digest.update(
            b"".join(part for it in contents for part in (len(it).to_bytes(8, "little"), it))
        )
    return digest.hexdigest()


def _selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    return column.select(indices) if isinstance(column, Column) else [column[i] for i in indices]
