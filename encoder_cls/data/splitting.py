"""Choose the rows to hold out for validation, stratified by label; groups of rows are not divided."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.errors import DataError

Counts = NDArray[np.int64]

# Texts: more make each validation longer, and the standard error of accuracy is 0.2%.
MOST_HELD_OUT = 50_000
TOLERANCE = 0.1  # of the rows to hold out
FEW_ROWS = 10  # more, so that each class has one, as long as all are a quarter of the data at most


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
    """Divide a split in two: the second part has about `fraction` of all examples and of each class.

    It has `MOST_HELD_OUT` examples at most. Groups are not divided, nor, among rows without a group, texts that differ
    only in case, white space, punctuation and digits.

    `classes` are stratified by, by default the labels; they have the shape of labels, and are numbered from 0 on. Their
    numbers decide which rows are held out. `uncorrected` are the classes before corrections, which are stratified by
    instead, so that corrections do not change the parts, unless a class would have no example left. Examples that
    `must_stay`, (texts,), are not held out.

    Raises:
        DataError: nothing can be held out; unless `is_needed`, the second part is empty then.
    """
    if classes is None:
        classes = split.labels
    rows = np.arange(len(split)) if must_stay is None else np.flatnonzero(~must_stay)
    groups = np.unique(split.together[rows], return_inverse=True)[1]

    def choose(classes: NDArray[Any]) -> NDArray[np.bool_]:
        chosen = classes[rows]
        # Number the classes anew, without those whose examples all stay.
        if chosen.ndim == 1:
            chosen = np.unique(chosen, return_inverse=True)[1]
        most = min(fraction, MOST_HELD_OUT / max(1, len(rows)))
        is_held_out = np.zeros(len(split), dtype=bool)
        if len(rows):
            is_held_out[rows] = rows_to_hold_out(chosen, groups, fraction=most, seed=seed)
        return is_held_out

    is_held_out = choose(classes if uncorrected is None else uncorrected)
    if uncorrected is not None and np.setdiff1d(classes, classes[~is_held_out]).size:
        is_held_out = choose(classes)

    if is_needed and not is_held_out.any():
        what, number = ("text", len(split)) if split.groups is None else ("group", groups.max() + 1)
        what = f"no {what} can be held out to validate with, since a class would have none left ({number:,} in all)"
        hint = "add examples, or name a file in data.validation"
        raise DataError(split.where[0], what, hint)
    return split.subset(np.flatnonzero(~is_held_out)), split.subset(np.flatnonzero(is_held_out))


def rows_to_hold_out(
    labels: NDArray[Any], groups: NDArray[np.int64], *, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Choose about this fraction of all rows to hold out; at least one row of each class stays.

    Labels are class numbers, (rows,), or 1 where a row has a label, (rows, labels). All rows of a group, numbered from
    0 on, are held out, or none.
    """
    choice, random = _Choice(labels, groups), np.random.default_rng(seed)
    choose = _hold_out_of_classes if labels.ndim == 1 else _hold_out_of_several_labels
    choose(choice, fraction, random)
    return choice.is_held_out


class _Choice:
    """The rows that are held out so far."""

    def __init__(self, labels: NDArray[Any], groups: NDArray[np.int64]) -> None:
        if labels.ndim == 2:  # rows without a label have one more
            labels = np.hstack([labels, labels.sum(axis=1, keepdims=True) == 0])
        self.labels = labels
        # The number of examples of each label.
        self.sizes = labels.sum(axis=0, dtype=np.int64) if labels.ndim == 2 else np.bincount(labels)
        self.held: Counts = np.zeros_like(self.sizes)
        self.num_held = 0
        self.is_held_out = np.zeros(len(labels), dtype=bool)
        self._groups = groups
        self._by_group = np.argsort(groups, kind="stable")
        self._starts = np.searchsorted(
            groups[self._by_group], np.arange(groups.max(initial=-1) + 2)
        )
        self.is_ungrouped = bool((np.diff(self._starts) < 2).all())

    def size(self, row: int) -> int:
        """Count the rows of a row's group."""
        return len(self._rows(row))

    def fits(self, row: int, most: Counts) -> bool:
        """Whether a row can be held out with its group, so that no label has more than `most`."""
        after = self.held + self._counts(self._rows(row))
        # -1 of a class without rows.
        return not self.is_held_out[row] and not (after > np.maximum(most, 0)).any()

    def hold_out(self, row: int) -> None:
        """Hold out a row with its group."""
        rows = self._rows(row)
        self.is_held_out[rows] = True
        self.num_held += len(rows)
        self.held += self._counts(rows)

    def smallest(self, rows: NDArray[np.int64]) -> int | None:
        """A row of the smallest group that leaves one row of each class, out of the groups of these rows."""
        return min(
            (row for row in rows.tolist() if self.fits(row, self.sizes - 1)),
            key=self.size,
            default=None,
        )

    def _rows(self, row: int) -> NDArray[np.int64]:
        number = self._groups[row]
        return self._by_group[self._starts[number] : self._starts[number + 1]]

    def _counts(self, rows: NDArray[np.int64]) -> Counts:
        of_rows = self.labels[rows]
        return (
            np.bincount(of_rows, minlength=len(self.sizes))
            if of_rows.ndim == 1
            else of_rows.sum(0, dtype=np.int64)
        )


def _hold_out_of_classes(choice: _Choice, fraction: float, random: np.random.Generator) -> None:
    classes = np.split(np.argsort(choice.labels, kind="stable"), np.cumsum(choice.sizes)[:-1])
    members = [random.permutation(rows) for rows in classes]
    wanted = _wanted(choice.sizes, fraction, random)
    if choice.is_ungrouped:
        for rows, count in zip(members, wanted, strict=True):
            choice.is_held_out[rows[:count]] = True
        return
    # Groups that fit, in random order; then the smallest ones, if they bring the total closer to what is wanted.
    for number, rows in enumerate(members):
        for row in rows.tolist():
            if choice.held[number] == wanted[number]:
                break
            if choice.fits(row, wanted):
                choice.hold_out(row)
    for number in np.flatnonzero(choice.held < wanted).tolist():
        smallest, missing = choice.smallest(members[number]), int(wanted.sum() - choice.held.sum())
        if smallest is not None and abs(choice.size(smallest) - missing) < abs(missing):
            choice.hold_out(smallest)
    if not choice.is_held_out.any():
        rows_of_classes = [row for row in map(choice.smallest, members) if row is not None]
        if rows_of_classes:
            choice.hold_out(min(rows_of_classes, key=choice.size))


def _wanted(sizes: Counts, fraction: float, random: np.random.Generator) -> Counts:
    """Decide how many rows of each class to hold out.

    Usually the rounded share of each class, at least one. With many small classes these would be far more than the
    fraction: then rows go to the largest remainders (Hamilton's method), among equal ones by lot.
    """
    of_each: Counts = np.minimum(
        np.maximum(1, np.round(fraction * sizes).astype(np.int64)), sizes - 1
    )
    wanted = fraction * sizes.sum()
    difference = abs(of_each.sum() - wanted)
    if difference <= TOLERANCE * wanted or (
        difference <= FEW_ROWS and 4 * of_each.sum() <= sizes.sum()
    ):
        return of_each
    most, num_wanted = sizes // 2, max(1, round(wanted))
    if not most.any():
        return most
    shares = np.minimum(num_wanted * sizes / sizes[most > 0].sum(), most)
    counts: Counts = np.floor(shares).astype(np.int64)
    by_remainder = np.lexsort((random.permutation(len(sizes)), -np.round(shares - counts, 9)))
    with_room = by_remainder[counts[by_remainder] < most[by_remainder]]
    counts[with_room[: num_wanted - counts.sum()]] += 1
    return counts


def _hold_out_of_several_labels(
    choice: _Choice, fraction: float, random: np.random.Generator
) -> None:
    """Stratify iteratively, the rarest label first, since the others bring enough of the frequent ones.

    Sechidis et al., "On the Stratification of Multi-label Data", 2011, https://doi.org/10.1007/978-3-642-23808-6_10.
    """
    most = np.maximum(choice.sizes - 1, 0)
    wanted = np.minimum(np.maximum(1, np.round(fraction * choice.sizes).astype(np.int64)), most)
    num_wanted = max(1, round(fraction * len(choice.labels)))

    def try_to_hold_out(row: int, most: Counts) -> None:
        num_held = choice.num_held + choice.size(row)
        if (not choice.num_held or num_held <= num_wanted) and choice.fits(row, most):
            choice.hold_out(row)

    for label in np.argsort(choice.sizes, kind="stable").tolist():
        rows = random.permutation(np.flatnonzero(choice.labels[:, label])).tolist()
        for row in rows:
            if choice.held[label] < wanted[label]:
                try_to_hold_out(row, wanted)
        for row in rows:  # which have rarer labels, too
            if not choice.held[label]:
                try_to_hold_out(row, most)
    # If no row fits because labels occur together, more of the frequent ones are held out than their share.
    order = random.permutation(len(choice.labels)).tolist()
    for limit in (wanted, most):
        for row in order:
            if choice.num_held < num_wanted:
                try_to_hold_out(row, limit)
