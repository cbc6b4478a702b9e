"""Values as JSON that is safe to print, also values for which JSON has no type."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

from encoder_cls.errors import DataError


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON with every unprintable character escaped.

    Raises:
        ValueError: it has NaN or infinity.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text

    # JSON leaves characters as they are that can steer a terminal: C1 controls, and marks that
    # reverse the direction.
    characters = []
    for character in text:
        if character.isprintable() or character == "\n":
            characters.append(character)
        else:
            # The escape sequence, without the quotes around it.
            characters.append(json.dumps(character)[1:-1])
    return "".join(characters)


def record_text(record: Any) -> str:
    """A value as a line of JSON, also where JSON has no type for it, as for times.

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
    """A value as JSON knows it.

    A number that is not finite becomes null, and a value for which JSON has no type becomes text.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value)


def is_missing(value: Any) -> bool:
    """Whether a value is None, or a missing value of NumPy or pandas."""
    if value is None:
        return True
    # Those of pandas cannot be compared.
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    # NaN differs from itself.
    return isinstance(value, SupportsFloat) and value != value  # noqa: PLR0124
