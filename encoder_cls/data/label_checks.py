"""Warn of doubtful labels: lists that were written as text, classes written in two ways."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

from encoder_cls.data.dataset import Dataset
from encoder_cls.data.label_names import label_key
from encoder_cls.system.display import counted, listed, shortened

# The number of names that a warning lists.
MAX_LISTED = 3

# A list that Python, JSON or PostgreSQL has written as text.
_LIST = re.compile(r"\[.*\]|\{.*\}|\(.*,.*\)", re.DOTALL)
# The first or the last part of such a list that `data.label_separator` has cut.
_END_OF_LIST = re.compile(r"""[\[({]\s*['"].*|.*['"]\s*[\])}]""", re.DOTALL)

# A white-space character that is not the ordinary space.
_UNUSUAL_SPACE = re.compile(r"[^\S ]")
_INTEGER = re.compile("-?[0-9]+")
_DIGITS = re.compile("[0-9]+")


def label_warnings(dataset: Dataset) -> Iterator[str]:
    """Warn of labels that probably do not mean the classes that they become."""
    names = _names_in_any_split(dataset)
    yield from _unusual_spaces(names)
    yield from _lists_as_text(dataset)
    yield from _numbers_beside_names(dataset)
    yield from _minus_one(dataset)
    yield from _names_alike(names)


def _names_in_any_split(dataset: Dataset) -> list[str]:
    """List the classes, then the labels that never occur in train, without repetitions."""
    names = list(dataset.label_names)
    known = set(names)
    for split in dataset.splits.values():
        names += [name for name in split.unseen_names if name not in known]
        known.update(split.unseen_names)
    return names


def _unusual_spaces(names: Sequence[str]) -> Iterator[str]:
    """Warn of labels with unusual spaces, which do not end a label in a fastText file."""
    odd_names = [name for name in names if _UNUSUAL_SPACE.search(name)]
    if odd_names:
        yield (
            f"labels with an unusual space, such as U+00A0, in them: {len(odd_names):,} "
            f"({listed(odd_names, most=MAX_LISTED)}); after __label__NAME only an ordinary space "
            "or a tab ends a label; write ordinary spaces"
        )


def _lists_as_text(dataset: Dataset) -> Iterator[str]:
    """Warn if at least half of the classes look like lists of labels, or like parts of lists."""
    pattern = _LIST
    what = "each is a class"
    if dataset.is_multi_label:
        pattern = _END_OF_LIST
        what = "data.label_separator has cut them"

    lists = [name for name in dataset.label_names if pattern.fullmatch(name.strip())]
    if 2 * len(lists) < len(dataset.label_names):
        return
    yield (
        f"labels look like lists that were written as text: {len(lists):,} of "
        f"{len(dataset.label_names):,} classes ({listed(lists, most=MAX_LISTED)}); {what}; if a "
        "text has several labels, write JSON lines with lists, or plain names with a separator "
        "between them, such as late|refund, and set data.label_separator"
    )


def _numbers_beside_names(dataset: Dataset) -> Iterator[str]:
    """Warn if some labels are integers and others are names, such as `1` and `refund`."""
    numbers = []
    names = []
    for name in dataset.label_names:
        if _INTEGER.fullmatch(name):
            numbers.append(name)
        else:
            names.append(name)
    if not numbers or not names:
        return

    yield (
        "labels are numbers in some rows and names in others: "
        f"{counted(len(numbers), 'class', 'classes')} ({listed(numbers, most=MAX_LISTED)}, "
        f"the first at {_first_row(dataset, numbers[0])}) and {len(names):,} "
        f"({listed(names, most=MAX_LISTED)}, the first at {_first_row(dataset, names[0])}); "
        "if both mean the same, write them in one way"
    )


def _first_row(dataset: Dataset, name: str) -> str:
    """The location of the first training text of a class."""
    has_class = dataset.train.has_class(dataset.label_names.index(name))
    return dataset.train.where[int(has_class.argmax())]


def _minus_one(dataset: Dataset) -> Iterator[str]:
    """Warn if -1 is a class and all others are numbers from 0 on.

    Other libraries write -1 for a row without a label.
    """
    names = dataset.label_names
    others = [name for name in names if name != "-1"]
    count_from_0 = "0" in others and all(_DIGITS.fullmatch(name) for name in others)
    if not count_from_0 or len(others) == len(names):
        return

    has_minus_one = dataset.train.has_class(names.index("-1"))
    count = int(has_minus_one.sum())
    if count:
        first = dataset.train.where[int(has_minus_one.argmax())]
        yield (
            f"-1 is a class, of {counted(count, 'training text')}, the first at {first}, beside "
            'numbers from 0 on; if it means "no label", leave these labels empty and name the '
            "classes in data.label_names (from Python: give None)"
        )


def _names_alike(names: Sequence[str]) -> Iterator[str]:
    """Warn of classes whose names a person would take for the same name."""
    names_by_key = defaultdict(list)
    for name in names:
        names_by_key[label_key(name)].append(name)
    groups = [group for group in names_by_key.values() if len(group) > 1]

    for group in groups[:MAX_LISTED]:
        yield (
            f"the classes {_distinguishable(group)} differ only in case, in spaces or in how "
            "Unicode writes the same characters; data.fold_labels=true makes them one"
        )
    if len(groups) > MAX_LISTED:
        num_more = len(groups) - MAX_LISTED
        yield f"further groups of classes that differ only in this way: {num_more:,}"


def _distinguishable(names: Sequence[str]) -> str:
    """List names so that a person sees how they differ.

    Names that look the same are written in ASCII, with escapes for other characters.
    """
    normalized = {unicodedata.normalize("NFC", name) for name in names}
    look_the_same = len(normalized) < len(names)

    written = []
    for name in names:
        written.append(ascii(name) if look_the_same else repr(shortened(name, limit=80)))
    return ", ".join(written)
