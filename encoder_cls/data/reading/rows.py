"""A row of a source: as its file has it, and with its text, label and group found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown

Record = tuple[SourceLocation, dict[str, Any]]
"""The location of a row, and its values by column."""


class Row(NamedTuple):
    """A text with its columns.

    Attributes:
        text: the text.
        label: the label; several labels, or none of several, are a list or a tuple.
        id: the value of the column `id`, if there is one.
        where: the location; empty for a text that is not from a source.
        group: the name of the group.
        record: all columns, where these are wanted.
    """

    text: str
    label: str | int | Sequence[str | int] | None = None
    id: str | int | None = None
    where: SourceLocation = SourceLocation("")
    group: str | None = None
    record: dict[str, Any] | None = None


def row_of(where: SourceLocation, record: dict[str, Any], columns: Columns) -> Row:
    """Find text, label, id and group of a row among its columns.

    Raises:
        DataError: the text is no text, or the group is a list or an object.
    """
    # Text files have the first of the text columns alone.
    texts = []
    for column in columns.text:
        if column not in record:
            continue
        text = record[column]
        if not isinstance(text, str):
            what = f"column {shown(column)} holds {kind(text)} where a text is expected"
            raise DataError(where, what)
        texts.append(text)

    label = None
    if columns.label:
        label = record[columns.label]

    row_id = record.get("id")
    if not isinstance(row_id, str | int | None):
        row_id = str(row_id)

    group = None
    if columns.group:
        group = _group_name(where, record[columns.group])

    return Row(
        text=" ".join(texts),
        label=label,
        id=row_id,
        where=where,
        group=group,
        record=record if columns.every else None,
    )


def _group_name(where: SourceLocation, value: Any) -> str | None:
    """The value of a group column, of any type, as text; None for an empty cell."""
    if isinstance(value, dict | list):
        what = f"the group is {kind(value)}; a name or a number is expected (data.group_column)"
        raise DataError(where, what)
    if value is None or value == "":
        return None

    # Tables have floats where other cells of a column of whole numbers are empty.
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if value.is_integer():
            return str(int(value))
    return str(value)
