"""Load the data set of a config from its sources or the cache, joined to that of its base run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.data_paths import SOURCES, check_sources_of_run
from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.corrections import read_corrections, with_corrections
from encoder_cls.data.dataset import (
    NO_TEXTS,
    Dataset,
    LabelsAre,
    NewRows,
    Split,
    Unlabelled,
    check_each_class_is_learned,
    check_same_kind,
    joined,
    new_rows,
    renumbered,
    without_labelled_texts,
)
from encoder_cls.data.dataset_cache import dataset_of, entry_of
from encoder_cls.data.labels import (
    Classes,
    LabelledRows,
    collect_labelled,
    decide_classes,
    in_order,
    read_labelled,
    use_of_empty,
)
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import LeftOut, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import content_hash, read_rows
from encoder_cls.data.splitting import hold_out
from encoder_cls.errors import ConfigError, DataError, NoRowsError, NothingNewError
from encoder_cls.system.cache import CacheEntry, cached
from encoder_cls.system.display import counted, listed, shown
from encoder_cls.system.reporter import SILENT, Reporter

ROLES = ("train", "validation", "test")
UNLABELLED = "the texts without labels"
MOST_UNSEEN = 0.05  # of the rows of a split: labels that never occur in train
LABEL_SOME = "label about 20 texts first, some of each class"
SUGGEST = "from then on, encoder-cls suggest names the texts to label next"
_FASTTEXT_LINES = (
    "labelled .txt and .ft files are fastText's, each line beginning with __label__ (or put each text in a file in a "
    "folder of its class, or save a CSV file)"
)


# ---------------------------------------------------------------- a run and its base run


class BaseData(NamedTuple):
    """The data set of a base run."""

    run: str  # its folder
    dataset: Dataset


def load_all_data(
    config: Config, *, train_rows: Iterable[Row] | None = None, reporter: Reporter = SILENT
) -> Dataset:
    """Load the data set of a config, joined to those of its base runs."""
    if config.from_run is None:
        return load_dataset(config.data, train_rows=train_rows, reporter=reporter)
    base_config = config_of_base(config.from_run)
    moved = f"encoder-cls train --run-dir {quote(config.from_run)} --resume --set KEY=PATH"
    hint = f"going on from it needs its data, too; if it has been moved, say where: {moved}"
    check_sources_of_run(base_config.data, config.from_run, hint)
    base = BaseData(config.from_run, load_all_data(base_config))
    new = load_dataset(config.data, train_rows=train_rows, base=base, reporter=reporter)
    return joined(base.dataset, new, run=base.run)


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
    config: DataConfig,
    *,
    train_rows: Iterable[Row] | None = None,
    base: BaseData | None = None,
    reporter: Reporter = SILENT,
) -> Dataset:
    """Read all splits that the config names, once with `data.cache`, and hold out for validation where none is named.

    With `data.label_names`, rows of train without a label are unlabelled texts. `train_rows`, in memory, may lack labels;
    `data.train` is then a name for messages.
    Of data that is added to that of a `base` run, the classes of that run come first, and need not occur in train; rows
    that it has already are left out, and nothing needs to be held out.

    Raises:
        NothingNewError: no text of train is new.
        DataError: the data is missing, malformed or not enough.
        ConfigError: the config does not fit the data.
    """
    content = None if config.cache is None or train_rows is not None else _content(config)
    if config.cache is None or content is None:
        return _read_dataset(config, train_rows, base)
    key = {
        "config": config.model_dump(mode="json", exclude={"cache"}),
        "base": None
        if base is None
        else {
            "run": base.run,
            "classes": list(base.dataset.label_names),
            "splits": {name: split.fingerprint for name, split in base.dataset.splits.items()},
        },
        "content": content,
    }

    def make() -> CacheEntry:
        dataset = _read_dataset(config, None, base)
        if _content(config) != content:
            hint = "start again once nothing writes to it"
            raise DataError(config.train, "has changed while it was read", hint)
        return entry_of(dataset)

    return dataset_of(cached(Path(config.cache), "rows", key, make, reporter=reporter))


def _content(config: DataConfig) -> dict[str, str | None] | None:
    """A hash of the content of each source; None if one is unknown."""
    hashes = {
        key: content_hash(source) for key in SOURCES if (source := getattr(config, key)) is not None
    }
    return None if None in hashes.values() else hashes


def _read_dataset(
    config: DataConfig, train_rows: Iterable[Row] | None, base: BaseData | None
) -> Dataset:
    known = base.dataset.label_names if base else ()
    corrections, of_corrections = read_corrections(config)
    rows, readings = _read_labelled_sources(config, train_rows, base)
    several = next((it.several for it in rows.values() if it.several), None)
    is_multi_label = config.label_separator is not None or several is not None
    if is_multi_label:
        _check_corrections_fit(config, several)
    unlabelled = NO_TEXTS
    if config.unlabelled is not None:
        readings[UNLABELLED] = reading_of(config)
        unlabelled = _read_unlabelled(config.unlabelled, config, readings[UNLABELLED])
    _check_something_is_learned(rows["train"], config, is_multi_label=is_multi_label)
    may_lack_labels = config.label_names is not None or train_rows is not None
    if not may_lack_labels:
        _check_no_label_is_empty(rows, config, is_multi_label=is_multi_label)
    if not is_multi_label:
        others = _take_unlabelled(rows, readings, config, may_lack_labels=may_lack_labels)
        unlabelled = unlabelled.joined(others)
    if base:
        check_same_kind(base.dataset, run=base.run, is_multi_label=is_multi_label)
    classes = decide_classes(rows.values(), config, known)
    before = {role: it.numbered(classes) for role, it in rows.items()}
    rows, corrected = with_corrections(before, corrections, classes, config)
    # Labels before corrections decide what is held out, so that corrections do not change it.
    uncorrected = None
    if corrections:
        uncorrected = _by_name(before["train"].numbers, classes.every)
    in_train = classes.present(rows["train"].numbers)
    if not (is_multi_label or known):
        _check_two_classes(in_train, config)
    label_names = tuple(dict.fromkeys((*known, *in_train)))
    splits = {
        role: _to_split(it, label_names, classes, is_multi_label=is_multi_label)
        for role, it in rows.items()
    }
    must_stay = None
    if base:
        new = _only_new(base, splits, label_names)
        readings[base.run] = Reading(notes=new.notes)
        splits = {role: split.subset(new.of_splits[role]) for role, split in splits.items()}
        must_stay = new.must_stay
        if uncorrected is not None:
            uncorrected = uncorrected[new.of_splits["train"]]
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
        unlabelled=unlabelled,
        labels_are=classes.labels_are,
        corrected=corrected,
        several=several,
        sources=(
            *((name, it.notes) for name, it in readings.items()),
            ("data.corrections", of_corrections),
        ),
    )
    return without_labelled_texts(dataset)


def _check_something_is_learned(
    train: LabelledRows, config: DataConfig, *, is_multi_label: bool
) -> None:
    """Raise a `DataError` if no row of train has a label."""
    if train.labels:
        return
    hint = f"{LABEL_SOME}; {SUGGEST}"
    if is_multi_label:  # for which there are no suggestions
        hint = LABEL_SOME
    elif not train.empty.count:
        # No cell is empty, so these are lines of text.
        hint = f"{_FASTTEXT_LINES}; {hint}"
    raise DataError(config.train, "no row has a label, so there is nothing to learn", hint)


def _check_two_classes(in_train: Sequence[str], config: DataConfig) -> None:
    if len(in_train) < 2:
        what = f"every row has the label {shown(in_train[0])}; at least two classes are needed"
        raise DataError(config.train, what)


def _check_corrections_fit(config: DataConfig, several: SourceLocation | None) -> None:
    """Raise a `ConfigError` if there are corrections, where a text may have several labels."""
    if config.corrections is None:
        return
    why = f"as at {several}" if several else "as data.label_separator has it"
    what = f"data.corrections is for data with one label a text, and here a text may have several, {why}"
    raise ConfigError(f"{config.corrections}: {what}; correct the labels in the data itself")


def _check_no_label_is_empty(
    rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool
) -> None:
    """Raise a `DataError` if a label of train is empty."""
    empty = rows["train"].empty
    if not empty.count:
        return
    how_many = ""
    if empty.count > 1:
        how_many = f", as in {empty.count:,} of {len(rows['train'].texts):,} rows"
    hint = use_of_empty(rows, config, is_multi_label=is_multi_label)
    raise DataError(empty.first[0], f"the label is empty{how_many}", hint)


def _take_unlabelled(
    rows: dict[str, LabelledRows],
    readings: Mapping[str, Reading],
    config: DataConfig,
    *,
    may_lack_labels: bool,
) -> Unlabelled:
    """Remove the rows without a label from `rows`, and return those of train, which only there may lack one."""
    unlabelled = NO_TEXTS
    for role, of_role in rows.items():
        labelled, others = of_role.divided()
        rows[role] = labelled
        if role == "train" and may_lack_labels:
            unlabelled = others
        else:
            hint = use_of_empty(rows, config) if role == "train" and others.texts else ""
            _leave_out(others, readings[role], hint)
        _check_some_have_labels(labelled, f"{getattr(config, role)}")
    return unlabelled


def _only_new(base: BaseData, splits: Mapping[str, Split], label_names: Sequence[str]) -> NewRows:
    """Choose the rows that a base run has not; an error if there are none to learn from, or none of a new class."""
    new = new_rows(base.dataset, splits, label_names, run=base.run)
    train = splits["train"].subset(new.of_splits["train"])
    if not len(train):
        what = f"nothing is left to learn from: {'; '.join(new.notes.messages)}"
        raise NothingNewError(splits["train"].where[0], what)
    check_each_class_is_learned(train, label_names, len(base.dataset.label_names), run=base.run)
    return new


def _by_name(labels: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Number labels by the names that occur, whatever the order of `data.label_names`."""
    if labels.ndim == 2:
        return renumbered(labels, names, in_order(names, None))
    present = [names[number] for number in np.unique(labels)]
    return renumbered(labels, names, in_order(present, None))


def _read_labelled_sources(
    config: DataConfig, train_rows: Iterable[Row] | None, base: BaseData | None
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
            try:
                rows[role] = read_labelled(source, role, config, readings[role])
            except NoRowsError as error:
                if role == "train" and base:
                    what = f"{error.what}, so there is nothing new to learn"
                    raise NothingNewError(error.where, what) from None
                raise
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
        _check_some_have_labels(rows, source)
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


def _check_some_have_labels(rows: LabelledRows, source: str) -> None:
    """Raise a `DataError` if all rows of a source were left out, since they have no label."""
    if not rows.texts:
        raise DataError(source, f"no row has a label; {_FASTTEXT_LINES}")


def _read_unlabelled(source: str, config: DataConfig, reading: Reading) -> Unlabelled:
    plain = config.model_copy(update={"group_column": None, "empty_texts": "drop"})
    rows = read_rows(source, Columns(config.text_column), reading, role="train")
    collected = collect_labelled(rows, source, plain, reading, may_have_none=True)
    reading.notes.empty = LeftOut()  # blank lines are usual here
    return Unlabelled(texts=collected.texts, where=collected.where)


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
