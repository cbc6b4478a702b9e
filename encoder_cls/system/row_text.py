"""A row of several columns as one string, so that whatever carries texts carries rows, too.

Features, the columns beside the text, come first, then the text, or the texts of several columns,
the fields. ASCII's separators mark the parts (RS, US and GS below):

    RS channel US email RS employees US 37 GS the text
    RS channel US email GS RS title US one text RS body US another text

The row of a single text column without features is its text, as it is, unless it could be taken for
such a string. No text, name or value has a separator in a marked row: each becomes a space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from encoder_cls.system.json_values import is_missing, value_name

# Begins a part.
RS = "\x1e"
# Stands between the name of a part and its value.
US = "\x1f"
# Ends the features.
GS = "\x1d"

_SPACES = str.maketrans(dict.fromkeys((RS, US, GS), " "))

# The characters of a value that are kept: the rest of a longer one is no category.
MAX_VALUE_LENGTH = 100


class RowParts(NamedTuple):
    """The parts of a row.

    Attributes:
        features: empty where missing.
        fields: a text without fields has the name "".
    """

    features: dict[str, str]
    fields: list[tuple[str, str]]


def row_text(fields: Sequence[tuple[str, str]], features: Mapping[str, Any]) -> str:
    """Write a row as one string, of features of any type."""
    if len(fields) == 1 and not features:
        [(_, text)] = fields
        return without_separators(text) if is_row(text) else text

    parts = []
    for name, value in features.items():
        parts.append(f"{RS}{without_separators(name)}{US}{feature_value(value)}")
    if parts:
        parts.append(GS)

    for name, text in fields:
        mark = f"{RS}{without_separators(name)}{US}" if len(fields) > 1 else ""
        parts.append(mark + without_separators(text))
    return "".join(parts)


def feature_value(value: Any) -> str:
    """A feature as text, equal for equal values of CSV, JSON and Parquet."""
    if is_missing(value):
        return ""
    # Half surrogate pairs, which JSON can hold, are no characters.
    name = value_name(value).encode("utf-8", "replace").decode()
    text = without_separators(name).strip()[:MAX_VALUE_LENGTH]
    is_boolean = text.lower() in {"true", "false"}
    return text.lower() if is_boolean else text


def without_separators(text: str) -> str:
    """A space for each separator, so that a text cannot be taken for a row."""
    return text.translate(_SPACES)


def is_row(text: str) -> bool:
    """Whether a string is a row with marks."""
    return text.startswith(RS) and US in text


def row_parts(row: str) -> RowParts:
    """Take a row apart."""
    if not is_row(row):
        return RowParts({}, [("", row)])

    features, end, texts = row.partition(GS)
    if not end:
        features, texts = "", row
    fields = _named(texts) if texts.startswith(RS) else [("", texts)]
    return RowParts(dict(_named(features)), fields)


def _named(parts: str) -> list[tuple[str, str]]:
    named = []
    for part in parts.split(RS)[1:]:
        name, _, value = part.partition(US)
        named.append((name, value))
    return named


def columns_of_row(row: str, text_columns: Sequence[str]) -> dict[str, str]:
    """The text columns and the features of a row by name."""
    parts = row_parts(row)
    texts = [text for _, text in parts.fields]
    return {**dict(zip(text_columns, texts, strict=False)), **parts.features}


def plain_text(row: str) -> str:
    """The text without features; several fields are joined with a space."""
    if not is_row(row):
        return row
    return " ".join(text for _, text in row_parts(row).fields)


class ReadableRow(NamedTuple):
    """A row as a person reads it, such as `one text another text [channel=email]`.

    Attributes:
        starts: of the text of each field.
        places: where each feature with a value begins and ends.
    """

    text: str
    starts: list[int]
    places: dict[str, tuple[int, int]]


def readable_row(row: str) -> ReadableRow:
    """A row for a person."""
    parts = row_parts(row)
    starts = []
    length = 0
    for _, text in parts.fields:
        starts.append(length)
        length += len(text) + 1
    shown = plain_text(row)

    places: dict[str, tuple[int, int]] = {}
    for name, value in parts.features.items():
        if value:
            shown += ", " if places else " ["
            start = len(shown)
            shown += f"{name}={value}"
            places[name] = (start, len(shown))
    return ReadableRow(shown + "]" if places else shown, starts, places)


def readable(row: str) -> str:
    """See `ReadableRow`; a text stays as it is."""
    if not is_row(row):
        return row
    return readable_row(row).text
