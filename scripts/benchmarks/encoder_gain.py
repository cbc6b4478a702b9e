"""Accuracy that the encoder adds to the linear classifier, and its cost, on many small data sets.

    python scripts/benchmarks/encoder_gain.py FOLDER [--only DATASET]... [--size N]... [--rounds N]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each round draws so many texts of train; test is at most 3,000 texts. Where the
encoder is not kept, the answer is the linear classifier's. The command fails where the combination is more than 0.3
points less accurate than the linear classifier in the mean of the draws.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.commands import train
from shared.data import add_data_arguments, path_of, read, sample, write
from shared.page import table

from encoder_cls import load_classifier

DATA = ("trec6", "sst2", "banking77", "ag_news", "sst2_glue", "imdb")
SIZES = (2000, 4000, 8000)
MOST_TEST_TEXTS = 3000
MOST_LOST = 0.3  # points


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data sets and how much of them."""
    add_data_arguments(parser, names=DATA)
    parser.add_argument(
        "--size", type=int, action="append", help=f"training texts; default: {SIZES}"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets and sizes."""
    sizes = arguments.size or SIZES
    return [{"data": data, "size": size} for data in arguments.only or DATA for size in sizes]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Test accuracy of the linear classifier, of the encoder if it is kept, and of the answer; processor seconds."""
    draw, test = (
        case["round"],
        sample(read(path_of(arguments.folder, case["data"], "test")), MOST_TEST_TEXTS),
    )
    with tempfile.TemporaryDirectory() as name:
        texts = sample(
            read(path_of(arguments.folder, case["data"], "train")), case["size"], seed=1000 + draw
        )
        data = [
            f"data.train={write(Path(name, 'train.parquet'), texts)}",
            "data.validation=null",
            "data.test=null",
        ]
        seeds = [f"seed={draw}", f"data.split_seed={draw}"]
        ended = train([*data, *seeds], Path(name, "run"))
        classifier = load_classifier(Path(name, "run"))
    tokens = classifier.tokenize(test.texts)
    logits = {**classifier.part_logits(tokens), "both": classifier.logits(tokens)}
    labels = np.array([classifier.label_names.index(it) for it in test.labels])
    scores = {part: float((it.argmax(axis=1) == labels).mean()) for part, it in logits.items()}
    return {**scores, "seconds": ended.processor_seconds}


def _gain(rows: Sequence[Row]) -> float:
    """The mean gain over the draws, in points."""
    return 100 * statistics.mean(float(row.found["both"] - row.found["linear"]) for row in rows)


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and size, and one for all."""
    cells = []
    for (data, size), them in [*grouped(rows, "data", "size").items(), (("all", 0), list(rows))]:
        kept = [row for row in them if "encoder" in row.found]
        means = [f"{100 * statistics.mean(values(them, it)):.1f}" for it in ("linear", "both")]
        encoder = f"{100 * statistics.mean(values(kept, 'encoder')):.1f}" if kept else "-"
        seconds = f"{statistics.mean(values(them, 'seconds')):.0f}"
        counts = f"{len(kept)} of {len(them)}"
        cells.append(
            [
                data,
                f"{size:,}" if size else "",
                means[0],
                encoder,
                means[1],
                f"{_gain(them):+.2f}",
                counts,
                seconds,
            ]
        )
    return table(
        ["", "texts", "linear", "encoder", "both", "gain", "encoder kept", "processor, s"], cells
    )


def failures(rows: Sequence[Row]) -> list[str]:
    """Where the encoder harms."""
    groups = grouped(rows, "data", "size").items()
    return [
        f"{data}, {size} texts: {_gain(of):+.2f} points"
        for (data, size), of in groups
        if _gain(of) < -MOST_LOST
    ]


BENCHMARK = Benchmark(
    "encoder_gain", __doc__, add_arguments, cases, measure, lines, failures=failures
)

if __name__ == "__main__":
    BENCHMARK.main()
