"""A data set in, warnings out: what a person should look at before training on it."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, listed
from encoder_cls.data.holdout import NO_GROUP
from encoder_cls.data.split import Split
from encoder_cls.system.display import counted, shown

FEW = 3  # names in a warning
MOST_SEEN = 0.1  # of the texts that are scored: some short ones are usual


def data_warnings(dataset: Dataset) -> Iterator[str]:
    """Warnings, a sentence each: of labels, of rows without a text, of texts that are there twice."""
    yield from _of_labels(dataset)
    yield from split_warnings("train", dataset.train, dataset.label_names)
    yield from split_warnings("validation", dataset.validation, dataset.label_names)
    if dataset.test is not None:
        yield from split_warnings("test", dataset.test, dataset.label_names)
    yield from dataset.unlabelled.skipped.warning("the texts without labels")
    yield from _of_texts(dataset)
    yield from _of_groups(dataset)


def split_warnings(name: str, split: Split, label_names: Sequence[str]) -> Iterator[str]:
    """Warnings of one split: rows that were left out, with or without a text, and labels that never occur in train.

    Args:
        name: what to call it: `train`, `validation`, `test` or a file.
        split: the split.
        label_names: the classes that occur in train.
    """
    yield from split.skipped.warning(name)
    if split.left_out:
        locations = ", ".join(split.first_left_out) + (", …" if split.left_out > len(split.first_left_out) else "")
        yield f"rows of {name} without a text, which are left out: {split.left_out:,} ({locations})"
    unseen = np.flatnonzero(split.has_unseen_label(len(label_names)))
    if len(unseen):
        follows = "left out of what chooses the weights" if name == "validation" else "counted as mistakes"
        yield (
            f"labels of {name} that never occur in train: {listed(split.unseen_names)}; their {len(unseen):,} of "
            f"{counted(len(split), 'row')}, the first at {split.where[unseen[0]]}, are {follows}"
        )


def seen_warnings(name: str, split: Split, train: Split) -> Iterator[str]:
    """A warning where many texts of a split are among those of training: their scores say little of new texts.

    Texts are compared, not files, which may be copies.
    """
    texts = set(split.texts)
    seen = texts.intersection(train.texts)
    count = sum(text in seen for text in split.texts)
    if count > MOST_SEEN * len(split):
        are = "is" if len(split) == 1 else "are"
        yield (
            f"{count:,} of {counted(len(split), 'text')} of {name} {are} among the training texts: these scores say "
            "little of new texts; score others"
        )


def _of_labels(dataset: Dataset) -> Iterator[str]:
    others = [split.unseen_names for split in (dataset.validation, dataset.test) if split]
    every = list(dict.fromkeys(chain(dataset.label_names, *others)))
    yield from _of_odd_spaces(every)
    yield from _of_numbers_beside_names(dataset)
    groups = list(_written_alike(every))
    for names in groups[:FEW]:
        alike = len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
        of_all = ", ".join(ascii(name) if alike else shown(name) for name in names)
        yield f"the classes {of_all} differ only in case, in spaces or in how Unicode writes the same characters"
    if len(groups) > FEW:
        yield f"groups of classes that differ only so, beside these: {len(groups) - FEW:,}"
    of_two_types = [
        f"{shown(label)} ({integer}, {text})" for label, (integer, text) in list(dataset.of_two_types.items())[:FEW]
    ]
    if of_two_types:
        more = ", …" if len(dataset.of_two_types) > FEW else ""
        yield f"labels that are integers in some rows and texts in others count as one: {', '.join(of_two_types)}{more}"
    counts = [it.class_counts(len(dataset.label_names)) for it in (dataset.train, dataset.validation)]
    # Of names alone each class has the one text that its name is.
    single = (
        []
        if dataset.has_names_alone
        else [name for name, *of_each in zip(dataset.label_names, *counts, strict=False) if of_each == [1, 0]]
    )
    if single:
        yield (
            f"classes with one training example and none to validate with: {len(single):,} "
            f"({listed(single, most=FEW)}); add examples"
        )
    for split_name, split, named in (("validation", dataset.validation, single), ("test", dataset.test, [])):
        in_split = split.class_counts(len(dataset.label_names)) if split else np.zeros(0)
        missing = [
            it for it, count in zip(dataset.label_names, in_split, strict=False) if not count and it not in named
        ]
        if missing and in_split.any():
            yield (
                f"classes without a text in {split_name}, so that nothing shows how well they are recognized: "
                f"{len(missing):,} of {len(in_split):,} ({listed(missing, most=FEW)})"
            )


def _of_odd_spaces(names: Sequence[str]) -> Iterator[str]:
    """A warning of labels with spaces that a person takes for the end of a label, as in fastText files."""
    odd = [name for name in names if any(character.isspace() and character != " " for character in name)]
    if odd:
        yield (
            f"labels with an unusual space, such as U+00A0, in them: {len(odd):,} ({listed(odd, most=FEW)}); after "
            "__label__NAME only an ordinary space or a tab ends a label; write ordinary spaces"
        )


def _of_numbers_beside_names(dataset: Dataset) -> Iterator[str]:
    """A warning of classes of which some are numbers and some names: perhaps one class is written in two ways."""
    numbers = [name for name in dataset.label_names if re.fullmatch("-?[0-9]+", name)]
    names = [name for name in dataset.label_names if name not in numbers]
    if numbers and names:
        firsts = [dataset.train.where[_first_with(dataset, it[0])] for it in (numbers, names)]
        yield (
            f"labels are numbers in some rows and names in others: {counted(len(numbers), 'class', 'classes')} "
            f"({listed(numbers, most=FEW)}, the first at {firsts[0]}) and {len(names):,} ({listed(names, most=FEW)}, "
            f"the first at {firsts[1]}); if both mean the same, write them in one way"
        )


def _first_with(dataset: Dataset, name: str) -> int:
    """The first row of train that has a label."""
    number, labels = dataset.label_names.index(name), dataset.train.labels
    return int((labels[:, number] > 0 if dataset.is_multi_label else labels == number).argmax())


def _of_texts(dataset: Dataset) -> Iterator[str]:
    train = _hashes(dataset.train)
    in_order = np.sort(train)
    repeated = np.flatnonzero(_are_in(np.unique(in_order[1:][in_order[1:] == in_order[:-1]]), train))
    _, groups = np.unique(train[repeated], return_inverse=True)
    labels = dataset.train.label_sets()[repeated]
    for indices, what in (
        (repeated[_contradicted(groups, labels)], "occur with other labels, too"),
        (repeated[_repeating(groups, labels)], "repeat an earlier one with the same label"),
    ):
        if len(indices):
            yield f"{len(indices):,} training texts {what}, the first at {dataset.train.where[indices[0]]}"
    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        if split is None:
            continue
        known = np.flatnonzero(_are_in(in_order, _hashes(split)))
        if len(known):
            yield (
                f"{len(known):,} of {len(split):,} {name} texts are training texts, too, the first at "
                f"{split.where[known[0]]}; scores on these are better than on new texts"
            )


def _of_groups(dataset: Dataset) -> Iterator[str]:
    """Of splits in files of their own that share groups with train: what is held out never does."""
    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        known = shared_groups(dataset.train, split) if split else np.zeros(0, dtype=np.int64)
        if split and len(known):
            yield (
                f"{len(known):,} of {len(split):,} {name} texts are of groups (data.group_column) that train has, too, "
                f"the first at {split.where[known[0]]}; scores on these are better than on new groups"
            )


def shared_groups(train: Split, split: Split) -> NDArray[np.int64]:
    """The indices of the texts of a split whose groups occur in train."""
    if train.groups is None or split.groups is None:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(_are_in(np.unique(train.groups), split.groups) & (split.groups != NO_GROUP))


def _written_alike(names: Iterable[str]) -> Iterator[list[str]]:
    alike = defaultdict(list)
    for name in names:
        alike[_plain(name)].append(name)
    return (group for group in alike.values() if len(group) > 1)


def _plain(name: str) -> str:
    """What a person sees of a name: without case, spaces doubled, and characters that only format (zero-width ones)."""
    visible = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", visible.casefold()).split())


def _hashes(split: Split) -> NDArray[np.int64]:
    """A number for each text: so many that two of them are equal where their texts are."""
    return np.fromiter(map(hash, split.texts), dtype=np.int64, count=len(split))


def _are_in(in_order: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers are among others, which are sorted; `np.isin` takes several times the memory."""
    if not len(in_order):
        return np.zeros(len(wanted), dtype=bool)
    indices = np.minimum(np.searchsorted(in_order, wanted), len(in_order) - 1)
    are_in: NDArray[np.bool_] = in_order[indices] == wanted
    return are_in


def _contradicted(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of some texts, equal where their groups are, are there with several labels."""
    pairs = np.unique(np.stack([groups, labels], axis=1), axis=0)
    are_contradicted: NDArray[np.bool_] = np.bincount(pairs[:, 0], minlength=1)[groups] > 1
    return are_contradicted


def _repeating(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these texts were there before with the same label."""
    are_repeating = np.ones(len(groups), dtype=bool)
    are_repeating[np.unique(np.stack([groups, labels], axis=1), axis=0, return_index=True)[1]] = False
    return are_repeating
