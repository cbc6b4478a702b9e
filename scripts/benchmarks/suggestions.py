"""Simulate how many labels `suggest` saves, beside texts in random order.

    python scripts/benchmarks/suggestions.py FOLDER [--only DATASET]... [--rounds N] [--output PAGE]

FOLDER is as that of `accuracy.py`. A linear model is trained on 100 labels drawn at random, 50
texts of the others get their label, it is trained again, and so on; both ways start with the same
100.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row, grouped
from shared.commands import PROGRAM, report, run, train
from shared.data import Texts, add_data_arguments, json_lines, path_of, read, sample, write
from shared.page import NOT_MEASURED, table

DATA = ("trec6", "ag_news", "sst2", "banking77")
RANDOM = "random order"
SUGGESTED = "suggest"
# Labels that both ways start with.
FIRST = 100
# Labels that are added at once.
BATCH = 50
# Labels at which each way ends.
MOST = {RANDOM: 1000, SUGGESTED: 700}
# Labels in random order, whose accuracy suggestions must reach.
COMPARED = (300, 500, 700, 1000)
# Training texts of a data set, and test texts.
MAX_TEXTS = 6000
MAX_TEST_TEXTS = 2000


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by ways."""
    found: list[Case] = []
    for data in arguments.only or DATA:
        found += [{"data": data, "way": RANDOM}, {"data": data, "way": SUGGESTED}]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Measure numbers of labels, and the accuracy with them."""
    folder = arguments.folder
    pool = sample(read(path_of(folder, case["data"], "train")), MAX_TEXTS)
    test = sample(read(path_of(folder, case["data"], "test")), MAX_TEST_TEXTS)
    order = np.random.default_rng(case["round"]).permutation(len(pool.texts))

    labelled = order[:FIRST]
    curve = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        settings = [
            f"data.train={work / 'train.parquet'}",
            f"data.test={write(work / 'test.parquet', test)}",
            "data.validation=null",
            "model.encoder=false",
        ]
        while True:
            write(work / "train.parquet", pool.take(labelled))
            model = work / str(len(labelled))
            train(settings, model)
            curve.append((len(labelled), report(model)["accuracy"]))
            if len(labelled) >= MOST[case["way"]]:
                return {"curve": curve}

            if case["way"] == RANDOM:
                labelled = order[: len(labelled) + BATCH]
            else:
                others = np.setdiff1d(order, labelled)
                labelled = np.concatenate([labelled, suggested(model, pool, others, work)])


def suggested(model: Path, pool: Texts, others: NDArray[np.int64], work: Path) -> NDArray[np.int64]:
    """The rows that `encoder-cls suggest` names among others."""
    path = work / "others.jsonl"
    path.write_text(json_lines(pool.texts[row] for row in others), encoding="utf-8")

    command = [*PROGRAM, "suggest", str(model), "--input", str(path)]
    command += ["--n", str(BATCH), "--json"]
    indices = []
    for line in run(command).output.splitlines():
        suggestion = json.loads(line)
        indices.append(suggestion["line"] - 1)
    return others[indices]


def means(rows: Sequence[Row]) -> tuple[list[int], NDArray[np.float64]]:
    """Numbers of labels, and the highest mean accuracy with so many labels or fewer."""
    curves = np.array([row.found["curve"] for row in rows])  # (rows, sizes, 2)
    sizes = curves[0, :, 0].astype(int).tolist()
    accuracies = curves[:, :, 1].mean(axis=0)
    return sizes, np.maximum.accumulate(accuracies)


def needed(random_rows: Sequence[Row], suggested_rows: Sequence[Row], size: int) -> float | None:
    """How many labels suggestions need for the accuracy of `size` labels in random order.

    None if the labels that were simulated do not reach it.
    """
    wanted = accuracy_with(random_rows, size)
    sizes, accuracies = means(suggested_rows)
    if accuracies[-1] < wanted:
        return None

    # Between the last size below and the first one above, the accuracy is taken as linear.
    first = max(1, int((accuracies >= wanted).argmax()))
    around = slice(first - 1, first + 1)
    return float(np.interp(wanted, accuracies[around], sizes[around]))


def accuracy_with(rows: Sequence[Row], size: int) -> float:
    """The mean accuracy with so many labels."""
    sizes, accuracies = means(rows)
    return float(accuracies[sizes.index(size)])


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set."""
    cells = []
    for (data,), group in grouped(rows, "data").items():
        ways = grouped(group, "way")
        random_rows = ways.get((RANDOM,))
        suggested_rows = ways.get((SUGGESTED,))
        if not random_rows or not suggested_rows:
            continue

        line = [data]
        for size in COMPARED:
            labels = needed(random_rows, suggested_rows, size)
            comparison = f"{labels:.0f} ({labels / size:.2f})" if labels else NOT_MEASURED
            line.append(f"{100 * accuracy_with(random_rows, size):.1f}%: {comparison}")
        cells.append(line)

    heads = [f"{size:,} in random order" for size in COMPARED]
    return table(["data set", *heads], cells)


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("suggestions", __doc__, ADD_ARGUMENTS, cases, measure, lines, rounds=2)

if __name__ == "__main__":
    BENCHMARK.main()
