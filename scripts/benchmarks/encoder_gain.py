"""Accuracy that the encoder adds to the linear model, and its cost, on many small data sets.

    python scripts/benchmarks/encoder_gain.py FOLDER [--only DATASET]... [--size N]... [--rounds N]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each round draws so many texts of train; test is at most 3,000
texts. Where the encoder is not kept, the linear model predicts alone. The command fails where
the combination is more than 0.3 points less accurate than the linear model in the mean of the
draws.
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
from shared.page import NOT_MEASURED, table

from encoder_cls import load_classifier

DATA = ("trec6", "sst2", "banking77", "ag_news", "sst2_glue", "imdb")
SIZES = (2000, 4000, 8000)
MAX_TEST_TEXTS = 3000
MAX_LOST = 0.3  # points
# The seed of the first draw of training texts.
FIRST_DRAW = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data sets and how much of them."""
    add_data_arguments(parser, names=DATA)
    parser.add_argument(
        "--size", type=int, action="append", help=f"training texts; default: {SIZES}"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets and sizes."""
    found: list[Case] = []
    for data in arguments.only or DATA:
        found += [{"data": data, "size": size} for size in arguments.size or SIZES]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and score the test texts.

    Returns:
        The accuracy of the linear model, of the encoder if it is kept, and of the classifier; and
        processor seconds.
    """
    seed = case["round"]
    whole = read(path_of(arguments.folder, case["data"], "train"))
    texts = sample(whole, case["size"], seed=FIRST_DRAW + seed)
    with tempfile.TemporaryDirectory() as name:
        settings = [
            f"data.train={write(Path(name, 'train.parquet'), texts)}",
            "data.validation=null",
            "data.test=null",
            f"seed={seed}",
            f"data.split_seed={seed}",
        ]
        ended = train(settings, Path(name, "run"))
        classifier = load_classifier(Path(name, "run"))

    test = sample(read(path_of(arguments.folder, case["data"], "test")), MAX_TEST_TEXTS)
    labels = np.array([classifier.label_names.index(label) for label in test.labels])
    tokens = classifier.tokenize(test.texts)
    logits_of_part = {**classifier.part_logits(tokens), "both": classifier.logits(tokens)}

    found: Found = {"seconds": ended.processor_seconds}
    for part, logits in logits_of_part.items():
        found[part] = float((logits.argmax(axis=1) == labels).mean())
    return found


def _gain(rows: Sequence[Row]) -> float:
    """The mean gain over the draws, in points."""
    gains = [row.found["both"] - row.found["linear"] for row in rows]
    return float(100 * statistics.mean(gains))


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and size, and one for all."""
    cells = []
    for (data, size), group in grouped(rows, "data", "size").items():
        cells.append([data, f"{size:,}", *_summary(group)])
    cells.append(["all", "", *_summary(rows)])
    heads = ["", "texts", "linear", "encoder", "both", "gain", "encoder kept", "processor, s"]
    return table(heads, cells)


def _summary(rows: Sequence[Row]) -> list[str]:
    """The means over some rows, and in how many of them the encoder is kept."""
    with_encoder = [row for row in rows if "encoder" in row.found]
    return [
        _mean_percent(rows, "linear"),
        _mean_percent(with_encoder, "encoder"),
        _mean_percent(rows, "both"),
        f"{_gain(rows):+.2f}",
        f"{len(with_encoder)} of {len(rows)}",
        f"{statistics.mean(values(rows, 'seconds')):.0f}",
    ]


def _mean_percent(rows: Sequence[Row], key: str) -> str:
    return f"{100 * statistics.mean(values(rows, key)):.1f}" if rows else NOT_MEASURED


def failures(rows: Sequence[Row]) -> list[str]:
    """The data sets and sizes where the encoder harms."""
    found = []
    for (data, size), group in grouped(rows, "data", "size").items():
        gain = _gain(group)
        if gain < -MAX_LOST:
            found.append(f"{data}, {size} texts: {gain:+.2f} points")
    return found


BENCHMARK = Benchmark(
    "encoder_gain", __doc__, add_arguments, cases, measure, lines, failures=failures
)

if __name__ == "__main__":
    BENCHMARK.main()
