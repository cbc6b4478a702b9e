"""Hold texts out: folds of cross-validation, and a single part of all texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The folds of a cross-validation.
FOLDS = 5

NO_TEXTS = np.zeros(0, dtype=np.int64)


def split_into_folds(
    split_groups: NDArray[np.int64],
    *,
    first: NDArray[np.int64] = NO_TEXTS,
    enough: float = np.inf,
    count: int = FOLDS,
) -> list[NDArray[np.int64]]:
    """Split texts into folds at random, the same ones each time.

    Groups are kept whole; a single group of all texts is split.

    Args:
        split_groups: the group of each text, as in `Split`, (texts,).
        first: texts that are the first fold; they share no group with others.
        enough: leave out the folds that follow when so many texts are held out.
        count: the number of folds of the other texts.

    Returns:
        The indices of the texts of each fold.
    """
    others = np.setdiff1d(np.arange(len(split_groups)), first)
    folds = []
    if len(first):
        folds.append(first)
    for fold in _random_folds(split_groups[others], count):
        folds.append(others[fold])

    # The last fold is that with which enough texts are held out.
    num_held_out = np.cumsum([len(fold) for fold in folds])
    last = int(np.searchsorted(num_held_out, enough))
    return folds[: last + 1]


def _random_folds(split_groups: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Split all texts into folds, in the order in which they are held out."""
    random = np.random.default_rng(0)
    num_texts = len(split_groups)
    groups, sizes = _number_groups(split_groups)

    # Where each text is a group, or all texts are one, split the texts.
    if len(sizes) in (1, num_texts):
        return np.array_split(random.permutation(num_texts), min(count, num_texts))

    # Put the groups in a row in random order. Each belongs to the fold in which its middle lies.
    shuffled = random.permutation(len(sizes))
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    folds_in_row = (middles * count / num_texts).astype(np.int64)
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    fold_of_group[shuffled] = np.minimum(folds_in_row, count - 1)

    # If one group has nearly all texts, the last group becomes a second fold.
    if len(np.unique(fold_of_group)) == 1:
        fold_of_group[shuffled[-1]] += 1

    fold_of_text = fold_of_group[groups]
    return [np.flatnonzero(fold_of_text == fold) for fold in np.unique(fold_of_text)]


def first_held_out(
    order: NDArray[np.int64], split_groups: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Hold out the first groups in an order of texts, `count` texts at most.

    Groups of more than `count` texts are skipped; where all are that large, each text is a group.

    Returns:
        Whether each text is held out, (texts,).
    """
    groups, sizes = _number_groups(split_groups)
    if sizes.min() > count:
        groups, sizes = _number_groups(np.arange(len(order)))

    # List the groups in the order of their first texts, without those that are too large.
    _, first_places = np.unique(groups[order], return_index=True)
    listed = np.argsort(first_places)
    listed = listed[sizes[listed] <= count]

    # Hold out as many of them as fit.
    fits = np.cumsum(sizes[listed]) <= count
    return np.isin(groups, listed[fits])


def _number_groups(split_groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each text, counted from 0, and the size of each group."""
    _, groups, sizes = np.unique(split_groups, return_inverse=True, return_counts=True)
    return groups, sizes
