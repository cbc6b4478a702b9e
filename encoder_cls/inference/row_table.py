"""Matrices of which few rows are asked for at a time, kept in as few bytes as they need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LARGEST_INT8 = 127
FEWEST_INT8_COLUMNS = 4  # below, a scale a row takes more than 8 bits save


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """A matrix (rows, columns), of which only some rows may be stored; the others are zero.

    Attributes:
        values: of the stored rows, (stored, columns): float32, float16, or int8 with scales.
        num_rows: of the whole matrix.
        stored_rows: the indices of the stored rows, increasing; none: all are stored.
        scales: (stored,), by which the values of a row are multiplied; none: they are as they are.
    """

    values: NDArray[Any]
    num_rows: int
    stored_rows: NDArray[np.int32] | None = None
    scales: NDArray[np.float16] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of the whole matrix."""
        return self.num_rows, self.values.shape[1]

    def take(self, rows: NDArray[np.integer[Any]]) -> Array:
        """Some rows in float32, (*rows, columns)."""
        if self.stored_rows is None:
            return self._expanded(rows)
        stored = self._stored_index[rows]
        found = self._expanded(stored)  # of a row that is not stored it is the last one's
        found[stored < 0] = 0
        return found

    def dense(self) -> Array:
        """All rows in float32."""
        return self.take(np.arange(self.num_rows))

    @cached_property
    def _stored_index(self) -> NDArray[np.int32]:
        """For each row which of the stored ones it is; -1: none."""
        index = np.full(self.num_rows, -1, dtype=np.int32)
        if self.stored_rows is not None:
            index[self.stored_rows] = np.arange(len(self.stored_rows), dtype=np.int32)
        return index

    def _expanded(self, stored: NDArray[np.integer[Any]]) -> Array:
        if not len(self.values):
            return np.zeros((*stored.shape, self.values.shape[1]), dtype=np.float32)
        found: Array = self.values[stored].astype(np.float32, copy=False)
        if self.scales is not None:
            found *= self.scales[stored].astype(np.float32)[..., None]
        return found


def compress(matrix: Array, dtype: str, *, stored_rows: NDArray[np.int32] | None = None) -> RowTable:
    """A matrix in fewer bytes.

    Args:
        matrix: (rows, columns).
        dtype: `float32`, `float16`, or `int8`: each row as multiples of a 127th of its largest number; of narrow rows,
            in which the scale would outweigh that, float16.
        stored_rows: those that are not zero, increasing; none: all are stored.
    """
    values: NDArray[Any] = matrix if stored_rows is None else matrix[stored_rows]
    scales = None
    if dtype == "int8" and matrix.shape[1] >= FEWEST_INT8_COLUMNS:
        largest = np.abs(values).max(axis=1, initial=0)
        # Rounded up, so that no value is beyond 127.
        scales = np.nextafter((largest / LARGEST_INT8).astype(np.float16), np.float16(np.inf))
        values = np.rint(values / scales.astype(np.float32)[:, None]).astype(np.int8)
    elif dtype != "float32":
        values = values.astype(np.float16)
    return RowTable(values=values, num_rows=len(matrix), stored_rows=stored_rows, scales=scales)
