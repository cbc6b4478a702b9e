"""Suggested texts as a table or as JSON lines, in which a person fills in the labels.

A row has the columns of the input, an empty label, the predicted label with its probability, its
place, and its key; multi-label, all predicted labels with the probability that exactly these are
right. The label has the column and separator of the training data, so that a table can be trained
on once it is filled in. Where the input has such a column, that of the table begins with
`suggest_`; columns of earlier suggestions are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from encoder_cls import key_of_text
from encoder_cls.extras.label.label_table import KEY
from encoder_cls.system.added_columns import added_before, added_name
from encoder_cls.system.csv_cells import cell, csv_row
from encoder_cls.system.display import printable
from encoder_cls.system.excel_table import excel_table
from encoder_cls.system.json_values import record_text
from encoder_cls.system.label_cells import SEPARATORS, joined_labels
from encoder_cls.system.row_text import columns_of_row, readable

if TYPE_CHECKING:
    from encoder_cls import Classifier
    from encoder_cls.extras.label.suggestions import Suggestion
    from encoder_cls.system.csv_cells import CsvForm

# The columns that follow those of the input and the label.
ADDED_COLUMNS = ("suggested", "probability", "file", "line", KEY)
# Those of codes with names.
ADDED_WITH_NAMES = ("suggested", "suggested_name", "probability", "file", "line", KEY)
# What stands before the name of an added column that the input has, too.
PREFIX = "suggest_"
# The last column, for inputs such as spreadsheets in which the number of a row is not its line.
ROW_COLUMN = "row"


class SuggestionTable:
    """A table of texts that a classifier was unsure of, read from some text columns."""

    def __init__(
        self,
        suggestions: Sequence[Suggestion],
        classifier: Classifier,
        text_columns: Sequence[str],
    ) -> None:
        self.suggestions = suggestions
        self._text_columns = text_columns
        # Several labels are joined as in the training data.
        self.separator = classifier.text_format.label_separator or SEPARATORS[0]
        self._label_column = classifier.text_format.label_column
        self._added: tuple[str, ...] = ADDED_COLUMNS
        if classifier.codes and classifier.codes.names and not classifier.is_multi_label:
            self._added = ADDED_WITH_NAMES

        taken = {self._label_column, *classifier.text_format.columns}
        for suggestion in suggestions:
            record = suggestion.row.record or {}
            taken.update(record.keys() - _columns_of_suggestions(record))
        # The names of the added columns in this table.
        self._names = {name: added_name(name, taken, PREFIX) for name in (*self._added, ROW_COLUMN)}

    def to_json_lines(self) -> str:
        """Lines of JSON, with the text as the first key."""
        records = [
            {"text": readable(suggestion.row.text)} | self._record(suggestion)
            for suggestion in self.suggestions
        ]
        return "".join(f"{record_text(record)}\n" for record in records)

    def to_csv(self, form: CsvForm, *, is_for_terminal: bool = False) -> str:
        """Lines of CSV; for a terminal, control characters are escaped."""
        columns, records = self._columns_and_records()
        probability = self._names["probability"]

        rows = [columns]
        for record in records:
            values = record | {probability: f"{record[probability]:.6f}"}
            rows.append([cell(values.get(column)) for column in columns])

        lines = []
        for row in rows:
            fields = [printable(field) for field in row] if is_for_terminal else row
            lines.append(f"{csv_row(fields, separator=form.separator)}\n")
        return "".join(lines)

    def to_excel(self) -> bytes:
        """An Excel file."""
        columns, records = self._columns_and_records()
        return excel_table(
            columns, records, title="suggestions", probability_column=self._names["probability"]
        )

    def _columns_and_records(self) -> tuple[list[str], list[dict[str, Any]]]:
        records = []
        for suggestion in self.suggestions:
            record = self._record(suggestion)
            # A field inside an object has no column of its own.
            for name, value in columns_of_row(suggestion.row.text, self._text_columns).items():
                record.setdefault(name, value)
            records.append(record)
        columns = self._columns_of(records)

        suggested = self._names["suggested"]
        for record in records:
            record.setdefault(self._names[ROW_COLUMN], record[self._names["line"]])
            if isinstance(record[suggested], list):
                record[suggested] = joined_labels(record[suggested], self.separator)
        return columns, records

    def _record(self, suggestion: Suggestion) -> dict[str, Any]:
        where = suggestion.row.where
        prediction = suggestion.prediction

        # The input may be the output of an earlier `suggest`. Its columns are replaced.
        record = dict(suggestion.row.record or {})
        for column in {self._label_column, *_columns_of_suggestions(record)}:
            record.pop(column, None)

        record[self._label_column] = None
        record[self._names["suggested"]] = prediction.label
        if prediction.labels is not None:
            record[self._names["suggested"]] = list(prediction.labels)
        if "suggested_name" in self._names:
            name = prediction.name_of(prediction.label or "")
            record[self._names["suggested_name"]] = name
        record[self._names["probability"]] = prediction.prediction_probability
        record[self._names["file"]] = where.file
        record[self._names["line"]] = where.line if where.line >= 0 else None
        record[self._names[KEY]] = key_of_text(suggestion.row.text)
        if where.row != where.line:
            record[self._names[ROW_COLUMN]] = where.row
        return record

    def _columns_of(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        input_columns: list[str] = []
        known = {self._label_column, *self._names.values()}
        for record in records:
            for column in record:
                if column not in known:
                    known.add(column)
                    input_columns.append(column)

        columns = [
            *input_columns,
            self._label_column,
            *(self._names[name] for name in self._added),
        ]
        if any(self._names[ROW_COLUMN] in record for record in records):
            columns.append(self._names[ROW_COLUMN])
        return columns


def _columns_of_suggestions(record: Mapping[str, Any]) -> set[str]:
    columns = list(record)
    for added in (ADDED_COLUMNS, ADDED_WITH_NAMES):
        for last in ((*added, ROW_COLUMN), added):
            found = added_before(columns, last, PREFIX)
            if found:
                return found
    return set()
