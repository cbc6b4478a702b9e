"""Load the data set of a config: read its sources, number the classes and make the splits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.data_paths import SOURCES, check_sources_of_run
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.classes import (
    Classes,
    decide_classes,
    in_order,
)
from encoder_cls.data.continued_data import (
    BaseData,
    check_same_kind,
    choose_new_rows,
    configs_of_bases,
    joined,
)
from encoder_cls.data.corrections import read_corrections, with_corrections
from encoder_cls.data.dataset import (
    RANDOM_SAMPLE,
    Dataset,
    LabelsAre,
    Split,
    renumbered,
    without_labelled_texts,
)
from encoder_cls.data.dataset_cache import dataset_of, entry_of
from encoder_cls.data.dataset_rows import (
    DatasetRows,
    check_some_have_labels,
    leave_out,
    read_all_rows,
)
from encoder_cls.data.labelled_rows import LabelledRows, read_labelled
from encoder_cls.data.random_sample import outside_of_sample
from encoder_cls.data.reading.reading import Notes, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import content_hash
from encoder_cls.data.splitting import hold_out
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.cache import CacheEntry, cached
from encoder_cls.system.display import counted, listed, shown
from encoder_cls.system.reporter import SILENT, Reporter

# The largest share of the random sample of a table of `label` that is held out.
MOST_OF_SAMPLE = 0.5


def load_data(
    config: Config, *, train_rows: Iterable[Row] | None = None, reporter: Reporter = SILENT
) -> Dataset:
    """Load the data set of a config, joined to those of its base runs; see `load_dataset`."""
    configs_by_run = configs_of_bases(config)
    for run, base_config in configs_by_run.items():
        moved = f"encoder-cls train --run-dir {quote(run)} --resume --set KEY=PATH"
        hint = f"a run that continues it needs its data, too; if the data was moved, run: {moved}"
        check_sources_of_run(base_config.data, run, hint)

    # Load the data of the oldest run first: each other run adds its new rows.
    base = None
    for run, base_config in reversed(configs_by_run.items()):
        base = BaseData(run, _with_base(load_dataset(base_config.data, base=base), base))
    new = load_dataset(config.data, train_rows=train_rows, base=base, reporter=reporter)
    return _with_base(new, base)


def _with_base(new: Dataset, base: BaseData | None) -> Dataset:
    if base is None:
        return new
    return joined(base.dataset, new, run=base.run)


def load_dataset(
    config: DataConfig,
    *,
    train_rows: Iterable[Row] | None = None,
    base: BaseData | None = None,
    reporter: Reporter = SILENT,
) -> Dataset:
    """Read all splits that a config names, without the rows of the base run.

    If there is no validation data, rows of train are held out; with `data.label_names`, rows
    without a label become unlabelled texts.

    `train_rows`, in memory, replace train, and may lack labels. The classes of a base run come
    first and need not occur in the new rows, none of which has to be held out.

    Raises:
        NothingNewError: no row of train is new to a given base run.
        DataError: data is missing, malformed or too little.
        ConfigError: the config does not fit the data.
    """
    if config.cache is None or train_rows is not None:
        return _read_dataset(config, train_rows, base)
    content = _content_hashes(config)
    if content is None:
        return _read_dataset(config, train_rows, base)

    def read() -> CacheEntry:
        dataset = _read_dataset(config, None, base)
        if _content_hashes(config) != content:
            hint = "start again when no other program writes to it"
            raise DataError(config.train, "the data changed while it was read", hint)
        return entry_of(dataset)

    key = {
        "config": config.model_dump(mode="json", exclude={"cache"}),
        "base": _cache_key(base),
        "content": content,
    }
    return dataset_of(cached(Path(config.cache), "rows", key, read, reporter=reporter))


def load_split(
    source: str,
    config: DataConfig,
    label_names: tuple[str, ...],
    *,
    labels_are: LabelsAre | None = None,
    is_multi_label: bool = False,
    reading: Reading | None = None,
) -> Split:
    """Read one labelled source of known classes.

    If `labels_are` is None, the labels themselves decide.

    Raises:
        DataError: the source cannot be read, or its labels do not fit.
    """
    reading = reading or Reading(config.reading_options)
    config = config.model_copy(update={"group_column": None})
    rows = read_labelled(source, "test", config, reading)
    if not is_multi_label:
        if config.label_separator is not None or rows.first_multi_label_row:
            what = "texts may have several labels here, but the model predicts one label per text"
            raise DataError(rows.first_multi_label_row or source, what)
        rows, others = rows.divided()
        leave_out(others, reading)
        check_some_have_labels(rows, source)

    classes = decide_classes([rows], config, label_names, labels_are)
    return _to_split(classes.numbered(rows), label_names, classes, is_multi_label=is_multi_label)


def _content_hashes(config: DataConfig) -> dict[str, str] | None:
    """Hash the sources; None if one cannot be identified, such as a pipe."""
    hashes = {}
    for key in SOURCES:
        source = getattr(config, key)
        if source is None:
            continue
        source_hash = content_hash(source)
        if source_hash is None:
            return None
        hashes[key] = source_hash
    return hashes


def _cache_key(base: BaseData | None) -> dict[str, Any] | None:
    if base is None:
        return None
    splits = base.dataset.splits
    return {
        "run": base.run,
        "classes": list(base.dataset.label_names),
        "splits": {name: split.fingerprint for name, split in splits.items()},
    }


# From sources to a data set


def _read_dataset(
    config: DataConfig,
    train_rows: Iterable[Row] | None,
    base: BaseData | None,
) -> Dataset:
    corrections, notes_on_corrections = read_corrections(config)
    all_rows = read_all_rows(config, train_rows=train_rows, has_base=base is not None)
    is_multi_label = all_rows.is_multi_label
    if base:
        check_same_kind(base.dataset, run=base.run, is_multi_label=is_multi_label)

    # Number the labels by class, and apply the corrections.
    known_names = base.dataset.label_names if base else ()
    as_written = () if train_rows is None else tuple(all_rows.rows["train"].labels)
    classes = decide_classes(all_rows.rows.values(), config, known_names, as_written=as_written)
    _note_labels_not_in_data(all_rows, classes)
    rows_before = {role: classes.numbered(rows) for role, rows in all_rows.rows.items()}
    rows_by_role, labels_before_corrections = with_corrections(
        rows_before, corrections, classes, config, is_multi_label=is_multi_label
    )

    # The classes of the data set are the classes of the base run, then the other classes that occur
    # in train.
    names_in_train = classes.present(rows_by_role["train"].numbers)
    if not (is_multi_label or known_names):
        _check_two_classes(names_in_train, config)
    new_names = [name for name in names_in_train if name not in known_names]
    label_names = (*known_names, *new_names)
    _note_names_not_in_train(all_rows, config, label_names)
    _check_none_label(config, label_names, is_multi_label=is_multi_label)

    splits = {}
    for role, rows in rows_by_role.items():
        splits[role] = _to_split(rows, label_names, classes, is_multi_label=is_multi_label)

    # Keep only the rows that the base run does not have.
    notes = all_rows.notes()
    new = None
    must_stay = None
    if base:
        new = choose_new_rows(base, splits, label_names)
        must_stay = new.must_stay
        notes.append((base.run, new.notes))
        for role, split in splits.items():
            splits[role] = split.subset(new.rows_by_split[role])

    if "validation" not in splits:
        # With the labels before corrections, a correction does not change which rows are held out.
        uncorrected = None
        if corrections:
            labels = _label_array(
                rows_before["train"], len(classes.every), is_multi_label=is_multi_label
            )
            uncorrected = _by_name(labels, classes.every)
            if new is not None:
                uncorrected = uncorrected[new.rows_by_split["train"]]

        fraction = config.validation_fraction
        if base is None and train_rows is None:
            must_stay, fraction, sample_notes = _outside_of_sample(splits["train"], config)
            notes.append((RANDOM_SAMPLE, sample_notes))

        splits["train"], splits["validation"] = hold_out(
            splits["train"],
            fraction=fraction,
            seed=config.split_seed,
            classes=_by_name(splits["train"].labels, label_names),
            uncorrected=uncorrected,
            must_stay=must_stay,
            is_needed=base is None,
        )

    dataset = Dataset(
        label_names=label_names,
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=all_rows.unlabelled,
        labels_are=classes.labels_are,
        labels_before_corrections=labels_before_corrections,
        first_multi_label_row=all_rows.first_multi_label_row,
        sources=(*notes, ("data.corrections", notes_on_corrections)),
    )
    return without_labelled_texts(dataset)


def _outside_of_sample(
    split: Split, config: DataConfig
) -> tuple[NDArray[np.bool_] | None, float, Notes]:
    """Find which texts of a table of `label` are not typical and must not be held out.

    Returns whether each must stay, if any, the share of the others to hold out, and a note.
    """
    is_outside = outside_of_sample(split, config)
    if is_outside is None or not is_outside.any():
        return None, config.validation_fraction, Notes()

    num_outside = int(is_outside.sum())
    num_sample = len(split) - num_outside
    fraction = min(MOST_OF_SAMPLE, config.validation_fraction * len(split) / num_sample)
    note = (
        f"validation texts are of the {num_sample:,} labels that are a random sample of the texts; "
        f"the other {num_outside:,} were chosen by `label`, and are not typical"
    )
    return is_outside, fraction, Notes(messages=[note])


# Checks


def _note_labels_not_in_data(all_rows: DatasetRows, classes: Classes) -> None:
    labels = classes.not_in_data
    if labels:
        all_rows.readings["train"].note(
            f"warning: labels of data.label_map that no row has: {len(labels):,} ({listed(labels)})"
        )


def _note_names_not_in_train(
    all_rows: DatasetRows, config: DataConfig, label_names: Sequence[str]
) -> None:
    names = [name for name in config.label_names or () if name not in label_names]
    if names:
        all_rows.readings["train"].note(
            "warning: classes of data.label_names that no row of train has, which the model cannot "
            f"predict: {len(names):,} ({listed(names)})"
        )


def _check_two_classes(names_in_train: Sequence[str], config: DataConfig) -> None:
    if len(names_in_train) < 2:
        name = shown(names_in_train[0])
        what = f"every row has the label {name}; at least two classes are needed"
        raise DataError(config.train, what)


def _check_none_label(
    config: DataConfig, label_names: Sequence[str], *, is_multi_label: bool
) -> None:
    if config.none_label is None:
        return
    if is_multi_label:
        raise ConfigError(
            "data.none_label: texts may have several labels here, so one that belongs to none of "
            "them has no label: leave this setting out, and the cell empty"
        )
    if config.levels is not None:
        raise ConfigError("data.none_label: not with data.levels: it is no code, and has no level")
    if config.none_label not in label_names:
        raise ConfigError(
            f"data.none_label: no text of train has the label {shown(config.none_label)}; it has "
            f"{listed(label_names)}"
        )


# The largest share of the rows of a split that may have labels that never occur in train.
MAX_UNSEEN = 0.05


def _check_labels_are_known(split: Split, label_names: Sequence[str]) -> None:
    is_unseen = split.has_unseen_label(len(label_names))
    if is_unseen.sum() <= MAX_UNSEEN * len(split):
        return

    # Find the first row with such a label, and the index of the label in `unseen_names`.
    row = int(is_unseen.argmax())
    if split.is_multi_label:
        number = split.labels[row, len(label_names) :].argmax()
    else:
        number = split.labels[row] - len(label_names)

    what = (
        f"label {shown(split.unseen_names[number])} never occurs in train "
        f"({listed(label_names)}); {is_unseen.sum():,} of {counted(len(split), 'row')} have such "
        f"labels ({listed(split.unseen_names)}): is this the right data?"
    )
    raise DataError(split.where[row], what)


# Splits


def _to_split(
    rows: LabelledRows, label_names: tuple[str, ...], classes: Classes, *, is_multi_label: bool
) -> Split:
    unseen = in_order({*classes.present(rows.numbers)} - {*label_names}, classes.names)
    names = (*label_names, *unseen)
    rows = replace(rows, numbers=renumbered(rows.numbers, classes.every, names))

    split = Split(
        texts=rows.texts,
        labels=_label_array(rows, len(names), is_multi_label=is_multi_label),
        where=rows.where,
        groups=rows.groups,
        weights=rows.weights,
        unseen_names=unseen,
    )
    _check_labels_are_known(split, label_names)
    return split


def _label_array(rows: LabelledRows, num_classes: int, *, is_multi_label: bool) -> NDArray[Any]:
    if not is_multi_label:
        return np.asarray(rows.numbers)

    num_rows = len(rows.counts)
    row_of_each_label = np.repeat(np.arange(num_rows), rows.counts)
    labels = np.zeros((num_rows, num_classes), dtype=np.int8)
    labels[row_of_each_label, rows.numbers] = 1
    return labels


def _by_name(labels: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Number labels by sorted names, so that held-out rows do not depend on `data.label_names`."""
    if labels.ndim == 2:
        numbers = np.flatnonzero(labels.any(axis=0))
        present = [names[number] for number in numbers.tolist()]
        return renumbered(labels[:, numbers], present, in_order(present, None))
    present = [names[number] for number in np.unique(labels)]
    return renumbered(labels, names, in_order(present, None))
