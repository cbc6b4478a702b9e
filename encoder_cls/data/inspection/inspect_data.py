"""Look through a source of data: its form, its columns, its rows and its labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from encoder_cls.config.checked_values import validated_config
from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.classes import names_to_list
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.inspection.column_profile import ColumnProfile, column_profiles, sample_of
from encoder_cls.data.inspection.column_roles import (
    LabelColumn,
    TextColumn,
    describe_label_column,
    group_column,
    header_is_a_row,
    label_column,
    text_column,
)
from encoder_cls.data.inspection.file_form import FileForm, file_form_of
from encoder_cls.data.inspection.source_layout import SourceLayout, layout_of
from encoder_cls.data.label_name_warnings import SeveralLabels, several_labels
from encoder_cls.data.labelled_rows import (
    ROWS_OF_AN_EMPTY_TEXT,
    LabelledRows,
    collect_labelled,
)
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.formats import file_records, format_of
from encoder_cls.data.reading.options import LeftOut, Notes, Reading
from encoder_cls.data.source_files import data_files
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError, NoRowsError
from encoder_cls.system.display import counted, listed
from encoder_cls.system.encodings import UTF8, text_lines
from encoder_cls.system.label_cells import label_key

# The largest number of rows by which columns are described. They are taken from the whole source,
# since a file may be sorted by its label.
SAMPLED_ROWS = 20_000
# The share of rows without a label from which on they are used as texts without labels. Fewer are
# left out: they teach little, and the names of all classes would have to be listed.
MANY_UNLABELLED = 0.2
# The largest number of classes whose names are listed in a config.
MAX_LISTED_CLASSES = 100
# The number of columns that a message lists.
MAX_LISTED_COLUMNS = 20


class Table(NamedTuple):
    """The columns of the training data.

    Attributes:
        text: None if no column looks like texts.
        label: None if no column looks like labels.
        group: a column whose rows with one value may belong together; None without one.
        sheet: the sheet of an Excel file; None for other files.
        unread: the rows that cannot be read with these columns.
    """

    names: Sequence[str]
    text: TextColumn | None
    label: LabelColumn | None
    group: str | None
    sheet: str | None
    has_header: bool
    unread: LeftOut


class SplitRows(NamedTuple):
    """The rows of a split that have a text, and how they were read."""

    rows: LabelledRows
    reading: Reading

    @property
    def notes(self) -> Notes:
        """The rows that were left out."""
        return self.reading.notes

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        return len(self.rows.texts) + self.notes.empty.count + self.notes.skipped.count

    @property
    def without_label(self) -> int:
        """The number of rows with a text and no label."""
        return int((self.rows.counts == 0).sum())

    @property
    def label_counts(self) -> dict[str, int]:
        """The number of rows of each label, as it is written."""
        counts = np.bincount(self.rows.numbers, minlength=len(self.rows.labels))
        return dict(zip(self.rows.labels, counts.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found in a source.

    Attributes:
        form: how the first file is written; None for folders of texts.
        table: the columns of the training data; None if its format has no columns.
        splits: the rows of each split; empty if the columns are not known.
        several: None if cells do not list several labels.
        dataset: the data as a training with these settings reads it; None if there is a problem.
        problem: what must be corrected before a training can begin; empty if nothing must be.
        settings: the values of the section `data` of the config, by key.
    """

    source: str
    layout: SourceLayout
    form: FileForm | None
    table: Table | None = None
    splits: Mapping[str, SplitRows]
    several: SeveralLabels | None = None
    dataset: Dataset | None = None
    problem: str = ""
    settings: dict[str, Any]


def inspect_data(source: str, chosen: Mapping[str, Any]) -> Inspection:
    """Look through a file or a folder.

    `chosen` has the values of the section `data` that a person has chosen, such as `label_column`.

    Raises:
        DataError: the source cannot be read at all.
        ConfigError: a library that reads the files is not installed, or a chosen value is invalid.
    """
    layout = layout_of(source)
    train = layout.sources["train"]
    settings: dict[str, Any] = dict(layout.sources) | dict(chosen)

    form = None
    table = None
    if not layout.has_class_folders:
        file = data_files(train, is_labelled=True)[0]
        form = file_form_of(
            file, encoding=chosen.get("encoding"), delimiter=chosen.get("delimiter")
        )
        settings |= _settings_of_form(form)
        if _has_columns(file):
            table = _table(train, form, chosen)
            settings |= _settings_of_table(table, form) | dict(chosen)

    inspection = Inspection(
        source=source, layout=layout, form=form, table=table, splits={}, settings=settings
    )
    if table:
        problem = _problem_of_table(table)
        if problem:
            return replace(inspection, problem=problem)
    return _with_rows(inspection, chosen)


# The form of the files


def _has_columns(file: Path) -> bool:
    """Whether the rows of a file have columns with names: lines of text have none."""
    file_format = format_of(file)
    is_lines = file_format is not None and file_format.ending in {".txt", ".ft"}
    return not is_lines


def _settings_of_form(form: FileForm) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if not form.is_usual_delimiter:
        settings["delimiter"] = form.delimiter
    if form.encoding != UTF8:
        settings["encoding"] = form.encoding
    return settings


# The columns


def _table(source: str, form: FileForm, chosen: Mapping[str, Any]) -> Table:
    """Find the columns with text and label; of several sheets, in the sheet with most rows."""
    sheets: Sequence[str | None] = form.sheets or (None,)
    if "sheet" in chosen:
        sheets = [chosen["sheet"]]

    tables = []
    for sheet in sheets:
        options = ReadingOptions(
            delimiter=form.delimiter, encoding=form.encoding, sheet=sheet, bad_rows="skip"
        )
        reading = Reading(options)
        sample = sample_of(_records(source, reading), most=SAMPLED_ROWS)
        table = _table_of(column_profiles(sample.records), sheet, chosen, reading.notes.skipped)
        has_both = table.text is not None and table.label is not None
        tables.append((has_both, sample.num_rows, table))
    _, _, best = max(tables, key=lambda found: found[:2])
    return best


def _records(source: str, reading: Reading) -> Iterator[Mapping[str, Any]]:
    for file in data_files(source, is_labelled=True):
        for _, record in file_records(file, Columns((), every=True), reading):
            yield record


def _table_of(
    profiles: Sequence[ColumnProfile],
    sheet: str | None,
    chosen: Mapping[str, Any],
    unread: LeftOut,
) -> Table:
    """Choose the columns of a table, except those that a person has chosen."""
    by_name = {profile.name: profile for profile in profiles}
    label_name = chosen.get("label_column")
    text = _chosen_text(by_name, chosen)
    if text is None and "text_column" not in chosen:
        text = text_column([profile for profile in profiles if profile.name != label_name])

    label = None
    if text and label_name in by_name:
        label = describe_label_column(by_name[label_name], by_name[text.name])
    elif text and label_name is None:
        label = label_column(profiles, by_name[text.name])

    used = []
    if text:
        used.append(text.name)
    if label:
        used.append(label.name)
    return Table(
        names=list(by_name),
        text=text,
        label=label,
        group=group_column(profiles, used),
        sheet=sheet,
        has_header=not header_is_a_row(profiles),
        unread=unread,
    )


def _chosen_text(
    by_name: Mapping[str, ColumnProfile], chosen: Mapping[str, Any]
) -> TextColumn | None:
    """Describe the text column that a person has chosen; None without one, or if it is missing."""
    names = chosen.get("text_column", ())
    if isinstance(names, str):
        names = [names]
    if not names or names[0] not in by_name:
        return None
    profile = by_name[names[0]]
    return TextColumn(profile.name, profile.mean_words, profile.distinct_share, ())


def _settings_of_table(table: Table, form: FileForm) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if table.text:
        settings["text_column"] = table.text.name
    if table.label:
        settings["label_column"] = table.label.name
    if len(form.sheets) > 1:
        settings["sheet"] = table.sheet
    return settings


# What a table with other rows above its columns' names needs.
NAMES_FIRST = "the first row must have the names of the columns: remove the rows above it"


def _problem_of_table(table: Table) -> str:
    """What is missing in a table; empty if nothing is."""
    names = listed(table.names, most=MAX_LISTED_COLUMNS)
    problem = _problem_of_names(table, names) or _problem_of_columns(table, names)
    if problem and table.names and table.unread.count:
        unread = table.unread
        rows = f"{counted(unread.count, 'row')} cannot be read ({unread.locations})"
        return f"{rows}: {unread.reason}; {problem}"
    return problem


def _problem_of_names(table: Table, names: str) -> str:
    if not table.names and not table.unread.count:
        return "there are no rows"
    if not table.names:
        return f"no row can be read: {table.unread.reason}; {NAMES_FIRST}"
    if any(column and not column.name.strip() for column in (table.text, table.label)):
        return f"a column with values has no name ({names}); {NAMES_FIRST}"
    if not table.has_header:
        return (
            f"the first line looks like a row, not like the names of columns ({names}); add a line "
            "with names before it, such as label,text"
        )
    return ""


def _problem_of_columns(table: Table, names: str) -> str:
    if table.text is None:
        return (
            f"no column looks like texts; there are {names}; if one is meant, name it by "
            "--set data.text_column=NAME"
        )
    if table.label is None:
        return (
            f"no column looks like labels; there are {names}; if one is meant, name it by --set "
            "data.label_column=NAME; if there are no labels yet, label about 20 texts first, some "
            "of each class (encoder-cls label)"
        )
    return ""


# The rows


def _with_rows(inspection: Inspection, chosen: Mapping[str, Any]) -> Inspection:
    """Read all rows of all splits, and decide what happens to rows that cannot be used."""
    settings = dict(inspection.settings)
    lenient = {"bad_rows": "skip", "empty_texts": "drop", "label_separator": None}
    config = _config(settings | lenient, inspection.source)
    splits = {}
    for role, source in inspection.layout.sources.items():
        splits[role] = _read_split(source, role, config)

    train = splits["train"]
    several = None
    if train.rows.first_multi_label_row is None:
        several = several_labels(train.label_counts)
    if several and "label_separator" not in chosen:
        settings["label_separator"] = several.separator

    settings |= _settings_of_rows(splits, _config(settings, inspection.source))
    found = replace(inspection, splits=splits, several=several, settings=settings)
    rows_read = splits if _are_final(splits, settings) else {}
    try:
        dataset = load_dataset(_config(settings, inspection.source), rows_read=rows_read)
    except DataError as error:
        problem = str(error).removeprefix(f"{inspection.source}: ")
        return replace(found, problem=problem + _hint_for_lines(inspection))
    return replace(found, dataset=dataset)


def _are_final(splits: Mapping[str, SplitRows], settings: Mapping[str, Any]) -> bool:
    """Whether reading the splits with the settings of the config would give the same rows.

    It would give other rows where the config splits labels, reads groups, or leaves out rows
    without a label.
    """
    if settings.get("label_separator") is not None or settings.get("group_column") is not None:
        return False

    for role, split in splits.items():
        may_lack_labels = role == "train" and "label_names" in settings
        if split.without_label and not may_lack_labels:
            return False
    return True


def _hint_for_lines(inspection: Inspection) -> str:
    """A hint if a text file seems to be a table, as a spreadsheet saves it as Unicode text."""
    path = Path(inspection.source)
    if inspection.table or inspection.form is None or not path.is_file():
        return ""
    first_line = next(text_lines(path, inspection.form.encoding), "")
    if "\t" not in first_line:
        return ""
    return f"; it has tabs: if it is a table, call it {path.with_suffix('.tsv').name}"


def _config(settings: Mapping[str, Any], source: str) -> DataConfig:
    """Make the section `data` of a config; raise a `ConfigError` if a value is not valid."""
    return validated_config({"name": "draft", "data": settings}, source=source).data


def _read_split(source: str, role: str, config: DataConfig) -> SplitRows:
    """Read the rows of a split; rows without a label are kept, and bad rows are counted."""
    reading = Reading(config.reading_options)
    columns = Columns(config.text_column, config.label_column)
    rows = read_rows(source, columns, reading, role=role)
    try:
        collected = collect_labelled(rows, source, config, reading, may_have_none=True)
    except NoRowsError as error:
        raise DataError(error.where, "there are no rows") from None
    return SplitRows(collected, reading)


def _settings_of_rows(splits: Mapping[str, SplitRows], config: DataConfig) -> dict[str, Any]:
    """The settings by which rows without a text or a label, and bad rows, are no errors."""
    decided: dict[str, Any] = {}
    labels = {label for split in splits.values() for label in split.rows.labels}
    if len({label_key(label) for label in labels}) < len(labels):
        decided["fold_labels"] = True

    for split in splits.values():
        num_empty = split.notes.empty.count
        num_texts = len(split.rows.texts)
        if num_empty > math.ceil((num_empty + num_texts) / ROWS_OF_AN_EMPTY_TEXT):
            decided["empty_texts"] = "drop"
        if split.notes.skipped.count:
            decided["bad_rows"] = "skip"

    # With a separator, an empty cell has no labels, which is no mistake.
    if config.label_separator is not None:
        return decided

    train = splits["train"]
    names = _names_for_unlabelled(splits, config.model_copy(update=decided))
    if names:
        decided["label_names"] = names
    lacking = [split for split in splits.values() if split.without_label]
    if lacking and (lacking != [train] or not names):
        decided["bad_rows"] = "skip"
    return decided


def _names_for_unlabelled(splits: Mapping[str, SplitRows], config: DataConfig) -> list[str]:
    """The names of all classes, if many rows of train have no label and should be used."""
    train = splits["train"]
    are_many = train.without_label >= MANY_UNLABELLED * len(train.rows.texts)
    is_multi_label = train.rows.first_multi_label_row is not None
    if not train.without_label or not are_many or is_multi_label:
        return []

    names = names_to_list((split.rows for split in splits.values()), config)
    if len(names) > MAX_LISTED_CLASSES:
        return []
    return list(names)
