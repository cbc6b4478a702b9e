"""Compact storage of weights in safetensors.

    float32   every weight as it is
    float16   tables, matrices and inverse document frequencies in 16 bits
    int8      tables and the linear classifier's weights in 8 bits with a scale for each row, the rest as in float16

In the small types, rows of a table that are zero are not stored. Biases, norms and scales stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import NUM_FEATURE_IDS

Array = NDArray[np.float32]

LARGEST_INT8 = 127
FEWEST_INT8_COLUMNS = 4  # with fewer, the scale of a row takes more than 8 bits save


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """A matrix, (rows, columns), of which only some rows may be stored; the others are zero.

    Attributes:
        values: of the stored rows, (stored, columns): float32, float16, or int8 with scales.
        num_rows: of the whole matrix.
        stored_rows: the indices of the stored rows, increasing; None: all are stored.
        scales: factors of the rows of `values`, (stored,).
    """

    values: NDArray[Any]
    num_rows: int
    stored_rows: NDArray[np.int32] | None = None
    scales: NDArray[np.float16] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the whole matrix."""
        return self.num_rows, self.values.shape[1]

    def take(self, rows: NDArray[np.integer[Any]]) -> Array:
        """Some rows in float32, (*rows, columns)."""
        if not len(self.values):
            return np.zeros((*rows.shape, self.values.shape[1]), dtype=np.float32)
        stored = rows if self.stored_rows is None else self._stored_index[rows]
        taken: Array = self.values[stored].astype(np.float32, copy=False)
        if self.scales is not None:
            taken *= self.scales[stored].astype(np.float32)[..., None]
        if self.stored_rows is not None:
            taken[stored < 0] = 0
        return taken

    def dense(self) -> Array:
        """All rows in float32."""
        return self.take(np.arange(self.num_rows))

    @cached_property
    def _stored_index(self) -> NDArray[np.int32]:
        """The index of each row among the stored ones; -1 if it is not stored."""
        index = np.full(self.num_rows, -1, dtype=np.int32)
        index[self.stored_rows] = np.arange(len(self.values), dtype=np.int32)
        return index


def compress(
    matrix: Array, dtype: str, *, stored_rows: NDArray[np.int32] | None = None
) -> RowTable:
    """Store a matrix in one of the `DTYPES`.

    In int8, a row has multiples of a 127th of its largest number; rows of fewer than `FEWEST_INT8_COLUMNS` are float16.
    `stored_rows` are those that are not zero, increasing.
    """
    values: NDArray[Any] = matrix if stored_rows is None else matrix[stored_rows]
    scales = None
    if dtype == "int8" and matrix.shape[1] >= FEWEST_INT8_COLUMNS:
        largest = np.abs(values).max(axis=1, initial=0)
        # Rounded up, so that no value exceeds 127.
        scales = np.nextafter((largest / LARGEST_INT8).astype(np.float16), np.float16(np.inf))
        values = np.rint(values / scales.astype(np.float32)[:, None]).astype(np.int8)
    elif dtype != "float32":
        values = values.astype(np.float16)
    return RowTable(values=values, num_rows=len(matrix), stored_rows=stored_rows, scales=scales)


DTYPES = ("float32", "float16", "int8")
SCALES, ROWS, HIGH = ".scales", ".rows", ".high"  # after the name of the weight that they belong to
FEATURE_IDS, IDF = "linear.feature_ids", "linear.idf"
TABLE_OF_IDS = 4 * (NUM_FEATURE_IDS >> 16)  # bytes of packed feature ids beside the ids

Weight = NDArray[Any] | RowTable
Shapes = dict[str, tuple[int, ...]]


def is_table(name: str) -> bool:
    """Whether a weight is read by rows."""
    return name.endswith((".table.weight", ".tokens.weight")) or name == "linear.weights"


def are_increasing(indices: NDArray[np.int32], limit: int) -> bool:
    """Whether indices increase, from 0 at least to below the limit."""
    return bool((np.diff(indices, prepend=-1, append=limit) > 0).all())


def as_table(weight: Weight) -> RowTable:
    """Convert a weight that is read by rows."""
    return weight if isinstance(weight, RowTable) else compress(weight, "float32")


def dense(weights: Mapping[str, Weight]) -> dict[str, NDArray[Any]]:
    """Convert all weights to arrays."""
    return {name: it.dense() if isinstance(it, RowTable) else it for name, it in weights.items()}


def pack(weights: Mapping[str, Weight], dtype: str) -> dict[str, NDArray[Any]]:
    """Convert weights to the tensors of a file, in one of the `DTYPES`."""
    tensors = dense(weights)
    if dtype == "float32":
        return tensors
    for name, array in list(tensors.items()):
        if is_table(name):
            tensors |= _packed_table(name, array, dtype)
        elif name == FEATURE_IDS:
            # Since ids increase: their low halves, and the count of each high half.
            tensors[name] = (array & 0xFFFF).astype(np.uint16)
            tensors[name + HIGH] = np.bincount(array >> 16, minlength=NUM_FEATURE_IDS >> 16).astype(
                np.int32
            )
        else:
            tensors[name] = array.astype(_stored_type(name, array.shape, dtype))
    return tensors


def unpack(tensors: Mapping[str, NDArray[Any]], shapes: Shapes, dtype: str) -> dict[str, Weight]:
    """Convert the tensors of `pack` to weights: tables as `RowTable`, all others in float32 or int32.

    A `ValueError` if tensors have other shapes or types or are not finite, a `KeyError` if one is missing.
    """
    remaining = dict(tensors)
    weights: dict[str, Weight] = {}
    for name, shape in shapes.items():
        if is_table(name):
            weights[name] = _table(name, remaining, shape, dtype)
        elif name == FEATURE_IDS and dtype != "float32":
            weights[name] = _feature_ids(name, remaining, shape)
        else:
            array = _tensor(name, remaining, shape, _stored_type(name, shape, dtype))
            weights[name] = array.astype(_stored_type(name, shape, "float32"), copy=False)
    if remaining:
        raise ValueError(f"unknown tensor: {min(remaining)}")
    return weights


def _stored_type(name: str, shape: tuple[int, ...], dtype: str) -> type:
    """The type of a weight that is not read by rows, in a file of one of the `DTYPES`."""
    if name.endswith("_ids"):
        return np.int32
    return np.float16 if dtype != "float32" and (name == IDF or len(shape) == 2) else np.float32


def _packed_table(name: str, array: NDArray[np.float32], dtype: str) -> dict[str, NDArray[Any]]:
    stored = np.flatnonzero(array.any(axis=1)).astype(np.int32)
    row_bytes = array.shape[1] if dtype == "int8" else 2 * array.shape[1]
    is_worth_it = len(stored) * (row_bytes + stored.itemsize) < len(array) * row_bytes
    table = compress(array, dtype, stored_rows=stored if is_worth_it else None)
    tensors = {name: table.values, name + ROWS: table.stored_rows, name + SCALES: table.scales}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _table(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: str
) -> RowTable:
    num_rows, columns = shape
    stored_rows, scales = None, None
    if dtype != "float32" and name + ROWS in tensors:
        stored_rows = _tensor(name + ROWS, tensors, tensors[name].shape[:1], np.int32)
        if not are_increasing(stored_rows, num_rows):
            raise ValueError(f"the rows of {name} are not in order")
    stored = num_rows if stored_rows is None else len(stored_rows)
    kind: type = np.float32 if dtype == "float32" else np.float16
    if dtype == "int8" and columns >= FEWEST_INT8_COLUMNS:
        kind, scales = np.int8, _tensor(name + SCALES, tensors, (stored,), np.float16)
    values = _tensor(name, tensors, (stored, columns), kind)
    return RowTable(values=values, num_rows=num_rows, stored_rows=stored_rows, scales=scales)


def _feature_ids(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[np.int32]:
    low = _tensor(name, tensors, shape, np.uint16)
    counts = _tensor(name + HIGH, tensors, (NUM_FEATURE_IDS >> 16,), np.int32)
    if (counts < 0).any() or counts.sum() != len(low):
        raise ValueError(f"{name}: high and low halves differ in number")
    high = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return (high << 16) + low.astype(np.int32)


def _tensor(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: type
) -> NDArray[Any]:
    """Take a tensor from the others and check it."""
    tensor = tensors.pop(name)
    if tensor.shape != shape or tensor.dtype != np.dtype(dtype):
        raise ValueError(
            f"{name} is {tensor.dtype} of {tensor.shape}, where {np.dtype(dtype)} of {shape} is expected"
        )
    if not np.isfinite(tensor).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return tensor
