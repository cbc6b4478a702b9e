"""NumPy beside PyTorch: whether both predict the same, on real data.

    python scripts/benchmarks/engines.py FOLDER [--only DATASET]... [--output docs/results.md]

FOLDER is as that of `accuracy.py`. A classifier is trained for a short time on each data set, and
both engines classify the test texts (5,000 at most). The command fails where a label differs, or a
probability by more than 0.00001.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row
from shared.commands import train
from shared.data import DATA, add_data_arguments, overrides, path_of, read, sample
from shared.page import table

from encoder_cls import load_classifier

DATA_SETS = (*DATA, "sst2_glue")
SHORT = ["pretrain.epochs=1", "train.epochs=2"]
TOLERANCE = 1e-5
MAX_TEXTS = 5000


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets."""
    return [{"data": data, "settings": SHORT} for data in arguments.only or DATA_SETS]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and count the predictions in which the engines differ."""
    test = sample(read(path_of(arguments.folder, case["data"], "test")), MAX_TEXTS)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        train([*overrides(arguments.folder, case["data"]), *case["settings"]], run)
        size = (run / "model" / "model.safetensors").stat().st_size

        by_numpy = load_classifier(run, device="cpu", engine="numpy").predict_proba(test.texts)
        by_torch = load_classifier(run, device="cpu", engine="torch").predict_proba(test.texts)
    return {
        "texts": len(test.texts),
        "different": int((by_numpy.argmax(axis=1) != by_torch.argmax(axis=1)).sum()),
        "largest": float(np.abs(by_numpy - by_torch).max()),
        "size": size,
    }


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set."""
    cells = []
    for row in rows:
        found = row.found
        cells.append(
            [
                row.case["data"],
                f"{found['texts']:,}",
                str(found["different"]),
                f"{found['largest']:.1e}",
                f"{found['size'] / 1e6:.1f}",
            ]
        )
    heads = ["data set", "test texts", "labels that differ", "largest difference", "model, MB"]
    return table(heads, cells)


def failures(rows: Sequence[Row]) -> list[str]:
    """The data sets on which the engines differ."""
    found = []
    for row in rows:
        if row.found["different"] or row.found["largest"] > TOLERANCE:
            found.append(f"{row.case['data']}: NumPy and PyTorch differ")
    return found


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA_SETS)
BENCHMARK = Benchmark(
    "engines", __doc__, ADD_ARGUMENTS, cases, measure, lines, failures=failures, rounds=1
)

if __name__ == "__main__":
    BENCHMARK.main()
