"""CSV tables in which a person corrects labels in a spreadsheet."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.corrections import KEY, LABEL_IN_DATA, added_column
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.csv_form import CsvForm, form_of
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import read_again
from encoder_cls.system.csv_cells import cell, csv_row, guarded

# Columns that are added to those of the data; `row` is the number of a row in a spreadsheet.
ADDED = ("suggested", "score", "split", "file", "line", "row", LABEL_IN_DATA, KEY)
# The form of CSV where there is no input to follow.
SPREADSHEET = CsvForm()


class LabelRow(NamedTuple):
    """A row to review, whose label is doubtful or is not the prediction.

    Attributes:
        split: `train`, `validation` or `test`.
        where: the location as `data/reading/locations` writes it.
        text: the text as it was read.
        label: the label; several labels are joined.
        suggested: the prediction, likewise.
        score: 1 minus the probability of the label.
        label_in_data: the label in the data, from which `label` differs where it was corrected.
        key: the key of the text in `data.corrections`; empty where a text may have several labels,
            which have no corrections.
    """

    split: str
    where: str
    text: str
    label: str
    suggested: str
    score: float
    label_in_data: str
    key: str


def label_tables(*tables: Sequence[LabelRow], data: DataConfig) -> list[Iterator[bytes]]:
    """CSV in the form of the data with all its columns, the most doubtful rows first.

    With corrected labels, the rows can be used as data or as `data.corrections`. Columns of an
    earlier review, named as in `ADDED`, are replaced.
    """
    # Read the rows again, for their other columns.
    reading = Reading(delimiter=data.delimiter, encoding=data.encoding)
    columns = Columns(data.text_column, data.label_column, every=True)
    places = [row.where for rows in tables for row in rows]
    rows_read = read_again(places, columns, reading)

    form = _form_of_data(data, reading)
    return [_label_table(rows, rows_read, data, form) for rows in tables]


def _form_of_data(data: DataConfig, reading: Reading) -> CsvForm:
    """The form of the first training file, with a mark of UTF-8 if spreadsheets open the table."""
    files = [file for file in files_named(data.train or "") if file.is_file()]
    form = SPREADSHEET
    if files:
        form = form_of(files[0], data.text_column, reading)
    return form._replace(has_mark=form.has_mark or form.is_guarded)


def _label_table(
    rows: Sequence[LabelRow], rows_read: Mapping[str, Row], data: DataConfig, form: CsvForm
) -> Iterator[bytes]:
    """The CSV of some rows; `rows_read` are the rows of the data, by location."""
    # The names of the added columns, by what they hold.
    added = {name: added_column(name, data) for name in ADDED}

    records = []
    # The columns of the data, in the order in which they are met.
    data_columns: list[str] = []
    has_row_numbers = False
    for row in sorted(rows, key=lambda row: -row.score):
        values = _added_values(row, added)

        # Without a row of the same text, the row has changed since, or is in no file.
        record = dict.fromkeys(data.text_column, "")
        record[data.text_column[0]] = row.text
        row_read = rows_read.get(row.where)
        if row_read and row_read.text == row.text:
            record = _data_columns(row_read, replaced=set(added.values()))
            number = row_read.where.row
            if number >= 0:
                values[added["row"]] = str(number)
                _, line = file_and_line(row.where)
                has_row_numbers = has_row_numbers or str(number) != line

        record[data.label_column] = row.label
        for name in record:
            if name not in data_columns:
                data_columns.append(name)
        records.append({**record, **values})

    if not records:
        data_columns = [*data.text_column, data.label_column]
    if not has_row_numbers:
        # Rows are numbered as lines are.
        del added["row"]
    if rows and not rows[0].key:
        # Texts may have several labels.
        del added[LABEL_IN_DATA]
        del added[KEY]

    names = [*data_columns, *added.values()]
    lines = []
    for record in records:
        lines.append([record.get(name, "") for name in names])
    return csv_table(names, lines, form)


def _added_values(row: LabelRow, added: Mapping[str, str]) -> dict[str, str]:
    """What is added to the columns of the data, by the names in `added`; no number of the row."""
    file, line = file_and_line(row.where)
    return {
        added["suggested"]: guarded(row.suggested),
        added["score"]: f"{row.score:.4f}",
        added["split"]: guarded(row.split),
        added["file"]: guarded(file),
        added["line"]: guarded(line),
        added["row"]: "",
        # As the label itself, with which it is compared.
        added[LABEL_IN_DATA]: row.label_in_data,
        added[KEY]: row.key,
    }


def _data_columns(row: Row, *, replaced: set[str]) -> dict[str, str]:
    """The columns of a row of the data, without those that the table replaces."""
    columns: Mapping[str, Any] = row.record or {}
    return {name: cell(value) for name, value in columns.items() if name not in replaced}


def csv_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], form: CsvForm = SPREADSHEET
) -> Iterator[bytes]:
    """CSV for spreadsheets, line by line."""
    if form.has_mark:
        # By which spreadsheets know UTF-8.
        yield BOM_UTF8
    for row in chain([columns], rows):
        line = csv_row(row, separator=form.separator, is_guarded=form.is_guarded)
        yield f"{line}\r\n".encode("utf-8", "backslashreplace")


def file_and_line(where: str) -> tuple[str, str]:
    """Split a location as `data/reading/locations` writes it into file and line.

    The line is empty where the file is one row.
    """
    file, _, line = where.rpartition(":")
    has_line = line.isascii() and line.isdigit()
    if file and has_line:
        return file, line
    return where, ""
