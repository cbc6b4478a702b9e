"""A data set in, what makes its labels or its scores doubtful out: what a person should look at before a training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data import Dataset, Split
from encoder_cls.sources import shown


def doubts(dataset: Dataset) -> Iterator[str]:
    """What is doubtful, a sentence each: classes written in two ways, rows without a text, texts there twice."""
    for names in _written_alike(dataset.label_names):
        yield f"the classes {', '.join(map(shown, names))} differ in case or spaces only"
    for name, split in (("train", dataset.train), ("validation", dataset.validation), ("test", dataset.test)):
        if split is not None and split.left_out:
            yield f"rows of data.{name} without a text, which are left out: {split.left_out:,}"
    train = _hashes(dataset.train)
    in_order = np.sort(train)
    repeated = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])
    contradicted = _contradicted(np.flatnonzero(_are_in(repeated, train)), train, dataset.train.labels)
    if len(contradicted):
        first = dataset.train.where[contradicted[0]]
        yield f"{len(contradicted):,} training texts occur with other labels, too, the first at {first}"
    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        if split is None:
            continue
        known = np.flatnonzero(_are_in(in_order, _hashes(split)))
        if len(known):
            yield (
                f"{len(known):,} of {len(split):,} {name} texts are training texts, too, the first at "
                f"{split.where[known[0]]}; scores on these are better than on new texts"
            )


def _written_alike(names: Sequence[str]) -> Iterator[list[str]]:
    alike = defaultdict(list)
    for name in names:
        alike[" ".join(name.casefold().split())].append(name)
    return (group for group in alike.values() if len(group) > 1)


def _hashes(split: Split) -> NDArray[np.int64]:
    """A number for each text: so many that two of them are equal where their texts are."""
    return np.fromiter(map(hash, split.texts), dtype=np.int64, count=len(split))


def _are_in(in_order: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers are among others, which are sorted; `np.isin` takes several times the memory."""
    if not len(in_order):
        return np.zeros(len(wanted), dtype=bool)
    places = np.minimum(np.searchsorted(in_order, wanted), len(in_order) - 1)
    are_in: NDArray[np.bool_] = in_order[places] == wanted
    return are_in


def _contradicted(places: NDArray[np.int64], texts: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of some places whose text is there with several labels."""
    _, groups = np.unique(texts[places], return_inverse=True)
    pairs = np.unique(np.stack([groups, labels[places]], axis=1), axis=0)
    return places[np.bincount(pairs[:, 0])[groups] > 1]
