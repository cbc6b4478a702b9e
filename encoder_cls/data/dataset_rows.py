"""Read the rows of all sources of a config, and check that those that need a label have one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.classes import hint_for_empty_labels
from encoder_cls.data.dataset import NO_TEXTS, Unlabelled
from encoder_cls.data.labelled_rows import (
    LabelledRows,
    collect_labelled,
    read_labelled,
)
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import LeftOut, Notes, Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError, NoRowsError, NothingNewError

ROLES = ("train", "validation", "test")
# What warnings call the source of texts without labels.
UNLABELLED = "the texts without labels"

# The part of a message that explains lines without a label.
FASTTEXT_LINES = (
    "labelled .txt and .ft files have the form of fastText: each line begins with __label__ (or "
    "put each text into a file in a folder of its class, or save a CSV file)"
)


@dataclass(frozen=True, kw_only=True)
class DatasetRows:
    """The rows of all sources of a config, with their labels as they are written.

    Attributes:
        readings: the options and notes of each source, by its name in warnings.
    """

    rows: dict[str, LabelledRows]
    readings: dict[str, Reading]
    unlabelled: Unlabelled
    is_multi_label: bool
    first_multi_label_row: SourceLocation | None

    def notes(self) -> list[tuple[str, Notes]]:
        """The notes on each source, by its name."""
        return [(name, reading.notes) for name, reading in self.readings.items()]


def read_all_rows(
    config: DataConfig,
    *,
    train_rows: Iterable[Row] | None,
    has_base: bool,
) -> DatasetRows:
    """Read all sources of a config; `train_rows`, in memory, replace train.

    Raises:
        NothingNewError: train has no rows, and there is a base run.
        DataError: a source is missing or malformed, or a row lacks a label that it needs.
    """
    rows = {}
    readings = {}
    for role in ROLES:
        if role == "train" and train_rows is not None:
            rows[role], readings[role] = _rows_in_memory(train_rows, config)
        elif getattr(config, role) is not None:
            rows[role], readings[role] = _read_split(role, config, has_base=has_base)

    first_multi_label_row = None
    for rows_of_split in rows.values():
        first_multi_label_row = first_multi_label_row or rows_of_split.first_multi_label_row
    is_multi_label = config.label_separator is not None or first_multi_label_row is not None

    unlabelled = NO_TEXTS
    if config.unlabelled is not None:
        readings[UNLABELLED] = Reading(config.reading_options)
        unlabelled = _read_unlabelled(config.unlabelled, config, readings[UNLABELLED])

    _check_something_is_learned(rows["train"], config, is_multi_label=is_multi_label)
    may_lack_labels = config.label_names is not None or train_rows is not None
    if not may_lack_labels:
        _check_no_label_is_empty(rows, config, is_multi_label=is_multi_label)
    if not is_multi_label:
        rows, more_unlabelled = _divided(rows, readings, config, may_lack_labels=may_lack_labels)
        unlabelled = unlabelled.joined(more_unlabelled)

    return DatasetRows(
        rows=rows,
        readings=readings,
        unlabelled=unlabelled,
        is_multi_label=is_multi_label,
        first_multi_label_row=first_multi_label_row,
    )


def _rows_in_memory(train_rows: Iterable[Row], config: DataConfig) -> tuple[LabelledRows, Reading]:
    reading = Reading()
    ungrouped = config.model_copy(update={"group_column": None})
    rows = collect_labelled(train_rows, config.train, ungrouped, reading, may_have_none=True)
    return rows, reading


def _read_split(role: str, config: DataConfig, *, has_base: bool) -> tuple[LabelledRows, Reading]:
    source = getattr(config, role)
    reading = Reading(config.reading_options)
    if role == "train" and config.train_fraction is not None:
        reading.fraction = config.train_fraction

    try:
        rows = read_labelled(source, role, config, reading)
    except NoRowsError as error:
        if role != "train" or not has_base:
            raise
        what = f"{error.what}, so there is nothing new to learn"
        raise NothingNewError(error.where, what) from None

    num_unread = reading.notes.num_unread
    if num_unread:
        num_read = len(rows.texts)
        reading.note(
            f"read {num_read:,} of {num_read + num_unread:,} rows of {source}, chosen at random "
            f"(data.train_fraction: {reading.fraction:g})"
        )
    return rows, reading


def _read_unlabelled(source: str, config: DataConfig, reading: Reading) -> Unlabelled:
    config = config.model_copy(update={"group_column": None, "empty_texts": "drop"})
    columns = Columns(config.text_column, features=config.features)
    rows = read_rows(source, columns, reading, role="train")
    collected = collect_labelled(rows, source, config, reading, may_have_none=True)

    # Forget the rows without a text: blank lines are usual in such files and need no warning.
    reading.notes.empty = LeftOut()
    return Unlabelled(texts=collected.texts, where=collected.where)


# Rows without a label


def _divided(
    rows: Mapping[str, LabelledRows],
    readings: Mapping[str, Reading],
    config: DataConfig,
    *,
    may_lack_labels: bool,
) -> tuple[dict[str, LabelledRows], Unlabelled]:
    """Divide rows into those with and without a label, which only train may have."""
    labelled_rows = {}
    unlabelled = NO_TEXTS
    for role, rows_of_split in rows.items():
        labelled, others = rows_of_split.divided()
        labelled_rows[role] = labelled
        if role == "train" and may_lack_labels:
            unlabelled = others
        elif role == "train" and others.texts:
            leave_out(others, readings[role], hint_for_empty_labels(rows, config))
        else:
            leave_out(others, readings[role])
        check_some_have_labels(labelled, getattr(config, role))
    return labelled_rows, unlabelled


def leave_out(unlabelled: Unlabelled, reading: Reading, hint: str = "") -> None:
    """Leave out rows without a label, or raise a `DataError` that counts them."""
    what = "the line has no label"
    if not reading.options.skips_bad_rows and len(unlabelled.texts) > 1:
        what += f" ({len(unlabelled.texts):,} lines have none)"
    for where in unlabelled.where:
        reading.bad_row(DataError(where, f"{what}; {FASTTEXT_LINES}", hint))


def check_some_have_labels(rows: LabelledRows, source: str) -> None:
    """Raise a `DataError` if no row of a source has a label."""
    if not rows.texts:
        raise DataError(source, f"no row has a label; {FASTTEXT_LINES}")


LABEL_SOME = "label about 20 texts first, some of each class"
SUGGEST = "from then on, encoder-cls suggest names the texts to label next"


def _check_something_is_learned(
    train: LabelledRows, config: DataConfig, *, is_multi_label: bool
) -> None:
    if train.labels:
        return

    hint = f"{LABEL_SOME}; {SUGGEST}"
    if not is_multi_label and not train.empty.count:
        # No row has an empty label cell, so the rows are lines of text without a label.
        hint = f"{FASTTEXT_LINES}; {hint}"
    raise DataError(config.train, "no row has a label, so there is nothing to learn", hint)


def _check_no_label_is_empty(
    rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool
) -> None:
    train = rows["train"]
    empty = train.empty
    if not empty.count:
        return

    what = "the label is empty"
    if empty.count > 1:
        what += f", as in {empty.count:,} of {len(train.texts):,} rows"
    hint = hint_for_empty_labels(rows, config, is_multi_label=is_multi_label)
    raise DataError(empty.first[0], what, hint)
