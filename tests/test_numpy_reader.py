"""docs/read_model.py: it reads a model folder, and gives the probabilities of the classifier."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.weights import SparseTable, Table

READER = Path(__file__).parent.parent / "docs" / "read_model.py"
TEXTS = [
    "rain and snow today",
    "",
    "A big SOUP with zzz-yyy!",
    "ball " * 40,
    "word " * 200 + "goal",
    "我爱 Küche [PAD]",
]


@pytest.fixture(scope="module")
def probabilities():
    return runpy.run_path(str(READER))["probabilities"]


def sparse(table: Table) -> SparseTable:
    """The values of a table above zero."""
    weights = table.dense()
    is_kept = weights > 0
    return SparseTable(
        values=weights[is_kept],
        columns=np.nonzero(is_kept)[1].astype(np.int32),
        row_sizes=is_kept.sum(axis=1).astype(np.int32),
        num_columns=weights.shape[1],
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("parts", ["both", "encoder", "linear", "sparse linear"])
def test_the_reader_gives_the_probabilities_of_the_classifier(
    trained_run, tmp_path, probabilities, dtype, parts
):
    """They are within 0.0001 for any words, any script, no text and long ones."""
    classifier = load_classifier(trained_run.path, engine="numpy")
    if parts == "both":
        classifier.gate = 0.8
    if parts == "encoder":
        classifier.linear = None
        classifier.mixture = Mixture()
    if parts.endswith("linear"):
        classifier.encoder = None
        classifier.mixture = Mixture()
    if parts.startswith("sparse"):
        classifier.linear = replace(classifier.linear, weights=sparse(classifier.linear.weights))

    save_classifier(classifier, tmp_path, dtypes=dict.fromkeys(classifier.parts, dtype))
    saved = load_classifier(tmp_path, engine="numpy")
    for text, expected in zip(TEXTS, saved.predict_proba(TEXTS), strict=True):
        found = probabilities(tmp_path, text)
        assert tuple(found) == saved.label_names
        np.testing.assert_allclose(list(found.values()), expected, atol=1e-4)
