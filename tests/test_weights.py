"""The tensors of a weights file: small types, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.linear.ngrams import NUM_FEATURE_IDS
from encoder_cls.weights import (
    DTYPES,
    HIGH_HALVES,
    ID_LIMIT,
    RowTable,
    SparseTable,
    compress,
    dense,
    pack,
    unpack,
)

RANDOM = np.random.default_rng(0)
TABLE = "encoder.embedding.bigrams.table.weight"
MATRIX = "head.linear.weight"
NORM = "encoder.final_norm.weight"

# The rows of the table that are zero.
ZERO = [0, *range(5, 20)]


def make_weights() -> dict[str, np.ndarray]:
    """Weights of each kind; most rows of the table are zero."""
    table = RANDOM.normal(size=(20, 8)).astype(np.float32)
    table[ZERO] = 0
    ids = np.array([0, 7, 65_535, 65_536, 70_000, NUM_FEATURE_IDS - 1], dtype=np.int32)
    return {
        TABLE: table,
        MATRIX: RANDOM.normal(size=(3, 8)).astype(np.float32),
        NORM: RANDOM.normal(size=8).astype(np.float32),
        "linear.frequent_token_ids": np.array([4, 70_000], dtype=np.int32),
        "linear.feature_ids": ids,
        "linear.idf": RANDOM.uniform(1, 9, len(ids)).astype(np.float32),
        "linear.weights": RANDOM.normal(size=(len(ids), 5)).astype(np.float32),
    }


WEIGHTS = make_weights()
SHAPES = {name: weight.shape for name, weight in WEIGHTS.items()}


def test_all_feature_ids_can_be_packed():
    assert ID_LIMIT == NUM_FEATURE_IDS


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("float16", 1e-3), ("int8", 1e-2)])
def test_weights_come_back(dtype, error):
    weights = unpack(pack(WEIGHTS, dtype), SHAPES, dtype)

    assert isinstance(weights[TABLE], RowTable)
    for name, weight in dense(weights).items():
        most = error * np.abs(WEIGHTS[name]).max()
        assert weight.dtype == WEIGHTS[name].dtype
        np.testing.assert_allclose(weight, WEIGHTS[name], atol=most)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [NORM, "linear.frequent_token_ids", "linear.feature_ids"])
def test_norms_and_ids_come_back_exactly(dtype, name):
    weights = unpack(pack(WEIGHTS, dtype), SHAPES, dtype)

    assert np.array_equal(weights[name], WEIGHTS[name])


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_rows_are_stored_in_float32_only(dtype):
    packed = pack(WEIGHTS, dtype)

    assert (f"{TABLE}.rows" in packed) == (dtype != "float32")
    table = unpack(packed, SHAPES, dtype)[TABLE]
    assert not table.dense()[ZERO].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_came_back_are_packed_alike(dtype):
    packed = pack(WEIGHTS, dtype)

    again = pack(unpack(packed, SHAPES, dtype), dtype)

    assert again.keys() == packed.keys()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_tensors_of_another_shape_type_or_content_are_refused(dtype, name):
    packed = pack(WEIGHTS, dtype)
    wrong_tensors = [packed[name][1:], packed[name].astype(np.float64)]
    if packed[name].dtype.kind == "f":
        wrong_tensors.append(np.full_like(packed[name], np.nan))

    for tensor in wrong_tensors:
        with pytest.raises(ValueError, match=r"expected|not finite"):
            unpack(packed | {name: tensor}, SHAPES, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_tensor_that_is_missing_or_unknown_is_refused(dtype, name):
    packed = pack(WEIGHTS, dtype)

    with pytest.raises(ValueError, match="unknown tensor"):
        unpack(packed | {f"{name}.more": packed[name]}, SHAPES, dtype)

    del packed[name]
    with pytest.raises(KeyError):
        unpack(packed, SHAPES, dtype)


@pytest.mark.parametrize(
    "rows",
    [
        [-1, 2, 3, 4],
        [1, 2, 3, 20],
        [1, 2, 2, 3],
        [2, 1, 3, 4],
    ],
    ids=str,
)
def test_stored_rows_must_be_in_range_and_in_order(rows):
    packed = pack(WEIGHTS, "int8")
    packed[f"{TABLE}.rows"] = np.array(rows, dtype=np.int32)

    with pytest.raises(ValueError, match="not in order"):
        unpack(packed, SHAPES, "int8")


@pytest.mark.parametrize("counts", [[-1, 7], [3, 4], [3, 2]], ids=str)
def test_high_halves_that_do_not_fit_are_refused(counts):
    packed = pack(WEIGHTS, "int8")
    high = np.zeros(HIGH_HALVES, dtype=np.int32)
    high[:2] = counts
    packed["linear.feature_ids.high"] = high

    with pytest.raises(ValueError, match="low halves"):
        unpack(packed, SHAPES, "int8")


SPARSE = {
    "linear.weights": SparseTable(
        values=np.array([0.5, -1, 2, 4], dtype=np.float32),
        columns=np.array([0, 3, 1, 0], dtype=np.int32),
        row_sizes=np.array([2, 0, 1, 1], dtype=np.int32),
        num_columns=4,
    )
}
SHAPE_OF_SPARSE = {"linear.weights": (4, 4)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_values_of_a_sparse_table_come_back(dtype):
    packed = pack(SPARSE, dtype)

    table = unpack(packed, SHAPE_OF_SPARSE, dtype)["linear.weights"]

    assert len(packed["linear.weights"]) == 4
    expected = [[0.5, 0, 0, -1], [0, 0, 0, 0], [0, 2, 0, 0], [4, 0, 0, 0]]
    assert table.dense().tolist() == expected
    # The index -1 is that of the last row.
    assert table.take(np.array([2, -1, 0, 1, 0])).tolist() == [
        expected[row] for row in [2, 3, 0, 1, 0]
    ]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("row_sizes", [3, -1, 1, 1]),
        ("row_sizes", [2, 0, 1, 2]),
        ("row_sizes", [2, 0, 2]),
        ("columns", [0, 4, 1, 0]),
        ("columns", [-1, 3, 1, 0]),
        ("columns", [3, 0, 1, 0]),
        ("columns", [3, 3, 1, 0]),
    ],
    ids=str,
)
def test_a_sparse_table_whose_places_are_not_in_order_is_refused(name, values):
    packed = pack(SPARSE, "float16")
    packed[f"linear.weights.{name}"] = np.array(values, dtype=np.int32)

    with pytest.raises(ValueError, match=r"not in order|expected"):
        unpack(packed, SHAPE_OF_SPARSE, "float16")


# Rows of very different sizes, two of them zero.
DIRECTIONS = RANDOM.normal(size=(40, 8))
SIZES = 10 ** RANDOM.uniform(-3, 3, (40, 1))
NUMBERS = (DIRECTIONS * SIZES).astype(np.float32)
NUMBERS[[3, 17]] = 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored_rows", [[], [0], [1, 4, 39]], ids=str)
def test_rows_that_are_not_stored_are_zero(dtype, stored_rows):
    expected = np.zeros_like(NUMBERS)
    expected[stored_rows] = compress(NUMBERS, dtype).dense()[stored_rows]

    table = compress(NUMBERS, dtype, stored_rows=np.array(stored_rows, dtype=np.int32))

    assert len(table.values) == len(stored_rows)
    assert np.array_equal(table.dense(), expected)
    assert np.array_equal(table.take(np.array([39, 2, 0])), expected[[39, 2, 0]])
