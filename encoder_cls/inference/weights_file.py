"""Weights in, the tensors of `model.safetensors` out, in a smaller data type where that is asked for; and back.

    float32   every weight as it is
    float16   tables, matrices and inverse document frequencies in 16 bits
    int8      tables and the linear classifier's weights in 8 bits with a scale a row, the rest as in float16

Of the small types only the rows of a table that are not zero are stored. Biases, norms and scales stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.row_table import FEWEST_INT8_COLUMNS, RowTable, compress
from encoder_cls.text.ngram_features import NUM_FEATURE_IDS

DTYPES = ("float32", "float16", "int8")
SCALES, ROWS, HIGH = ".scales", ".rows", ".high"  # after the name of the weight that they belong to

Weight = NDArray[Any] | RowTable
Shapes = Mapping[str, tuple[int, ...]]


def is_table(name: str) -> bool:
    """Whether few rows of a weight are asked for at a time."""
    return name.endswith((".table.weight", ".tokens.weight")) or name == "linear.weights"


def pack(weights: Mapping[str, Weight], dtype: str) -> dict[str, NDArray[Any]]:
    """The tensors of a file.

    Args:
        weights: by name.
        dtype: one of `DTYPES`.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for name, array in dense(weights).items():
        if dtype == "float32":
            tensors[name] = array
        elif is_table(name):
            tensors |= _packed_table(name, array, dtype)
        elif name == "linear.feature_ids":
            # Increasing numbers: the low halves, and how many have each high half.
            tensors[name] = (array & 0xFFFF).astype(np.uint16)
            tensors[name + HIGH] = np.bincount(array >> 16, minlength=NUM_FEATURE_IDS >> 16).astype(np.int32)
        elif name == "linear.idf" or array.ndim == 2:
            tensors[name] = array.astype(np.float16)
        else:
            tensors[name] = array
    return tensors


def as_table(weight: Weight) -> RowTable:
    """A weight of which few rows are asked for."""
    return weight if isinstance(weight, RowTable) else compress(weight, "float32")


def dense(weights: Mapping[str, Weight]) -> dict[str, NDArray[Any]]:
    """Every weight as an array."""
    return {name: it.dense() if isinstance(it, RowTable) else it for name, it in weights.items()}


def _packed_table(name: str, array: NDArray[np.float32], dtype: str) -> dict[str, NDArray[Any]]:
    stored = np.flatnonzero(array.any(axis=1)).astype(np.int32)
    row_bytes = array.shape[1] if dtype == "int8" else 2 * array.shape[1]
    is_worth_it = len(stored) * (row_bytes + stored.itemsize) < len(array) * row_bytes
    table = compress(array, dtype, stored_rows=stored if is_worth_it else None)
    tensors: dict[str, NDArray[Any]] = {name: table.values}
    if table.stored_rows is not None:
        tensors[name + ROWS] = table.stored_rows
    if table.scales is not None:
        tensors[name + SCALES] = table.scales
    return tensors


def unpack(tensors: Mapping[str, NDArray[Any]], shapes: Shapes, dtype: str) -> dict[str, Weight]:
    """The weights that the tensors of a file are: tables as `RowTable`, all others in float32 or int32.

    Args:
        tensors: by name.
        shapes: of the weights.
        dtype: one of `DTYPES`.

    Raises:
        ValueError: they are others than the shapes and the type ask for, or not finite.
    """
    remaining = dict(tensors)
    weights: dict[str, Weight] = {}
    for name, shape in shapes.items():
        if is_table(name):
            weights[name] = _table(name, remaining, shape, dtype)
        elif name == "linear.feature_ids" and dtype != "float32":
            weights[name] = _feature_ids(name, remaining, shape)
        else:
            expected = np.int32 if name.endswith("_ids") else np.float32
            is_small = dtype != "float32" and (name == "linear.idf" or len(shape) == 2)
            array = _tensor(name, remaining, shape, np.float16 if is_small else expected)
            weights[name] = array.astype(expected, copy=False)
    if remaining:
        raise ValueError(f"a tensor that belongs to nothing: {min(remaining)}")
    return weights


def _tensor(name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Take a tensor out, once it has proved to be what is expected."""
    tensor = tensors.pop(name)
    if tensor.shape != shape or tensor.dtype != np.dtype(dtype):
        raise ValueError(f"{name} is {tensor.dtype} of {tensor.shape}, where {np.dtype(dtype)} of {shape} is expected")
    if not np.isfinite(tensor).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return tensor


def _table(name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...], dtype: str) -> RowTable:
    rows, columns = shape
    stored_rows = None
    if dtype != "float32" and name + ROWS in tensors:
        stored_rows = _tensor(name + ROWS, tensors, tensors[name].shape[:1], np.int32)
        if len(stored_rows) and not (
            stored_rows[0] >= 0 and stored_rows[-1] < rows and (np.diff(stored_rows) > 0).all()
        ):
            raise ValueError(f"the rows of {name} are not in order")
    stored = rows if stored_rows is None else len(stored_rows)
    is_int8 = dtype == "int8" and columns >= FEWEST_INT8_COLUMNS
    kind = np.int8 if is_int8 else np.float32 if dtype == "float32" else np.float16
    scales = _tensor(name + SCALES, tensors, (stored,), np.float16) if is_int8 else None
    values = _tensor(name, tensors, (stored, columns), kind)
    return RowTable(values=values, num_rows=rows, stored_rows=stored_rows, scales=scales)


def _feature_ids(name: str, tensors: dict[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.int32]:
    low = _tensor(name, tensors, shape, np.uint16)
    counts = _tensor(name + HIGH, tensors, (NUM_FEATURE_IDS >> 16,), np.int32)
    if (counts < 0).any() or counts.sum() != len(low):
        raise ValueError(f"{name}: other numbers of high halves than of low ones")
    high = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return (high << 16) + low.astype(np.int32)
