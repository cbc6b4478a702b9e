"""Find the new rows of a run that continues a base run, and join the data of both runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from encoder_cls.data.reading.reading import Notes
from encoder_cls.data.text_groups import NO_GROUP, equal_texts, texts_alike
from encoder_cls.errors import ConfigError, DataError, NothingNewError
from encoder_cls.system.display import counted, listed


class BaseData(NamedTuple):
    """The folder of a base run, and its data set."""

    run: str
    dataset: Dataset


class NewRows(NamedTuple):
    """The rows of the new data that a run adds to those of its base run.

    Attributes:
        rows_by_split: their indices in the new data.
        must_stay: the rows of train that must not be held out, (rows,), because the base run has
            learned from a similar text or from their group.
    """

    rows_by_split: dict[str, NDArray[np.int64]]
    must_stay: NDArray[np.bool_]
    notes: Notes


def config_of_base(run: str) -> Config:
    """Load the config of a base run."""
    path = Path(run) / "config.yaml"
    if not path.exists():
        raise DataError(path, "no such file; the base run was here", "put it back there")
    return load_config(path)


def configs_of_bases(config: Config) -> dict[str, Config]:
    """Load the configs of the base runs, the nearest first; a `ConfigError` if one is its own."""
    configs: dict[str, Config] = {}
    places = set()
    run = config.from_run
    while run is not None:
        # Runs of older versions may have recorded a link, which has moved since.
        place = Path(run).resolve()
        if place in places:
            raise ConfigError(
                f"{run}: continues from itself; write the run that it was started from into "
                f"from_run of {place / 'config.yaml'}"
            )

        places.add(place)
        configs[run] = config_of_base(run)
        run = configs[run].from_run
    return configs


def names_validation(config: Config) -> bool:
    """Whether a config, or that of a base run, names validation data."""
    configs = [config, *configs_of_bases(config).values()]
    return any(each.data.validation is not None for each in configs)


def check_same_kind(base: Dataset, *, run: str, is_multi_label: bool) -> None:
    """Raise a `ConfigError` if only one of base run and new data is multi-label."""
    if base.is_multi_label == is_multi_label:
        return

    if is_multi_label:
        what = "a text may have one label there, and several labels in the new data"
    else:
        what = "a text may have several labels there, and one label in the new data"
    raise ConfigError(f"{run}: {what}; train one run of each")


def choose_new_rows(
    base: BaseData, splits: Mapping[str, Split], label_names: Sequence[str]
) -> NewRows:
    """Choose the rows of new data that a run adds to the rows of its base run.

    It must not learn from a text that the base run is validated or tested on, nor be scored on a
    text that the base run knows. So these rows are left out:

    - of train: texts similar to a validation or test text of the base run, and texts that it has
      learned with the same label;
    - of validation and test: texts similar to any text of the base run;
    - of all splits: rows whose group is in another split of the base run.

    `label_names` are the classes of the base run, then those of the new data.

    Raises:
        NothingNewError: no row of train is new.
        DataError: a new class has no row of train that is new.
    """
    new = _new_rows(base, splits, label_names)
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


def _new_rows(base: BaseData, splits: Mapping[str, Split], label_names: Sequence[str]) -> NewRows:
    base_splits = base.dataset.splits
    base_alike, new_alike = _alike_numbers(base_splits, splits)
    learned = set(_texts_with_labels(base.dataset.train, base.dataset.label_names))
    notes = Notes()

    rows_by_split: dict[str, NDArray[np.int64]] = {}
    for role, split in splits.items():
        other_roles = base_splits.keys() - {role}

        # Find the rows that the base run knows. A training text may be similar to a training text
        # of the base run, but may not be equal to it with the same label.
        if role == "train":
            is_known = _is_alike(new_alike[role], [base_alike[name] for name in other_roles])
            is_known |= np.array([key in learned for key in _texts_with_labels(split, label_names)])
        else:
            is_known = _is_alike(new_alike[role], list(base_alike.values()))

        # Find the other rows whose group is in another split of the base run.
        is_elsewhere = np.zeros(len(split), dtype=bool)
        for name in other_roles:
            is_elsewhere |= split.shares_group_with(base_splits[name])
        is_elsewhere &= ~is_known

        reasons = {
            f"equal or similar to texts of {base.run}": is_known,
            f"in groups that are in another split of {base.run}": is_elsewhere,
        }
        for reason, is_left_out in reasons.items():
            if is_left_out.any():
                notes.messages.append(
                    f"{role}: left out {is_left_out.sum():,} of "
                    f"{counted(len(split), 'new text')}, {reason}"
                )

        rows_by_split[role] = np.flatnonzero(~is_known & ~is_elsewhere)

    train = splits["train"]
    is_like_learned = np.isin(new_alike["train"], base_alike["train"])
    must_stay = is_like_learned | train.shares_group_with(base.dataset.train)
    return NewRows(rows_by_split, must_stay[rows_by_split["train"]], notes)


def _alike_numbers(
    base: Mapping[str, Split], new: Mapping[str, Split]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
    """Number all texts in one call: `texts_alike` ignores patterns that are frequent among them."""
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
    return np.isin(numbers, np.concatenate(numbers_of_others))


def _texts_with_labels(split: Split, label_names: Sequence[str]) -> Iterator[tuple[int, str]]:
    names = (*label_names, *split.unseen_names)
    for row, text_number in enumerate(equal_texts(split.texts).tolist()):
        yield text_number, split.label_text(row, names)


def joined(base: Dataset, new: Dataset, *, run: str) -> Dataset:
    """Join the data of a base run with the new rows."""
    notes = Notes()
    if base.train.groups is not None and new.train.groups is None:
        notes.messages.append(
            f"the data of {run} has groups; name the column with the groups of the new data in "
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
    names_by_split = []
    for split, class_names in zip(splits, names_of_splits, strict=True):
        names_by_split.append((*class_names, *split.unseen_names))

    # After the classes, list the labels that never occur in train.
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
        groups=_concatenated_arrays([split.groups for split in splits], splits, missing=NO_GROUP),
        weights=_concatenated_arrays([split.weights for split in splits], splits, missing=1),
        unseen_names=tuple(all_names[len(names) :]),
    )


def _concatenated_arrays(
    arrays: Sequence[NDArray[Any] | None], splits: Sequence[Split], *, missing: int
) -> NDArray[Any] | None:
    present = [array for array in arrays if array is not None]
    if not present:
        return None

    parts = []
    for array, split in zip(arrays, splits, strict=True):
        if array is None:
            parts.append(np.full(len(split), missing, dtype=present[0].dtype))
        else:
            parts.append(array)
    return np.concatenate(parts)
