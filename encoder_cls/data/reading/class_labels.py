"""Integer labels of the `datasets` library, whose class names are beside the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown


def class_names_of(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """The class names of columns of integer labels, by the features as `datasets` writes them."""
    names = {}
    for column, feature in features.items():
        # A column of lists has the names in the feature of its items.
        label_feature = feature.get("feature", feature)
        if label_feature.get("_type") == "ClassLabel":
            names[column] = list(label_feature["names"])
    return names


def with_class_names(
    record: dict[str, Any], names: Mapping[str, Sequence[str]], where: SourceLocation
) -> dict[str, Any]:
    """Replace integer labels, or lists of them, by the class names of their data set."""
    for column in names.keys() & record.keys():
        value = record[column]
        if isinstance(value, list):
            record[column] = [_named(label, column, names[column], where) for label in value]
        else:
            record[column] = _named(value, column, names[column], where)
    return record


def _named(label: Any, column: str, names: Sequence[str], where: SourceLocation) -> str:
    if not isinstance(label, int) or not 0 <= label < len(names):
        what = f"label {label} of column {shown(column)} has no name: is this split unlabelled?"
        raise DataError(where, what)
    return names[label]
