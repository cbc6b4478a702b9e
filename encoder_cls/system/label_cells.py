"""Labels as people write them: several in a cell, such as `late|refund`, and in other spellings."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

# The separators of labels in cells of tables, unless the data has one (`data.label_separator`). The
# first one is used, unless the name of a class contains it.
SEPARATORS = ("|", ";", ",", "/", "\\", "~")


def cell_separator(class_names: Iterable[str], label_separator: str | None) -> str:
    """Choose the separator of several labels in a cell; equal arguments give the same one.

    So a table can be read as it was written. `label_separator` is None if the data has lists of
    labels.
    """
    if label_separator is not None:
        return label_separator

    names = list(class_names)
    for separator in SEPARATORS:
        if not any(separator in name for name in names):
            return separator
    return SEPARATORS[0]


def joined_labels(labels: Sequence[str], separator: str) -> str:
    """Labels as a cell, empty without any."""
    return separator.join(labels)


def split_labels(cell: str, separator: str) -> list[str]:
    """The labels in a cell, without outer spaces, empty ones and repetitions."""
    parts = [part.strip() for part in cell.split(separator)]
    return list(dict.fromkeys(part for part in parts if part))


def label_key(label: str) -> str:
    """A key that labels share if a person would take them for the same.

    Case, doubled spaces, zero-width characters and the Unicode form do not count.
    """
    normalized = unicodedata.normalize("NFKC", label)
    visible = "".join(
        character for character in normalized if unicodedata.category(character) != "Cf"
    )
    return " ".join(unicodedata.normalize("NFKC", visible.casefold()).split())
