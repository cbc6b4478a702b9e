"""Write values as JSON that is safe to print, and labels of any type as names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

from encoder_cls.errors import DataError


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON in which every unprintable character is escaped; `indent` None is one line.

    Raises:
        ValueError: a number is NaN or infinite. TypeError: JSON has no such type.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text

    # `json.dumps` does not escape all characters that can control a terminal: C1 control
    # characters, and characters that change the direction of text.
    characters = []
    for character in text:
        if character.isprintable() or character == "\n":
            characters.append(character)
        else:
            # Append the escape sequence without the quotes around it.
            characters.append(json.dumps(character)[1:-1])
    return "".join(characters)


def record_text(record: Any) -> str:
    """One line of JSON; what JSON lacks, such as times, is text.

    Raises:
        DataError: it is nested too deeply.
    """
    try:
        try:
            return json_text(record)
        except (TypeError, ValueError):
            return json_text(plain(record))
    except RecursionError:
        raise DataError(
            "a row has lists or objects that are nested too deeply to be kept"
        ) from None


def plain(value: Any) -> Any:
    """Replace numbers that are not finite by None, and what JSON lacks by text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value)


# A whole number, also as a table of floats writes it, such as 1.0.
WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.0+)?")


def label_name(label: Any) -> str:
    """The class name of a label; digits for a whole number of any type."""
    may_have_point = isinstance(label, Real | Decimal) and not isinstance(label, int)
    if may_have_point and math.isfinite(label) and label % 1 == 0:
        return str(int(label))
    return str(label)


def value_name(value: Any) -> str:
    """The name of a value; a whole number has no point, also in a table of floats."""
    name = label_name(value)
    if WHOLE_NUMBER.fullmatch(name):
        return name.partition(".")[0]
    return name


def is_missing(value: Any) -> bool:
    """Whether it is None, or missing in NumPy or pandas."""
    if value is None:
        return True
    # The missing values of pandas are recognized by their types, because they cannot be compared.
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    # Of all numbers, only NaN is not equal to itself. `hasattr` recognizes a number much faster
    # than `isinstance` with `SupportsFloat`, which would take more time than reading a row.
    return hasattr(value, "__float__") and bool(value != value)  # noqa: PLR0124
