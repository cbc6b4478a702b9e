"""Suggested texts as a table to fill in, in CSV or JSON lines.

A row has the columns of the input, then an empty label, the prediction, and file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from encoder_cls.system.csv_cells import cell, csv_row
from encoder_cls.system.display import printable
from encoder_cls.system.json_values import record_text

if TYPE_CHECKING:
    from encoder_cls.bulk.suggestions import Suggestion
    from encoder_cls.data.reading.csv_form import CsvForm

# The columns that follow those of the input.
ADDED_COLUMNS = ("label", "suggested", "probability", "file", "line")
# The last column, where a row of the input, as in a spreadsheet, has another number than its line.
ROW_COLUMN = "row"


def suggestions_as_json_lines(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    """The suggestions as lines of JSON, with their text."""
    for suggestion in suggestions:
        record = {"text": suggestion.row.text} | _record(suggestion)
        yield f"{record_text(record)}\n"


def suggestion_table(
    suggestions: Sequence[Suggestion], form: CsvForm, *, is_for_terminal: bool
) -> Iterator[str]:
    """The lines of a table of the suggestions, in the form of the input; the first has the names.

    For a terminal, control characters are escaped.
    """
    records = [_record(suggestion) for suggestion in suggestions]
    columns = _columns(records)

    rows = [columns]
    for record in records:
        values = {ROW_COLUMN: record["line"]} | record
        values["probability"] = f"{record['probability']:.6f}"
        rows.append([cell(values.get(column)) for column in columns])

    is_guarded = form.is_guarded or is_for_terminal
    for row in rows:
        fields = row
        if is_for_terminal:
            fields = [printable(field) for field in row]
        yield f"{csv_row(fields, separator=form.separator, is_guarded=is_guarded)}\n"


def _record(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion by column; it has a row where this is not the line."""
    where = suggestion.row.where
    prediction = suggestion.prediction

    # The table may be one of an earlier suggestion, whose own columns are left out.
    record = dict(suggestion.row.record or {})
    for column in (*ADDED_COLUMNS, ROW_COLUMN):
        record.pop(column, None)

    record["label"] = None
    record["suggested"] = prediction.label
    record["probability"] = prediction.probability
    record["file"] = where.file
    record["line"] = where.line if where.line >= 0 else None
    if where.row != where.line:
        record[ROW_COLUMN] = where.row
    return record


def _columns(records: Sequence[dict[str, Any]]) -> list[str]:
    """All columns of the records: those of the input in their order, then those of a suggestion."""
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
