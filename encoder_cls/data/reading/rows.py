"""Turn a record of a file, its values by column, into a row with text, label and group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.fields import field_of, has_field, is_empty, number_written
from encoder_cls.system.json_values import is_missing, label_name, value_name
from encoder_cls.system.row_text import row_text

Record = tuple[SourceLocation, dict[str, Any]]
"""The location of a row, and its values by column."""


class Row(NamedTuple):
    """A row of a source.

    Attributes:
        label: as it is written; in multi-label data a list or tuple, perhaps empty.
        id: of the column `id`.
        where: empty for a text that is not from a source.
        record: all columns, if they are read.
    """

    text: str
    label: str | int | Sequence[str | int] | None = None
    id: str | int | None = None
    where: SourceLocation = SourceLocation("")
    group: str | None = None
    weight: float | None = None
    record: dict[str, Any] | None = None

    def labels(self, separator: str | None = None, *, may_be_empty: bool = True) -> list[str]:
        """The labels as texts, without repetitions; a separator cuts a cell into several.

        Raises:
            DataError: a label is no name or number, or it is empty and may not be.
        """
        # Most rows have one label, which is a name.
        if separator is None and isinstance(self.label, str) and not is_empty(self.label):
            return [self.label]

        # The keys of this dictionary are the labels in their order; its values are not used.
        labels: dict[str, None] = {}
        for label in _written_labels(self.label, separator, may_be_empty=may_be_empty):
            if is_empty(label):
                hint = "a label may be empty in train only, and only if data.label_names is set"
                raise DataError(self.where, "the label is empty", hint)
            is_finite = isinstance(label, float | Decimal) and math.isfinite(label)
            if not is_finite and not isinstance(label, str | int):
                what = f"the label is {kind(label)}; a name or a number is expected"
                raise DataError(self.where, what)
            labels[label_name(label)] = None
        return list(labels)

    def value(self, column: str) -> Any:
        """The value of a column, or inside objects (`payload.body`); None without it."""
        record = self.record or {}
        return field_of(record, column) if has_field(record, column) else None


def _written_labels(cell: Any, separator: str | None, *, may_be_empty: bool) -> Sequence[Any]:
    if separator is not None and isinstance(cell, str):
        return [part.strip() for part in cell.split(separator) if part.strip()]
    if may_be_empty and is_empty(cell):
        return []
    if isinstance(cell, list | tuple):
        return cell
    return [cell]


def row_of(where: SourceLocation, record: dict[str, Any], columns: Columns) -> Row:
    """Find the parts of a row among its columns.

    Raises:
        DataError: a value has the wrong type, or the weight is out of range.
    """
    # Some records have only the first of the text columns: text files have a single text per row.
    fields = []
    for column in columns.text:
        if not has_field(record, column):
            continue
        text = field_of(record, column)
        # An empty cell of CSV is an empty text; in JSON and Parquet, it is null.
        if is_missing(text):
            text = ""
        if not isinstance(text, str):
            what = f"column {shown(column)} holds {kind(text)} where a text is expected"
            raise DataError(where, what)
        fields.append((column, text))
    text = row_text(fields, _features(where, record, columns.features))

    label = None
    if columns.label:
        label = field_of(record, columns.label)

    row_id = record.get("id")
    if not isinstance(row_id, str | int | None):
        row_id = str(row_id)

    group = None
    if columns.group:
        group = _group_name(where, field_of(record, columns.group))

    weight = None
    if columns.weight:
        weight = _weight(where, field_of(record, columns.weight))

    return Row(
        text=text,
        label=label,
        id=row_id,
        where=where,
        group=group,
        weight=weight,
        record=record if columns.every else None,
    )


def _features(
    where: SourceLocation, record: dict[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    # Text files have no columns, so that their rows lack all features.
    features = {}
    for name in names:
        value = field_of(record, name) if has_field(record, name) else None
        if isinstance(value, dict | list):
            what = f"column {shown(name)} holds {kind(value)}; a name or a number is expected"
            raise DataError(where, f"{what} (data.features)")
        features[name] = value
    return features


def _group_name(where: SourceLocation, value: Any) -> str | None:
    if isinstance(value, dict | list):
        what = f"the group is {kind(value)}; a name or a number is expected (data.group_column)"
        raise DataError(where, what)
    if is_missing(value) or value == "":
        return None

    # A column of integers with empty cells is read as floats, and written to CSV as 1.0.
    return value_name(value)


# The largest weight of a row: with a larger one, the other rows would not count any more.
MAX_WEIGHT = 1e6


def _weight(where: SourceLocation, value: Any) -> float:
    if is_missing(value) or value == "":
        return 1.0

    weight = None
    if isinstance(value, str):
        weight = number_written(value.strip())
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        with suppress(OverflowError):
            weight = float(value)
    if weight is None or not 0 <= weight <= MAX_WEIGHT:
        what = (
            f"the weight is {kind(value)}; a number from 0 to {MAX_WEIGHT:,.0f}, such as 0.5, is "
            "expected (data.weight_column)"
        )
        raise DataError(where, what)
    return weight
