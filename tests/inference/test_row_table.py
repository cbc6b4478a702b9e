"""Tables in few bytes: near what they were, zero where nothing is stored."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.inference.weights import compress

RANDOM = np.random.default_rng(0)
MATRIX = (RANDOM.normal(size=(40, 8)) * 10 ** RANDOM.uniform(-3, 3, (40, 1))).astype(np.float32)
MATRIX[[3, 17]] = 0


@pytest.mark.parametrize(("dtype", "error", "size"), [("float32", 0, 4), ("float16", 5e-4, 2), ("int8", 6e-3, 1)])
def test_rows_are_near_what_they_were(dtype, error, size):
    """Within the type's error of the row's largest number; a row of zeros is one."""
    table = compress(MATRIX, dtype)
    assert table.shape == MATRIX.shape
    assert table.values.itemsize == size
    largest = np.abs(MATRIX).max(axis=1, keepdims=True)
    assert (np.abs(table.dense() - MATRIX) <= error * largest).all()
    assert table.dense().dtype == np.float32
    assert np.array_equal(table.take(np.array([5, 0])), table.dense()[[5, 0]])
    assert table.take(np.array([[1, 2, 3]])).shape == (1, 3, 8)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("stored", [[], [0], [1, 4, 39]])
def test_rows_that_are_not_stored_are_zero(dtype, stored):
    """The others are as if all were."""
    table = compress(MATRIX, dtype, stored_rows=np.array(stored, dtype=np.int32))
    expected = np.zeros_like(MATRIX)
    expected[stored] = compress(MATRIX, dtype).dense()[stored]
    assert len(table.values) == len(stored)
    assert np.array_equal(table.dense(), expected)
    assert np.array_equal(table.take(np.array([39, 2, 0])), expected[[39, 2, 0]])


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_narrow_rows_have_no_scale(columns):
    """It would take more than it saves."""
    table = compress(MATRIX[:, :columns], "int8")
    assert (table.scales, table.values.dtype) == (None, np.float16)


def test_no_value_is_beyond_the_scale():
    """Scales are rounded up: the largest number of a row stays the largest."""
    rows = RANDOM.uniform(-1, 1, (2000, 4)).astype(np.float32) * 10 ** RANDOM.uniform(-6, 4, (2000, 1)).astype(
        np.float32
    )
    table = compress(rows, "int8")
    assert np.abs(table.values.astype(int)).max() <= 127
    assert (np.sign(table.dense()) * np.sign(rows) >= 0).all()
