"""The matrices of the JavaScript engine compute what NumPy computes in float64."""

from __future__ import annotations

import json
from importlib.resources import files
from math import erf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.node import needs_node, run_node

pytestmark = needs_node

MATRICES = files("encoder_cls.extras.export") / "engine" / "matrices.mjs"

# Runs the body of a function on matrices, and writes the numbers of the one that it returns.
RUN = """
import fs from "node:fs";
const { module, body, given } = JSON.parse(fs.readFileSync(0, "utf8"));
const matrices = await import(module);
const matrixOf = (rows) => {
  return new matrices.Matrix(Float32Array.from(rows.flat()), rows[0].length);
};
const found = new Function("matrices", "matrixOf", "given", body)(matrices, matrixOf, given);
process.stdout.write(JSON.stringify(Array.from(found.numbers)));
"""


def compute(body: str, **given: NDArray[np.float64]) -> NDArray[np.float64]:
    """Run JavaScript, which returns a matrix of the shape of the first one that is given."""
    values: dict[str, Any] = {name: value.tolist() for name, value in given.items()}
    message = {"module": MATRICES.as_uri(), "body": body, "given": values}
    found = json.loads(run_node(RUN, json.dumps(message)))
    return np.array(found).reshape(next(iter(given.values())).shape)


def random_rows(num_rows: int, num_columns: int, *, scale: float = 1) -> NDArray[np.float64]:
    """Random numbers of float32."""
    draw = np.random.default_rng(num_rows + num_columns)
    numbers = draw.normal(scale=scale, size=(num_rows, num_columns))
    return numbers.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize("num_columns", [3, 4, 9])
def test_products_are_added(num_rows, num_columns):
    """Also where the rows and columns that are computed at once are incomplete."""
    sums = random_rows(num_rows, num_columns)
    x = random_rows(num_rows, 6)
    weight = random_rows(num_columns, 6)
    found = compute(
        f"""
        const [sums, x, weight] = [given.sums, given.x, given.weight].map(matrixOf);
        matrices.addProduct(x, weight, sums, {num_rows}, {num_columns}, 6);
        return sums;
        """,
        sums=sums,
        x=x,
        weight=weight,
    )
    np.testing.assert_allclose(found, sums + x @ weight.T, atol=1e-6)


@pytest.mark.parametrize("mean", [0, 10])
def test_layer_norms_are_exact(mean):
    """A large mean costs few digits."""
    x = (mean + random_rows(5, 6)).astype(np.float32).astype(np.float64)
    weight = random_rows(1, 6)
    bias = random_rows(1, 6)
    found = compute(
        """
        const x = matrixOf(given.x);
        matrices.normalize(x, x, given.weight[0], given.bias[0], 5);
        return x;
        """,
        x=x,
        weight=weight,
        bias=bias,
    )

    deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    expected = (x - x.mean(axis=1, keepdims=True)) / deviation * weight + bias
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("scale", [0.1, 5, 100])
def test_softmax_gives_probabilities(scale):
    """Scores may be far from each other."""
    scores = random_rows(5, 13, scale=scale)
    found = compute(
        """
        const scores = matrixOf(given.scores);
        matrices.softmax(scores, 5, 0.5);
        return scores;
        """,
        scores=scores,
    )

    exponentials = np.exp(0.5 * (scores - scores.max(axis=1, keepdims=True)))
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=2e-7)


@pytest.mark.parametrize("function", ["gelu", "relu"])
def test_activations_are_exact_for_small_and_large_numbers(function):
    numbers = np.concatenate([np.linspace(-7, 7, 4000), np.linspace(-300, 300, 96)])
    rows = numbers.astype(np.float32).astype(np.float64).reshape(-1, 16)
    found = compute(
        f"""
        const matrix = matrixOf(given.rows);
        matrices.{function}(matrix, given.rows.length);
        return matrix;
        """,
        rows=rows,
    )

    if function == "relu":
        expected = np.maximum(rows, 0)
    else:
        expected = rows * (1 + np.vectorize(erf)(rows / np.sqrt(2))) / 2
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-6)
