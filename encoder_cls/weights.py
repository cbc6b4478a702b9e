"""Store weights compactly in safetensors, in one of three types.

    float32   all weights are float32
    float16   tables, matrices and inverse document frequencies are float16
    int8      tables and the weights of the linear model are int8, with a scale for each row; other
              matrices and inverse document frequencies are float16

A table is a matrix that is read by rows, such as an embedding. In the two smaller types, zero rows
may be left out, and a sparse table has only its other values, as float16. Biases, norms and scales
of layers are always float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

DTYPES = ("float32", "float16", "int8")


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """A matrix that is read by rows, and may be stored without its zero rows.

    Attributes:
        values: (stored, columns), float32, float16, or int8 with scales.
        stored_rows: increasing; None if all are stored.
        scales: of stored rows; None without.
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
        """The rows with these indices, (*rows, columns).

        NumPy's `take` copies several times faster than an index.
        """
        if not len(self.values):
            return np.zeros((*rows.shape, self.values.shape[1]), dtype=np.float32)

        stored = rows
        if self.stored_rows is not None:
            stored = self._stored_index.take(rows)

        taken: Array = self.values.take(stored, axis=0).astype(np.float32, copy=False)
        if self.scales is not None:
            taken *= self.scales.take(stored).astype(np.float32)[..., None]
        if self.stored_rows is not None:
            taken[stored < 0] = 0
        return taken

    def dense(self) -> Array:
        """The whole matrix."""
        return self.take(np.arange(self.num_rows))

    @cached_property
    def _stored_index(self) -> NDArray[np.int32]:
        index = np.full(self.num_rows, -1, dtype=np.int32)
        index[self.stored_rows] = np.arange(len(self.values), dtype=np.int32)
        return index


@dataclass(frozen=True, kw_only=True)
class SparseTable:
    """A matrix that is read by rows, stored without zeros.

    Attributes:
        values: row by row, (stored,).
        columns: increasing within a row.
        row_sizes: (rows,).
    """

    values: NDArray[Any]
    columns: NDArray[np.int32]
    row_sizes: NDArray[np.int32]
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the whole matrix."""
        return len(self.row_sizes), self.num_columns

    def take(self, rows: NDArray[np.integer[Any]]) -> Array:
        """The rows with these indices, (rows, columns)."""
        taken = np.zeros((len(rows), self.num_columns), dtype=np.float32)
        numbers, columns, values = self.nonzero(rows)
        taken[numbers, columns] = values
        return taken

    def nonzero(
        self, rows: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
        """The values of rows that are not zero.

        Returns:
            The place in `rows`, the column, and the value of each.
        """
        if not len(self.row_sizes):
            return np.zeros(0, dtype=np.int64), self.columns, self.values

        sizes = self.row_sizes.take(rows)
        numbers = np.repeat(np.arange(len(rows)), sizes)
        first_places = self._row_ends.take(rows) - np.cumsum(sizes)
        places = np.arange(len(numbers)) + first_places.take(numbers)
        return numbers, self.columns.take(places), self.values.take(places)

    def dense(self) -> Array:
        """The whole matrix."""
        return self.take(np.arange(len(self.row_sizes)))

    @cached_property
    def _row_ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.row_sizes, dtype=np.int64)


Table = RowTable | SparseTable


# The largest absolute value of a weight in int8.
MAX_INT8 = 127
# Tables with fewer columns are float16 instead of int8, because the scale of a row would take more
# space than its 8-bit values save.
MIN_INT8_COLUMNS = 4


def compress(
    matrix: Array, dtype: str, *, stored_rows: NDArray[np.int32] | None = None
) -> RowTable:
    """Convert a matrix to one of the `DTYPES`.

    In int8, values are multiples of their row's largest / 127; with fewer than `MIN_INT8_COLUMNS`,
    float16. All rows but `stored_rows`, increasing, must be zero.
    """
    values: NDArray[Any] = matrix
    if stored_rows is not None:
        values = matrix[stored_rows]

    scales = None
    if _has_scales(dtype, matrix.shape[1]):
        # Round scales up, so that no value exceeds 127.
        largest = np.abs(values).max(axis=1, initial=0)
        scales = np.nextafter((largest / MAX_INT8).astype(np.float16), np.float16(np.inf))
        values = np.rint(values / scales.astype(np.float32)[:, None]).astype(np.int8)
    elif dtype != "float32":
        values = values.astype(np.float16)
    return RowTable(values=values, num_rows=len(matrix), stored_rows=stored_rows, scales=scales)


def _has_scales(dtype: str, num_columns: int) -> bool:
    return dtype == "int8" and num_columns >= MIN_INT8_COLUMNS


Weight = NDArray[Any] | Table
"""The value of a weight: a table if the weight is read by rows, else an array."""

Shapes = dict[str, tuple[int, ...]]
"""The shape of each weight, by its name."""


def is_table(name: str) -> bool:
    """Whether a weight is read by rows, by its name."""
    return name.endswith((".table.weight", ".tokens.weight")) or name == "linear.weights"


def as_table(weight: Weight) -> Table:
    """A weight as a table."""
    if isinstance(weight, RowTable | SparseTable):
        return weight
    return compress(weight, "float32")


def dense(weights: Mapping[str, Weight]) -> dict[str, NDArray[Any]]:
    """All weights as arrays; tables become float32."""
    arrays = {}
    for name, weight in weights.items():
        arrays[name] = weight if isinstance(weight, np.ndarray) else weight.dense()
    return arrays


def are_increasing(indices: NDArray[np.int32], limit: int) -> bool:
    """Whether indices increase strictly, from 0 to below the limit."""
    return bool((np.diff(indices, prepend=-1, append=limit) > 0).all())


# The names of two weights of the linear model that `pack` stores in a special way: ids as two
# halves, and inverse document frequencies as float16 although they are not a matrix.
FEATURE_IDS = "linear.feature_ids"
IDF = "linear.idf"

# Some weights have further tensors, whose names are the name of the weight and one of these
# endings: the scales of the rows, the indices of the stored rows, the number of ids with each high
# half; of a sparse table, the columns of the values, and the number of values of each row.
SCALES = ".scales"
ROWS = ".rows"
HIGH = ".high"
COLUMNS = ".columns"
ROW_SIZES = ".row_sizes"

# Feature ids are below this number, which equals `NUM_FEATURE_IDS` of `linear.ngrams`.
ID_LIMIT = 8 << 22
# The number of values that the high half of an id can have. A half has 16 bits.
HIGH_HALVES = ID_LIMIT >> 16
# The number of their counts in a file, unless columns beside the text have higher ids.
HIGH_HALVES_OF_TEXTS = (5 << 22) >> 16
# The size in bytes of the counts of high halves, which packed ids have in addition to their low
# halves.
HIGH_HALVES_BYTES = HIGH_HALVES * np.dtype(np.int32).itemsize


def pack(weights: Mapping[str, Weight], dtype: str) -> dict[str, NDArray[Any]]:
    """Convert weights to tensors; some become several."""
    tensors: dict[str, NDArray[Any]] = {}
    arrays = dict(weights)
    for name, weight in weights.items():
        if isinstance(weight, SparseTable):
            tensors |= _packed_sparse(name, weight, dtype)
            del arrays[name]

    for name, array in dense(arrays).items():
        if dtype == "float32":
            tensors[name] = array
        elif is_table(name):
            tensors |= _packed_table(name, array, dtype)
        elif name == FEATURE_IDS:
            tensors |= _packed_ids(name, array)
        else:
            tensors[name] = array.astype(_stored_type(name, array.shape, dtype))
    return tensors


def unpack(tensors: Mapping[str, NDArray[Any]], shapes: Shapes, dtype: str) -> dict[str, Weight]:
    """Convert what `pack` makes, to tables and arrays of float32 or int32.

    Raises:
        ValueError: a tensor is unknown, not finite, or not of its shape and type.
        KeyError: a tensor is missing.
    """
    remaining = dict(tensors)
    weights: dict[str, Weight] = {}
    for name, shape in shapes.items():
        if name + COLUMNS in remaining:
            weights[name] = _pop_sparse(name, remaining, shape, dtype)
        elif is_table(name):
            weights[name] = _pop_table(name, remaining, shape, dtype)
        elif name == FEATURE_IDS and dtype != "float32":
            weights[name] = _pop_ids(name, remaining, shape)
        else:
            array = _pop_tensor(name, remaining, shape, _stored_type(name, shape, dtype))
            weights[name] = array.astype(_stored_type(name, shape, "float32"), copy=False)

    if remaining:
        raise ValueError(f"unknown tensor: {min(remaining)}")
    return weights


def _stored_type(name: str, shape: tuple[int, ...], dtype: str) -> type:
    if name.endswith("_ids"):
        return np.int32

    is_matrix = len(shape) == 2
    if dtype != "float32" and (is_matrix or name == IDF):
        return np.float16
    return np.float32


def _packed_table(name: str, array: Array, dtype: str) -> dict[str, NDArray[Any]]:
    nonzero_rows = np.flatnonzero(array.any(axis=1)).astype(np.int32)
    num_rows, num_columns = array.shape
    row_bytes = 2 * num_columns
    if dtype == "int8":
        row_bytes = num_columns

    stored_rows = None
    if len(nonzero_rows) * (row_bytes + nonzero_rows.itemsize) < num_rows * row_bytes:
        stored_rows = nonzero_rows
    table = compress(array, dtype, stored_rows=stored_rows)

    tensors = {name: table.values}
    if table.stored_rows is not None:
        tensors[name + ROWS] = table.stored_rows
    if table.scales is not None:
        tensors[name + SCALES] = table.scales
    return tensors


def _pop_table(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: str
) -> RowTable:
    num_rows, num_columns = shape
    num_stored = num_rows
    stored_rows = None
    if dtype != "float32" and name + ROWS in tensors:
        stored_rows = _pop_tensor(name + ROWS, tensors, tensors[name].shape[:1], np.int32)
        num_stored = len(stored_rows)
        if not are_increasing(stored_rows, num_rows):
            raise ValueError(f"the rows of {name} are not in order")

    value_type: type = np.float16
    if dtype == "float32":
        value_type = np.float32
    scales = None
    if _has_scales(dtype, num_columns):
        value_type = np.int8
        scales = _pop_tensor(name + SCALES, tensors, (num_stored,), np.float16)

    values = _pop_tensor(name, tensors, (num_stored, num_columns), value_type)
    return RowTable(values=values, num_rows=num_rows, stored_rows=stored_rows, scales=scales)


def _packed_sparse(name: str, table: SparseTable, dtype: str) -> dict[str, NDArray[Any]]:
    return {
        name: table.values.astype(_sparse_type(dtype)),
        name + COLUMNS: table.columns,
        name + ROW_SIZES: table.row_sizes,
    }


def _sparse_type(dtype: str) -> type:
    return np.float32 if dtype == "float32" else np.float16


def _pop_sparse(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: str
) -> SparseTable:
    num_rows, num_columns = shape
    row_sizes = _pop_tensor(name + ROW_SIZES, tensors, (num_rows,), np.int32)
    stored = (int(row_sizes.sum(dtype=np.int64)),)
    values = _pop_tensor(name, tensors, stored, _sparse_type(dtype))
    columns = _pop_tensor(name + COLUMNS, tensors, stored, np.int32)

    # Row by row, the places in the whole matrix increase.
    is_valid = (row_sizes >= 0).all() and (columns >= 0).all() and (columns < num_columns).all()
    if is_valid:
        places = np.repeat(np.arange(num_rows) * num_columns, row_sizes) + columns
        is_valid = (np.diff(places) > 0).all()
    if not is_valid:
        raise ValueError(f"the columns of {name} are not in order")
    return SparseTable(values=values, columns=columns, row_sizes=row_sizes, num_columns=num_columns)


def _packed_ids(name: str, ids: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """Convert ids to the low half of each, and the count of each high half."""
    low = (ids & 0xFFFF).astype(np.uint16)
    counts = np.bincount(ids >> 16, minlength=HIGH_HALVES_OF_TEXTS).astype(np.int32)
    return {name: low, name + HIGH: counts}


def _pop_ids(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[np.int32]:
    low = _pop_tensor(name, tensors, shape, np.uint16)
    num_counts = np.clip(len(tensors[name + HIGH]), HIGH_HALVES_OF_TEXTS, HIGH_HALVES)
    counts = _pop_tensor(name + HIGH, tensors, (int(num_counts),), np.int32)
    if (counts < 0).any() or counts.sum() != len(low):
        raise ValueError(f"{name}: high and low halves differ in number")

    high = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return (high << 16) + low.astype(np.int32)


def _pop_tensor(
    name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: type
) -> NDArray[Any]:
    tensor = tensors.pop(name)
    expected = np.dtype(dtype)
    if tensor.shape != shape or tensor.dtype != expected:
        raise ValueError(
            f"{name} is {tensor.dtype} of {tensor.shape}, where {expected} of {shape} is expected"
        )
    if not np.isfinite(tensor).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return tensor
