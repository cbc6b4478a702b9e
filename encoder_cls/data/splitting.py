"""Choose the rows to hold out for validation, stratified by label, without dividing groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.errors import DataError

# A number of rows for each label, (labels,).
Counts = NDArray[np.int64]

# The largest number of texts in a validation split. With this many texts the standard error of
# accuracy is at most 0.2%, and more texts would only make each validation slower.
MAX_HELD_OUT = 50_000


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
    """Divide a split into the rows that stay and those that are held out.

    About `fraction` of all rows and of each class are held out, at most `MAX_HELD_OUT`, in whole
    `Split.split_groups`.

    Args:
        classes: to stratify by, by default `split.labels`. Other numbers for the same classes give
            another choice.
        uncorrected: the classes before `data.corrections`, by which rows are chosen, so that a
            correction does not change the choice, unless no row of a class would stay.
        must_stay: rows that must not be held out, (rows,).
        is_needed: whether it is a `DataError` if no row can be held out.
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
            # Number the classes of these rows without gaps: all rows of some classes may have to
            # stay.
            row_classes = np.unique(row_classes, return_inverse=True)[1]
        limited_fraction = min(fraction, MAX_HELD_OUT / len(rows))
        is_held_out[rows] = rows_to_hold_out(
            row_classes, groups, fraction=limited_fraction, seed=seed
        )
        return is_held_out

    if uncorrected is None:
        is_held_out = choose(classes)
    else:
        is_held_out = choose(uncorrected)
        if _loses_class(classes, is_held_out):
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


def _loses_class(classes: NDArray[Any], is_held_out: NDArray[np.bool_]) -> bool:
    staying = classes[~is_held_out]
    if classes.ndim == 1:
        return np.setdiff1d(classes, staying).size > 0
    return bool((classes.any(axis=0) & ~staying.any(axis=0)).any())


def rows_to_hold_out(
    labels: NDArray[Any], groups: NDArray[np.int64], *, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Choose rows to hold out, so that at least one row of each class stays.

    All rows of a group are held out, or none; the share is met as closely as the groups allow.
    """
    held_out = _HeldOutRows(labels, groups)
    random = np.random.default_rng(seed)
    if labels.ndim == 1:
        _hold_out_of_classes(held_out, fraction, random)
    else:
        _hold_out_of_labels(held_out, fraction, random)
    return held_out.is_held_out


class _HeldOutRows:
    """The rows that are held out so far, and their number for each label.

    Attributes:
        labels: multi-label, with a last column for rows without a label.
        is_ungrouped: whether each row is a group by itself.
    """

    def __init__(self, labels: NDArray[Any], groups: NDArray[np.int64]) -> None:
        if labels.ndim == 1:
            self.sizes = np.bincount(labels)
        else:
            # Rows without a label are stratified as if they had a label of their own.
            has_none = labels.sum(axis=1, keepdims=True) == 0
            labels = np.hstack([labels, has_none])
            self.sizes = labels.sum(axis=0, dtype=np.int64)

        self.labels = labels
        self.held_counts: Counts = np.zeros_like(self.sizes)
        self.num_held = 0
        self.is_held_out = np.zeros(len(labels), dtype=bool)

        # The rows sorted by group, and where each group starts.
        self._groups = groups
        self._by_group = np.argsort(groups, kind="stable")
        num_groups = groups.max(initial=-1) + 1
        self._starts = np.searchsorted(groups[self._by_group], np.arange(num_groups + 1))
        self.is_ungrouped = bool((np.diff(self._starts) < 2).all())

    def group_size(self, row: int) -> int:
        return len(self._rows_of_group(row))

    def fits(self, row: int, limits: Counts) -> bool:
        if self.is_held_out[row]:
            return False
        counts = self.held_counts + self._count_labels(self._rows_of_group(row))
        return bool((counts <= np.maximum(limits, 0)).all())

    def hold_out_group(self, row: int) -> None:
        self.hold_out(self._rows_of_group(row))

    def try_to_hold_out(self, row: int, limits: Counts, num_wanted: int) -> None:
        """Hold out the group of a row if it fits; only the first group may exceed the total."""
        is_first = self.num_held == 0
        is_within_total = self.num_held + self.group_size(row) <= num_wanted
        if (is_first or is_within_total) and self.fits(row, limits):
            self.hold_out_group(row)

    def hold_out(self, rows: NDArray[np.int64]) -> None:
        self.is_held_out[rows] = True
        self.num_held += len(rows)
        self.held_counts += self._count_labels(rows)

    def smallest_group(self, rows: NDArray[np.int64]) -> int | None:
        # The limit of a label without any row is -1, which `fits` takes for 0.
        limits = self.sizes - 1
        fitting = [row for row in rows.tolist() if self.fits(row, limits)]
        return min(fitting, key=self.group_size, default=None)

    def _rows_of_group(self, row: int) -> NDArray[np.int64]:
        group = self._groups[row]
        return self._by_group[self._starts[group] : self._starts[group + 1]]

    def _count_labels(self, rows: NDArray[np.int64]) -> Counts:
        labels = self.labels[rows]
        if labels.ndim == 1:
            return np.bincount(labels, minlength=len(self.sizes))
        counts: Counts = labels.sum(axis=0, dtype=np.int64)
        return counts


# One label per row


def _hold_out_of_classes(
    held_out: _HeldOutRows, fraction: float, random: np.random.Generator
) -> None:
    # The rows of each class, in random order.
    by_class = np.argsort(held_out.labels, kind="stable")
    classes = np.split(by_class, np.cumsum(held_out.sizes)[:-1])
    rows_by_class = [random.permutation(rows) for rows in classes]
    wanted = _wanted_counts(held_out.sizes, fraction, random)

    if held_out.is_ungrouped:
        chosen = [rows[:count] for rows, count in zip(rows_by_class, wanted, strict=True)]
        held_out.hold_out(np.concatenate(chosen))
        return

    # First hold out groups in random order, class by class, as long as no class exceeds its wanted
    # count.
    for number, rows in enumerate(rows_by_class):
        for row in rows.tolist():
            if held_out.held_counts[number] == wanted[number]:
                break
            if held_out.fits(row, wanted):
                held_out.hold_out_group(row)

    # Some classes may still have too few held-out rows, since their groups are too large. Hold out
    # the smallest group of such a class if that brings the total closer to the wanted total.
    for number in np.flatnonzero(held_out.held_counts < wanted).tolist():
        smallest = held_out.smallest_group(rows_by_class[number])
        missing = int(wanted.sum() - held_out.held_counts.sum())
        if smallest is not None and abs(held_out.group_size(smallest) - missing) < abs(missing):
            held_out.hold_out_group(smallest)

    # If nothing is held out yet, hold out the smallest group of all, even if it is too large.
    if not held_out.is_held_out.any():
        smallest_of_classes = [held_out.smallest_group(rows) for rows in rows_by_class]
        fitting = [row for row in smallest_of_classes if row is not None]
        if fitting:
            held_out.hold_out_group(min(fitting, key=held_out.group_size))


# The wanted number of rows may differ from the given fraction by this share of it, so that at least
# one row of each class can be held out.
TOLERANCE = 0.1
# In small data the wanted number may differ by this many rows, if they are still at most a quarter
# of the data.
FEW_ROWS = 10
# Remainders of shares that agree to this number of digits count as equal.
REMAINDER_DIGITS = 9


def _wanted_counts(sizes: Counts, fraction: float, random: np.random.Generator) -> Counts:
    """How many rows of each class to hold out.

    Usually each class gives its rounded share, at least one row. With many small classes, that
    would be too many: then shares are rounded down, and the largest remainders (Hamilton's method)
    give the missing rows, equal ones at random.
    """
    rounded = np.round(fraction * sizes).astype(np.int64)
    at_least_one: Counts = np.minimum(np.maximum(1, rounded), sizes - 1)

    num_wanted = fraction * sizes.sum()
    difference = abs(at_least_one.sum() - num_wanted)
    is_quarter_at_most = 4 * at_least_one.sum() <= sizes.sum()
    if difference <= TOLERANCE * num_wanted or (difference <= FEW_ROWS and is_quarter_at_most):
        return at_least_one

    # Hold out at most half of the rows of a class.
    limits = sizes // 2
    if not limits.any():
        return limits
    total = max(1, round(num_wanted))

    # Give each class its share of the total, rounded down.
    shares = np.minimum(total * sizes / sizes[limits > 0].sum(), limits)
    counts: Counts = np.floor(shares).astype(np.int64)

    # Give the missing rows to the classes with the largest remainders.
    remainders = np.round(shares - counts, REMAINDER_DIGITS)
    lots = random.permutation(len(sizes))
    by_remainder = np.lexsort((lots, -remainders))
    has_room = counts[by_remainder] < limits[by_remainder]
    with_room = by_remainder[has_room]
    counts[with_room[: total - counts.sum()]] += 1
    return counts


# Several labels per row


def _hold_out_of_labels(
    held_out: _HeldOutRows, fraction: float, random: np.random.Generator
) -> None:
    """The rarest label comes first, since its rows usually have frequent labels, too.

    Sechidis et al., "On the Stratification of Multi-label Data", 2011,
    https://doi.org/10.1007/978-3-642-23808-6_10.
    """
    # At least one row of each label stays.
    limits = np.maximum(held_out.sizes - 1, 0)
    rounded = np.round(fraction * held_out.sizes).astype(np.int64)
    wanted = np.minimum(np.maximum(1, rounded), limits)
    num_wanted = max(1, round(fraction * len(held_out.labels)))

    for label in np.argsort(held_out.sizes, kind="stable").tolist():
        # First hold out rows that leave every label within its wanted count.
        rows = random.permutation(np.flatnonzero(held_out.labels[:, label])).tolist()
        for row in rows:
            if held_out.held_counts[label] < wanted[label]:
                held_out.try_to_hold_out(row, wanted, num_wanted)

        # If there was no such row, accept a row that exceeds the wanted count of a rarer label.
        for row in rows:
            if not held_out.held_counts[label]:
                held_out.try_to_hold_out(row, limits, num_wanted)

    # If the same rows have many labels, too few rows are within all wanted counts. Then fill up the
    # total with any rows, even if some labels exceed their wanted counts.
    order = random.permutation(len(held_out.labels)).tolist()
    for limits_of_labels in (wanted, limits):
        for row in order:
            if held_out.num_held < num_wanted:
                held_out.try_to_hold_out(row, limits_of_labels, num_wanted)
