"""Look through a source of data: its form, its columns, its rows and its labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls import (
    Columns,
    Config,
    Dataset,
    Reading,
    SourceForm,
    config_of,
    load_data,
    read_rows,
    several_labels,
    source_form,
)
from encoder_cls.errors import DataError
from encoder_cls.extras.init.column_profile import ColumnProfile, column_profiles, sample_of
from encoder_cls.extras.init.column_roles import (
    LabelColumn,
    TextColumn,
    describe_label_column,
    group_column,
    header_is_a_row,
    label_column,
    text_column,
)
from encoder_cls.extras.init.feature_columns import FeatureColumns, feature_columns
from encoder_cls.system.display import counted, listed, shown
from encoder_cls.system.encodings import UTF8, text_lines
from encoder_cls.system.fields import is_empty
from encoder_cls.system.label_cells import label_key

# The largest number of rows by which columns are described. They are taken from the whole source,
# since a file may be sorted by its label.
SAMPLED_ROWS = 20_000
# The share of rows without a label from which on they are used as texts without labels. Fewer are
# left out: they teach little, and the names of all classes would have to be listed.
MANY_UNLABELLED = 0.2
# The largest number of classes whose names are listed in a config.
MAX_LISTED_CLASSES = 100
MAX_LISTED_COLUMNS = 20
# Up to one row without a text for so many rows is left out by itself (`data.empty_texts`).
ROWS_OF_AN_EMPTY_TEXT = 100
# The number of rows whose locations a warning lists.
SHOWN_ROWS = 3


class Table(NamedTuple):
    """The columns of the training data.

    Attributes:
        text: None if no column looks like texts.
        label: None if none looks like labels.
        group: rows with one value may belong together.
        features: of all other columns.
    """

    names: Sequence[str]
    text: TextColumn | None
    label: LabelColumn | None
    group: str | None
    features: FeatureColumns
    has_header: bool
    reading: Reading


@dataclass
class SplitRows:
    """The rows of a split.

    Attributes:
        labels: how many rows have each, as it is written.
        has_lists: whether a row has several.
        without_label: rows with a text and no label.
        first_without_label: where.
    """

    reading: Reading
    num_texts: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    has_lists: bool = False
    without_label: int = 0
    first_without_label: list[str] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        notes = self.reading.notes
        return self.num_texts + notes.empty.count + notes.skipped.count


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found in a source.

    Attributes:
        table: None if the format has no columns.
        splits: empty if the columns are not known.
        several: on cells that list several labels.
        dataset: as a training with these settings reads it; None if there is a problem.
        problem: to correct before a training can begin.
        settings: of the section `data`, by key.
    """

    source: str
    form: SourceForm
    table: Table | None = None
    splits: Mapping[str, SplitRows] = field(default_factory=dict)
    several: str = ""
    dataset: Dataset | None = None
    problem: str = ""
    settings: dict[str, Any]


def inspect_data(source: str, chosen: Mapping[str, Any]) -> Inspection:
    """Look through a file or a folder.

    `chosen` has values of the section `data`, such as `label_column`.

    Raises:
        DataError: the source cannot be read at all.
        ConfigError: a library that reads the files is not installed, or a chosen value is invalid.
    """
    if isinstance(chosen.get("features"), str):
        chosen = {**chosen, "features": [chosen["features"]]}
    form = source_form(source, encoding=chosen.get("encoding"), delimiter=chosen.get("delimiter"))
    settings = dict(form.splits) | dict(chosen) | _settings_of_form(form)
    table = None
    if form.has_columns:
        table = _table(form, chosen)
        settings |= _settings_of_table(table, form) | dict(chosen)

    inspection = Inspection(source=source, form=form, table=table, settings=settings)
    if table:
        problem = _problem_of_table(table)
        if problem:
            return replace(inspection, problem=problem)
    return _with_rows(inspection, chosen)


def _settings_of_form(form: SourceForm) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if not form.is_usual_delimiter:
        settings["delimiter"] = form.reading.delimiter
    if form.reading.encoding != UTF8:
        settings["encoding"] = form.reading.encoding
    return settings


# The columns


def _table(form: SourceForm, chosen: Mapping[str, Any]) -> Table:
    """Find the columns of text and label; of several sheets, in the one with most rows."""
    sheets: Sequence[str | None] = form.sheets or (None,)
    if "sheet" in chosen:
        sheets = [chosen["sheet"]]

    tables = []
    for sheet in sheets:
        reading = Reading(replace(form.reading, sheet=sheet, bad_rows="skip"))
        sample = sample_of(_records(form, reading), most=SAMPLED_ROWS)
        table = _table_of(column_profiles(sample.records), reading, chosen)
        has_both = table.text is not None and table.label is not None
        tables.append((has_both, sample.num_rows, table))
    _, _, best = max(tables, key=lambda found: found[:2])
    return best


def _records(form: SourceForm, reading: Reading) -> Iterator[Mapping[str, Any]]:
    for file in form.files:
        for row in read_rows(str(file), Columns((), every=True), reading):
            yield row.record or {}


def _table_of(
    profiles: Sequence[ColumnProfile], reading: Reading, chosen: Mapping[str, Any]
) -> Table:
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
    group = group_column(profiles, used)

    features = FeatureColumns((), {})
    if text and label:
        named = {*used, *text.others, group} - set(chosen.get("features", ()))
        beside = [profile for profile in profiles if profile.name not in named]
        features = feature_columns(beside, by_name[label.name], label.separator)
    return Table(
        names=list(by_name),
        text=text,
        label=label,
        group=group,
        features=features,
        has_header=not header_is_a_row(profiles),
        reading=reading,
    )


def _chosen_text(
    by_name: Mapping[str, ColumnProfile], chosen: Mapping[str, Any]
) -> TextColumn | None:
    names = chosen.get("text_column", ())
    if isinstance(names, str):
        names = [names]
    if not names or names[0] not in by_name:
        return None
    profile = by_name[names[0]]
    return TextColumn(profile.name, profile.mean_words, profile.distinct_share, ())


def _settings_of_table(table: Table, form: SourceForm) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if table.text:
        settings["text_column"] = table.text.name
    if table.label:
        settings["label_column"] = table.label.name
    if len(form.sheets) > 1:
        settings["sheet"] = table.reading.options.sheet
    return settings


# What a table with other rows above its columns' names needs.
NAMES_FIRST = "the first row must have the names of the columns: remove the rows above it"


def _problem_of_table(table: Table) -> str:
    names = listed(table.names, most=MAX_LISTED_COLUMNS)
    problem = _problem_of_names(table, names) or _problem_of_columns(table, names)
    unread = table.reading.notes.skipped
    if problem and table.names and unread.count:
        rows = f"{counted(unread.count, 'row')} cannot be read ({unread.locations})"
        return f"{rows}: {unread.reason}; {problem}"
    return problem


def _problem_of_names(table: Table, names: str) -> str:
    unread = table.reading.notes.skipped
    if not table.names and not unread.count:
        return "there are no rows"
    if not table.names:
        return f"no row can be read: {unread.reason}; {NAMES_FIRST}"
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
    settings = dict(inspection.settings)
    config = _config(settings, inspection.source)
    splits = {}
    for role, source in inspection.form.splits.items():
        splits[role] = _read_split(source, role, config)

    train = splits["train"]
    several = None
    if not train.has_lists:
        several = several_labels(train.labels)
    if several and "label_separator" not in chosen:
        settings["label_separator"] = several.separator

    settings |= _settings_of_rows(splits, settings, inspection.source)
    found = replace(inspection, splits=splits, settings=settings)
    if several and "label_separator" in settings:
        line = (
            f"several labels: {counted(several.num_rows, 'cell')} list labels with "
            f"{settings['label_separator']!r} between them, such as {shown(several.example)}, so "
            "each text may have several labels"
        )
        found = replace(found, several=line)
    try:
        dataset = load_data(_config(settings, inspection.source))
    except DataError as error:
        problem = str(error).removeprefix(f"{inspection.source}: ")
        return replace(found, problem=problem + _hint_for_lines(inspection))
    return replace(found, dataset=dataset)


def _hint_for_lines(inspection: Inspection) -> str:
    """Give a hint if a text file seems to be a table, which a spreadsheet saves as Unicode text."""
    path = Path(inspection.source)
    if inspection.table or not path.is_file():
        return ""
    first_line = next(text_lines(path, inspection.form.reading.encoding), "")
    if "\t" not in first_line:
        return ""
    return f"; it has tabs: if it is a table, call it {path.with_suffix('.tsv').name}"


def _config(settings: Mapping[str, Any], source: str) -> Config:
    values = {f"data.{key}": value for key, value in settings.items()}
    return config_of({"name": "draft"} | values, source=source)


def _read_split(source: str, role: str, config: Config) -> SplitRows:
    split = SplitRows(Reading(replace(config.data.reading_options, bad_rows="skip")))
    columns = Columns(config.data.text_column, config.data.label_column)
    for row in read_rows(source, columns, split.reading, role=role):
        if is_empty(row.text):
            split.reading.notes.empty.add(row.where)
            continue

        try:
            labels = row.labels()
        except DataError as error:
            split.reading.bad_row(error)
            continue

        split.num_texts += 1
        split.labels.update(labels)
        split.has_lists |= isinstance(row.label, list)
        if not labels:
            split.without_label += 1
            if len(split.first_without_label) < SHOWN_ROWS:
                split.first_without_label.append(row.where)

    if not split.num_rows:
        raise DataError(source, "there are no rows")
    return split


def _settings_of_rows(
    splits: Mapping[str, SplitRows], settings: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """The settings by which rows without a text or a label, and bad rows, are no errors."""
    decided: dict[str, Any] = {}
    labels = {label for split in splits.values() for label in split.labels}
    if len({label_key(label) for label in labels}) < len(labels):
        decided["fold_labels"] = True

    for split in splits.values():
        num_empty = split.reading.notes.empty.count
        if num_empty > math.ceil((num_empty + split.num_texts) / ROWS_OF_AN_EMPTY_TEXT):
            decided["empty_texts"] = "drop"
        if split.reading.notes.skipped.count:
            decided["bad_rows"] = "skip"

    # With a separator, an empty cell has no labels, which is no mistake.
    if settings.get("label_separator") is not None:
        return decided

    train = splits["train"]
    names = []
    are_many = train.without_label >= MANY_UNLABELLED * train.num_texts
    if train.without_label and are_many and not train.has_lists:
        names = _names_of_classes({**settings, **decided}, source)
    if names:
        decided["label_names"] = names
    lacking = [split for split in splits.values() if split.without_label]
    if lacking and (lacking != [train] or not names):
        decided["bad_rows"] = "skip"
    return decided


def _names_of_classes(settings: Mapping[str, Any], source: str) -> list[str]:
    """The names of classes, as a training reads them; empty if they are too many to list."""
    lenient = {"bad_rows": "skip", "empty_texts": "drop"}
    try:
        dataset = load_data(_config({**settings, **lenient}, source))
    except DataError:
        # It is found again when the data is read with all settings.
        return []
    names = [*dataset.label_names]
    for split in dataset.splits.values():
        names += split.unseen_names
    distinct = list(dict.fromkeys(name.strip() for name in names))
    return distinct if len(distinct) <= MAX_LISTED_CLASSES else []
