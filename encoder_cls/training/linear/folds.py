"""Folds of cross-validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FOLDS = 5
ENOUGH_HELD_OUT = 1000  # texts, to find three numbers
NO_TEXTS = np.zeros(0, dtype=np.int64)


def folds(
    together: NDArray[np.int64], *, first: NDArray[np.int64] = NO_TEXTS, enough: int = ENOUGH_HELD_OUT
) -> list[NDArray[np.int64]]:
    """Which texts are held out together, at random; of many texts not all are ever held out.

    Args:
        together: of each text the number of those that it is held out with, (texts,), as in `Split`; where all have the
            same, each text is held out for itself.
        first: texts that are the first fold, and share no number with others.
        enough: texts held out after which there are no further folds.
    """
    others = np.setdiff1d(np.arange(len(together)), first)
    parts = [others[part] for part in all_folds(together[others])]
    parts = [first, *parts] if len(first) else parts
    held_out = np.cumsum([len(part) for part in parts])
    return parts[: 1 + int(np.searchsorted(held_out, enough))]


def all_folds(together: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """All texts in the order in which they are held out, as `folds` has it; each is in one fold."""
    random, num_texts = np.random.default_rng(0), len(together)
    _, numbers, sizes = np.unique(together, return_inverse=True, return_counts=True)
    if len(sizes) in (1, num_texts):
        return np.array_split(random.permutation(num_texts), min(FOLDS, num_texts))
    shuffled = random.permutation(len(sizes))
    # The fold in which the middle of a group lies, where groups stand in a row, as long as they are large.
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    of_group = np.empty(len(sizes), dtype=np.int64)
    of_group[shuffled] = np.minimum(middles * FOLDS / num_texts, FOLDS - 1).astype(np.int64)
    if len(np.unique(of_group)) == 1:  # next to a group that is nearly all
        of_group[shuffled[-1]] += 1
    of_text = of_group[numbers]
    return [np.flatnonzero(of_text == fold) for fold in np.unique(of_text)]


def first_held_out(order: NDArray[np.int64], together: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Whether a text is held out, where these are held out in this order until there are `count` of them, (texts,).

    Args:
        order: of the texts.
        together: as in `folds`; those that belong together and are more than `count` are never held out.
        count: how many are held out at most.
    """
    _, numbers, sizes = np.unique(together, return_inverse=True, return_counts=True)
    if sizes.min() > count:
        numbers, sizes = np.arange(len(order)), np.ones(len(order), dtype=np.int64)
    chosen = np.argsort(np.unique(numbers[order], return_index=True)[1])
    chosen = chosen[sizes[chosen] <= count]
    return np.isin(numbers, chosen[np.cumsum(sizes[chosen]) <= count])
