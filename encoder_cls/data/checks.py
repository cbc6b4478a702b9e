"""Warnings about a data set that a person should see before training on it."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.label_names import label_key
from encoder_cls.system.display import counted, listed, shortened

FEW = 3  # names that a warning lists
# A list that a program has written as text: of Python, JSON or PostgreSQL; or the ends of one that a separator has cut.
_LIST = re.compile(r"\[.*\]|\{.*\}|\(.*,.*\)", re.DOTALL)
_END_OF_LIST = re.compile(r"""[\[({]\s*['"].*|.*['"]\s*[\])}]""", re.DOTALL)
MOST_SEEN = 0.1  # of the scored texts: a few short ones are usual


def data_warnings(dataset: Dataset, *, learns_validation: bool = False) -> Iterator[str]:
    """Warn of doubtful labels, rows left out and texts that occur twice, in a sentence each.

    With `learns_validation`, the model learns from the validation texts in the end, so these count as training texts
    of the test texts.
    """
    yield from _label_warnings(dataset)
    for name, notes in dataset.sources:
        yield from notes.warnings(name)
    for name, split in dataset.splits.items():
        yield from split_warnings(name, split, dataset.label_names)
    yield from _repeated_texts(dataset, learns_validation=learns_validation)


def split_warnings(name: str, split: Split, label_names: Sequence[str]) -> Iterator[str]:
    """Warn of labels of a split, or of a file with this name, that never occur in train."""
    unseen = np.flatnonzero(split.has_unseen_label(len(label_names)))
    if len(unseen):
        follows = (
            "left out of what chooses the weights"
            if name == "validation"
            else "counted as mistakes"
        )
        yield (
            f"labels of {name} that never occur in train: {listed(split.unseen_names)}; their {len(unseen):,} of "
            f"{counted(len(split), 'row')}, the first at {split.where[unseen[0]]}, are {follows}"
        )


def seen_warnings(name: str, split: Split, learned: Iterable[str]) -> Iterator[str]:
    """Warn where many texts of a split were learned from; compares texts, since files may be copies."""
    seen = set(split.texts).intersection(learned)
    count = sum(text in seen for text in split.texts)
    if count > MOST_SEEN * len(split):
        of_all = f"{count:,} of {counted(len(split), 'text')} of {name} {'is' if len(split) == 1 else 'are'}"
        yield f"{of_all} among the training texts: these scores say little about new texts; score others"


def _label_warnings(dataset: Dataset) -> Iterator[str]:
    every = list(
        dict.fromkeys(
            chain(dataset.label_names, *(it.unseen_names for it in dataset.splits.values()))
        )
    )
    odd = [name for name in every if re.search(r"[^\S ]", name)]
    if odd:  # which looks like the end of a label, as in fastText files
        yield (
            f"labels with an unusual space, such as U+00A0, in them: {len(odd):,} ({listed(odd, most=FEW)}); after "
            "__label__NAME only an ordinary space or a tab ends a label; write ordinary spaces"
        )
    yield from _lists_as_text(dataset)
    yield from _numbers_beside_names(dataset)
    yield from _minus_one(dataset)
    yield from _names_alike(every)
    yield from _rare_classes(dataset)


def _lists_as_text(dataset: Dataset) -> Iterator[str]:
    """Warn where at least half of the classes look like lists of labels, or like parts of such lists."""
    pattern = _END_OF_LIST if dataset.is_multi_label else _LIST
    lists = [name for name in dataset.label_names if pattern.fullmatch(name.strip())]
    if 2 * len(lists) < len(dataset.label_names):
        return

    what = "each is a class"
    if dataset.is_multi_label:
        what = "data.label_separator has cut them"
    yield (
        f"labels look like lists that were written as text: {len(lists):,} of {len(dataset.label_names):,} classes "
        f"({listed(lists, most=FEW)}); {what}; if a text has several labels, write JSON lines with lists, or plain "
        "names with a separator between them, such as late|refund, and set data.label_separator"
    )


def _numbers_beside_names(dataset: Dataset) -> Iterator[str]:
    numbers = [name for name in dataset.label_names if re.fullmatch("-?[0-9]+", name)]
    names = [name for name in dataset.label_names if name not in numbers]
    if numbers and names:
        classes = [dataset.label_names.index(it[0]) for it in (numbers, names)]
        labels = dataset.train.labels
        are_of = [labels[:, it] > 0 if dataset.is_multi_label else labels == it for it in classes]
        firsts = [dataset.train.where[int(is_of.argmax())] for is_of in are_of]
        yield (
            f"labels are numbers in some rows and names in others: {counted(len(numbers), 'class', 'classes')} "
            f"({listed(numbers, most=FEW)}, the first at {firsts[0]}) and {len(names):,} ({listed(names, most=FEW)}, "
            f"the first at {firsts[1]}); if both mean the same, write them in one way"
        )


def _minus_one(dataset: Dataset) -> Iterator[str]:
    """Warn of -1 beside numbers from 0 on, which other libraries take as "no label"."""
    names = dataset.label_names
    others = [name for name in names if name != "-1"]
    are_from_0 = "0" in others and all(re.fullmatch("[0-9]+", name) for name in others)
    if not are_from_0 or len(others) == len(names):
        return

    number = names.index("-1")
    labels = dataset.train.labels
    has_it = labels[:, number] > 0 if dataset.is_multi_label else labels == number
    count = int(has_it.sum())
    if count:
        first = dataset.train.where[int(has_it.argmax())]
        yield (
            f"-1 is a class, of {counted(count, 'training text')}, the first at {first}, beside numbers from 0 on; if "
            'it means "no label", leave these labels empty and name the classes in data.label_names (from Python: '
            "give None)"
        )


def _names_alike(names: Sequence[str]) -> Iterator[str]:
    alike = defaultdict(list)
    for name in names:
        alike[label_key(name)].append(name)
    groups = [group for group in alike.values() if len(group) > 1]
    for group in groups[:FEW]:
        is_one = len({unicodedata.normalize("NFC", name) for name in group}) < len(group)
        of_all = ", ".join(
            ascii(name) if is_one else repr(shortened(name, limit=80)) for name in group
        )
        yield (
            f"the classes {of_all} differ only in case, in spaces or in how Unicode writes the same characters; "
            "data.fold_labels=true makes them one"
        )
    if len(groups) > FEW:
        yield f"groups of classes that differ only so, beside these: {len(groups) - FEW:,}"


def _rare_classes(dataset: Dataset) -> Iterator[str]:
    names = np.array(dataset.label_names, dtype=object)
    counts = {name: it.class_counts(len(names)) for name, it in dataset.splits.items()}
    is_single = (counts.pop("train") == 1) & (counts["validation"] == 0)
    if is_single.any():
        some = f"{is_single.sum():,} ({listed(names[is_single].tolist(), most=FEW)})"
        yield f"classes with one training example and none to validate with: {some}; add examples"
    for split_name, of_split in counts.items():
        is_missing = (of_split == 0) & ~(is_single & (split_name == "validation"))
        if is_missing.any() and of_split.any():
            yield (
                f"classes without a text in {split_name}, so that nothing shows how well they are recognized: "
                f"{is_missing.sum():,} of {len(names):,} ({listed(names[is_missing].tolist(), most=FEW)})"
            )


def _repeated_texts(dataset: Dataset, *, learns_validation: bool) -> Iterator[str]:
    hashes = {
        name: np.fromiter(map(hash, it.texts), np.int64, len(it))
        for name, it in dataset.splits.items()
    }
    train = hashes.pop("train")
    in_order = np.sort(train)
    repeated = np.flatnonzero(np.isin(train, in_order[1:][in_order[1:] == in_order[:-1]]))
    groups = np.unique(train[repeated], return_inverse=True)[1]
    labels = dataset.train.labels[repeated]
    rows = np.column_stack(
        [groups, np.packbits(labels > 0, axis=1) if dataset.is_multi_label else labels]
    )
    distinct, firsts = np.unique(rows, axis=0, return_index=True)
    is_contradicted = np.bincount(distinct[:, 0], minlength=1)[groups] > 1
    for indices, what in (
        (repeated[is_contradicted], "occur with other labels, too"),
        (np.delete(repeated, firsts), "repeat an earlier one with the same label"),
    ):
        if len(indices):
            yield f"{len(indices):,} training texts {what}, the first at {dataset.train.where[indices[0]]}"
    for name, of_split in hashes.items():
        split = dataset.splits[name]
        is_learned = np.isin(of_split, in_order)
        if name == "test" and learns_validation:
            is_learned |= np.isin(of_split, hashes["validation"])
        for is_known, what, new in (
            (is_learned, "training texts, too", "texts"),
            (
                split.is_of_group_in(dataset.train),
                "of groups (data.group_column) that train has, too",
                "groups",
            ),
        ):
            if is_known.any():
                yield (
                    f"{is_known.sum():,} of {len(split):,} {name} texts are {what}, the first at "
                    f"{split.where[int(is_known.argmax())]}; scores on these are better than on new {new}"
                )
