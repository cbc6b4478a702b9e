"""Turn the rows of Arrow tables into records of Python values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from encoder_cls.data.reading.class_labels import class_names_of
from encoder_cls.system.display import shown


def class_names_in(schema: Any) -> dict[str, list[str]]:
    """The class names of integer labels, as `datasets` writes them in a schema."""
    try:
        return class_names_of(json.loads(schema.metadata[b"huggingface"])["info"]["features"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def batch_records(batch: Any) -> Iterator[dict[str, Any] | str]:
    """Turn the rows of a batch into Python values; for a row that cannot be read, yield the reason.

    Times in nanoseconds become microseconds, or texts if this loses digits, not types of pandas,
    which may not be installed. Bytes that are UTF-8 become texts, which some programs do not mark
    as such.
    """
    names = batch.schema.names
    try:
        columns = [_values(*column) for column in zip(names, batch.columns, strict=True)]
    except ValueError as error:
        if batch.num_rows == 1:
            yield str(error)
            return
        for row in range(batch.num_rows):
            yield from batch_records(batch.slice(row, 1))
        return

    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(name: str, column: Any) -> list[Any]:
    has_nanoseconds = getattr(column.type, "unit", "") == "ns"
    if has_nanoseconds:
        column = _in_microseconds(column)

    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"column {shown(name)} cannot be read: {error}") from None

    if "binary" in str(column.type):
        return [_decoded(value) for value in values]
    return values


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


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
        # Arrow cannot write a duration as text: keep its number of nanoseconds.
        return column.cast(pyarrow.int64())
    return column.cast(pyarrow.string())
