"""What it costs to learn no word that is in few texts (`tokenizer.min_frequency`).

    python scripts/benchmarks/rare_words.py FOLDER [--only DATASET]... [--size N]... [--encoder]
        [--rounds N] [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each round draws so many texts of train, 0 means up to 8,000;
test is at most 3,000 texts. The model is the linear one; with `--encoder`, both parts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.data import add_data_arguments, path_of, read, sample, write
from shared.page import NOT_MEASURED, table

from encoder_cls import config_of, train

DATA = ("trec6", "sst2", "banking77", "hwu64", "ag_news")
SIZES = (100, 200, 1000, 0)
MAX_TEXTS = 8000
MAX_TEST_TEXTS = 3000
MIN_TEXTS = (1, 2, 3, 5)
# The seed of the first draw of training texts.
FIRST_DRAW = 3000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data sets, how much of them, and the parts of the model."""
    add_data_arguments(parser, names=DATA)
    parser.add_argument(
        "--size", type=int, action="append", help=f"training texts; default: {SIZES}"
    )
    parser.add_argument("--encoder", action="store_true", help="train the encoder, too")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets, sizes and the number of texts that a word must be in."""
    found: list[Case] = []
    for data in arguments.only or DATA:
        for size in arguments.size or SIZES:
            common = {"data": data, "size": size, "encoder": arguments.encoder}
            found += [{**common, "min_frequency": number} for number in MIN_TEXTS]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and score the test texts.

    Returns:
        The accuracy, the size of the vocabulary, and processor seconds.
    """
    seed = case["round"]
    whole = read(path_of(arguments.folder, case["data"], "train"))
    texts = sample(whole, case["size"] or MAX_TEXTS, seed=FIRST_DRAW + seed)
    test = sample(read(path_of(arguments.folder, case["data"], "test")), MAX_TEST_TEXTS)

    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        config = config_of(
            {
                "name": "rare_words",
                "data.train": str(write(Path(name, "train.parquet"), texts)),
                "seed": seed,
                "data.split_seed": seed,
                "model.encoder": "auto" if case["encoder"] else False,
                "tokenizer.min_frequency": case["min_frequency"],
            }
        )
        classifier = train(config, run_dir=Path(name, "run"), with_report=False)
    seconds = time.process_time() - began

    predicted = [prediction.label for prediction in classifier.predict(test.texts)]
    return {
        "accuracy": float(np.mean(np.array(predicted) == test.labels)),
        "tokens": classifier.tokenizer.get_vocab_size(),
        "seconds": seconds,
    }


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and size, and one for all: means over rounds."""
    cells = []
    for (data, size), group in grouped(rows, "data", "size").items():
        texts = f"{size:,}" if size else "all"
        cells.append([data, texts, *_summary(group)])
    # Not each number of texts is measured on each data set: only the changes are comparable.
    changes_of_all = _summary(rows)[len(MIN_TEXTS) : 2 * len(MIN_TEXTS) - 1]
    cells.append(["all", "", *[""] * len(MIN_TEXTS), *changes_of_all, "", "", ""])
    heads = [f"in {number}" for number in MIN_TEXTS]
    changes = [f"{number} less 1" for number in MIN_TEXTS[1:]]
    return table(["", "texts", *heads, *changes, "tokens, in 1", "in 2", "processor, s"], cells)


def _summary(rows: Sequence[Row]) -> list[str]:
    """Mean accuracies, and mean differences to all words, with their standard errors."""
    by_number = grouped(rows, "min_frequency")
    found = []
    for number in MIN_TEXTS:
        accuracies = values(by_number.get((number,), []), "accuracy")
        found.append(f"{100 * mean(accuracies):.1f}" if accuracies else NOT_MEASURED)

    all_words = {_other_keys(row): row.found["accuracy"] for row in by_number.get((1,), [])}
    for number in MIN_TEXTS[1:]:
        changes = [
            100 * (row.found["accuracy"] - all_words[_other_keys(row)])
            for row in by_number.get((number,), [])
            if _other_keys(row) in all_words
        ]
        if len(changes) > 1:
            error = stdev(changes) / len(changes) ** 0.5
            found.append(f"{mean(changes):+.2f} ± {error:.2f}")
        else:
            found.append(NOT_MEASURED)

    for number in MIN_TEXTS[:2]:
        tokens = values(by_number.get((number,), []), "tokens")
        found.append(f"{mean(tokens):,.0f}" if tokens else NOT_MEASURED)
    return [*found, f"{mean(values(rows, 'seconds')):.0f}"]


def _other_keys(row: Row) -> tuple[object, ...]:
    return tuple(value for key, value in sorted(row.case.items()) if key != "min_frequency")


BENCHMARK = Benchmark("rare_words", __doc__, add_arguments, cases, measure, lines)

if __name__ == "__main__":
    BENCHMARK.main()
