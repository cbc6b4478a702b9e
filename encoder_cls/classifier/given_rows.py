"""Texts and rows as a program gives them: strings, mappings of columns, a table, rows of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row, row_of
from encoder_cls.system.display import kind
from encoder_cls.system.row_text import row_text
from encoder_cls.text.checked_texts import check_are_several, is_table


def rows_given(given: Iterable[object], columns: Columns, function: str) -> Iterator[str]:
    """Yield each text or row as one string; messages name the public function.

    A row may lack features that another row has; a text lacks all.

    Raises:
        TypeError: `given` is a single text or mapping, or an item is neither.
        DataError: a row lacks a text column, or has a value of the wrong type, or no row has one of
            the features.
    """
    if is_frame(given):
        given = _records(given, columns)
    if isinstance(given, Mapping):
        raise TypeError(
            f"{function} takes several rows; put a single one in a list: {function}([row])"
        )
    check_are_several(given, function)

    names: dict[str, None] = {}
    for number, item in enumerate(given):
        if isinstance(item, str):
            yield row_text([("", item)], {})
        elif isinstance(item, Row):
            yield item.text
        elif isinstance(item, Mapping):
            where = SourceLocation(f"rows[{number}]")
            names_of_row = columns.found_in(item)
            columns.without_features.check_present(where, names_of_row)
            names |= dict.fromkeys(names_of_row)
            yield row_of(where, dict(item), columns).text
        else:
            raise TypeError(f"texts[{number}] is {kind(item)}, not a text")
    if names:
        columns.check_present("rows", list(names))


def is_frame(given: Any) -> bool:
    """Whether it is a `DataFrame`, whose columns have names."""
    return hasattr(given, "columns") and is_table(given)


def _records(frame: Any, columns: Columns) -> Iterator[dict[str, Any]]:
    # A name may be a number.
    as_given = {str(name): name for name in frame.columns}
    columns.checked("the table", [str(name) for name in frame.columns])
    names = columns.named
    values = zip(*(list(frame[as_given[name]]) for name in names), strict=True)
    return (dict(zip(names, row, strict=True)) for row in values)
