"""The tensors of a weights file: small types, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.linear.ngrams import NUM_FEATURE_IDS
from encoder_cls.weights import DTYPES, RowTable, compress, dense, pack, unpack

RANDOM = np.random.default_rng(0)
TABLE, MATRIX, NORM = (
    "encoder.embedding.bigrams.table.weight",
    "head.linear.weight",
    "encoder.final_norm.weight",
)


ZERO = [0, *range(5, 20)]


def weights() -> dict[str, np.ndarray]:
    """One of each kind, of the table most rows zero."""
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


WEIGHTS = weights()
SHAPES = {name: weight.shape for name, weight in WEIGHTS.items()}


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("float16", 1e-3), ("int8", 1e-2)])
def test_weights_come_back(dtype, error):
    packed = pack(WEIGHTS, dtype)
    found = unpack(packed, SHAPES, dtype)
    assert isinstance(found[TABLE], RowTable)
    for name, weight in dense(found).items():
        assert weight.dtype == WEIGHTS[name].dtype
        np.testing.assert_allclose(weight, WEIGHTS[name], atol=error * np.abs(WEIGHTS[name]).max())
    for name in (NORM, "linear.frequent_token_ids", "linear.feature_ids"):
        assert np.array_equal(found[name], WEIGHTS[name])
    assert not found[TABLE].dense()[ZERO].any()
    assert (TABLE + ".rows" in packed) == (dtype != "float32")
    assert pack(found, dtype).keys() == packed.keys()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_what_is_missing_too_much_or_of_another_kind_is_refused(dtype, name):
    packed = pack(WEIGHTS, dtype)
    wrong = [packed[name][1:], packed[name].astype(np.float64)]
    if packed[name].dtype.kind == "f":
        wrong.append(np.full_like(packed[name], np.nan))
    for tensor in wrong:
        with pytest.raises(ValueError, match=r"expected|not finite|other numbers"):
            unpack(packed | {name: tensor}, SHAPES, dtype)
    with pytest.raises(KeyError):
        unpack({other: tensor for other, tensor in packed.items() if other != name}, SHAPES, dtype)
    with pytest.raises(ValueError, match="unknown tensor"):
        unpack(packed | {name + ".more": packed[name]}, SHAPES, dtype)


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
def test_rows_that_are_none_are_refused(rows):
    packed = pack(WEIGHTS, "int8")
    with pytest.raises(ValueError, match="not in order"):
        unpack(packed | {TABLE + ".rows": np.array(rows, dtype=np.int32)}, SHAPES, "int8")


@pytest.mark.parametrize("counts", [[-1, 7], [3, 4], [3, 2]])
def test_high_halves_that_do_not_fit_are_refused(counts):
    packed = pack(WEIGHTS, "int8")
    high = np.zeros(NUM_FEATURE_IDS >> 16, dtype=np.int32)
    high[:2] = counts
    with pytest.raises(ValueError, match="low halves"):
        unpack(packed | {"linear.feature_ids.high": high}, SHAPES, "int8")


NUMBERS = (RANDOM.normal(size=(40, 8)) * 10 ** RANDOM.uniform(-3, 3, (40, 1))).astype(np.float32)
NUMBERS[[3, 17]] = 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("stored", [[], [0], [1, 4, 39]])
def test_rows_that_are_not_stored_are_zero(dtype, stored):
    table = compress(NUMBERS, dtype, stored_rows=np.array(stored, dtype=np.int32))
    expected = np.zeros_like(NUMBERS)
    expected[stored] = compress(NUMBERS, dtype).dense()[stored]
    assert len(table.values) == len(stored)
    assert np.array_equal(table.dense(), expected)
    assert np.array_equal(table.take(np.array([39, 2, 0])), expected[[39, 2, 0]])
