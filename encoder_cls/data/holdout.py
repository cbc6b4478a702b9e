"""Class numbers in; which rows are held out for validation out, about the same part of each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

TOLERANCE = 0.1  # of the rows to hold out
FEW_ROWS = 10  # beyond them, for one of each class: of little data, where they are a quarter of it at most


def rows_to_hold_out(labels: NDArray[np.int64], *, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Choose the rows to hold out, a function of the seed; of each class one row at least stays.

    Args:
        labels: of each row the number of its class; each number below the largest occurs.
        fraction: the part of all rows to hold out.
        seed: of the random numbers.

    Returns:
        Of each row whether it is held out; none is where every class has a single row.
    """
    random = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    classes = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    members = [random.permutation(rows) for rows in classes]
    is_held_out = np.zeros(len(labels), dtype=bool)
    for rows, count in zip(members, _counts(sizes, fraction, random), strict=True):
        is_held_out[rows[:count]] = True
    return is_held_out


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
