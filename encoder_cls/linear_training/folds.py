"""Hold texts out: in the folds of a cross-validation, or some of them once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL

FOLDS = 5

# How many groups of held-out texts are enough to choose the parameters on: C, a scale and a shift
# in a single-label task; C, and a scale and a shift for each label, in a multi-label task.
MIN_HELD_OUT = {SINGLE_LABEL: 1000, MULTI_LABEL: 5000}

NO_TEXTS = np.zeros(0, dtype=np.int64)


def split_into_folds(
    split_groups: NDArray[np.int64],
    *,
    first: NDArray[np.int64] = NO_TEXTS,
    enough: float = np.inf,
    count: int = FOLDS,
) -> list[NDArray[np.int64]]:
    """Split texts into random folds of their indices; equal arguments give equal folds.

    Groups are not divided, unless all texts are one group. The texts `first`, which share no group
    with others, are a fold before the `count` random ones. Folds end once `enough` groups are held
    out.
    """
    others = np.setdiff1d(np.arange(len(split_groups)), first)
    folds = []
    if len(first):
        folds.append(first)
    for fold in _random_folds(split_groups[others], count):
        folds.append(others[fold])

    # Stop at the first fold with which enough groups are held out.
    num_held_out = np.cumsum([len(np.unique(split_groups[fold])) for fold in folds])
    last = int(np.searchsorted(num_held_out, enough))
    return folds[: last + 1]


def _random_folds(split_groups: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    random = np.random.default_rng(0)
    num_texts = len(split_groups)
    groups, sizes = _number_groups(split_groups)

    # Split the texts without regard to groups if each text is a group, or if there is only one
    # group.
    if len(sizes) in (1, num_texts):
        return np.array_split(random.permutation(num_texts), min(count, num_texts))

    # Put the groups in a row in random order, and cut the row into folds of equal numbers of texts.
    # A group belongs to the fold in which its middle lies.
    shuffled = random.permutation(len(sizes))
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    folds_in_row = (middles * count / num_texts).astype(np.int64)
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    fold_of_group[shuffled] = np.minimum(folds_in_row, count - 1)

    # If one group has nearly all texts, all groups may be in one fold. Move the last group to
    # another.
    if len(np.unique(fold_of_group)) == 1:
        fold_of_group[shuffled[-1]] += 1

    fold_of_text = fold_of_group[groups]
    return [np.flatnonzero(fold_of_text == fold) for fold in np.unique(fold_of_text)]


def first_held_out(
    order: NDArray[np.int64], split_groups: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Hold out at most `count` texts, group by group in this order; a mask.

    Larger groups are skipped; if all are that large, each text is a group.
    """
    groups, sizes = _number_groups(split_groups)
    if sizes.min() > count:
        groups, sizes = _number_groups(np.arange(len(order)))

    # List the groups in the order of their first texts, without those that are too large.
    _, first_places = np.unique(groups[order], return_index=True)
    listed = np.argsort(first_places)
    listed = listed[sizes[listed] <= count]

    fits = np.cumsum(sizes[listed]) <= count
    return np.isin(groups, listed[fits])


def _number_groups(split_groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, groups, sizes = np.unique(split_groups, return_inverse=True, return_counts=True)
    return groups, sizes
