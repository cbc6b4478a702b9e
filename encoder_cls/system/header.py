"""Find the names of columns in a table that may have other rows above them, such as a title."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# The number of first rows among which the names are looked for.
FIRST_ROWS = 20


def row_with(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> int | None:
    """The first row that has all of these names; None if there is none, or no name."""
    for number, row in enumerate(rows):
        if columns and set(columns) <= set(row):
            return number
    return None


def likely_header(rows: Sequence[Sequence[str]]) -> int:
    """The index of the first row that fills more than half as many cells as the fullest.

    A title, a date and merged cells fill few.
    """
    num_filled = [sum(1 for name in row if name.strip()) for row in rows]
    for number, filled in enumerate(num_filled):
        if 2 * filled > max(num_filled):
            return number
    return 0


def note_on_rows_above(path: Path, number: int, *, unit: str = "row") -> str:
    """What to say of a header that is not in the first row or line."""
    return (
        f"{path}: the names of its columns are in {unit} {number}; the {unit}s above are left out"
    )
