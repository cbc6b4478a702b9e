"""The comparison of engines, without a training of its own: what it writes, and what it takes for a failure."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import engines


def test_of_long_texts_a_part_is_taken(tmp_path):
    """Every fifth of imdb, in training and test; of the others all."""
    for name in ("imdb", "sst2"):
        (tmp_path / name).mkdir()
        for split in ("train", "test"):
            rows = pyarrow.table({"text": [f"text {number}" for number in range(12)], "label": ["a", "b"] * 6})
            pyarrow.parquet.write_table(rows, tmp_path / name / f"{split}.parquet")
    (tmp_path / "part").mkdir()
    for name, expected in (("imdb", ["text 0", "text 5", "text 10"]), ("sst2", None)):
        train, _, test = (it.partition("=")[2] for it in engines.sources(name, tmp_path, tmp_path / "part"))
        for path in (train, test):
            found = pyarrow.parquet.read_table(path)["text"].to_pylist()
            assert found == expected if expected else len(found) == 12


@pytest.mark.parametrize(
    ("harm", "reasons"),
    [
        (lambda logits: logits, []),
        (lambda logits: logits + np.float32(1e-3), ["NumPy and PyTorch differ"]),
        (lambda logits: -logits, ["NumPy and PyTorch differ", "small weights change macro-F1 by "]),
    ],
)
def test_what_differs_fails(monkeypatch, trained_run, harm, reasons):
    """A logit of one engine, and answers after the weights were made small; the row says how many."""
    real = engines.load_classifier

    def load(path, *, engine, **options):
        loaded = real(path, engine=engine, **options)
        before = loaded.encoder.logits
        if engine == "numpy":
            monkeypatch.setattr(loaded.encoder, "logits", lambda texts: harm(before(texts)))
        if Path(path).name == "exact" and reasons[1:]:
            monkeypatch.setattr(loaded, "logits", lambda texts: -np.ones((len(texts), 3), np.float32).cumsum(axis=1))
        return loaded

    def copy(_setup, run, exact):
        shutil.copytree(trained_run.path, run.path)
        shutil.copytree(trained_run.model, exact)

    monkeypatch.setattr(engines, "_train", copy)
    monkeypatch.setattr(engines, "load_classifier", load)
    monkeypatch.setattr(engines, "sources", lambda *_: [])
    monkeypatch.setattr(engines, "load_config", lambda *_: trained_run.load_config())
    row, found = engines.compare("example", Path(), [])
    assert [reason[: len(expected)] for reason, expected in zip(found, reasons, strict=True)] == reasons
    assert len(row) == len(engines.COLUMNS)
    assert (row[2] == row[3] == "0") == (reasons[1:] == [])
    assert f"| {' | '.join(row)} |" in engines.document([row])
