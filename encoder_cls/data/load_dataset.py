"""Load the data set of a config: read its sources, number the classes and make the splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.data_paths import SOURCES, check_sources_of_run
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.classes import (
    Classes,
    decide_classes,
    hint_for_empty_labels,
    in_order,
)
from encoder_cls.data.continued_data import (
    BaseData,
    check_same_kind,
    choose_new_rows,
    config_of_base,
    joined,
)
from encoder_cls.data.corrections import read_corrections, with_corrections
from encoder_cls.data.dataset import (
    NO_TEXTS,
    Dataset,
    LabelsAre,
    Split,
    Unlabelled,
    renumbered,
    without_labelled_texts,
)
from encoder_cls.data.dataset_cache import dataset_of, entry_of
from encoder_cls.data.labelled_rows import LabelledRows, collect_labelled, read_labelled
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import LeftOut, Notes, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import content_hash, read_rows
from encoder_cls.data.splitting import hold_out
from encoder_cls.errors import DataError, NoRowsError, NothingNewError
from encoder_cls.system.cache import CacheEntry, cached
from encoder_cls.system.display import counted, listed, shown
from encoder_cls.system.reporter import SILENT, Reporter

ROLES = ("train", "validation", "test")
# What warnings call the source of texts without labels.
UNLABELLED = "the texts without labels"

RowsRead = Mapping[str, tuple[LabelledRows, Reading]]
"""The rows of splits that have been read, by the name of the split.

The reading has made the notes on them."""

NOTHING_READ: RowsRead = MappingProxyType({})

# The part of a message that explains lines without a label.
FASTTEXT_LINES = (
    "labelled .txt and .ft files have the form of fastText: each line begins with __label__ (or "
    "put each text into a file in a folder of its class, or save a CSV file)"
)


def load_all_data(
    config: Config, *, train_rows: Iterable[Row] | None = None, reporter: Reporter = SILENT
) -> Dataset:
    """Load the data set of a config, and join it to the data sets of its base runs.

    Args:
        config: the config of the run.
        train_rows: rows in memory to use as train, which may lack labels. `data.train` is then only
            a name for messages. By default `data.train` is read.
        reporter: shows messages about the cache.

    Raises:
        NothingNewError: the run has a base run, and no row of train is new.
        DataError: data is missing, malformed or too little.
        ConfigError: the config does not fit the data.
    """
    if config.from_run is None:
        return load_dataset(config.data, train_rows=train_rows, reporter=reporter)

    base_config = config_of_base(config.from_run)
    moved = f"encoder-cls train --run-dir {quote(config.from_run)} --resume --set KEY=PATH"
    hint = f"a run that continues it needs its data, too; if the data was moved, run: {moved}"
    check_sources_of_run(base_config.data, config.from_run, hint)

    base = BaseData(config.from_run, load_all_data(base_config))
    new = load_dataset(config.data, train_rows=train_rows, base=base, reporter=reporter)
    return joined(base.dataset, new, run=base.run)


def load_dataset(
    config: DataConfig,
    *,
    train_rows: Iterable[Row] | None = None,
    rows_read: RowsRead = NOTHING_READ,
    base: BaseData | None = None,
    reporter: Reporter = SILENT,
) -> Dataset:
    """Read all splits that a config names.

    If it names no validation data, rows of train are held out for validation. With
    `data.label_names`, rows of train without a label become unlabelled texts. With `data.cache`,
    the same data is read from its files only once, and from the cache at any later time.

    Args:
        config: the sources and how to read them.
        train_rows: rows in memory to use as train, which may lack labels. `data.train` is then only
            a name for messages. By default `data.train` is read.
        rows_read: the rows of splits that have been read already, as the config says. All other
            splits are read.
        base: the data set of a base run, if the run has one. Its classes come first and need not
            occur in the new rows. Rows that the base run has already are left out, and it is no
            error if no new row can be held out.
        reporter: shows messages about the cache.

    Returns:
        The data set, without the rows of the base run.

    Raises:
        NothingNewError: a base run is given, and no row of train is new.
        DataError: data is missing, malformed or too little.
        ConfigError: the config does not fit the data.
    """
    if config.cache is None or train_rows is not None or rows_read:
        return _read_dataset(config, train_rows, base, rows_read)
    content = _content_hashes(config)
    if content is None:
        return _read_dataset(config, train_rows, base, rows_read)

    def read() -> CacheEntry:
        dataset = _read_dataset(config, None, base, NOTHING_READ)
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
    """Read one labelled source whose classes are known, such as a file to score a model on.

    Args:
        source: the file, folder or other source, as `DataConfig.train` describes it.
        config: how to read it: its columns and options.
        label_names: the names of the classes.
        labels_are: whether the labels are names or indices into `data.label_names`. None if the
            labels of the source are to decide.
        is_multi_label: whether a row may have any number of labels.
        reading: the options and the notes of the reading; made from `config` by default.

    Raises:
        DataError: the source cannot be read, or its labels do not fit.
    """
    reading = reading or reading_of(config)
    config = config.model_copy(update={"group_column": None})
    rows = read_labelled(source, "test", config, reading)
    if not is_multi_label:
        if config.label_separator is not None or rows.first_multi_label_row:
            what = "texts may have several labels here, but the model predicts one label per text"
            raise DataError(rows.first_multi_label_row or source, what)
        rows, others = rows.divided()
        _leave_out(others, reading)
        _check_some_have_labels(rows, source)

    classes = decide_classes([rows], config, label_names, labels_are)
    return _to_split(classes.numbered(rows), label_names, classes, is_multi_label=is_multi_label)


def reading_of(config: DataConfig) -> Reading:
    """Make a `Reading` with the options of a config."""
    return Reading(
        delimiter=config.delimiter,
        encoding=config.encoding,
        sheet=config.sheet,
        bad_rows=config.bad_rows,
    )


def _content_hashes(config: DataConfig) -> dict[str, str] | None:
    """Hash the content of each source of a config, by its key in `data`.

    None if the content of a source cannot be identified.
    """
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
    """The part of the cache's key that identifies the data set of the base run, if there is one."""
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
    rows_read: RowsRead,
) -> Dataset:
    """Read all splits of a config from their sources."""
    corrections, notes_on_corrections = read_corrections(config)
    sources = _read_sources(config, train_rows, base, rows_read)
    if base:
        check_same_kind(base.dataset, run=base.run, is_multi_label=sources.is_multi_label)

    # Number the labels by class, and apply the corrections.
    known_names = base.dataset.label_names if base else ()
    classes = decide_classes(sources.rows.values(), config, known_names)
    _note_labels_not_in_data(sources, classes)
    rows_before = {role: classes.numbered(rows) for role, rows in sources.rows.items()}
    rows_by_role, labels_before_corrections = with_corrections(
        rows_before, corrections, classes, config, is_multi_label=sources.is_multi_label
    )

    # The classes of the data set are the classes of the base run, then the other classes that occur
    # in train.
    names_in_train = classes.present(rows_by_role["train"].numbers)
    if not (sources.is_multi_label or known_names):
        _check_two_classes(names_in_train, config)
    new_names = [name for name in names_in_train if name not in known_names]
    label_names = (*known_names, *new_names)

    splits = {}
    for role, rows in rows_by_role.items():
        splits[role] = _to_split(rows, label_names, classes, is_multi_label=sources.is_multi_label)

    # Pass the labels before corrections to `hold_out`, so that a correction does not change which
    # rows are held out.
    uncorrected = None
    if corrections:
        uncorrected_labels = _label_array(
            rows_before["train"].numbers,
            rows_before["train"].counts,
            len(classes.every),
            is_multi_label=sources.is_multi_label,
        )
        uncorrected = _by_name(uncorrected_labels, classes.every)

    # Keep only the rows that the base run does not have.
    must_stay = None
    if base:
        new = choose_new_rows(base, splits, label_names)
        sources.readings[base.run] = Reading(notes=new.notes)
        must_stay = new.must_stay
        for role, split in splits.items():
            splits[role] = split.subset(new.rows_by_split[role])
        if uncorrected is not None:
            uncorrected = uncorrected[new.rows_by_split["train"]]

    if "validation" not in splits:
        splits["train"], splits["validation"] = hold_out(
            splits["train"],
            fraction=config.validation_fraction,
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
        unlabelled=sources.unlabelled,
        labels_are=classes.labels_are,
        labels_before_corrections=labels_before_corrections,
        first_multi_label_row=sources.first_multi_label_row,
        sources=(*sources.notes(), ("data.corrections", notes_on_corrections)),
    )
    return without_labelled_texts(dataset)


@dataclass
class _Sources:
    """The rows of all sources of a config.

    Attributes:
        rows: the labelled rows of each split, by its name.
        readings: the options and notes of each source's reading, by what warnings call the source.
        unlabelled: the texts without labels.
        is_multi_label: whether a row may have any number of labels.
        first_multi_label_row: the location of the first row with several labels; None if there is
            no such row.
    """

    rows: dict[str, LabelledRows] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    unlabelled: Unlabelled = NO_TEXTS
    is_multi_label: bool = False
    first_multi_label_row: SourceLocation | None = None

    def notes(self) -> list[tuple[str, Notes]]:
        """The name of each source, with the notes on it."""
        return [(name, reading.notes) for name, reading in self.readings.items()]


def _read_sources(
    config: DataConfig,
    train_rows: Iterable[Row] | None,
    base: BaseData | None,
    rows_read: RowsRead,
) -> _Sources:
    """Read all sources, and check that the rows that need a label have one."""
    sources = _Sources()
    _read_labelled_sources(sources, config, train_rows, rows_read, has_base=base is not None)

    for rows in sources.rows.values():
        sources.first_multi_label_row = sources.first_multi_label_row or rows.first_multi_label_row
    sources.is_multi_label = (
        config.label_separator is not None or sources.first_multi_label_row is not None
    )
    if config.unlabelled is not None:
        sources.readings[UNLABELLED] = reading_of(config)
        sources.unlabelled = _read_unlabelled(
            config.unlabelled, config, sources.readings[UNLABELLED]
        )

    _check_something_is_learned(sources, config)
    may_lack_labels = config.label_names is not None or train_rows is not None
    if not may_lack_labels:
        _check_no_label_is_empty(sources, config)
    if not sources.is_multi_label:
        unlabelled_rows = _take_unlabelled(sources, config, may_lack_labels=may_lack_labels)
        sources.unlabelled = sources.unlabelled.joined(unlabelled_rows)
    return sources


def _read_labelled_sources(
    sources: _Sources,
    config: DataConfig,
    train_rows: Iterable[Row] | None,
    rows_read: RowsRead,
    *,
    has_base: bool,
) -> None:
    """Read train, and validation and test if the config names them and they are not read yet.

    Raises:
        NothingNewError: train has no rows, and there is a base run (`has_base`).
    """
    for role in ROLES:
        if role == "train" and train_rows is not None:
            _collect_rows_in_memory(sources, config, train_rows)
            continue
        if role in rows_read:
            sources.rows[role], sources.readings[role] = rows_read[role]
            continue
        source = getattr(config, role)
        if source is None:
            continue

        reading = reading_of(config)
        if role == "train" and config.train_fraction is not None:
            reading.fraction = config.train_fraction
        sources.readings[role] = reading
        try:
            sources.rows[role] = read_labelled(source, role, config, reading)
        except NoRowsError as error:
            if role != "train" or not has_base:
                raise
            what = f"{error.what}, so there is nothing new to learn"
            raise NothingNewError(error.where, what) from None

        num_unread = reading.notes.num_unread
        if num_unread:
            num_read = len(sources.rows[role].texts)
            reading.note(
                f"read {num_read:,} of {num_read + num_unread:,} rows of {source}, chosen at "
                f"random (data.train_fraction: {reading.fraction:g})"
            )


def _collect_rows_in_memory(
    sources: _Sources, config: DataConfig, train_rows: Iterable[Row]
) -> None:
    """Collect the rows of train that are in memory; such rows have no groups."""
    reading = Reading()
    sources.readings["train"] = reading
    ungrouped = config.model_copy(update={"group_column": None})
    sources.rows["train"] = collect_labelled(
        train_rows, config.train, ungrouped, reading, may_have_none=True
    )


def _read_unlabelled(source: str, config: DataConfig, reading: Reading) -> Unlabelled:
    """Read the texts of `data.unlabelled`."""
    config = config.model_copy(update={"group_column": None, "empty_texts": "drop"})
    rows = read_rows(source, Columns(config.text_column), reading, role="train")
    collected = collect_labelled(rows, source, config, reading, may_have_none=True)

    # Forget the rows without a text: blank lines are usual in such files and need no warning.
    reading.notes.empty = LeftOut()
    return Unlabelled(texts=collected.texts, where=collected.where)


def _take_unlabelled(sources: _Sources, config: DataConfig, *, may_lack_labels: bool) -> Unlabelled:
    """Remove the rows without a label from all splits.

    Returns:
        The texts of the removed rows of train, if rows of train may lack labels. All other removed
        rows are left out with a note.

    Raises:
        DataError: a row lacks a label, and `data.bad_rows` is not `skip`; or no row of a split has
            a label.
    """
    unlabelled = NO_TEXTS
    for role, rows in list(sources.rows.items()):
        labelled, others = rows.divided()
        sources.rows[role] = labelled
        if role == "train" and may_lack_labels:
            unlabelled = others
        elif role == "train" and others.texts:
            _leave_out(others, sources.readings[role], hint_for_empty_labels(sources.rows, config))
        else:
            _leave_out(others, sources.readings[role])
        _check_some_have_labels(labelled, getattr(config, role))
    return unlabelled


def _leave_out(unlabelled: Unlabelled, reading: Reading, hint: str = "") -> None:
    """Leave out lines without a label, or raise a `DataError` that counts these lines."""
    what = "the line has no label"
    if not reading.skips and len(unlabelled.texts) > 1:
        what += f" ({len(unlabelled.texts):,} lines have none)"
    for where in unlabelled.where:
        reading.bad_row(DataError(where, f"{what}; {FASTTEXT_LINES}", hint))


# Checks


def _note_labels_not_in_data(sources: _Sources, classes: Classes) -> None:
    """Note the labels of `data.label_map` that no row has: they may be misspelt."""
    labels = classes.not_in_data
    if labels:
        sources.readings["train"].note(
            f"warning: labels of data.label_map that no row has: {len(labels):,} ({listed(labels)})"
        )


def _check_some_have_labels(rows: LabelledRows, source: str) -> None:
    """Raise a `DataError` if no row of a source is left, because no row has a label."""
    if not rows.texts:
        raise DataError(source, f"no row has a label; {FASTTEXT_LINES}")


LABEL_SOME = "label about 20 texts first, some of each class"
SUGGEST = "from then on, encoder-cls suggest names the texts to label next"


def _check_something_is_learned(sources: _Sources, config: DataConfig) -> None:
    """Raise a `DataError` if no row of train has a label."""
    train = sources.rows["train"]
    if train.labels:
        return

    hint = f"{LABEL_SOME}; {SUGGEST}"
    if not sources.is_multi_label and not train.empty.count:
        # No row has an empty label cell, so the rows are lines of text without a label.
        hint = f"{FASTTEXT_LINES}; {hint}"
    raise DataError(config.train, "no row has a label, so there is nothing to learn", hint)


def _check_no_label_is_empty(sources: _Sources, config: DataConfig) -> None:
    """Raise a `DataError` if a label of train is empty."""
    train = sources.rows["train"]
    empty = train.empty
    if not empty.count:
        return

    what = "the label is empty"
    if empty.count > 1:
        what += f", as in {empty.count:,} of {len(train.texts):,} rows"
    hint = hint_for_empty_labels(sources.rows, config, is_multi_label=sources.is_multi_label)
    raise DataError(empty.first[0], what, hint)


def _check_two_classes(names_in_train: Sequence[str], config: DataConfig) -> None:
    """Raise a `DataError` if train has rows of one class only."""
    if len(names_in_train) < 2:
        name = shown(names_in_train[0])
        what = f"every row has the label {name}; at least two classes are needed"
        raise DataError(config.train, what)


# The largest share of the rows of a split that may have labels that never occur in train.
MAX_UNSEEN = 0.05


def _check_labels_are_known(split: Split, label_names: Sequence[str]) -> None:
    """Raise a `DataError` if many rows of a split have labels that never occur in train."""
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
    """Make a split of rows whose labels are numbered by `Classes.every`.

    In the split they are numbered by `label_names`, and after these by the other names that occur
    in the rows, which become `unseen_names`.
    """
    unseen = in_order({*classes.present(rows.numbers)} - {*label_names}, classes.names)
    numbers = renumbered(rows.numbers, classes.every, (*label_names, *unseen))
    labels = _label_array(
        numbers, rows.counts, len(label_names) + len(unseen), is_multi_label=is_multi_label
    )

    split = Split(
        texts=rows.texts,
        labels=labels,
        where=rows.where,
        groups=rows.groups,
        weights=rows.weights,
        unseen_names=unseen,
    )
    _check_labels_are_known(split, label_names)
    return split


def _label_array(
    numbers: NDArray[np.integer[Any]],
    counts: NDArray[np.int64],
    num_classes: int,
    *,
    is_multi_label: bool,
) -> NDArray[Any]:
    """Make the array of labels of a split.

    Args:
        numbers: the class numbers of all rows, one row after the other.
        counts: the number of labels of each row, (rows,).
        num_classes: the number of classes.
        is_multi_label: whether a row may have any number of labels.

    Returns:
        Class numbers, (rows,); multi-label, 1 where a row has a label and else 0, (rows, classes).
    """
    if not is_multi_label:
        return np.asarray(numbers)
    labels = np.zeros((len(counts), num_classes), dtype=np.int8)
    labels[np.repeat(np.arange(len(counts)), counts), numbers] = 1
    return labels


def _by_name(labels: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Number labels by the sorted names of the classes that occur.

    So the numbers, and with them the rows that are held out, do not depend on the order of
    `data.label_names`.
    """
    if labels.ndim == 2:
        numbers = np.flatnonzero(labels.any(axis=0))
        present = [names[number] for number in numbers.tolist()]
        return renumbered(labels[:, numbers], present, in_order(present, None))
    present = [names[number] for number in np.unique(labels)]
    return renumbered(labels, names, in_order(present, None))
