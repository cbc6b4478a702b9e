"""Choose the rows to hold out for validation, stratified by label, without dividing groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.errors import DataError

Counts = NDArray[np.int64]

# Texts of a validation split: more make each validation longer, and the standard error of accuracy
# is 0.2%.
MAX_HELD_OUT = 50_000
# The share by which the number of rows to hold out may be missed, so that each class has one.
TOLERANCE = 0.1
# Rows that may be held out beyond it, as long as all are a quarter of the data at most.
FEW_ROWS = 10
# Digits of the remainders of shares that are compared.
REMAINDER_DIGITS = 9


def hold_out(
    split: Split,
    *,
    fraction: float,
    seed: int,
    classes: NDArray[Any] | None = None,
    uncorrected: NDArray[Any] | None = None,
    must_stay: NDArray[np.bool_] | None = None,
    is_needed: bool = True,
) -> tuple[Split, Split]:
    """Divide a split in two.

    The second part has about `fraction` of all examples and of each class, and `MAX_HELD_OUT`
    examples at most. Groups are not divided, nor, among rows without a group, texts that differ
    only in case, white space, punctuation and digits.

    Args:
        split: the examples.
        fraction: the part to hold out.
        seed: chooses the examples.
        classes: to stratify by, by default the labels: in the shape of labels, numbered from 0 on.
            Their numbers decide which rows are held out.
        uncorrected: the classes before corrections, which are stratified by instead, so that
            corrections do not change the parts, unless a class would have no example left.
        must_stay: examples that are not held out, (texts,).
        is_needed: if not, the second part may be empty.

    Raises:
        DataError: nothing can be held out, and it is needed.
    """
    if classes is None:
        classes = split.labels
    rows = np.arange(len(split))
    if must_stay is not None:
        rows = np.flatnonzero(~must_stay)
    groups = np.unique(split.split_groups[rows], return_inverse=True)[1]

    def choose(classes: NDArray[Any]) -> NDArray[np.bool_]:
        is_held_out = np.zeros(len(split), dtype=bool)
        if not len(rows):
            return is_held_out

        row_classes = classes[rows]
        if row_classes.ndim == 1:
            # Renumber the classes, without those whose examples all stay.
            row_classes = np.unique(row_classes, return_inverse=True)[1]
        most = min(fraction, MAX_HELD_OUT / len(rows))
        is_held_out[rows] = rows_to_hold_out(row_classes, groups, fraction=most, seed=seed)
        return is_held_out

    if uncorrected is None:
        is_held_out = choose(classes)
    else:
        is_held_out = choose(uncorrected)
        lost_classes = np.setdiff1d(classes, classes[~is_held_out])
        if lost_classes.size:
            is_held_out = choose(classes)

    if is_needed and not is_held_out.any():
        number = f"{len(split):,}"
        kind = "text"
        if split.groups is not None:
            number = f"{groups.max() + 1:,}"
            kind = "group"
        what = (
            f"no {kind} can be held out to validate with, since a class would have none left "
            f"({number} in all)"
        )
        raise DataError(split.where[0], what, "add examples, or name a file in data.validation")
    return split.subset(np.flatnonzero(~is_held_out)), split.subset(np.flatnonzero(is_held_out))


def rows_to_hold_out(
    labels: NDArray[Any], groups: NDArray[np.int64], *, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Choose about this fraction of all rows to hold out, (rows,).

    At least one row of each class stays. Labels are class numbers, (rows,), or 1 where a row has a
    label, (rows, labels). All rows of a group, numbered from 0 on, are held out, or none.
    """
    choice = _Choice(labels, groups)
    random = np.random.default_rng(seed)
    if labels.ndim == 1:
        _hold_out_of_classes(choice, fraction, random)
    else:
        _hold_out_of_labels(choice, fraction, random)
    return choice.is_held_out


class _Choice:
    """The rows that are held out so far.

    Attributes:
        labels: class numbers, (rows,), or 1 where a row has a label, (rows, labels).
        sizes: the number of rows of each label.
        held: how many of these are held out.
        num_held: all rows that are held out.
        is_held_out: whether each row is, (rows,).
        is_ungrouped: whether each row is a group by itself.
    """

    def __init__(self, labels: NDArray[Any], groups: NDArray[np.int64]) -> None:
        if labels.ndim == 1:
            self.sizes = np.bincount(labels)
        else:
            # Rows without a label have one of their own.
            has_none = labels.sum(axis=1, keepdims=True) == 0
            labels = np.hstack([labels, has_none])
            self.sizes = labels.sum(axis=0, dtype=np.int64)

        self.labels = labels
        self.held: Counts = np.zeros_like(self.sizes)
        self.num_held = 0
        self.is_held_out = np.zeros(len(labels), dtype=bool)

        # The rows sorted by group, and where each group starts.
        self._groups = groups
        self._by_group = np.argsort(groups, kind="stable")
        num_groups = groups.max(initial=-1) + 1
        self._starts = np.searchsorted(groups[self._by_group], np.arange(num_groups + 1))
        self.is_ungrouped = bool((np.diff(self._starts) < 2).all())

    def size(self, row: int) -> int:
        """Count the rows of a row's group."""
        return len(self._rows(row))

    def fits(self, row: int, most: Counts) -> bool:
        """Whether a row can be held out with its group, so that no label has more than `most`."""
        if self.is_held_out[row]:
            return False
        after = self.held + self._counts(self._rows(row))
        # A class without rows has -1 as `most`.
        return bool((after <= np.maximum(most, 0)).all())

    def hold_out(self, row: int) -> None:
        """Hold out a row with its group."""
        rows = self._rows(row)
        self.is_held_out[rows] = True
        self.num_held += len(rows)
        self.held += self._counts(rows)

    def smallest(self, rows: NDArray[np.int64]) -> int | None:
        """A row of the smallest of these rows' groups that leaves one row of each class."""
        most = self.sizes - 1
        fitting = [row for row in rows.tolist() if self.fits(row, most)]
        return min(fitting, key=self.size, default=None)

    def _rows(self, row: int) -> NDArray[np.int64]:
        """The rows of a row's group."""
        group = self._groups[row]
        return self._by_group[self._starts[group] : self._starts[group + 1]]

    def _counts(self, rows: NDArray[np.int64]) -> Counts:
        """How many of these rows have each label."""
        labels = self.labels[rows]
        if labels.ndim == 1:
            return np.bincount(labels, minlength=len(self.sizes))
        counts: Counts = labels.sum(axis=0, dtype=np.int64)
        return counts


# One label a row


def _hold_out_of_classes(choice: _Choice, fraction: float, random: np.random.Generator) -> None:
    # The rows of each class, in random order.
    by_class = np.argsort(choice.labels, kind="stable")
    classes = np.split(by_class, np.cumsum(choice.sizes)[:-1])
    members = [random.permutation(rows) for rows in classes]
    wanted = _wanted(choice.sizes, fraction, random)

    if choice.is_ungrouped:
        for rows, count in zip(members, wanted, strict=True):
            choice.is_held_out[rows[:count]] = True
        return

    # Groups that fit, as they come.
    for number, rows in enumerate(members):
        for row in rows.tolist():
            if choice.held[number] == wanted[number]:
                break
            if choice.fits(row, wanted):
                choice.hold_out(row)

    # The smallest groups of classes of which too little is held out, if they bring the total closer
    # to what is wanted.
    for number in np.flatnonzero(choice.held < wanted).tolist():
        smallest = choice.smallest(members[number])
        missing = int(wanted.sum() - choice.held.sum())
        if smallest is not None and abs(choice.size(smallest) - missing) < abs(missing):
            choice.hold_out(smallest)

    # One group, if there is any, although it is larger than what is wanted.
    if not choice.is_held_out.any():
        smallest_rows = [choice.smallest(rows) for rows in members]
        fitting = [row for row in smallest_rows if row is not None]
        if fitting:
            choice.hold_out(min(fitting, key=choice.size))


def _wanted(sizes: Counts, fraction: float, random: np.random.Generator) -> Counts:
    """Decide how many rows of each class to hold out.

    Usually the rounded share of each class, at least one. With many small classes these would be
    far more than the fraction: then rows go to the largest remainders (Hamilton's method), among
    equal ones by lot.
    """
    rounded = np.round(fraction * sizes).astype(np.int64)
    at_least_one: Counts = np.minimum(np.maximum(1, rounded), sizes - 1)

    num_wanted = fraction * sizes.sum()
    difference = abs(at_least_one.sum() - num_wanted)
    is_small_part = 4 * at_least_one.sum() <= sizes.sum()
    if difference <= TOLERANCE * num_wanted or (difference <= FEW_ROWS and is_small_part):
        return at_least_one

    # Of no class more than half.
    most = sizes // 2
    if not most.any():
        return most
    total = max(1, round(num_wanted))

    # The share of each class, rounded down.
    shares = np.minimum(total * sizes / sizes[most > 0].sum(), most)
    counts: Counts = np.floor(shares).astype(np.int64)

    # The rows that are missing then, to the largest remainders.
    remainders = np.round(shares - counts, REMAINDER_DIGITS)
    lots = random.permutation(len(sizes))
    by_remainder = np.lexsort((lots, -remainders))
    has_room = counts[by_remainder] < most[by_remainder]
    with_room = by_remainder[has_room]
    counts[with_room[: total - counts.sum()]] += 1
    return counts


# Several labels a row


def _hold_out_of_labels(choice: _Choice, fraction: float, random: np.random.Generator) -> None:
    """Stratify iteratively, the rarest label first: its rows also have frequent labels.

    Sechidis et al., "On the Stratification of Multi-label Data" (2011),
    https://doi.org/10.1007/978-3-642-23808-6_10.
    """
    most = np.maximum(choice.sizes - 1, 0)
    rounded = np.round(fraction * choice.sizes).astype(np.int64)
    wanted = np.minimum(np.maximum(1, rounded), most)
    num_wanted = max(1, round(fraction * len(choice.labels)))

    def try_to_hold_out(row: int, most_of_labels: Counts) -> None:
        num_held = choice.num_held + choice.size(row)
        is_first = choice.num_held == 0
        if (is_first or num_held <= num_wanted) and choice.fits(row, most_of_labels):
            choice.hold_out(row)

    for label in np.argsort(choice.sizes, kind="stable").tolist():
        rows = random.permutation(np.flatnonzero(choice.labels[:, label])).tolist()
        for row in rows:
            if choice.held[label] < wanted[label]:
                try_to_hold_out(row, wanted)

        # If no row fits, one that brings more of rarer labels than their share.
        for row in rows:
            if not choice.held[label]:
                try_to_hold_out(row, most)

    # If labels occur together, too few rows fit: more of the frequent ones are held out than their
    # share.
    order = random.permutation(len(choice.labels)).tolist()
    for most_of_labels in (wanted, most):
        for row in order:
            if choice.num_held < num_wanted:
                try_to_hold_out(row, most_of_labels)
