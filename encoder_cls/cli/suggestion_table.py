"""Suggested texts as a table in CSV or JSON lines, in which a person fills in the labels.

A row has the columns of the input, then an empty label, the predicted label with its probability,
and the file and line of the text. In a multi-label task, it has all predicted labels, with the
probability that exactly these are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from encoder_cls.data.label_cells import SEPARATORS, joined_labels
from encoder_cls.system.csv_cells import cell, csv_row
from encoder_cls.system.display import printable
from encoder_cls.system.json_values import record_text

if TYPE_CHECKING:
    from encoder_cls.bulk.suggestions import Suggestion
    from encoder_cls.data.reading.csv_form import CsvForm

# The columns that follow those of the input.
ADDED_COLUMNS = ("label", "suggested", "probability", "file", "line")
# The last column, for inputs such as spreadsheets in which the number of a row is not its line.
ROW_COLUMN = "row"


def suggestions_as_json_lines(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    """Write suggestions as lines of JSON, with the text as the first key."""
    for suggestion in suggestions:
        record = {"text": suggestion.row.text} | _record(suggestion)
        yield f"{record_text(record)}\n"


def suggestion_table(
    suggestions: Sequence[Suggestion], form: CsvForm, *, is_for_terminal: bool
) -> Iterator[str]:
    """Write suggestions as lines of CSV, of which the first has the names of the columns.

    Args:
        suggestions: the suggestions.
        form: the form of the input (separator, byte order mark), which the table keeps.
        is_for_terminal: whether to escape control characters.
    """
    records = [_record(suggestion) for suggestion in suggestions]
    columns = _columns(records)

    rows = [columns]
    for record in records:
        values = {ROW_COLUMN: record["line"]} | record
        values["probability"] = f"{record['probability']:.6f}"
        if isinstance(record["suggested"], list):
            values["suggested"] = joined_labels(record["suggested"], SEPARATORS[0])
        rows.append([cell(values.get(column)) for column in columns])

    is_guarded = form.is_guarded or is_for_terminal
    for row in rows:
        fields = row
        if is_for_terminal:
            fields = [printable(field) for field in row]
        yield f"{csv_row(fields, separator=form.separator, is_guarded=is_guarded)}\n"


def _record(suggestion: Suggestion) -> dict[str, Any]:
    """The values of a suggestion by column.

    There is a value for the column `row` only if the number of the row is not its line.
    """
    where = suggestion.row.where
    prediction = suggestion.prediction

    # The input may be the output of an earlier `suggest`. Its columns are replaced.
    record = dict(suggestion.row.record or {})
    for column in (*ADDED_COLUMNS, ROW_COLUMN):
        record.pop(column, None)

    record["label"] = None
    record["suggested"] = prediction.label
    if prediction.labels is not None:
        record["suggested"] = list(prediction.labels)
    record["probability"] = prediction.prediction_probability
    record["file"] = where.file
    record["line"] = where.line if where.line >= 0 else None
    if where.row != where.line:
        record[ROW_COLUMN] = where.row
    return record


def _columns(records: Sequence[dict[str, Any]]) -> list[str]:
    """The names of all columns: the columns of the input in their order, then the added columns."""
    input_columns: list[str] = []
    known = {*ADDED_COLUMNS, ROW_COLUMN}
    for record in records:
        for column in record:
            if column not in known:
                known.add(column)
                input_columns.append(column)

    columns = [*input_columns, *ADDED_COLUMNS]
    if any(ROW_COLUMN in record for record in records):
        columns.append(ROW_COLUMN)
    return columns
