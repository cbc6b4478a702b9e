"""Choose the rows to hold out for validation, stratified by label.

Rows that belong together, such as those of equal texts, are on one side: what is validated on was not trained on.

Iterative stratification (Sechidis et al., "On the Stratification of Multi-label Data", 2011,
https://doi.org/10.1007/978-3-642-23808-6_10), of groups of rows: the rarest label is looked after first, since of the
frequent ones the others bring enough.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

TOLERANCE = 0.1  # of the rows to hold out
FEW_ROWS = 10  # beyond them, for one of each class: of little data, where they are a quarter of it at most

NO_GROUP = 0  # the number of rows that belong to no group


def group_number(group: str, *, kind: bytes = b"") -> int:
    """The number of a group, the same in all splits and at any time: 64 bits of a hash of its name and kind."""
    digest = hashlib.blake2b(group.encode("utf-8", "surrogatepass"), digest_size=8, person=kind).digest()
    return int.from_bytes(digest, "little", signed=True)


def equal_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """The number of each text, the same of those that differ in case and white space at most, and of no group."""
    numbers = (group_number(" ".join(text.casefold().split()), kind=b"text") for text in texts)
    return np.fromiter(numbers, dtype=np.int64, count=len(texts))


def rows_to_hold_out(
    labels: NDArray[np.int64], groups: NDArray[np.int64], *, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Choose the rows to hold out, a function of the seed; of each class one row at least stays.

    Args:
        labels: of each row the number of its class; each number below the largest occurs.
        groups: of each row the number of its group, whose rows are all held out or all stay.
        fraction: the part of all rows to hold out.
        seed: of the random numbers.

    Returns:
        Of each row whether it is held out; none is where no group can be, since a class would have no row left.
    """
    random = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    classes = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    members = [random.permutation(rows) for rows in classes]
    counts = _counts(sizes, fraction, random)
    is_alone = np.bincount(groups)[groups] == 1
    if not is_alone.all():
        return _Grouped(labels, groups, sizes, is_alone).held_out(members, counts)
    is_held_out = np.zeros(len(labels), dtype=bool)
    for rows, count in zip(members, counts, strict=True):
        is_held_out[rows[:count]] = True
    return is_held_out


class _Grouped:
    """The choice of rows some of which belong together."""

    def __init__(
        self, labels: NDArray[np.int64], groups: NDArray[np.int64], sizes: Counts, is_alone: NDArray[np.bool_]
    ) -> None:
        self._labels, self._groups, self._sizes, self._is_alone = labels, groups, sizes, is_alone
        together = np.flatnonzero(~is_alone)
        together = together[np.argsort(groups[together], kind="stable")]
        numbers, starts = np.unique(groups[together], return_index=True)
        self._rows_of = dict(zip(numbers.tolist(), np.split(together, starts[1:]), strict=True))
        self._counts_of = {number: Counter(labels[rows].tolist()) for number, rows in self._rows_of.items()}
        self._is_held_out = np.zeros(len(labels), dtype=bool)
        self._held: Counts = np.zeros(len(sizes), dtype=np.int64)

    def held_out(self, members: list[NDArray[np.int64]], wanted: Counts) -> NDArray[np.bool_]:
        """Of each row whether it is held out.

        Args:
            members: the rows of each class, in the order in which they are to be chosen.
            wanted: how many of each class.
        """
        # In their order, groups that fit; then smallest ones where that brings the number of all nearer.
        for number, rows in enumerate(members):
            for row in rows.tolist():
                if self._held[number] == wanted[number]:
                    break
                if self._fits(row, wanted):
                    self._hold_out(row)
        total = int(wanted.sum())
        for number in np.flatnonzero(self._held < wanted).tolist():
            smallest = self._smallest(members[number])
            held = int(self._held.sum())
            if smallest is not None and abs(held + self._size(smallest) - total) < abs(held - total):
                self._hold_out(smallest)
        if not self._is_held_out.any():
            found = [row for row in map(self._smallest, members) if row is not None]
            if found:
                self._hold_out(min(found, key=self._size))
        return self._is_held_out

    def _rows(self, row: int) -> NDArray[np.int64]:
        """The rows of the group of a row."""
        return np.array([row]) if self._is_alone[row] else self._rows_of[int(self._groups[row])]

    def _size(self, row: int) -> int:
        return len(self._rows(row))

    def _fits(self, row: int, most: Counts) -> bool:
        """Whether a row and its group can be held out, so that of no class more are than `most`."""
        if self._is_held_out[row]:
            return False
        if self._is_alone[row]:
            number = self._labels[row]
            return bool(self._held[number] < most[number])
        counts = self._counts_of[int(self._groups[row])].items()
        return all(self._held[number] + count <= most[number] for number, count in counts)

    def _smallest(self, rows: NDArray[np.int64]) -> int | None:
        """A row of the smallest group of these rows that leaves one of each class; none where there is none."""
        fitting = [row for row in rows.tolist() if self._fits(row, self._sizes - 1)]
        return min(fitting, key=self._size, default=None)

    def _hold_out(self, row: int) -> None:
        rows = self._rows(row)
        self._is_held_out[rows] = True
        self._held += np.bincount(self._labels[rows], minlength=len(self._sizes))


def _counts(sizes: Counts, fraction: float, random: np.random.Generator) -> Counts:
    """How many rows of each class are held out.

    Where it about adds up, the rounded part of each class, and one row at least. Of many small classes that would be
    far more than the fraction: then rows go to the largest remainders (Hamilton's method), and among equal ones by lot.
    """
    of_each: Counts = np.minimum(np.maximum(1, np.round(fraction * sizes).astype(np.int64)), sizes - 1)
    wanted = fraction * sizes.sum()
    difference = abs(of_each.sum() - wanted)
    if difference <= TOLERANCE * wanted or (difference <= FEW_ROWS and 4 * of_each.sum() <= sizes.sum()):
        return of_each
    return _apportioned(sizes, max(1, round(wanted)), random)


def _apportioned(sizes: Counts, wanted: int, random: np.random.Generator) -> Counts:
    most = sizes // 2
    if not most.any():
        return most
    shares = np.minimum(wanted * sizes / sizes[most > 0].sum(), most)
    counts: Counts = np.floor(shares).astype(np.int64)
    by_remainder = np.lexsort((random.permutation(len(sizes)), -np.round(shares - counts, 9)))
    with_room = by_remainder[counts[by_remainder] < most[by_remainder]]
    counts[with_room[: wanted - counts.sum()]] += 1
    return counts


def rows_to_hold_out_of_several_labels(
    labels: NDArray[np.int8], groups: NDArray[np.int64], *, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Choose the rows to hold out, a function of the seed; of each label one row at least stays.

    Args:
        labels: 1 where a row has a label, else 0, (rows, labels).
        groups: of each row the number of its group, whose rows are all held out or all stay.
        fraction: the part of all rows to hold out.
        seed: of the random numbers.

    Returns:
        Of each row whether it is held out; none is where that would take the last row of a label.
    """
    choice = _Choice(labels, groups, fraction=fraction)
    random = np.random.default_rng(seed)
    for label in np.argsort(choice.sizes, kind="stable").tolist():
        rows = random.permutation(np.flatnonzero(choice.labels[:, label])).tolist()
        for row in rows:
            if choice.held[label] < choice.wanted[label]:
                choice.hold_out(row, most=choice.wanted)
        for row in rows:  # of which each has a rarer label, too
            if not choice.held[label]:
                choice.hold_out(row, most=choice.most)
    # Where labels that go together left none that fits, more of the frequent ones are held out than their part.
    order = random.permutation(len(labels)).tolist()
    for most in (choice.wanted, choice.most):
        for row in order:
            if choice.num_held >= choice.num_wanted:
                break
            choice.hold_out(row, most=most)
    return choice.is_held_out


class _Choice:
    """Which rows are held out so far.

    Attributes:
        labels: 1 where a row has a label, (rows, labels); rows without any have one of their own, the last.
        sizes: how many rows have each label.
        most: how many of each may be held out, so that one stays.
        wanted: how many of each are to be held out; one of two rows at least, as far as that is not too many in all.
        held: how many are.
    """

    def __init__(self, labels: NDArray[np.int8], groups: NDArray[np.int64], *, fraction: float) -> None:
        self.labels = np.hstack([labels, labels.sum(axis=1, keepdims=True) == 0]).astype(np.int64)
        self.sizes = self.labels.sum(axis=0)
        self.most = np.maximum(self.sizes - 1, 0)
        self.num_wanted = max(1, round(fraction * len(labels)))
        self.wanted = np.minimum(np.maximum(1, np.round(fraction * self.sizes).astype(np.int64)), self.most)
        self.held = np.zeros_like(self.sizes)
        self.is_held_out = np.zeros(len(labels), dtype=bool)
        self.num_held = 0
        self._groups = groups
        self._by_group = np.argsort(groups, kind="stable")
        self._starts = np.searchsorted(groups[self._by_group], np.arange(groups.max(initial=-1) + 2))

    def hold_out(self, row: int, *, most: NDArray[np.int64]) -> None:
        """Hold out a row with its group, unless there are enough, or of a label more than so many would be."""
        number = self._groups[row]
        rows = self._by_group[self._starts[number] : self._starts[number + 1]]
        after = self.held + self.labels[rows].sum(axis=0)
        if self.is_held_out[row] or (after > most).any():
            return
        if self.num_held and self.num_held + len(rows) > self.num_wanted:
            return
        self.held = after
        self.is_held_out[rows] = True
        self.num_held += len(rows)
