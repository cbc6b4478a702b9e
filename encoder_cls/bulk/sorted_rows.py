"""Encoded predictions that are read in the order of their probabilities.

The rows are in a temporary file; memory holds 16 bytes for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray

# The number of rows that are read at once.
ROWS_AT_ONCE = 1024


def sort_key(predicted: PredictedText) -> float:
    """The probability of the prediction; blank texts, which have none, come last."""
    prediction = predicted.prediction
    return math.inf if prediction.reason else prediction.prediction_probability


class SortedRows:
    """Encoded rows that are added in any order, and read in that of their keys."""

    def __init__(self) -> None:
        self._keys = DiskBackedArray(np.float64)
        self._rows = DiskBackedRaggedArray(np.uint8)

    def add(self, rows: Sequence[bytes], keys: Sequence[float]) -> None:
        """Add rows with their keys."""
        content = np.frombuffer(b"".join(rows), dtype=np.uint8)
        self._rows.append(content, [len(row) for row in rows])
        self._keys.append(keys)

    def order(self) -> NDArray[np.int64]:
        """The numbers of rows by key; equal keys keep their order."""
        return np.argsort(self._keys.array(), kind="stable")

    def read(self, numbers: NDArray[np.int64]) -> Iterator[list[bytes]]:
        """Yield the rows with these numbers, in this order, in chunks."""
        content, offsets = self._rows.arrays()
        for start in range(0, len(numbers), ROWS_AT_ONCE):
            rows = []
            for number in numbers[start : start + ROWS_AT_ONCE]:
                rows.append(content[offsets[number] : offsets[number + 1]].tobytes())
            yield rows
            self._rows.forget()
