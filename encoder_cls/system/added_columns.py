"""The names of columns that are added to those of the data, of which none is replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def added_name(name: str, columns: Iterable[str], prefix: str) -> str:
    """Name an added column, with a prefix where another one has a name like it.

    So it has the longest of such names, by which `longest_like` finds it again.
    """
    longest = longest_like(name, columns, prefix)
    if longest is None:
        return name
    return prefix + longest


def longest_like(name: str, columns: Iterable[str], prefix: str) -> str | None:
    """The longest of the columns called `name`, after any number of prefixes."""
    like = [column for column in columns if is_like(name, column, prefix)]
    return max(like, key=len, default=None)


def added_before(columns: Sequence[str], added: Sequence[str], prefix: str) -> set[str]:
    """The last columns of a table, if they were added to it; else none."""
    last = columns[-len(added) :]
    if len(last) < len(added):
        return set()
    pairs = zip(added, last, strict=True)
    if all(is_like(name, column, prefix) for name, column in pairs):
        return set(last)
    return set()


def is_like(name: str, column: str, prefix: str) -> bool:
    """Whether a column is called `name`, after any number of prefixes."""
    return re.fullmatch(f"(?:{prefix})*{name}", column) is not None


def numbered(header: Sequence[str]) -> list[str]:
    """Number repeated names, such as the empty ones of a spreadsheet."""
    taken = set(header)
    last_number: dict[str, int] = {}
    names = []
    for name in header:
        if name not in last_number:
            last_number[name] = 0
            names.append(name)
            continue

        number = last_number[name] + 1
        while f"{name}.{number}" in taken:
            number += 1
        last_number[name] = number
        taken.add(f"{name}.{number}")
        names.append(f"{name}.{number}")
    return names
