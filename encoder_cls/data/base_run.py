"""Load the data set of a config, joined with that of its base run.

A text that the base run has held out, or was tested on, is never learned from, also where the new data has it, a text
like it or another text of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import Config, load_config, missing_sources
from encoder_cls.data.checks import shared_groups
from encoder_cls.data.dataset import NO_GROUP, Dataset, Split, concatenated, equal_texts, texts_alike
from encoder_cls.data.load import load_dataset
from encoder_cls.data.rows import Notes, Row
from encoder_cls.errors import ConfigError, DataError


def load_all_data(config: Config, *, train_rows: Iterable[Row] | None = None) -> Dataset:
    """The data set of a config, after that of its base run, and so on."""
    if config.from_run is None:
        return load_dataset(config.data, train_rows=train_rows)
    base_config = config_of_base(config.from_run)
    for key, source in missing_sources(base_config.data):
        what = f"{key}: {source}: no such file or folder, where that run's data was"
        raise DataError(config.from_run, what, "who goes on from it needs its data, too")
    base = load_all_data(base_config)
    new = load_dataset(config.data, train_rows=train_rows, known=base.label_names)
    return joined(base, new, run=config.from_run)


def config_of_base(run: str) -> Config:
    """The config of a base run."""
    path = Path(run) / "config.yaml"
    if not path.exists():
        raise DataError(path, "no such file, where the run was that this one goes on from", "put it back there")
    return load_config(path)


def names_validation(config: Config) -> bool:
    """Whether a run, or one of its base runs, has a file of validation texts."""
    if config.data.validation is not None or config.from_run is None:
        return config.data.validation is not None
    return names_validation(config_of_base(config.from_run))


def joined(base: Dataset, new: Dataset, *, run: str) -> Dataset:
    """The data of a base run, then the rows that are new in other data.

    Left out of the new train are texts like those that the base run held out, and those it has with the same label; of
    the new validation and test texts like any of its own. So are texts of groups that it has in another split.
    """
    if base.is_multi_label != new.is_multi_label:
        one, other = ("several labels", "one label") if base.is_multi_label else ("one label", "several labels")
        raise ConfigError(f"{run}: a text may have {one} there, and {other} in the new data; train one run of each")
    if base.has_names_alone or new.has_names_alone:
        what = "a run goes on from another with labelled texts, and of one of both no text has a label"
        raise ConfigError(f"{run}: {what}")
    names = tuple(dict.fromkeys((*base.label_names, *new.label_names)))
    learned = {*_labelled(base.train, base.label_names)}
    # As held-out texts are compared. All at once: which patterns are too frequent to count is a matter of all texts.
    splits_of_both = [*base.splits.values(), *new.splits.values()]
    ends = np.cumsum([len(split) for split in splits_of_both])[:-1]
    alike = np.split(texts_alike(concatenated(*(split.texts for split in splits_of_both))), ends)
    base_alike = dict(zip(base.splits, alike, strict=False))
    new_alike = dict(zip(new.splits, alike[len(base_alike) :], strict=True))
    notes = Notes()
    if base.train.groups is not None and new.train.groups is None:
        message = f"{run} keeps groups together; name their column of the new data, too, in data.group_column"
        notes.messages.append(message)

    def unseen(role: str, split: Split) -> Split:
        others = base.splits.keys() - {role}
        of_former = [base_alike[it] for it in (others if role == "train" else base_alike)]
        is_known = np.isin(new_alike[role], np.concatenate(of_former))
        if role == "train":
            is_known |= np.array([it in learned for it in _labelled(split, new.label_names)])
        is_elsewhere = np.zeros(len(split), dtype=bool)
        for other in others:
            is_elsewhere[shared_groups(base.splits[other], split)] = True
        for count, why in (
            (is_known.sum(), f"which {run} has already, or texts like them"),
            ((is_elsewhere & ~is_known).sum(), f"whose groups {run} has in another split"),
        ):
            if count:
                notes.messages.append(f"{role}: {count:,} of {len(split):,} new texts are left out, {why}")
        return split.subset(np.flatnonzero(~is_known & ~is_elsewhere))

    unseen_splits = {role: unseen(role, split) for role, split in new.splits.items()}
    if not unseen_splits["train"]:
        raise DataError(new.train.where[0], f"nothing is left to learn from: {'; '.join(notes.messages)}")
    splits = {}
    for role in base.splits | unseen_splits:
        parts = [(base.splits.get(role), base.label_names), (unseen_splits.get(role), new.label_names)]
        splits[role] = _renumbered([(split, its) for split, its in parts if split is not None], names)
    return replace(
        new,
        label_names=names,
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=base.unlabelled.joined(new.unlabelled),
        of_two_types={**base.of_two_types, **new.of_two_types},
        corrected={**base.corrected, **new.corrected},
        several=new.several or base.several,
        sources=(*base.sources, *new.sources, (run, notes)),
        base=base,
    )


def _labelled(split: Split, label_names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """For each example a number, the same for equal texts, and its label."""
    names = (*label_names, *split.unseen_names)
    return ((text, split.label_text(row, names)) for row, text in enumerate(equal_texts(split.texts).tolist()))


def _renumbered(parts: Sequence[tuple[Split, Sequence[str]]], names: Sequence[str]) -> Split:
    """Splits with their class names, one after the other, with the labels of one list of classes."""
    splits = [split for split, _ in parts]
    of_splits = [(*its, *split.unseen_names) for split, its in parts]
    every = dict.fromkeys((*names, *(it for its in of_splits for it in its)))
    numbers_of = {name: number for number, name in enumerate(every)}
    labels: list[NDArray[Any]] = []
    for split, its in zip(splits, of_splits, strict=True):
        numbers = np.array([numbers_of[name] for name in its], dtype=np.int64)
        if split.is_multi_label:
            labels.append(np.zeros((len(split), len(numbers_of)), dtype=np.int8))
            labels[-1][:, numbers] = split.labels
        else:
            labels.append(numbers[split.labels])
    has_groups = any(split.groups is not None for split in splits)
    groups = [np.full(len(split), NO_GROUP) if split.groups is None else split.groups for split in splits]
    return Split(
        texts=concatenated(*(split.texts for split in splits)),
        labels=np.concatenate(labels),
        where=concatenated(*(split.where for split in splits)),
        groups=np.concatenate(groups) if has_groups else None,
        unseen_names=tuple(numbers_of)[len(names) :],
    )
