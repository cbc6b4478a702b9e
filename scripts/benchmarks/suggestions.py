"""How many labels `suggest` saves, simulated: its texts are labelled batch by batch, beside texts in random order.

    python scripts/benchmarks/suggestions.py FOLDER [--only DATASET]... [--rounds N] [--output PAGE]

FOLDER is as that of `accuracy.py`. A linear classifier is trained on 100 labels drawn at random, 50 texts of the others
get their label, it is trained again, and so on; both ways start with the same 100.
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
from shared.data import Texts, add_data_arguments, path_of, read, sample, write
from shared.page import table

DATA = ("trec6", "ag_news", "sst2", "banking77")
FIRST, BATCH = 100, 50  # labels
RANDOM, SUGGESTED = "random order", "suggest"
MOST = {RANDOM: 1000, SUGGESTED: 700}  # labels
COMPARED = (300, 500, 700, 1000)  # labels in random order, whose accuracy is to be reached
MOST_TEXTS, MOST_TEST_TEXTS = 6000, 2000  # of a data set


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by ways."""
    return [
        {"data": data, "way": way} for data in arguments.only or DATA for way in (RANDOM, SUGGESTED)
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Numbers of labels, and the accuracy with them."""
    pool, test = (
        sample(read(path_of(arguments.folder, case["data"], split)), most)
        for split, most in (("train", MOST_TEXTS), ("test", MOST_TEST_TEXTS))
    )
    labelled, curve = np.random.default_rng(case["round"]).permutation(len(pool.texts)), []
    order, labelled = labelled, labelled[:FIRST]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        data = [
            f"data.test={write(work / 'test.parquet', test)}",
            "data.validation=null",
            "model.encoder=false",
        ]
        while True:
            write(work / "train.parquet", pool.take(labelled))
            model = work / str(len(labelled))
            train([f"data.train={work / 'train.parquet'}", *data], model)
            curve.append((len(labelled), report(model)["accuracy"]))
            if len(labelled) >= MOST[case["way"]]:
                return {"curve": curve}
            if case["way"] == RANDOM:
                labelled = order[: len(labelled) + BATCH]
            else:
                labelled = np.concatenate(
                    [labelled, suggested(model, pool, np.setdiff1d(order, labelled), work)]
                )


def suggested(model: Path, pool: Texts, others: NDArray[np.int64], work: Path) -> NDArray[np.int64]:
    """The rows that `encoder-cls suggest` names among others."""
    place = work / "others.jsonl"
    place.write_text(
        "".join(json.dumps({"text": pool.texts[row]}) + "\n" for row in others), encoding="utf-8"
    )
    command = [*PROGRAM, "suggest", str(model), "--input", str(place), "--n", str(BATCH), "--json"]
    lines = [json.loads(line) for line in run(command).output.splitlines()]
    return others[[int(str(line["line"])) - 1 for line in lines]]


def means(rows: Sequence[Row]) -> tuple[list[int], NDArray[np.float64]]:
    """Numbers of labels and mean accuracies, the highest so far."""
    sizes = [size for size, _ in rows[0].found["curve"]]
    return sizes, np.maximum.accumulate(
        np.mean([[it for _, it in row.found["curve"]] for row in rows], axis=0)
    )


def needed(of_random: Sequence[Row], of_suggested: Sequence[Row], size: int) -> float | None:
    """How many labels suggestions need for the accuracy of random order with `size`; none: not with those simulated."""
    sizes, accuracies = means(of_random)
    wanted = accuracies[sizes.index(size)]
    sizes, accuracies = means(of_suggested)
    if accuracies[-1] < wanted:
        return None
    first = max(1, int((accuracies >= wanted).argmax()))
    return float(np.interp(wanted, accuracies[first - 1 : first + 1], sizes[first - 1 : first + 1]))


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set."""
    cells, of = [], grouped(rows, "data", "way")
    for data in dict.fromkeys(
        data for data, way in of if {(data, RANDOM), (data, SUGGESTED)} <= set(of)
    ):
        row = [data]
        for size in COMPARED:
            labels, wanted = (
                needed(of[data, RANDOM], of[data, SUGGESTED], size),
                means(of[data, RANDOM]),
            )
            share = f"{labels:.0f} ({labels / size:.2f})" if labels else "-"
            row.append(f"{100 * wanted[1][wanted[0].index(size)]:.1f}%: {share}")
        cells.append(row)
    return table(["data set", *(f"{size:,} in random order" for size in COMPARED)], cells)


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("suggestions", __doc__, ADD_ARGUMENTS, cases, measure, lines, rounds=2)

if __name__ == "__main__":
    BENCHMARK.main()
