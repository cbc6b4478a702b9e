"""Rows with several labels each in; which are held out for validation out, about the same part of each label.

Iterative stratification (Sechidis et al., "On the Stratification of Multi-label Data", 2011,
https://doi.org/10.1007/978-3-642-23808-6_10), of groups of rows: the rarest label is looked after first, since of the
frequent ones the others bring enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
