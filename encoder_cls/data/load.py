"""Load the data set of a config from its sources, or from the cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import Corrections
from encoder_cls.data.dataset import NO_TEXTS, Dataset, LabelsAre, Split, Unlabelled, listed
from encoder_cls.data.holdout import hold_out
from encoder_cls.data.labels import (
    Classes,
    LabelledRows,
    check_none_empty,
    collect_labelled,
    first_locations,
    labels_of_two_types,
    names_as_texts,
    read_labelled,
    spellings,
    use_of_empty,
    what_labels_are,
)
from encoder_cls.data.readers import content_hash, read_rows
from encoder_cls.data.rows import DiskBackedLocations, LeftOut, Notes, Reading, Row, SourceLocation
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.disk_arrays import cached
from encoder_cls.system.display import counted, shown

ROLES = ("train", "validation", "test")
UNLABELLED = "the texts without labels"
MOST_UNSEEN = 0.05  # of the rows of a split: labels that never occur in train
UNCORRECTED = "data.corrections"  # the location of labels that no row has any more
_FASTTEXT_LINES = (
    "labelled .txt and .ft files are fastText's, each line beginning with __label__ (or put each text in a file in a "
    "folder of its class, or save a CSV file)"
)


def load_dataset(config: DataConfig, *, train_rows: Iterable[Row] | None = None, known: Sequence[str] = ()) -> Dataset:
    """Read all splits that the config names, and hold out a validation split where none is named.

    Where the classes have names, rows of train without a label are further unlabelled texts; where no row has one,
    nothing is held out: `Dataset.has_names_alone`.

    Args:
        config: what to read, and how; with `data.cache` it is read once.
        train_rows: rows in memory to train on, perhaps without a label; then `data.train` is a name for messages.
        known: the first of the classes, which need not occur in train.
    """
    content = None if config.cache is None or train_rows is not None else _content(config)
    if config.cache is None or content is None:
        return _read_dataset(config, train_rows, known)
    key = {"config": config.model_dump(mode="json", exclude={"cache"}), "known": list(known), "content": content}

    def make() -> Dataset:
        dataset = _read_dataset(config, None, known)
        if _content(config) != content:
            hint = "start again once nobody writes the data"
            raise DataError(f"{config.train}", "has changed while it was read", hint)
        return dataset

    classes = (Dataset, Split, Unlabelled, Notes, LeftOut, DiskBackedLocations)
    return cached(Path(config.cache), "rows", key, make, *classes)


def _content(config: DataConfig) -> dict[str, str] | None:
    """A hash of the content of each source; None if one is unknown."""
    sources = {role: getattr(config, role) for role in (*ROLES, "unlabelled", "corrections")}
    hashes = {role: content_hash(source) for role, source in sources.items() if source is not None}
    known = {role: content for role, content in hashes.items() if content is not None}
    return known if len(known) == len(hashes) else None


def _read_dataset(config: DataConfig, train_rows: Iterable[Row] | None, known: Sequence[str]) -> Dataset:
    corrections = Corrections(config)
    sources = {role: source for role in ROLES if (source := getattr(config, role)) is not None}
    readings = {name: reading_of(config) for name in (*sources, *([UNLABELLED] if config.unlabelled else ()))}
    rows: dict[str, LabelledRows] = {}
    if train_rows is not None:
        plain = config.model_copy(update={"group_column": None})
        readings["train"] = Reading()
        name = f"{sources.pop('train', None)}"
        rows["train"] = collect_labelled(train_rows, name, plain, readings["train"], may_have_none=True)
    for role, source in sources.items():
        rows[role] = read_labelled(source, role, config, readings[role], corrections)
    several = next((it.several for it in rows.values() if it.several), None)
    is_multi_label = config.label_separator is not None or several is not None
    unlabelled = _unlabelled(config, readings.get(UNLABELLED, reading_of(config)))
    if is_multi_label and config.corrections is not None:
        several_labels = f"several, as at {several}" if several else "several, as data.label_separator has it"
        what = f"data.corrections is for data with one label a text, and here a text may have {several_labels}"
        raise ConfigError(f"{config.corrections}: {what}; correct the labels in the data itself")
    check_none_empty(rows, config, is_multi_label=is_multi_label)
    if not is_multi_label:
        for role, of_role in rows.items():
            rows[role], others = of_role.divided()
            if role == "train" and (config.label_names is not None or train_rows is not None):
                unlabelled = unlabelled.joined(others)
            else:
                hint = use_of_empty(rows, config) if role == "train" and others.texts else ""
                _leave_out(others, readings[role], hint)
    corrections.check_all_applied()
    of_two_types = labels_of_two_types(rows.values())
    spelling = spellings(rows.values(), config, known)
    rows = {role: it.respelled(spelling) for role, it in rows.items()}
    locations = first_locations(rows.values())
    classes = Classes(config.label_names, what_labels_are(locations, config.label_names))
    has_labels = "train" in rows and len(rows["train"].labels) > 0
    has_names_alone = not is_multi_label and config.label_names is not None and not has_labels
    if has_names_alone:
        rows["train"] = _names_as_rows(config, classes)
    elif not has_labels:
        hint = "" if is_multi_label else "name the classes in data.label_names to learn from their names"
        raise DataError(config.train or "data.train", "no row has a label, so there is nothing to learn", hint)
    in_train = classes.in_order(classes.of(rows["train"].labels))
    if len(in_train) < 2 and not is_multi_label and not known:
        what = f"every row has the label {shown(in_train[0])}; at least two classes are needed"
        raise DataError(f"{config.train}", what)
    label_names = tuple(dict.fromkeys((*known, *in_train)))
    splits = {role: _to_split(it, label_names, classes, is_multi_label=is_multi_label) for role, it in rows.items()}
    train, validation = splits["train"], splits.get("validation")
    if validation is None and has_names_alone:
        validation = train.subset(np.zeros(0, dtype=np.int64))
    elif validation is None:
        train, validation = hold_out(
            train,
            fraction=config.validation_fraction,
            seed=config.split_seed,
            uncorrected=_uncorrected_labels(rows["train"], classes),
        )
    return Dataset(
        label_names=label_names,
        train=train,
        validation=validation,
        test=splits.get("test"),
        unlabelled=unlabelled,
        labels_are=classes.labels_are,
        of_two_types=of_two_types,
        corrected={
            it.where[row]: classes.name(label, UNCORRECTED)
            for it in rows.values()
            for row, label in it.corrected.items()
        },
        several=several,
        has_names_alone=has_names_alone,
        sources=(*((name, reading.notes) for name, reading in readings.items()), (UNCORRECTED, corrections.notes)),
    )


def load_split(
    source: str,
    config: DataConfig,
    label_names: tuple[str, ...],
    *,
    labels_are: LabelsAre | None = None,
    is_multi_label: bool = False,
    reading: Reading | None = None,
) -> Split:
    """Read one labelled source whose classes are known.

    `labels_are`: what labels are in the data set of these classes; None: the source alone decides. `reading`, made by
    `reading_of`, collects the notes.
    """
    reading = reading or reading_of(config)
    rows = read_labelled(source, "test", config.model_copy(update={"group_column": None}), reading)
    if not is_multi_label:
        if config.label_separator is not None or rows.several:
            raise DataError(rows.several or source, "texts may have several labels here; of this model they have one")
        rows, others = rows.divided()
        _leave_out(others, reading)
    rows = rows.respelled(spellings([rows], config, label_names))
    locations = first_locations([rows])
    classes = Classes(config.label_names, labels_are or what_labels_are(locations, config.label_names))
    return _to_split(rows, label_names, classes, is_multi_label=is_multi_label)


def reading_of(config: DataConfig) -> Reading:
    """How the config has files read."""
    return Reading(delimiter=config.delimiter, encoding=config.encoding, bad_rows=config.bad_rows)


def _leave_out(unlabelled: Unlabelled, reading: Reading, hint: str = "") -> None:
    count = 1 if reading.skips else len(unlabelled.texts)
    several = f", as {count:,} in all have none" if count > 1 else ""
    for where in unlabelled.where:
        reading.bad_row(DataError(where, f"the line has no label{several}; {_FASTTEXT_LINES}", hint))


def _unlabelled(config: DataConfig, reading: Reading) -> Unlabelled:
    if config.unlabelled is None:
        return NO_TEXTS
    plain = config.model_copy(update={"group_column": None, "empty_texts": "drop"})
    rows = read_rows(
        config.unlabelled, role="train", text_columns=config.text_column, label_column=None, reading=reading
    )
    collected = collect_labelled(rows, config.unlabelled, plain, reading, may_have_none=True)
    reading.notes.empty = LeftOut()  # blank lines are usual here
    return Unlabelled(texts=collected.texts, where=collected.where)


def _names_as_rows(config: DataConfig, classes: Classes) -> LabelledRows:
    """The words of each name as the one text of its class, where no row has a label."""
    names = config.label_names or ()
    texts = names_as_texts(names)
    silent = [name for name, text in zip(names, texts, strict=True) if not text]
    if silent or len(names) < 2:
        what = f"{shown(silent[0])} says nothing" if silent else "two classes are needed at least"
        why = "no text has a label, so the names of the classes are all there is to learn from"
        raise ConfigError(f"data.label_names: {what}; {why}")
    where = SourceLocation("data.label_names")
    labels = names if classes.labels_are == "names" else tuple(map(str, range(len(names))))
    rows = (Row(text, label, None, where) for text, label in zip(texts, labels, strict=True))
    return collect_labelled(rows, where, config, reading_of(config))


def _to_split(rows: LabelledRows, label_names: tuple[str, ...], classes: Classes, *, is_multi_label: bool) -> Split:
    names = classes.of(rows.labels)
    unseen = classes.in_order(set(names) - set(label_names))
    numbers = {name: number for number, name in enumerate((*label_names, *unseen))}
    labels: NDArray[Any] = np.array([numbers[name] for name in names], dtype=np.int64)[rows.numbers]
    if is_multi_label:
        matrix = np.zeros((len(rows.counts), len(numbers)), dtype=np.int8)
        matrix[np.repeat(np.arange(len(rows.counts)), rows.counts), labels] = 1
        labels = matrix
    split = Split(texts=rows.texts, labels=labels, where=rows.where, groups=rows.groups, unseen_names=unseen)
    num_unseen = int(split.has_unseen_label(len(label_names)).sum())
    if num_unseen > MOST_UNSEEN * len(split):
        first, location = next(it for it in zip(names, rows.labels.values(), strict=True) if it[0] in unseen)
        what = f"label {shown(first)} never occurs in train ({listed(label_names)}); {num_unseen:,} of "
        what += f"{counted(len(split), 'row')} have such labels ({listed(unseen)}): is this the right data?"
        raise DataError(location, what)
    return split


def _uncorrected_labels(rows: LabelledRows, classes: Classes) -> NDArray[np.int64] | None:
    """The classes of rows, of one label each, before corrections, numbered from 0 on; None without corrections."""
    if not rows.corrected:
        return None
    current = classes.of(rows.labels)
    names = [current[number] for number in rows.numbers.tolist()]
    for row, label in rows.corrected.items():
        names[row] = classes.name(label, UNCORRECTED)
    numbers = {name: number for number, name in enumerate(classes.in_order(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64)
