"""Load the data set of a config from its sources or the cache, joined to that of its base run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.loading import SOURCES, check_sources_of_run, load_config
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.corrections import read_corrections, with_corrections
from encoder_cls.data.dataset import (
    NO_TEXTS,
    Dataset,
    LabelsAre,
    Split,
    Unlabelled,
    joined,
    names_as_texts,
    renumbered,
)
from encoder_cls.data.labels import (
    Classes,
    LabelledRows,
    collect_labelled,
    decide_classes,
    in_order,
    read_labelled,
    use_of_empty,
)
from encoder_cls.data.rows import (
    Columns,
    DiskBackedLocations,
    LeftOut,
    Notes,
    Reading,
    Row,
    SourceLocation,
)
from encoder_cls.data.sources import content_hash, read_rows
from encoder_cls.data.splitting import hold_out
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.disk_arrays import cached
from encoder_cls.system.display import counted, listed, shown

ROLES = ("train", "validation", "test")
UNLABELLED = "the texts without labels"
MOST_UNSEEN = 0.05  # of the rows of a split: labels that never occur in train
_FASTTEXT_LINES = (
    "labelled .txt and .ft files are fastText's, each line beginning with __label__ (or put each text in a file in a "
    "folder of its class, or save a CSV file)"
)


# ---------------------------------------------------------------- a run and its base run


def load_all_data(config: Config, *, train_rows: Iterable[Row] | None = None) -> Dataset:
    """Load the data set of a config, joined to those of its base runs."""
    if config.from_run is None:
        return load_dataset(config.data, train_rows=train_rows)
    base_config = config_of_base(config.from_run)
    check_sources_of_run(base_config.data, config.from_run, "going on from it needs its data, too")
    base = load_all_data(base_config)
    new = load_dataset(config.data, train_rows=train_rows, known=base.label_names)
    return joined(base, new, run=config.from_run)


def config_of_base(run: str) -> Config:
    """Load the config of a base run."""
    path = Path(run) / "config.yaml"
    if not path.exists():
        raise DataError(path, "no such file, where the base run was", "put it back there")
    return load_config(path)


def names_validation(config: Config) -> bool:
    """Whether a run, or one of its base runs, names a file of validation texts."""
    run = config.from_run
    return config.data.validation is not None or (
        run is not None and names_validation(config_of_base(run))
    )


# ---------------------------------------------------------------- one data set


def load_dataset(
    config: DataConfig, *, train_rows: Iterable[Row] | None = None, known: Sequence[str] = ()
) -> Dataset:
    """Read all splits that the config names, once with `data.cache`, and hold out for validation where none is named.

    With `data.label_names`, rows of train without a label are unlabelled texts; if no row has one, nothing is held out
    (`Dataset.has_names_alone`). `train_rows`, in memory, may lack labels; `data.train` is then a name for messages.
    `known` classes come first, and need not occur in train.
    """
    content = None if config.cache is None or train_rows is not None else _content(config)
    if config.cache is None or content is None:
        return _read_dataset(config, train_rows, known)
    key = {
        "config": config.model_dump(mode="json", exclude={"cache"}),
        "known": list(known),
        "content": content,
    }

    def make() -> Dataset:
        dataset = _read_dataset(config, None, known)
        if _content(config) != content:
            hint = "start again once nothing writes to it"
            raise DataError(f"{config.train}", "has changed while it was read", hint)
        return dataset

    classes = (Dataset, Split, Unlabelled, Notes, LeftOut, DiskBackedLocations)
    return cached(Path(config.cache), "rows", key, make, *classes)


def _content(config: DataConfig) -> dict[str, str | None] | None:
    """A hash of the content of each source; None if one is unknown."""
    hashes = {
        key: content_hash(source) for key in SOURCES if (source := getattr(config, key)) is not None
    }
    return None if None in hashes.values() else hashes


def _read_dataset(
    config: DataConfig, train_rows: Iterable[Row] | None, known: Sequence[str]
) -> Dataset:
    corrections, of_corrections = read_corrections(config)
    rows, readings = _read_labelled_sources(config, train_rows)
    several = next((it.several for it in rows.values() if it.several), None)
    is_multi_label = config.label_separator is not None or several is not None
    if is_multi_label and config.corrections is not None:
        why = f"as at {several}" if several else "as data.label_separator has it"
        what = f"data.corrections is for data with one label a text, and here a text may have several, {why}"
        raise ConfigError(f"{config.corrections}: {what}; correct the labels in the data itself")
    unlabelled = NO_TEXTS
    if config.unlabelled is not None:
        readings[UNLABELLED] = reading_of(config)
        unlabelled = _read_unlabelled(config.unlabelled, config, readings[UNLABELLED])
    may_lack_labels = config.label_names is not None or train_rows is not None
    if not may_lack_labels and (empty := rows["train"].empty).count:
        of_all = (
            f", as in {empty.count:,} of {len(rows['train'].texts):,} rows"
            if empty.count > 1
            else ""
        )
        hint = use_of_empty(rows, config, is_multi_label=is_multi_label)
        raise DataError(empty.first[0], f"the label is empty{of_all}", hint)
    if not is_multi_label:
        for role, of_role in rows.items():
            rows[role], others = of_role.divided()
            if role == "train" and may_lack_labels:
                unlabelled = unlabelled.joined(others)
            else:
                hint = use_of_empty(rows, config) if role == "train" and others.texts else ""
                _leave_out(others, readings[role], hint)
    has_labels = "train" in rows and len(rows["train"].labels) > 0
    has_names_alone = not is_multi_label and config.label_names is not None and not has_labels
    if not has_labels and not has_names_alone:
        hint = "" if is_multi_label else use_of_empty(rows, config)
        raise DataError(
            config.train or "data.train", "no row has a label, so there is nothing to learn", hint
        )
    classes = decide_classes(rows.values(), config, known)
    before = {role: it.numbered(classes) for role, it in rows.items()}
    rows, corrected = with_corrections(before, corrections, classes, config)
    if has_names_alone:
        rows["train"] = _names_as_rows(config)
    in_train = classes.present(rows["train"].numbers)
    if len(in_train) < 2 and not is_multi_label and not known:
        what = f"every row has the label {shown(in_train[0])}; at least two classes are needed"
        raise DataError(f"{config.train}", what)
    label_names = tuple(dict.fromkeys((*known, *in_train)))
    splits = {
        role: _to_split(it, label_names, classes, is_multi_label=is_multi_label)
        for role, it in rows.items()
    }
    if "validation" not in splits and has_names_alone:
        splits["validation"] = splits["train"].subset(np.zeros(0, dtype=np.int64))
    elif "validation" not in splits:
        numbers = before[
            "train"
        ].numbers  # which decide, so that corrections do not change what is held out
        is_corrected = rows["train"] is not before["train"]
        uncorrected = (
            renumbered(numbers, classes.every, classes.present(numbers)) if is_corrected else None
        )
        splits["train"], splits["validation"] = hold_out(
            splits["train"],
            fraction=config.validation_fraction,
            seed=config.split_seed,
            uncorrected=uncorrected,
        )
    return Dataset(
        label_names=label_names,
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=unlabelled,
        labels_are=classes.labels_are,
        corrected=corrected,
        several=several,
        has_names_alone=has_names_alone,
        sources=(
            *((name, it.notes) for name, it in readings.items()),
            ("data.corrections", of_corrections),
        ),
    )


def _read_labelled_sources(
    config: DataConfig, train_rows: Iterable[Row] | None
) -> tuple[dict[str, LabelledRows], dict[str, Reading]]:
    rows, readings = {}, {}
    for role in ROLES:
        source = getattr(config, role)
        if role == "train" and train_rows is not None:
            readings[role] = Reading()
            plain = config.model_copy(update={"group_column": None})
            rows[role] = collect_labelled(
                train_rows, f"{source}", plain, readings[role], may_have_none=True
            )
        elif source is not None:
            readings[role] = reading_of(config)
            rows[role] = read_labelled(source, role, config, readings[role])
    return rows, readings


def load_split(
    source: str,
    config: DataConfig,
    label_names: tuple[str, ...],
    *,
    labels_are: LabelsAre | None = None,
    is_multi_label: bool = False,
    reading: Reading | None = None,
) -> Split:
    """Read one labelled source whose classes are known; `labels_are` as in their data set, None: the source decides."""
    reading = reading or reading_of(config)
    rows = read_labelled(source, "test", config.model_copy(update={"group_column": None}), reading)
    if not is_multi_label:
        if config.label_separator is not None or rows.several:
            raise DataError(
                rows.several or source,
                "texts may have several labels here; of this model they have one",
            )
        rows, others = rows.divided()
        _leave_out(others, reading)
    classes = decide_classes([rows], config, label_names, labels_are)
    return _to_split(rows.numbered(classes), label_names, classes, is_multi_label=is_multi_label)


def reading_of(config: DataConfig) -> Reading:
    """Make a `Reading` with the options of a config."""
    return Reading(delimiter=config.delimiter, encoding=config.encoding, bad_rows=config.bad_rows)


def _leave_out(unlabelled: Unlabelled, reading: Reading, hint: str = "") -> None:
    count = 1 if reading.skips else len(unlabelled.texts)
    several = f", as {count:,} in all have none" if count > 1 else ""
    for where in unlabelled.where:
        reading.bad_row(
            DataError(where, f"the line has no label{several}; {_FASTTEXT_LINES}", hint)
        )


def _read_unlabelled(source: str, config: DataConfig, reading: Reading) -> Unlabelled:
    plain = config.model_copy(update={"group_column": None, "empty_texts": "drop"})
    rows = read_rows(source, Columns(config.text_column), reading, role="train")
    collected = collect_labelled(rows, source, plain, reading, may_have_none=True)
    reading.notes.empty = LeftOut()  # blank lines are usual here
    return Unlabelled(texts=collected.texts, where=collected.where)


def _names_as_rows(config: DataConfig) -> LabelledRows:
    """Make the words of each class name the one text of its class, where no row has a label."""
    names = config.label_names or ()
    texts = names_as_texts(names)
    silent = [name for name, text in zip(names, texts, strict=True) if not text]
    if silent or len(names) < 2:
        what = f"{shown(silent[0])} has no words" if silent else "two classes are needed at least"
        why = "no text has a label, so all learning is from the names of the classes"
        raise ConfigError(f"data.label_names: {what}; {why}")
    where = SourceLocation("data.label_names")
    rows = (Row(text, name, None, where) for text, name in zip(texts, names, strict=True))
    return collect_labelled(rows, where, config, reading_of(config))


def _to_split(
    rows: LabelledRows, label_names: tuple[str, ...], classes: Classes, *, is_multi_label: bool
) -> Split:
    unseen = in_order({*classes.present(rows.numbers)} - {*label_names}, classes.names)
    labels: NDArray[Any] = renumbered(rows.numbers, classes.every, (*label_names, *unseen))
    if is_multi_label:
        matrix = np.zeros((len(rows.counts), len(label_names) + len(unseen)), dtype=np.int8)
        matrix[np.repeat(np.arange(len(rows.counts)), rows.counts), labels] = 1
        labels = matrix
    split = Split(
        texts=rows.texts, labels=labels, where=rows.where, groups=rows.groups, unseen_names=unseen
    )
    is_unseen = split.has_unseen_label(len(label_names))
    if is_unseen.sum() > MOST_UNSEEN * len(split):
        first = int(is_unseen.argmax())
        number = (
            labels[first, len(label_names) :].argmax()
            if is_multi_label
            else labels[first] - len(label_names)
        )
        what = f"label {shown(unseen[number])} never occurs in train ({listed(label_names)}); {is_unseen.sum():,} of "
        what += f"{counted(len(split), 'row')} have such labels ({listed(unseen)}): is this the right data?"
        raise DataError(split.where[first], what)
    return split
