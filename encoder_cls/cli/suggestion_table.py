"""Suggested texts as a table or as JSON lines, in which a person fills in the labels.

A row has the columns of the input, then an empty label, the predicted label with its probability,
the file and line of the text, and its key, as all tables of labels have it. In a multi-label task,
it has all predicted labels, with the probability that exactly these are right. The label has the
column, and several labels have the separator, of the training data, so that a table that is filled
in can be trained on. Where the input has a column of such a name, that of the table begins with
`suggest_`; but those of an earlier table of suggestions are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from encoder_cls.data.key_of_text import KEY, key_of_text
from encoder_cls.system.added_columns import added_before, added_name
from encoder_cls.system.csv_cells import cell, csv_row
from encoder_cls.system.display import printable
from encoder_cls.system.json_values import record_text
from encoder_cls.system.label_cells import SEPARATORS, joined_labels

if TYPE_CHECKING:
    from encoder_cls.bulk.suggestions import Suggestion
    from encoder_cls.classifier.classifier import TextFormat
    from encoder_cls.system.csv_cells import CsvForm

# The columns that follow those of the input and the label.
ADDED_COLUMNS = ("suggested", "probability", "file", "line", KEY)
# What stands before the name of an added column that the input has, too.
PREFIX = "suggest_"
# The last column, for inputs such as spreadsheets in which the number of a row is not its line.
ROW_COLUMN = "row"


def suggestions_as_json_lines(
    suggestions: Sequence[Suggestion], text_format: TextFormat
) -> Iterator[str]:
    """Write suggestions as lines of JSON, with the text as the first key."""
    names = added_names(suggestions, text_format)
    for suggestion in suggestions:
        record = _record(suggestion, text_format.label_column, names)
        yield f"{record_text({'text': suggestion.row.text} | record)}\n"


def suggestion_table(
    suggestions: Sequence[Suggestion],
    text_format: TextFormat,
    form: CsvForm,
    *,
    is_for_terminal: bool,
) -> Iterator[str]:
    """Write suggestions as lines of CSV, of which the first has the names of the columns.

    Args:
        suggestions: the suggestions.
        text_format: the format of the training data, which has the label column.
        form: the form of the input (separator, byte order mark), which the table keeps.
        is_for_terminal: whether to escape control characters.
    """
    columns, records = suggestion_records(suggestions, text_format)
    probability = added_names(suggestions, text_format)["probability"]

    rows = [columns]
    for record in records:
        values = record | {probability: f"{record[probability]:.6f}"}
        rows.append([cell(values.get(column)) for column in columns])

    for row in rows:
        fields = row
        if is_for_terminal:
            fields = [printable(field) for field in row]
        yield f"{csv_row(fields, separator=form.separator)}\n"


def suggestion_records(
    suggestions: Sequence[Suggestion], text_format: TextFormat
) -> tuple[list[str], list[dict[str, Any]]]:
    """Make the columns and the records of a table, in which several labels are one cell.

    Returns:
        The names of the columns, and the values of each row by column, with their types.
    """
    label_column = text_format.label_column
    names = added_names(suggestions, text_format)
    records = [_record(suggestion, label_column, names) for suggestion in suggestions]
    columns = _columns(records, label_column, names)

    for record in records:
        record.setdefault(names[ROW_COLUMN], record[names["line"]])
        suggested = record[names["suggested"]]
        if isinstance(suggested, list):
            separator = separator_of_suggestions(text_format)
            record[names["suggested"]] = joined_labels(suggested, separator)
    return columns, records


def added_names(suggestions: Sequence[Suggestion], text_format: TextFormat) -> dict[str, str]:
    """The names of the added columns in the table."""
    taken = {text_format.label_column, *text_format.columns}
    for suggestion in suggestions:
        record = suggestion.row.record or {}
        taken.update(record.keys() - _columns_of_suggestions(record))
    return {name: added_name(name, taken, PREFIX) for name in (*ADDED_COLUMNS, ROW_COLUMN)}


def _columns_of_suggestions(record: Mapping[str, Any]) -> set[str]:
    """The columns that an earlier `suggest` has added to a row, perhaps with numbers of rows."""
    columns = list(record)
    with_row = (*ADDED_COLUMNS, ROW_COLUMN)
    return added_before(columns, with_row, PREFIX) or added_before(columns, ADDED_COLUMNS, PREFIX)


def separator_of_suggestions(text_format: TextFormat) -> str:
    """The separator of several labels in a cell: that of the training data, if it has one."""
    return text_format.label_separator or SEPARATORS[0]


def _record(suggestion: Suggestion, label_column: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The values of a suggestion by column.

    There is a value for the column `row` only if the number of the row is not its line.
    """
    where = suggestion.row.where
    prediction = suggestion.prediction

    # The input may be the output of an earlier `suggest`. Its columns are replaced.
    record = dict(suggestion.row.record or {})
    for column in {label_column, *_columns_of_suggestions(record)}:
        record.pop(column, None)

    record[label_column] = None
    record[names["suggested"]] = prediction.label
    if prediction.labels is not None:
        record[names["suggested"]] = list(prediction.labels)
    record[names["probability"]] = prediction.prediction_probability
    record[names["file"]] = where.file
    record[names["line"]] = where.line if where.line >= 0 else None
    record[names[KEY]] = key_of_text(suggestion.row.text)
    if where.row != where.line:
        record[names[ROW_COLUMN]] = where.row
    return record


def _columns(
    records: Sequence[dict[str, Any]], label_column: str, names: Mapping[str, str]
) -> list[str]:
    """The names of all columns: the columns of the input in their order, then the added columns."""
    input_columns: list[str] = []
    known = {label_column, *names.values()}
    for record in records:
        for column in record:
            if column not in known:
                known.add(column)
                input_columns.append(column)

    columns = [*input_columns, label_column, *(names[name] for name in ADDED_COLUMNS)]
    if any(names[ROW_COLUMN] in record for record in records):
        columns.append(names[ROW_COLUMN])
    return columns
