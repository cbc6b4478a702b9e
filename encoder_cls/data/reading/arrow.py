"""Rows of Arrow's tables as records: with the class names of `datasets`, and times of Python."""

from __future__ import annotations

import json
from typing import Any

from encoder_cls.data.reading.class_labels import class_names_of


def class_names_in(schema: Any) -> dict[str, list[str]]:
    """The class names of columns of integers, which only `datasets` writes into a schema."""
    try:
        return class_names_of(json.loads(schema.metadata[b"huggingface"])["info"]["features"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def batch_records(batch: Any) -> list[dict[str, Any]]:
    """The rows of a record batch, as values of Python by column.

    Times are in microseconds, which Python has; they are text where that would lose digits. pyarrow
    itself converts nanoseconds to types of pandas, which may not be installed.
    """
    import pyarrow

    columns = []
    for column in batch.columns:
        has_nanoseconds = getattr(column.type, "unit", "") == "ns"
        if has_nanoseconds:
            columns.append(_in_microseconds(column))
        else:
            columns.append(column)

    converted = pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)
    records: list[dict[str, Any]] = converted.to_pylist()
    return records


def _in_microseconds(column: Any) -> Any:
    import pyarrow

    kind = column.type
    is_duration = pyarrow.types.is_duration(kind)
    if pyarrow.types.is_timestamp(kind):
        shorter = pyarrow.timestamp("us", tz=kind.tz)
    elif is_duration:
        shorter = pyarrow.duration("us")
    else:
        shorter = pyarrow.time64("us")

    try:
        return column.cast(shorter)
    except pyarrow.ArrowInvalid:
        pass

    if is_duration:
        # It has no text of its own, so it becomes its number of nanoseconds.
        return column.cast(pyarrow.int64())
    return column.cast(pyarrow.string())
