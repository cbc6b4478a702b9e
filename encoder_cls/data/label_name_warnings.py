"""Warn of doubtful labels: lists that were written as text, classes written in two ways."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from encoder_cls.data.dataset import Dataset
from encoder_cls.data.similar_labels import label_map_of, similar_labels
from encoder_cls.system.display import counted, listed, shortened, shown
from encoder_cls.system.json_values import json_text
from encoder_cls.system.label_cells import label_key

MAX_LISTED = 3

# A list that Python, JSON or PostgreSQL has written as text.
_LIST = re.compile(r"\[.*\]|\{.*\}|\([^,]*,.*\)", re.DOTALL)
# The first or the last part of such a list that `data.label_separator` has cut.
_END_OF_LIST = re.compile(r"""[\[({]\s*['"].*|.*['"]\s*[\])}]""", re.DOTALL)

# A white-space character that is not the ordinary space.
_UNUSUAL_SPACE = re.compile(r"[^\S ]")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_DIGITS = re.compile("[0-9]+")


def label_warnings(dataset: Dataset, *, have_levels: bool = False) -> Iterator[str]:
    """Warn of labels that probably do not mean the classes that they become."""
    names = _names_in_any_split(dataset)
    yield from _unusual_spaces(names)
    yield from _lists_as_text(dataset)
    # Codes such as 1/2 look like lists, and those such as 1.2 and 1.2.3 like numbers and names.
    if not have_levels:
        yield from _lists_with_separator(dataset)
        yield from _numbers_beside_names(dataset)
    yield from _minus_one(dataset)
    yield from _names_alike(names)
    yield from _similar_names(dataset)


def _names_in_any_split(dataset: Dataset) -> list[str]:
    names = list(dataset.label_names)
    known = set(names)
    for split in dataset.splits.values():
        names += [name for name in split.unseen_names if name not in known]
        known.update(split.unseen_names)
    return names


def _unusual_spaces(names: Sequence[str]) -> Iterator[str]:
    """Warn of unusual spaces, which do not end a label in a fastText file."""
    odd_names = [name for name in names if _UNUSUAL_SPACE.search(name)]
    if odd_names:
        yield (
            f"labels with an unusual space, such as U+00A0, in them: {len(odd_names):,} "
            f"({listed(odd_names, most=MAX_LISTED)}); after __label__NAME only an ordinary space "
            "or a tab ends a label; write ordinary spaces"
        )


def _lists_as_text(dataset: Dataset) -> Iterator[str]:
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


def _lists_with_separator(dataset: Dataset) -> Iterator[str]:
    if dataset.is_multi_label:
        return
    counts = dataset.train.class_counts(len(dataset.label_names)).tolist()
    lists = several_labels(dict(zip(dataset.label_names, counts, strict=True)))
    if lists is None:
        return

    setting = shlex.quote(f"data.label_separator={json_text(lists.separator)}")
    yield (
        f"labels seem to list several labels: {counted(lists.num_rows, 'training text')} such as "
        f"{shown(lists.example)}, and each combination is a class; if a text may have several "
        f"labels: --set {setting}"
    )


def _numbers_beside_names(dataset: Dataset) -> Iterator[str]:
    numbers = []
    names = []
    for name in dataset.label_names:
        if _NUMBER.fullmatch(name):
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
    has_class = dataset.train.has_class(dataset.label_names.index(name))
    return dataset.train.where[int(has_class.argmax())]


def _minus_one(dataset: Dataset) -> Iterator[str]:
    """Warn of -1, which other libraries write for no label."""
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


def _similar_names(dataset: Dataset) -> Iterator[str]:
    counts = dataset.train.class_counts(len(dataset.label_names)).tolist()
    groups = similar_labels(dict(zip(dataset.label_names, counts, strict=True)))
    if not groups:
        return

    examples = []
    for group in groups[:MAX_LISTED]:
        others = [f"{shown(name)} ({count:,})" for name, count in group.others.items()]
        examples.append(f"{', '.join(others)} like {shown(group.label)} ({group.num_rows:,})")
    if len(groups) > MAX_LISTED:
        examples.append(f"and {len(groups) - MAX_LISTED:,} more")
    setting = f"data.label_map={json_text(label_map_of(groups))}"
    yield (
        f"classes that look like another one, with their training texts: {'; '.join(examples)}; "
        f"if they are the same, add --set {shlex.quote(setting)}"
    )


def _distinguishable(names: Sequence[str]) -> str:
    normalized = {unicodedata.normalize("NFC", name) for name in names}
    look_the_same = len(normalized) < len(names)

    written = []
    for name in names:
        written.append(ascii(name) if look_the_same else repr(shortened(name, limit=80)))
    return ", ".join(written)


# Several labels in a cell


class SeveralLabels(NamedTuple):
    """A separator with which cells of labels seem to list several labels.

    Attributes:
        names: the labels that it cuts out, the most frequent first.
        example: the most frequent cell that lists several.
    """

    separator: str
    num_rows: int
    names: tuple[str, ...]
    example: str


# The separators that are tried, those that hardly occur inside a name first.
LABEL_SEPARATORS = ("|", ";", ",", "\n", "/", "+", "&")
# The smallest number of different cells that must list several labels: two cells may do so by
# chance.
MIN_LISTS = 3
# The largest number of words of a label that is cut out of a list. A longer part is a piece of a
# sentence.
MAX_WORDS = 5
# A number that may have a decimal comma.
_DECIMAL = re.compile("-?[0-9]+(?:,[0-9]+)?")


def several_labels(counts: Mapping[str, int]) -> SeveralLabels | None:
    """Find the separator with which cells list several labels, by the number of rows of each cell.

    It explains the most rows. A comma inside a name is none: the parts of a name hardly occur
    elsewhere.
    """
    if all(_DECIMAL.fullmatch(cell) for cell in counts):
        return None

    found = None
    for separator in LABEL_SEPARATORS:
        labels = _labels_by(separator, counts)
        if labels and (found is None or labels.num_rows > found.num_rows):
            found = labels
    return found


def _labels_by(separator: str, counts: Mapping[str, int]) -> SeveralLabels | None:
    """Cut cells at a separator; None if the parts do not behave as labels do."""
    parts_of_cells = {}
    for cell in counts:
        parts = [part.strip() for part in cell.split(separator)]
        parts_of_cells[cell] = list(dict.fromkeys(part for part in parts if part))

    # Count the rows and the different cells in which each part occurs.
    rows_of_parts: Counter[str] = Counter()
    cells_of_parts: Counter[str] = Counter()
    for cell, parts in parts_of_cells.items():
        cells_of_parts.update(parts)
        for part in parts:
            rows_of_parts[part] += counts[cell]

    # A list has short parts, each of which occurs in another cell, too.
    lists = []
    num_cells_with_separator = 0
    for cell, parts in parts_of_cells.items():
        if len(parts) < 2:
            continue
        num_cells_with_separator += 1
        are_labels = all(
            cells_of_parts[part] > 1 and len(part.split()) <= MAX_WORDS for part in parts
        )
        if are_labels:
            lists.append(cell)

    # Most of the cells with the separator must be lists, and the labels no more than the cells: a
    # hierarchy such as food/fruit has a new part in each cell.
    are_few = len(lists) < MIN_LISTS or 2 * len(lists) < num_cells_with_separator
    if are_few or len(rows_of_parts) > len(counts):
        return None

    lists.sort(key=lambda cell: -counts[cell])
    return SeveralLabels(
        separator=separator,
        num_rows=sum(counts[cell] for cell in lists),
        names=tuple(part for part, _ in rows_of_parts.most_common()),
        example=lists[0],
    )
