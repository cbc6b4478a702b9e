"""A number of texts and their groups in, the folds of cross-validation out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.holdout import in_groups

FOLDS = 5
ENOUGH_HELD_OUT = 1000  # texts, to find three numbers
NO_TEXTS = np.zeros(0, dtype=np.int64)

Groups = NDArray[np.int64] | None
"""The number of the group of each text, (texts,), as a `Split` has it; none: there are no groups."""


def folds(
    num_texts: int, groups: Groups = None, *, first: NDArray[np.int64] = NO_TEXTS, enough: int = ENOUGH_HELD_OUT
) -> list[NDArray[np.int64]]:
    """Which texts are held out together, at random; of many texts not all are ever held out.

    Args:
        num_texts: how many there are.
        groups: the number of the group of each, (texts,), as in `Split`, which are held out together; none: there are
            no groups. Nor are there where all texts are of one.
        first: texts that are the first fold, and share no group with others.
        enough: texts held out after which there are no further folds.
    """
    others = np.setdiff1d(np.arange(num_texts), first)
    parts = [others[part] for part in all_folds(len(others), None if groups is None else groups[others])]
    parts = [first, *parts] if len(first) else parts
    held_out = np.cumsum([len(part) for part in parts])
    return parts[: 1 + int(np.searchsorted(held_out, enough))]


def all_folds(num_texts: int, groups: Groups = None) -> list[NDArray[np.int64]]:
    """All texts in the order in which they are held out, as `folds` has it; each is in one fold."""
    random = np.random.default_rng(0)
    numbers = None if groups is None else in_groups(groups, np.arange(num_texts))
    if numbers is None or numbers.max(initial=0) == 0:
        return np.array_split(random.permutation(num_texts), min(FOLDS, num_texts))
    sizes = np.bincount(numbers)
    shuffled = random.permutation(len(sizes))
    # The fold in which the middle of a group lies, where groups stand in a row, as long as they are large.
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    of_group = np.empty(len(sizes), dtype=np.int64)
    of_group[shuffled] = np.minimum(middles * FOLDS / num_texts, FOLDS - 1).astype(np.int64)
    if len(np.unique(of_group)) == 1:  # next to a group that is nearly all
        of_group[shuffled[-1]] += 1
    of_text = of_group[numbers]
    return [np.flatnonzero(of_text == fold) for fold in np.unique(of_text)]
