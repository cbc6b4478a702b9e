"""The data of a run that goes on from another, the base run: what is new, and both joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import (
    Dataset,
    Split,
    concatenated,
    renumbered,
    without_labelled_texts,
)
from encoder_cls.data.reading.options import Notes
from encoder_cls.data.text_groups import NO_GROUP, equal_texts, texts_alike
from encoder_cls.errors import ConfigError, DataError, NothingNewError
from encoder_cls.system.display import listed


class BaseData(NamedTuple):
    """The data set of a base run, and the run's folder."""

    run: str
    dataset: Dataset


class NewRows(NamedTuple):
    """The rows of new data that a run adds to those of its base run.

    Attributes:
        rows_by_split: the indices of the rows.
        must_stay: whether each of those of train must not be held out, since the base run learned
            from a similar text, or from one of the same group.
        notes: on the others.
    """

    rows_by_split: dict[str, NDArray[np.int64]]
    must_stay: NDArray[np.bool_]
    notes: Notes


def config_of_base(run: str) -> Config:
    """Load the config of a base run."""
    path = Path(run) / "config.yaml"
    if not path.exists():
        raise DataError(path, "no such file, where the base run was", "put it back there")
    return load_config(path)


def names_validation(config: Config) -> bool:
    """Whether a run, or one of its base runs, names a file of validation texts."""
    if config.data.validation is not None:
        return True
    if config.from_run is None:
        return False
    return names_validation(config_of_base(config.from_run))


def check_same_kind(base: Dataset, *, run: str, is_multi_label: bool) -> None:
    """Raise a `ConfigError` if new data is of another kind than that of its base run."""
    if base.is_multi_label == is_multi_label:
        return

    if is_multi_label:
        what = "a text may have one label there, and several labels in the new data"
    else:
        what = "a text may have several labels there, and one label in the new data"
    raise ConfigError(f"{run}: {what}; train one run of each")


def only_new_rows(
    base: BaseData, splits: Mapping[str, Split], label_names: Sequence[str]
) -> NewRows:
    """Choose the rows that a base run does not have.

    Raises:
        NothingNewError: there is none to learn from.
        DataError: a new class has none to learn from.
    """
    new = new_rows(base.dataset, splits, label_names, run=base.run)
    train = splits["train"].subset(new.rows_by_split["train"])
    if not len(train):
        what = f"nothing is left to learn from: {'; '.join(new.notes.messages)}"
        raise NothingNewError(splits["train"].where[0], what)

    num_known = len(base.dataset.label_names)
    counts_of_new = train.class_counts(len(label_names))[num_known:].tolist()
    new_names = label_names[num_known:]
    lost = [name for name, count in zip(new_names, counts_of_new, strict=True) if count == 0]
    if lost:
        what = (
            f"no text of these new classes can be learned from: {listed(lost)}; "
            f"{base.run} has held all of them out"
        )
        raise DataError(base.run, what, "add other texts of these classes")
    return new


def new_rows(
    base: Dataset, splits: Mapping[str, Split], label_names: Sequence[str], *, run: str
) -> NewRows:
    """Choose the rows of new data that a run adds to those of its base run.

    No text that the base run was validated or tested on is learned from, and none that it knows is
    scored as new: new training texts are left out if they are similar to one of those or were
    learned with the same label, new validation and test texts if they are similar to any, and all
    if their group is in another split of the base run.
    """
    base_alike, new_alike = _alike_numbers(base.splits, splits)
    learned = set(_texts_with_labels(base.train, base.label_names))
    notes = Notes()

    rows_by_split: dict[str, NDArray[np.int64]] = {}
    for role, split in splits.items():
        other_roles = base.splits.keys() - {role}

        # Rows that the base run has, or texts like them. Training texts may be like those that it
        # has learned, but not the same with the same label.
        if role == "train":
            is_known = _is_alike(new_alike[role], [base_alike[name] for name in other_roles])
            is_known |= np.array([key in learned for key in _texts_with_labels(split, label_names)])
        else:
            is_known = _is_alike(new_alike[role], list(base_alike.values()))

        # Rows whose group is in another split there.
        is_elsewhere = np.zeros(len(split), dtype=bool)
        for name in other_roles:
            is_elsewhere |= split.shares_group_with(base.splits[name])

        num_known = int(is_known.sum())
        if num_known:
            left_out = f"{num_known:,} of {len(split):,} new texts are left out"
            why = f"which {run} has already, or texts like them"
            notes.messages.append(f"{role}: {left_out}, {why}")

        num_elsewhere = int((is_elsewhere & ~is_known).sum())
        if num_elsewhere:
            left_out = f"{num_elsewhere:,} of {len(split):,} new texts are left out"
            why = f"whose groups {run} has in another split"
            notes.messages.append(f"{role}: {left_out}, {why}")

        rows_by_split[role] = np.flatnonzero(~is_known & ~is_elsewhere)

    train = splits["train"]
    is_like_learned = np.isin(new_alike["train"], base_alike["train"])
    must_stay = is_like_learned | train.shares_group_with(base.train)
    return NewRows(rows_by_split, must_stay[rows_by_split["train"]], notes)


def _alike_numbers(
    base: Mapping[str, Split], new: Mapping[str, Split]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
    """The numbers of similar texts in the splits of a base run and in new ones, by split.

    All are numbered at once, since `texts_alike` ignores patterns that are frequent among all
    texts.
    """
    splits = [*base.values(), *new.values()]
    alike = texts_alike(concatenated(*(split.texts for split in splits)))
    ends = np.cumsum([len(split) for split in splits])[:-1]
    parts = np.split(alike, ends)

    base_alike = dict(zip(base, parts[: len(base)], strict=True))
    new_alike = dict(zip(new, parts[len(base) :], strict=True))
    return base_alike, new_alike


def _is_alike(
    numbers: NDArray[np.int64], numbers_of_others: Sequence[NDArray[np.int64]]
) -> NDArray[np.bool_]:
    """Which texts are similar to others, by the numbers of both, (texts,)."""
    return np.isin(numbers, np.concatenate(numbers_of_others))


def _texts_with_labels(split: Split, label_names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """A number for the text of each example, the same for equal texts, and its label."""
    names = (*label_names, *split.unseen_names)
    for row, text_number in enumerate(equal_texts(split.texts).tolist()):
        yield text_number, split.label_text(row, names)


def joined(base: Dataset, new: Dataset, *, run: str) -> Dataset:
    """Join the data of a base run with new data, of which `only_new_rows` are left.

    The first classes of the new data are those of the base run.
    """
    notes = Notes()
    if base.train.groups is not None and new.train.groups is None:
        notes.messages.append(
            f"{run} keeps groups together; name their column of the new data, too, in "
            "data.group_column"
        )

    splits = new.splits
    for role, base_split in base.splits.items():
        parts = [base_split]
        names_of_parts: list[Sequence[str]] = [base.label_names]
        if role in splits:
            parts.append(splits[role])
            names_of_parts.append(new.label_names)
        splits[role] = _concatenated_splits(parts, names_of_parts, new.label_names)

    both = replace(
        new,
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=base.unlabelled.joined(new.unlabelled),
        labels_before_corrections={
            **base.labels_before_corrections,
            **new.labels_before_corrections,
        },
        first_multi_label_row=new.first_multi_label_row or base.first_multi_label_row,
        sources=(*base.sources, *new.sources, (run, notes)),
        base=base,
    )
    return without_labelled_texts(both)


def _concatenated_splits(
    splits: Sequence[Split], names_of_splits: Sequence[Sequence[str]], names: Sequence[str]
) -> Split:
    """Concatenate splits, given with the names of their classes, into one with other names."""
    names_by_split = []
    for split, class_names in zip(splits, names_of_splits, strict=True):
        names_by_split.append((*class_names, *split.unseen_names))

    # Labels that never occur in train follow the classes.
    all_names = list(names)
    known = set(names)
    for split_names in names_by_split:
        all_names += [name for name in split_names if name not in known]
        known.update(split_names)

    labels = []
    for split, split_names in zip(splits, names_by_split, strict=True):
        labels.append(renumbered(split.labels, split_names, all_names))

    return Split(
        texts=concatenated(*(split.texts for split in splits)),
        labels=np.concatenate(labels),
        where=concatenated(*(split.where for split in splits)),
        groups=_concatenated_groups(splits),
        unseen_names=tuple(all_names[len(names) :]),
    )


def _concatenated_groups(splits: Sequence[Split]) -> NDArray[np.int64] | None:
    """The groups of all rows; None if no split has groups."""
    if all(split.groups is None for split in splits):
        return None

    groups = []
    for split in splits:
        if split.groups is None:
            groups.append(np.full(len(split), NO_GROUP))
        else:
            groups.append(split.groups)
    return np.concatenate(groups)
