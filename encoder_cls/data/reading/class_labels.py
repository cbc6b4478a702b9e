"""Replace the integer labels of the `datasets` library by the class names it keeps elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown


def class_names_of(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """The class names of each column, in features as `datasets` writes them."""
    names = {}
    for column, feature in features.items():
        # The feature of a column of lists has the feature of the list items inside.
        label_feature = feature.get("feature", feature)
        if label_feature.get("_type") == "ClassLabel":
            names[column] = list(label_feature["names"])
    return names


def with_class_names(
    record: dict[str, Any], names: Mapping[str, Sequence[str]], where: SourceLocation
) -> dict[str, Any]:
    """Replace the integer labels of a record by class names, in place.

    Raises:
        DataError: a label has no class name.
    """
    for column in names.keys() & record.keys():
        value = record[column]
        if isinstance(value, list):
            record[column] = [_named(label, column, names[column], where) for label in value]
        else:
            record[column] = _named(value, column, names[column], where)
    return record


def _named(label: Any, column: str, names: Sequence[str], where: SourceLocation) -> str | None:
    # A null is a missing label.
    if label is None:
        return None
    if not isinstance(label, int) or not 0 <= label < len(names):
        what = f"label {label} of column {shown(column)} has no name: is this split unlabelled?"
        raise DataError(where, what)
    return names[label]
