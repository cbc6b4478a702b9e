"""Accuracy with columns beside the text: with noise, with the label, and with real columns.

    python scripts/benchmarks/features.py FOLDER [--only DATASET]... [--size N] [--encoder]
        [--rounds N] [--output docs/results.md]

FOLDER is as that of `accuracy.py`, and may have `uscongress/bills.csv`; data sets of others are in
its folder `textgcn`. Each round draws so many texts of train; test is at most 3,000 texts. All take
about twenty minutes of a processor. The columns:

- none;
- category, number: noise, of 20 values and from a normal distribution;
- label: the class itself, in nine of ten rows (trec6, sst2, ag_news);
- xor: a coin, where the class is that of the text if it shows heads, else the other one (sst2);
- real: chamber and congress (uscongress).

The command fails where noise costs more than 0.1 points in the mean of all draws.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.commands import report, train
from shared.data import EXAMPLE, Texts, add_data_arguments, path_of, read, sample
from shared.page import table

USCONGRESS = "uscongress"
DATA = (
    EXAMPLE,
    "trec6",
    "sst2",
    "mr",
    "R8",
    "hwu64",
    "banking77",
    "ag_news",
    "sst2_glue",
    USCONGRESS,
)
WITH_LABEL = ("trec6", "sst2", "ag_news")
NOISE = ("category", "number")
MAX_TEST_TEXTS = 3000
MAX_LOST = 0.1  # points
FIRST_DRAW = 2000

Columns = dict[str, list[str | float]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data sets, how much of them, and whether an encoder is trained."""
    add_data_arguments(parser, names=DATA)
    parser.add_argument("--size", type=int, default=2500, help="training texts")
    parser.add_argument("--encoder", action="store_true", help="the encoder alone, not the linear")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets and columns."""
    found: list[Case] = []
    for data in arguments.only or DATA:
        kinds = ["none", *NOISE]
        if data in WITH_LABEL:
            kinds.append("label")
        if data == "sst2":
            kinds.append("xor")
        if data == USCONGRESS:
            kinds.append("real")
        found += [{"data": data, "columns": kind, "encoder": arguments.encoder} for kind in kinds]
    return found


def _texts(folder: Path, data: str, size: int, seed: int) -> tuple[dict[str, Texts], Columns]:
    """The texts of train and test, and the real columns of both, one after the other."""
    if data != USCONGRESS:
        inner = folder / "textgcn"
        if (inner / data).is_dir():
            folder = inner
        train_texts = sample(read(path_of(folder, data, "train")), size, seed=seed)
        test = sample(read(path_of(folder, data, "test")), MAX_TEST_TEXTS)
        return {"train": train_texts, "test": test}, {}

    with (folder / data / "bills.csv").open(encoding="latin-1", newline="") as file:
        bills = list(csv.DictReader(file, delimiter=";"))
    order = np.random.default_rng(seed).permutation(len(bills))
    bills = [bills[row] for row in order]
    texts = Texts([bill["text"] for bill in bills], [bill["major"] for bill in bills])
    first_test = round(0.7 * len(bills))
    columns: Columns = {
        "chamber": [bill["h_or_sen"] for bill in bills],
        "congress": [bill["cong"] for bill in bills],
    }
    splits = {
        "train": texts.take(np.arange(first_test)),
        "test": texts.take(np.arange(first_test, len(bills))),
    }
    return splits, columns


def _columns(kind: str, labels: Sequence[str], real: Columns, seed: int) -> Columns:
    random = np.random.default_rng(seed)
    if kind == "category":
        return {"column": [f"value {number}" for number in random.integers(0, 20, len(labels))]}
    if kind == "number":
        return {"column": random.standard_normal(len(labels)).tolist()}
    if kind == "label":
        is_known = random.random(len(labels)) < 0.9
        return {
            "column": [
                label if known else "unknown" for label, known in zip(labels, is_known, strict=True)
            ]
        }
    if kind == "xor":
        return {"column": random.choice(["heads", "tails"], len(labels)).tolist()}
    return real if kind == "real" else {}


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and score the test texts.

    Returns:
        The accuracy; and processor seconds.
    """
    seed = case["round"]
    splits, real = _texts(arguments.folder, case["data"], arguments.size, FIRST_DRAW + seed)
    labels = [label for texts in splits.values() for label in texts.labels]
    columns = _columns(case["columns"], labels, real, seed)
    if case["columns"] == "xor":
        both = sorted(set(labels))
        labels = [
            label if coin == "heads" else both[1 - both.index(label)]
            for label, coin in zip(labels, columns["column"], strict=True)
        ]

    with tempfile.TemporaryDirectory() as name:
        settings = [
            "data.validation=null",
            f"seed={seed}",
            f"data.split_seed={seed}",
            f"data.features=[{', '.join(columns)}]",
            f"model.encoder={str(case['encoder']).lower()}",
            f"model.linear={str(not case['encoder']).lower()}",
        ]
        start = 0
        for split, texts in splits.items():
            rows = slice(start, start + len(texts.texts))
            values_of_columns = {key: column[rows] for key, column in columns.items()}
            content = {"text": texts.texts, "label": labels[rows], **values_of_columns}
            path = Path(name, f"{split}.parquet")
            pyarrow.parquet.write_table(pyarrow.table(content), path)
            settings.append(f"data.{split}={path}")
            start = rows.stop
        ended = train(settings, Path(name, "run"))
        return {
            "accuracy": report(Path(name, "run"))["accuracy"],
            "seconds": ended.processor_seconds,
        }


def _cost(rows: Sequence[Row], kind: str) -> list[float]:
    """How many points a column costs, for each data set and draw."""
    found = {(row.case["data"], row.case["round"], row.case["columns"]): row for row in rows}
    costs = []
    for (data, draw, columns), row in found.items():
        without = found.get((data, draw, "none"))
        if columns == kind and without:
            costs.append(100 * (without.found["accuracy"] - row.found["accuracy"]))
    return costs


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and kind of columns, and one for all noise."""
    cells = []
    for (data, columns), group in grouped(rows, "data", "columns").items():
        accuracy = statistics.mean(values(group, "accuracy"))
        seconds = statistics.mean(values(group, "seconds"))
        cost = _cost([row for row in rows if row.case["data"] == data], columns)
        gain = ""
        if columns != "none" and cost:
            gain = f"{-statistics.mean(cost):+.2f}"
        cells.append([data, columns, f"{100 * accuracy:.2f}", gain, f"{seconds:.0f}"])

    noise = [cost for kind in NOISE for cost in _cost(rows, kind)]
    if noise:
        error = statistics.pstdev(noise) / math.sqrt(len(noise))
        gain = f"{-statistics.mean(noise):+.2f} ± {error:.2f}"
        cells.append(["all", "noise", "", gain, ""])
    return table(["", "columns", "accuracy", "gain", "processor, s"], cells)


def failures(rows: Sequence[Row]) -> list[str]:
    """Whether noise costs too much."""
    noise = [cost for kind in NOISE for cost in _cost(rows, kind)]
    if noise and statistics.mean(noise) > MAX_LOST:
        return [f"noise costs {statistics.mean(noise):.2f} points"]
    return []


BENCHMARK = Benchmark(
    "features", __doc__, add_arguments, cases, measure, lines, failures=failures, rounds=2
)


if __name__ == "__main__":
    BENCHMARK.main()
