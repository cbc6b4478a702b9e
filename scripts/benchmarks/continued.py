"""The time and accuracy of going on from a run with new labels and data, beside a run on all of it.

    python scripts/benchmarks/continued.py FOLDER [--only DATASET]... [--rounds N]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Train is halved at random; of the first half the labels of a
quarter of the classes are taken away. A run on that half goes on with the second one; another run
learns from both at once. The command fails where going on takes more than half of the time, or is
less accurate by more than two standard errors.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, median, values
from shared.commands import train
from shared.data import Texts, add_data_arguments, path_of, read, write
from shared.page import table
from shared.peers import classifier_accuracy

from encoder_cls import load_classifier

DATA = ("trec6", "sst2", "banking77")
# The part of the classes that the first run does not know; of two classes none.
PART_WITHOUT = 0.25


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets."""
    return [{"data": data} for data in arguments.only or DATA]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Seconds and test accuracy of both ways."""
    whole = read(path_of(arguments.folder, case["data"], "train"))
    test = read(path_of(arguments.folder, case["data"], "test"))
    first, second = _halves(whole, case["round"])
    parts = {
        "first": first,
        "second": second,
        "both": Texts(first.texts + second.texts, first.labels + second.labels),
    }

    found: Found = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for part, texts in parts.items():
            settings = [
                f"data.train={write(work / f'{part}.parquet', texts)}",
                "data.validation=null",
                "data.test=null",
                f"seed={case['round']}",
            ]
            words = ["--from", str(work / "run-first")] if part == "second" else []
            ended = train(settings, work / f"run-{part}", *words)

            classifier = load_classifier(work / f"run-{part}")
            found[part] = classifier_accuracy(classifier, test)
            found[f"{part}_seconds"] = ended.seconds
    return found


def _halves(texts: Texts, seed: int) -> tuple[Texts, Texts]:
    """Halve texts at random; the first half lacks the texts of some classes."""
    random = np.random.default_rng(seed)
    num_unknown = int(PART_WITHOUT * len(texts.classes))
    unknown = set(random.permutation(texts.classes)[:num_unknown].tolist())

    order = random.permutation(len(texts.texts))
    middle = len(order) // 2
    first_half = order[:middle]
    second_half = order[middle:]

    is_known = [texts.labels[row] not in unknown for row in first_half]
    return texts.take(first_half[is_known]), texts.take(second_half)


def _is_reached(rows: Sequence[Row]) -> bool:
    """Whether going on takes at most half of the time, and is not surely less accurate."""
    differences = [row.found["second"] - row.found["both"] for row in rows]
    # The standard error of the mean; of a single round it is unknown.
    error = 0.01
    if len(rows) > 1:
        error = statistics.stdev(differences) / len(rows) ** 0.5
    return _ratio(rows) <= 0.5 and statistics.mean(differences) >= -2 * error


def _ratio(rows: Sequence[Row]) -> float:
    """The time of going on, as a part of the time of a run on everything."""
    ratios = [row.found["second_seconds"] / row.found["both_seconds"] for row in rows]
    return float(statistics.median(ratios))


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set."""
    cells = []
    for (data,), group in grouped(rows, "data").items():
        accuracies = [statistics.mean(values(group, key)) for key in ("second", "both")]
        seconds = [median(group, key) for key in ("second_seconds", "both_seconds")]
        cells.append(
            [
                data,
                *(f"{100 * accuracy:.1f}" for accuracy in accuracies),
                *(f"{number:.0f}" for number in seconds),
                f"{_ratio(group):.2f}",
                "yes" if _is_reached(group) else "**no**",
            ]
        )

    head = [
        "",
        "accuracy, going on",
        "from nothing",
        "seconds, going on",
        "from nothing",
        "ratio",
        "reached",
    ]
    return table(head, cells)


def failures(rows: Sequence[Row]) -> list[str]:
    """The data sets on which the target is missed."""
    found = []
    for (data,), group in grouped(rows, "data").items():
        if not _is_reached(group):
            found.append(f"{data}: a target is missed")
    return found


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("continued", __doc__, ADD_ARGUMENTS, cases, measure, lines, failures=failures)

if __name__ == "__main__":
    BENCHMARK.main()
