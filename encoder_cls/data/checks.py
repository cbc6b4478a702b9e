"""Warnings about a data set that a person should see before training on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.label_checks import MAX_LISTED, label_warnings
from encoder_cls.system.display import counted, listed

# The share of scored texts that may be training texts: a few short ones usually are.
MAX_SEEN = 0.1


def data_warnings(dataset: Dataset, *, learns_validation: bool = False) -> Iterator[str]:
    """Warn of doubtful labels, rows left out and texts that occur twice, in a sentence each.

    With `learns_validation`, the model learns from the validation texts in the end, so these count
    as training texts of the test texts.
    """
    yield from label_warnings(dataset)
    yield from _rare_classes(dataset)
    for name, notes in dataset.sources:
        yield from notes.warnings(name)
    for name, split in dataset.splits.items():
        yield from split_warnings(name, split, dataset.label_names)
    yield from _repeated_texts(dataset, learns_validation=learns_validation)


def split_warnings(name: str, split: Split, label_names: Sequence[str]) -> Iterator[str]:
    """Warn of labels of a split, or of a file with this name, that never occur in train."""
    rows = np.flatnonzero(split.has_unseen_label(len(label_names)))
    if not len(rows):
        return

    consequence = "counted as mistakes"
    if name == "validation":
        consequence = "left out of what chooses the weights"
    yield (
        f"labels of {name} that never occur in train: {listed(split.unseen_names)}; their "
        f"{len(rows):,} of {counted(len(split), 'row')}, the first at {split.where[rows[0]]}, are "
        f"{consequence}"
    )


def seen_warnings(name: str, split: Split, learned: Iterable[str]) -> Iterator[str]:
    """Warn where many texts of a split are among those that a model has learned from.

    Texts are compared, not files, since files may be copies.
    """
    seen = set(split.texts).intersection(learned)
    count = sum(text in seen for text in split.texts)
    if count <= MAX_SEEN * len(split):
        return

    verb = "is" if len(split) == 1 else "are"
    yield (
        f"{count:,} of {counted(len(split), 'text')} of {name} {verb} among the training texts: "
        "these scores say little about new texts; score others"
    )


def _rare_classes(dataset: Dataset) -> Iterator[str]:
    """Warn of classes with a single training text, and of those that a split has no text of."""
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

    # Classes with a single example were named above.
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
    """Warn of texts that train has twice, and of texts and groups that another split has, too."""
    hashes = {}
    for name, split in dataset.splits.items():
        hashes[name] = np.fromiter(map(hash, split.texts), dtype=np.int64, count=len(split))

    yield from _repeated_in_train(dataset.train, hashes["train"])

    for name, split in dataset.splits.items():
        if name == "train":
            continue

        is_learned = _is_learned(name, hashes, learns_validation=learns_validation)
        yield from _known_texts(
            name, split, is_learned, what="training texts, too", than="new texts"
        )

        is_of_group = split.shares_group_with(dataset.train)
        what = "of groups (data.group_column) that train has, too"
        yield from _known_texts(name, split, is_of_group, what=what, than="new groups")


def _repeated_in_train(train: Split, hashes: NDArray[np.int64]) -> Iterator[str]:
    """Warn of equal training texts, with the same and with other labels."""
    rows, first_rows, is_contradicted = _repetitions(train, hashes)

    contradicted = rows[is_contradicted]
    if len(contradicted):
        yield (
            f"{len(contradicted):,} training texts occur with other labels, too, the first at "
            f"{train.where[contradicted[0]]}"
        )

    repeating = np.setdiff1d(rows, first_rows)
    if len(repeating):
        yield (
            f"{len(repeating):,} training texts repeat an earlier one with the same label, the "
            f"first at {train.where[repeating[0]]}"
        )


def _repetitions(
    train: Split, hashes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The rows whose text occurs twice or more, increasing, (rows,).

    Returns:
        These rows, then those of them that are the first with their text and label, then whether
        each of them occurs with several labels.
    """
    # Once the hashes are sorted, equal ones are side by side.
    in_order = np.sort(hashes)
    equals_the_one_before = in_order[1:] == in_order[:-1]
    rows = np.flatnonzero(np.isin(hashes, in_order[1:][equals_the_one_before]))

    # The number of the text of each row, and its label; a set of labels as bits.
    familiarity_features = np.unique(hashes[rows], return_inverse=True)[1]
    labels = train.labels[rows]
    if train.is_multi_label:
        labels = np.packbits(labels > 0, axis=1)

    # A text that occurs in several of the distinct pairs has several labels.
    pairs = np.column_stack([familiarity_features, labels])
    distinct_pairs, firsts = np.unique(pairs, axis=0, return_index=True)
    num_labels = np.bincount(distinct_pairs[:, 0], minlength=1)
    return rows, rows[firsts], num_labels[familiarity_features] > 1


def _is_learned(
    name: str, hashes: Mapping[str, NDArray[np.int64]], *, learns_validation: bool
) -> NDArray[np.bool_]:
    """Which texts of a split are training texts, too, (texts,)."""
    is_learned = np.isin(hashes[name], hashes["train"])
    if name == "test" and learns_validation:
        is_learned |= np.isin(hashes[name], hashes["validation"])
    return is_learned


def _known_texts(
    name: str, split: Split, is_known: NDArray[np.bool_], *, what: str, than: str
) -> Iterator[str]:
    """Warn of the known texts of a split: `what` they are, and `than` what they score better."""
    if is_known.any():
        first = split.where[int(is_known.argmax())]
        yield (
            f"{is_known.sum():,} of {len(split):,} {name} texts are {what}, the first at {first}; "
            f"scores on these are better than on {than}"
        )
