"""The fields of a record by name, also those inside other fields, such as `payload.body`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# The character between the name of a field and the name of a field inside it.
DOT = "."


class _Missing:
    """The value of a missing field."""


_MISSING = _Missing()


def has_field(record: Mapping[str, Any], name: str) -> bool:
    """Whether there is this field, maybe inside others (`payload.body`)."""
    return _found(record, name) is not _MISSING


def field_of(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field, else a `KeyError`."""
    value = _found(record, name)
    if value is _MISSING:
        raise KeyError(name)
    return value


def field_names(record: Mapping[str, Any]) -> list[str]:
    """All fields; objects are replaced by the fields inside."""
    names = []
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            names += [f"{name}{DOT}{inner}" for inner in field_names(value)]
        else:
            names.append(name)
    return names


def _found(record: Mapping[str, Any], name: str) -> Any:
    """The value or `_MISSING`; a field whose own name has dots comes first.

    The fields of an object that is None are None.
    """
    if name in record:
        return record[name]

    value: Any = record
    for part in name.split(DOT):
        if value is None:
            return None
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def number_written(text: str) -> float | None:
    """The finite number that a field holds as text, such as `-12.5` or `1e3`; else None.

    Python's `float` would also take `1_000`, `nan`, and the digits of all scripts.
    """
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def is_empty(value: object) -> bool:
    """Whether a field is None, white space, or NaN, as pandas marks a missing value."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str):
        return not value.strip()
    return value is None
