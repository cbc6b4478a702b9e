"""Folds of cross-validation, in which texts that belong together stay together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FOLDS = 5
NO_TEXTS = np.zeros(0, dtype=np.int64)


def folds(
    together: NDArray[np.int64], *, first: NDArray[np.int64] = NO_TEXTS, enough: float = np.inf
) -> list[NDArray[np.int64]]:
    """Split texts into folds at random.

    Texts of one group, by `together` as in `Split`, stay together; where all are in one group, each counts by itself.
    Texts named `first` are the first fold, and share no group with others. Folds after `enough` texts are left out.
    """
    others = np.setdiff1d(np.arange(len(together)), first)
    parts = [others[part] for part in _split(together[others])]
    parts = [first, *parts] if len(first) else parts
    held_out = np.cumsum([len(part) for part in parts])
    return parts[: 1 + int(np.searchsorted(held_out, enough))]


def _split(together: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split all texts into folds, in the order in which they are held out."""
    random, num_texts = np.random.default_rng(0), len(together)
    groups, sizes = _groups(together)
    if len(sizes) in (1, num_texts):
        return np.array_split(random.permutation(num_texts), min(FOLDS, num_texts))
    shuffled = random.permutation(len(sizes))
    # A group belongs to the fold in which its middle lies where groups come in a row.
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    fold_of_group[shuffled] = np.minimum(middles * FOLDS / num_texts, FOLDS - 1).astype(np.int64)
    if len(np.unique(fold_of_group)) == 1:  # next to a group that is nearly all
        fold_of_group[shuffled[-1]] += 1
    fold_of_text = fold_of_group[groups]
    return [np.flatnonzero(fold_of_text == fold) for fold in np.unique(fold_of_text)]


def first_held_out(order: NDArray[np.int64], together: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Whether each text is held out, (texts,), if whole groups are in this order of texts, up to `count` texts.

    Groups of more than `count` texts are never held out, unless all are: then each text counts by itself.
    """
    groups, sizes = _groups(together)
    if sizes.min() > count:
        groups, sizes = _groups(np.arange(len(order)))
    chosen = np.argsort(np.unique(groups[order], return_index=True)[1])
    chosen = chosen[sizes[chosen] <= count]
    return np.isin(groups, chosen[np.cumsum(sizes[chosen]) <= count])


def _groups(together: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The group of each text, counted from 0, and the size of each group."""
    _, groups, sizes = np.unique(together, return_inverse=True, return_counts=True)
    return groups, sizes
