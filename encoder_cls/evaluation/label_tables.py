"""Tables, in CSV or TSV, in which a person corrects labels in a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.corrections import LABEL_IN_DATA, PREFIX, added_column, role_columns
from encoder_cls.data.key_of_text import KEY
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.csv_form import form_of
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import read_again
from encoder_cls.system.added_columns import added_before
from encoder_cls.system.csv_cells import SPREADSHEET, CsvForm, cell, csv_table
from encoder_cls.system.row_text import columns_of_row

# The names beside codes.
NAMES = {"label_name", "suggested_name"}
# The columns that are added to those of the data. `row` is the number of the row in a spreadsheet.
ADDED = (
    "label_name",
    "suggested",
    "suggested_name",
    "score",
    "split",
    "file",
    "line",
    "row",
    LABEL_IN_DATA,
    KEY,
)


class LabelRow(NamedTuple):
    """A row to review, because its label is doubtful or differs from the prediction.

    Attributes:
        where: such as `data.csv:12`.
        label: several are joined by a separator, as in `suggested`, the prediction.
        score: 1 minus the label's probability.
        label_in_data: differs from `label` if that was corrected.
        key: in a file of `data.corrections`.
        row: with its columns as one string, as `Row.text`; `text` is for people.
    """

    split: str
    where: str
    text: str
    label: str
    suggested: str
    score: float
    label_in_data: str
    key: str
    row: str


class LabelTable(NamedTuple):
    """Rows to review, the most doubtful first.

    Attributes:
        added: the names here of the columns of `ADDED` that the table has: one begins with
            `review_` if the data have such a column.
        records: values by column, those of the data with their types.
    """

    columns: list[str]
    added: dict[str, str]
    records: list[dict[str, Any]]

    def to_csv(self, form: CsvForm) -> Iterator[bytes]:
        """Write the table as lines of CSV."""
        lines = []
        for record in self.records:
            fields = []
            for column in self.columns:
                value = record.get(column)
                if column == self.added["score"]:
                    value = f"{value:.4f}"
                fields.append(cell(value))
            lines.append(fields)
        yield from csv_table(self.columns, lines, form)


def label_tables(*tables: Sequence[LabelRow], data: DataConfig) -> list[Iterator[bytes]]:
    """CSV tables of rows, in the form of the data files."""
    form = form_of_data(data)
    return [table.to_csv(form) for table in label_records(*tables, data=data)]


def label_records(*tables: Sequence[LabelRow], data: DataConfig) -> list[LabelTable]:
    """Make tables of rows, the most doubtful first.

    They have all columns of the data, so that with corrected labels they can be data, or
    `data.corrections`; columns of an earlier review are replaced.
    """
    # Read the rows again, because splits have only their texts and labels, not the other columns.
    columns = Columns(data.text_column, data.label_column, every=True, features=data.features)
    places = [row.where for rows in tables for row in rows]
    rows_read = read_again(places, columns, Reading(data.reading_options))
    return [_label_table(rows, rows_read, data) for rows in tables]


def form_of_data(data: DataConfig) -> CsvForm:
    """The form of the first training file, with a byte order mark if it is for spreadsheets."""
    files = [file for file in files_named(data.train or "") if file.is_file()]
    form = SPREADSHEET
    if files:
        form = form_of(files[0], data.text_column, Reading(data.reading_options))
    return form._replace(has_mark=form.has_mark or form.is_guarded)


def _label_table(
    rows: Sequence[LabelRow], rows_read: Mapping[str, Row], data: DataConfig
) -> LabelTable:
    rows = sorted(rows, key=lambda row: -row.score)
    # If the row in the file has another text, the file has changed since it was read.
    found = [_row_with(row.row, rows_read.get(row.where)) for row in rows]
    values = [_data_values(row, read, data) for row, read in zip(rows, found, strict=True)]

    # The columns of the data, in the order in which they occur.
    data_columns = dict.fromkeys(chain.from_iterable(values))
    added = {name: added_column(name, data, data_columns) for name in ADDED}
    records = []
    for row, row_read, record in zip(rows, found, values, strict=True):
        records.append({**record, **_added_values(row, row_read, added, data.code_names or {})})

    if not records:
        data_columns = dict.fromkeys([*data.text_column, data.label_column])

    # Leave out the numbers of rows if they are unknown, or equal to those of lines.
    if all(record[added["row"]] in (None, record[added["line"]]) for record in records):
        del added["row"]
    if not data.code_names:
        added = {name: column for name, column in added.items() if name not in NAMES}
    return LabelTable([*data_columns, *added.values()], added, records)


def _row_with(text: str, row_read: Row | None) -> Row | None:
    return row_read if row_read and row_read.text == text else None


def _data_values(row: LabelRow, row_read: Row | None, data: DataConfig) -> dict[str, Any]:
    values: dict[str, Any] = dict(columns_of_row(row.row, data.text_column))
    if row_read:
        record: Mapping[str, Any] = row_read.record or {}
        replaced = _columns_of_review(list(record)) - role_columns(data)
        kept = {name: value for name, value in record.items() if name not in replaced}
        # A field inside an object has no column of its own.
        values = kept | {name: row_read.value(name) for name in values if name not in kept}

    values[data.label_column] = row.label
    return values


def _columns_of_review(columns: Sequence[str]) -> set[str]:
    for left_out in (set(), {"row"}, NAMES, {"row", *NAMES}):
        names = [name for name in ADDED if name not in left_out]
        found = added_before(columns, names, PREFIX)
        if found:
            return found
    return set()


def _added_values(
    row: LabelRow,
    row_read: Row | None,
    added: Mapping[str, str],
    code_names: Mapping[str, str],
) -> dict[str, Any]:
    file, line = file_and_line(row.where)
    row_number = None
    if row_read and row_read.where.row >= 0:
        row_number = row_read.where.row

    return {
        added["label_name"]: code_names.get(row.label, ""),
        added["suggested"]: row.suggested,
        added["suggested_name"]: code_names.get(row.suggested, ""),
        added["score"]: row.score,
        added["split"]: row.split,
        added["file"]: file,
        added["line"]: int(line) if line else None,
        added["row"]: row_number,
        added[LABEL_IN_DATA]: row.label_in_data,
        added[KEY]: row.key,
    }


def file_and_line(where: str) -> tuple[str, str]:
    """Split a location such as `data.csv:12`; without a line, it is empty."""
    file, _, line = where.rpartition(":")
    has_line = line.isascii() and line.isdigit()
    if file and has_line:
        return file, line
    return where, ""
