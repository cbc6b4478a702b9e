"""The classes of a session, in the order of their keys on the keyboard."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Self

from encoder_cls.system.display import shown
from encoder_cls.system.label_cells import joined_labels, label_key, split_labels

# The maximum number of characters of the name of a class.
MAX_NAME = 200
# The Unicode categories that a name may not have: control characters, half surrogates, and the ends
# of lines and paragraphs. Joiners (Cf) and no-break spaces (Zs) belong to words of many languages.
REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# The separator between several labels of a text, as in `data.label_separator`.
SEPARATOR = "|"


class ClassList:
    """The names of the classes, in the order of their keys.

    A renamed class keeps its place, its number. An invalid name, or one like another, is a
    `ValueError`.
    """

    def __init__(self, names: Iterable[str], *, is_multi_label: bool) -> None:
        self.is_multi_label = is_multi_label
        self.names: list[str] = []
        self._separator = SEPARATOR
        for name in names:
            self.add(name)

    @classmethod
    def of_data(cls, names: Sequence[str], *, is_multi_label: bool, separator: str) -> Self:
        """The classes of data, which may have any names."""
        classes = cls((), is_multi_label=is_multi_label)
        classes.names = list(names)
        classes._separator = separator
        return classes

    def add(self, name: str) -> None:
        """Add a class after the others."""
        self.names.append(self._checked(name, self.names))

    def renamed(self, name: str, new_name: str) -> ClassList:
        """A list with another name of a class."""
        if name not in self.names:
            raise ValueError(f"no class {shown(name)}")

        number = self.names.index(name)
        others = [other for other in self.names if other != name]
        renamed = ClassList((), is_multi_label=self.is_multi_label)
        renamed.names = list(self.names)
        renamed.names[number] = self._checked(new_name, others)
        return renamed

    def renamed_cell(self, cell: str, renamed: ClassList) -> str:
        """Write a cell by the names of a renamed list, without classes that are gone."""
        new_labels = []
        for label in self.labels_in(cell):
            if label in self.names:
                number = self.names.index(label)
                new_labels.append(renamed.names[number])
        if not new_labels:
            return ""
        return renamed.written(new_labels)

    def written(self, labels: Sequence[str]) -> str:
        """Write labels as one cell, in the order of the classes.

        Raises:
            ValueError: a label is no class, or there is not exactly one.
        """
        for label in labels:
            if label not in self.names:
                raise ValueError(f"no class {shown(label)}")
        if not self.is_multi_label and len(labels) != 1:
            raise ValueError("a text has exactly one label here")
        in_order = [name for name in self.names if name in labels]
        return joined_labels(in_order, self._separator)

    def labels_in(self, cell: str) -> list[str]:
        """Read the labels of a text from a cell."""
        if not self.is_multi_label:
            return [cell]
        return split_labels(cell, self._separator)

    def _checked(self, name: str, others: Sequence[str]) -> str:
        name = name.strip()
        if not label_key(name):
            raise ValueError("the name of a class is empty")
        if len(name) > MAX_NAME:
            raise ValueError(f"the name of a class has more than {MAX_NAME} characters")
        if any(unicodedata.category(character) in REFUSED_CATEGORIES for character in name):
            raise ValueError(f"the name of a class has unprintable characters: {shown(name)}")
        if self.is_multi_label and SEPARATOR in name:
            raise ValueError(f"{shown(name)}: a name may not contain {SEPARATOR} here")

        for other in others:
            if label_key(other) == label_key(name):
                raise ValueError(f"there is a class {shown(other)} already")
        return name
