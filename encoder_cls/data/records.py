"""What every reader of rows needs: where a row was read, and what its columns hold."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown


class SourceLocation(NamedTuple):
    """Where a row was read: a file and the line, or the number, of the row in it; -1 where the file is one row."""

    file: str
    line: int = -1

    def __str__(self) -> str:
        return self.file if self.line < 0 else f"{self.file}:{self.line}"


Record = tuple[SourceLocation, dict[str, Any]]  # where it was read, and its columns


def check_columns(path: Path | SourceLocation | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Make sure that the columns that are wanted are there.

    Raises:
        DataError: one is not; the message names those that are.
    """
    missing = [column for column in wanted if column not in found]
    if missing:
        alike = [name for name in found if name.strip().lower() == missing[0].lower()]
        hint = (
            "name the right one: data.text_column, data.label_column and data.group_column in the config, "
            "--text-column in predict"
        )
        if alike:
            hint = f"did you mean {shown(alike[0])}? {hint}"
        elif len(found) == 1 and (separator := next((it for it in ";|\t" if it in found[0]), None)):
            hint = f"its fields seem to be separated by {shown(separator)}, which data.delimiter can name; {hint}"
        raise DataError(
            f"{path}: no column {shown(missing[0])}; it has {', '.join(shown(name) for name in found[:20])} ({hint})"
        )


def numbered(header: Sequence[str]) -> list[str]:
    """The names of columns, each once: of equal ones, such as a spreadsheet's empty names, the later get numbers."""
    names: dict[str, None] = {}
    for name in header:
        numbers = (f"{name}.{number}" for number in count(1))
        names[name if name not in names else next(it for it in numbers if it not in names and it not in header)] = None
    return list(names)


def check_undoubled(where: Path | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Make sure that no wanted column is there twice: nobody knows which of the two is meant.

    Raises:
        DataError: one is.
    """
    doubled = next((name for name in wanted if found.count(name) > 1), None)
    if doubled is not None:
        raise DataError(f"{where}: two columns are called {shown(doubled)}")


def group_named(where: SourceLocation, value: Any) -> str | None:
    """A group as text, whatever type a format has for it; none where the cell is empty.

    Raises:
        DataError: the value is none.
    """
    if isinstance(value, dict | list):
        raise DataError(f"{where}: the group is {kind(value)}; a name or a number is expected (data.group_column)")
    if isinstance(value, float):  # as tables have whole numbers where cells are empty
        value = None if math.isnan(value) else int(value) if value.is_integer() else value
    return None if value is None or value == "" else str(value)


def class_names_in(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names that the `datasets` library keeps in a Parquet file beside integer labels."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        # Of a list of labels the feature of its items is inside.
        of_items = {column: feature.get("feature") or feature for column, feature in features.items()}
        return {column: list(feature["names"]) for column, feature in of_items.items() if "names" in feature}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def with_class_names(record: dict[str, Any], names: dict[str, list[str]], where: SourceLocation) -> dict[str, Any]:
    """A record in which integers, or those of a list, are replaced by the class names that its data set has for them.

    Raises:
        DataError: an integer has no name.
    """
    for column in names.keys() & record.keys():
        found = record[column]
        for label in found if isinstance(found, list) else [found]:
            if not isinstance(label, int) or not 0 <= label < len(names[column]):
                raise DataError(
                    f"{where}: label {label} of column {shown(column)} has no name: is this split unlabelled?"
                )
        of_column = names[column]
        record[column] = [of_column[it] for it in found] if isinstance(found, list) else of_column[found]
    return record
