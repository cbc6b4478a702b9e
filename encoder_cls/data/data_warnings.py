"""Warn of faults of a data set that a person should see before training on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.label_name_warnings import MAX_LISTED, label_warnings
from encoder_cls.system.display import counted, listed


def data_warnings(
    dataset: Dataset, *, learns_validation: bool = False, have_levels: bool = False
) -> Iterator[str]:
    """Warn of doubtful labels, rows that are left out, and texts that occur twice.

    With `learns_validation`, test texts are compared with validation texts, too. With
    `have_levels`, labels are codes with levels.
    """
    yield from label_warnings(dataset, have_levels=have_levels)
    yield from _rare_classes(dataset)
    for name, notes in dataset.sources:
        yield from notes.warnings(name)
    for name, split in dataset.splits.items():
        yield from split_warnings(name, split, dataset.label_names)
    yield from _repeated_texts(dataset, learns_validation=learns_validation)


def split_warnings(name: str, split: Split, label_names: Sequence[str]) -> Iterator[str]:
    """Warn of labels of a split, or of a file, that never occur in train."""
    rows = np.flatnonzero(split.has_unseen_label(len(label_names)))
    if not len(rows):
        return

    # A validation row with several labels selects the weights by its other labels.
    consequence = "counted as mistakes"
    if name == "validation" and not split.is_multi_label:
        consequence = "not used to select the weights"
    verb = "has" if len(rows) == 1 else "have"
    yield (
        f"labels of {name} that never occur in train: {listed(split.unseen_names)}; {len(rows):,} "
        f"of {counted(len(split), 'row')} {verb} such labels, the first at "
        f"{split.where[rows[0]]}; such rows are {consequence}"
    )


# The largest share of the scored texts that may be training texts without a warning. A few short
# texts usually are.
MAX_SEEN = 0.1


def seen_warnings(name: str, *, num_learned: int, num_texts: int) -> Iterator[str]:
    """Warn if a model has learned from many of the texts that it is scored on.

    Texts are compared, since a file may be a copy of another one.
    """
    if num_learned > MAX_SEEN * num_texts:
        yield (
            f"{num_learned:,} of {counted(num_texts, 'text')} of {name} {_be(num_learned)} among "
            "the training texts: these scores say little about new texts; score other texts"
        )


def _rare_classes(dataset: Dataset) -> Iterator[str]:
    names = np.array(dataset.label_names, dtype=object)
    counts = {}
    for split_name, split in dataset.splits.items():
        counts[split_name] = split.class_counts(len(names))

    is_single = (counts["train"] == 1) & (counts["validation"] == 0)
    if is_single.any():
        some = listed(names[is_single].tolist(), most=MAX_LISTED)
        yield (
            "classes with one training example and none to validate with: "
            f"{is_single.sum():,} ({some}); add examples"
        )

    # Do not name the classes with a single training text again.
    is_missing = (counts["validation"] == 0) & ~is_single
    if counts["validation"].any():
        yield from _missing_classes("validation", names, is_missing)
    if "test" in counts and counts["test"].any():
        yield from _missing_classes("test", names, counts["test"] == 0)


def _missing_classes(
    split_name: str, names: NDArray[Any], is_missing: NDArray[np.bool_]
) -> Iterator[str]:
    if is_missing.any():
        some = listed(names[is_missing].tolist(), most=MAX_LISTED)
        yield (
            f"classes without a text in {split_name}, so that nothing shows how well they are "
            f"recognized: {is_missing.sum():,} of {len(names):,} ({some})"
        )


def _repeated_texts(dataset: Dataset, *, learns_validation: bool) -> Iterator[str]:
    yield from _repeated_in_train(dataset.train)

    for name, split in dataset.splits.items():
        if name == "train":
            continue

        learned: Iterable[str] = dataset.train.texts
        if name == "test" and learns_validation:
            learned = chain(learned, dataset.validation.texts)
        consequence = "such texts have better scores than new texts"
        if name == "validation" and len(dataset.new_validation_rows) < len(split):
            consequence = "such texts select no weights, calibrate nothing and guarantee nothing"
        where = "among the training texts, too"
        yield from _known_texts(name, split, split.are_among(learned), where, consequence)

        shares_group = split.shares_group_with(dataset.train)
        where = "in a group (data.group_column) that train has, too"
        consequence = "such texts have better scores than new groups"
        yield from _known_texts(name, split, shares_group, where, consequence)


# What a repeated text repeats. A caller that repeats texts by itself knows the warning by this.
EARLIER_TEXT = "an earlier text with the same label"


def _repeated_in_train(train: Split) -> Iterator[str]:
    hashes = np.fromiter(map(hash, train.texts), dtype=np.int64, count=len(train))
    rows, first_rows, is_contradicted = _repetitions(train, hashes)

    contradicted = rows[is_contradicted]
    if len(contradicted):
        verb = "occurs" if len(contradicted) == 1 else "occur"
        yield (
            f"{counted(len(contradicted), 'training text')} {verb} with other labels, too, the "
            f"first at {train.where[contradicted[0]]}"
        )

    repeating = np.setdiff1d(rows, first_rows)
    if len(repeating):
        verb = "repeats" if len(repeating) == 1 else "repeat"
        yield (
            f"{counted(len(repeating), 'training text')} {verb} {EARLIER_TEXT}, the first at "
            f"{train.where[repeating[0]]}"
        )


def _repetitions(
    train: Split, hashes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Find the training texts that occur twice or more, by the hash of each text.

    Returns:
        Their rows, increasing; whether each is the first with its text and label; and whether its
        text has several labels.
    """
    # Sort the hashes, so that equal hashes are side by side.
    in_order = np.sort(hashes)
    equals_the_one_before = in_order[1:] == in_order[:-1]
    rows = np.flatnonzero(np.isin(hashes, in_order[1:][equals_the_one_before]))

    # Number the text and the label of each of these rows. The labels of a row of multi-label data
    # are packed into bits.
    text_numbers = np.unique(hashes[rows], return_inverse=True)[1]
    labels = train.labels[rows]
    if train.is_multi_label:
        labels = np.packbits(labels > 0, axis=1)

    # A text that occurs in several distinct pairs of a text and a label has several labels.
    pairs = np.column_stack([text_numbers, labels])
    distinct_pairs, firsts = np.unique(pairs, axis=0, return_index=True)
    num_labels = np.bincount(distinct_pairs[:, 0], minlength=1)
    return rows, rows[firsts], num_labels[text_numbers] > 1


def _known_texts(
    name: str, split: Split, is_known: NDArray[np.bool_], where: str, consequence: str
) -> Iterator[str]:
    count = int(is_known.sum())
    if count:
        first = split.where[int(is_known.argmax())]
        yield (
            f"{count:,} of {counted(len(split), f'{name} text')} {_be(count)} {where}, the first "
            f"at {first}; {consequence}"
        )


def _be(count: int) -> str:
    if count == 1:
        return "is"
    return "are"
