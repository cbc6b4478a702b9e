"""The locations of rows: the file and the line that each row was read from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.disk_arrays import DiskBackedArray
from encoder_cls.system.lazy_sequences import Column, in_chunks


class SourceLocation(str):
    """The location of a row as text: `file:line`, or only the file of a single row.

    Attributes:
        line: from 1 on; -1 for a single row.
        row: in a spreadsheet, from 1 on: in CSV, a row may have several lines.
    """

    __slots__ = ("file", "line", "row")
    file: str
    line: int
    row: int

    def __new__(cls, file: str, line: int = -1, row: int = -1) -> SourceLocation:  # noqa: D102
        name = file
        if line >= 0:
            name = f"{file}:{line}"

        location = super().__new__(cls, name)
        location.file = file
        location.line = line
        location.row = row if row >= 0 else line
        return location


class DiskBackedLocations(Column[SourceLocation]):
    """Locations on disk: the number of the file and the line of each row."""

    def __init__(self, locations: Iterable[SourceLocation] = ()) -> None:
        # The number of each file, from 0 on.
        self._files: dict[str, int] = {}
        self._numbers = DiskBackedArray(np.int32)
        self._lines = DiskBackedArray(np.int64)
        for chunk in in_chunks(locations):
            self.append(chunk)

    @classmethod
    def from_arrays(
        cls, files: Sequence[str], numbers: NDArray[np.int32], lines: NDArray[np.int64]
    ) -> Self:
        """Locations of what `arrays` returns, to which none can be appended."""
        locations = cls()
        locations._files = {file: number for number, file in enumerate(files)}
        locations._numbers = DiskBackedArray.from_array(numbers)
        locations._lines = DiskBackedArray.from_array(lines)
        return locations

    def arrays(self) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64]]:
        """The files, the index of the file of each row, and its line."""
        if self._rows is not None:
            return DiskBackedLocations(self).arrays()
        return list(self._files), self._numbers.array(), self._lines.array()

    def append(self, locations: Sequence[SourceLocation]) -> None:
        """Add locations at the end."""
        numbers = []
        for location in locations:
            numbers.append(self._files.setdefault(location.file, len(self._files)))
        self._numbers.append(numbers)
        self._lines.append([location.line for location in locations])

    def _count(self) -> int:
        return len(self._lines.array())

    def _items(self, rows: NDArray[np.int64]) -> list[SourceLocation]:
        files = list(self._files)
        numbers = self._numbers.array()[rows].tolist()
        lines = self._lines.array()[rows].tolist()
        return [
            SourceLocation(files[number], line) for number, line in zip(numbers, lines, strict=True)
        ]
