"""Turn the rows of Arrow tables into records of Python values."""

from __future__ import annotations

import json
from typing import Any

from encoder_cls.data.reading.class_labels import class_names_of


def class_names_in(schema: Any) -> dict[str, list[str]]:
    """Find the class names of columns of integer labels in the metadata of a schema.

    Only the `datasets` library writes them.

    Returns:
        The class names by column; empty if the schema has none.
    """
    try:
        return class_names_of(json.loads(schema.metadata[b"huggingface"])["info"]["features"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def batch_records(batch: Any) -> list[dict[str, Any]]:
    """Turn the rows of a record batch into Python values by column.

    Times in nanoseconds become times in microseconds, as Python has them, or texts if this would
    lose digits. pyarrow would turn them into types of pandas, which may not be installed.
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
    """Convert a column of times or durations from nanoseconds to microseconds, if that is exact."""
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
        # Arrow cannot write a duration as text: keep its number of nanoseconds.
        return column.cast(pyarrow.int64())
    return column.cast(pyarrow.string())
