"""The kernels of the JavaScript engine compute what NumPy computes in float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from math import erf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.node import needs_node, run_node

pytestmark = needs_node

ENGINE = files("encoder_cls.export") / "engine"

# Runs the body of a function on matrices of a new memory, whose kernel is the one in WebAssembly or
# the plain one, and writes the rows that it returns.
RUN = """
import fs from "node:fs";
const { engine, isPlain, body, given } = JSON.parse(fs.readFileSync(0, "utf8"));
if (isPlain) delete globalThis.WebAssembly;
const { Columns, Memory, paddedColumns } = await import(`${engine}/matrices.mjs`);
const memory = new Memory();

function matrixOf(rows) {
  const matrix = memory.matrix(rows.length, rows[0].length);
  rows.forEach((row, number) => {
    memory.numbers.set(row, matrix.start + number * matrix.stride);
  });
  return matrix;
}
function rowsOf(matrix, numRows) {
  const rows = [];
  for (let row = 0; row < numRows; row++) {
    const start = matrix.start + row * matrix.stride;
    rows.push(Array.from(memory.numbers.subarray(start, start + matrix.stride)));
  }
  return rows;
}
const names = ["memory", "kernel", "Columns", "paddedColumns", "matrixOf", "given"];
const compute = new Function(...names, body);
const result = compute(memory, memory.kernel, Columns, paddedColumns, matrixOf, given);
process.stdout.write(JSON.stringify(rowsOf(result.matrix, result.numRows)));
"""

Compute = Callable[..., NDArray[np.float64]]


@pytest.fixture(params=["vectors", "plain"])
def compute(request) -> Compute:
    """A function that runs JavaScript with one of the kernels, and returns rows of numbers."""

    def run(body: str, **given: Any) -> NDArray[np.float64]:
        values = {name: np.asarray(value).tolist() for name, value in given.items()}
        message = {
            "engine": ENGINE.as_uri(),
            "isPlain": request.param == "plain",
            "body": body,
            "given": values,
        }
        return np.array(json.loads(run_node(RUN, json.dumps(message))))

    return run


def random_rows(num_rows: int, num_columns: int, *, scale: float = 1) -> NDArray[np.float64]:
    """Random numbers of float32."""
    draw = np.random.default_rng(num_rows + num_columns)
    numbers = draw.normal(scale=scale, size=(num_rows, num_columns))
    return numbers.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("num_rows", [1, 2, 4, 7])
def test_products_are_added_in_whole_and_incomplete_blocks(compute, num_rows):
    """Blocks of rows may be incomplete, and outputs may be grouped, of which none fills a panel."""
    x = random_rows(num_rows, 5)
    weight = random_rows(6, 5)
    sums = random_rows(num_rows, 16)
    found = compute(
        """
        const [inputs, outputs] = [new Columns(5), new Columns(6, 3)];
        const weight = memory.packedMatrix(given.weight.flat(), inputs, outputs);
        const matrix = matrixOf(given.sums);
        const numRows = given.x.length;
        kernel.addProduct(matrixOf(given.x), weight, matrix, numRows, inputs.paddedCount, 2);
        return { matrix, numRows };
        """,
        x=x,
        weight=weight,
        sums=sums,
    )

    # Each group of three outputs begins at a multiple of eight columns.
    expected = sums.copy()
    product = x @ weight.T
    expected[:, 0:3] += product[:, 0:3]
    expected[:, 8:11] += product[:, 3:6]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("function", ["setRows", "addToRows"])
def test_a_row_is_set_or_added_to_other_rows(compute, function):
    matrix = random_rows(3, 16)
    row = random_rows(1, 16)
    found = compute(
        f"""
        const matrix = matrixOf(given.matrix);
        kernel.{function}(matrix, matrixOf(given.row), 2);
        return {{ matrix, numRows: 3 }};
        """,
        matrix=matrix,
        row=row,
    )

    expected = matrix.copy()
    expected[:2] = row if function == "setRows" else matrix[:2] + row
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("width", [1, 6, 16])
@pytest.mark.parametrize("mean", [0, 10])
def test_layer_norms_are_those_of_all_columns(compute, width, mean):
    """Columns that fill up a panel do not count, and a large mean costs few digits."""
    x = mean + random_rows(5, width)
    weight = random_rows(1, width)
    bias = random_rows(1, width)
    found = compute(
        """
        const [x, weight, bias] = [given.x, given.weight, given.bias].map(matrixOf);
        kernel.normalize(x, x, weight, bias, 5, given.x[0].length);
        return { matrix: x, numRows: 5 };
        """,
        x=x,
        weight=weight,
        bias=bias,
    )

    x = x.astype(np.float32).astype(np.float64)
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    expected = (x - x.mean(axis=1, keepdims=True)) / deviation * weight + bias
    np.testing.assert_allclose(found[:, :width], expected, atol=1e-5)
    assert not found[:, width:].any()


@pytest.mark.parametrize("scale", [0.1, 5, 100])
def test_softmax_gives_probabilities(compute, scale):
    """Scores may be far from each other; a masked score has no probability."""
    scores = random_rows(5, 16, scale=scale)
    scores[:, 13:] = -1e30
    found = compute(
        """
        const matrix = matrixOf(given.scores);
        kernel.softmax(matrix, 5);
        return { matrix, numRows: 5 };
        """,
        scores=scores,
    )

    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=2e-7)


@pytest.mark.parametrize("function", ["gelu", "relu"])
def test_activations_are_exact_for_small_and_large_numbers(compute, function):
    small_numbers = np.linspace(-7, 7, 4000)
    large_numbers = np.linspace(-300, 300, 96)
    numbers = np.concatenate([small_numbers, large_numbers]).astype(np.float32)
    rows = numbers.astype(np.float64).reshape(-1, 16)
    found = compute(
        f"""
        const matrix = matrixOf(given.rows);
        kernel.{function}(matrix, given.rows.length);
        return {{ matrix, numRows: given.rows.length }};
        """,
        rows=rows,
    )

    if function == "relu":
        expected = np.maximum(rows, 0)
    else:
        expected = rows * (1 + np.vectorize(erf)(rows / np.sqrt(2))) / 2
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-6)
