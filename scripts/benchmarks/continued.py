"""The time and accuracy of going on from a run with new labels and new data, beside a run on all of it from nothing.

    python scripts/benchmarks/continued.py FOLDER [--only DATASET]... [--rounds N] [--output docs/guide.md]

FOLDER is as that of `accuracy.py`. Train is halved at random; of the first half the labels of a quarter of the classes
are taken away. A run on that half goes on with the second one; another run learns from both at once. The command fails
where going on takes more than half of the time, or is less accurate by more than two standard errors.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.commands import train
from shared.data import Texts, add_data_arguments, path_of, read, write
from shared.page import table
from shared.peers import classifier_accuracy

from encoder_cls import load_classifier

DATA = ("trec6", "sst2", "banking77")
PART_WITHOUT = 0.25  # of the classes, which the first run does not know; of two classes none


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets."""
    return [{"data": data} for data in arguments.only or DATA]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Seconds and test accuracy of both ways."""
    all_of_train, test = (
        read(path_of(arguments.folder, case["data"], it)) for it in ("train", "test")
    )
    random = np.random.default_rng(case["round"])
    unknown = set(
        random.permutation(all_of_train.classes)[
            : int(PART_WITHOUT * len(all_of_train.classes))
        ].tolist()
    )
    order = random.permutation(len(all_of_train.texts))
    middle = len(order) // 2
    first = all_of_train.take(
        np.array([row for row in order[:middle] if all_of_train.labels[row] not in unknown])
    )
    second = all_of_train.take(order[middle:])
    both = Texts(first.texts + second.texts, first.labels + second.labels)
    found: Found = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for part, texts in (("first", first), ("second", second), ("both", both)):
            data = [
                f"data.train={write(work / f'{part}.parquet', texts)}",
                "data.validation=null",
                "data.test=null",
            ]
            words = ["--from", str(work / "run-first")] if part == "second" else []
            ended = train([*data, f"seed={case['round']}"], work / f"run-{part}", *words)
            classifier = load_classifier(work / f"run-{part}")
            found[part] = classifier_accuracy(classifier, test)
            found[f"{part}_seconds"] = ended.seconds
    return found


def _is_reached(rows: Sequence[Row]) -> bool:
    """Whether going on takes half of the time at most, and is as accurate, as far as can be known."""
    differences = [row.found["second"] - row.found["both"] for row in rows]
    error = statistics.stdev(differences) / len(rows) ** 0.5 if len(rows) > 1 else 0.01
    return _ratio(rows) <= 0.5 and statistics.mean(differences) >= -2 * error


def _ratio(rows: Sequence[Row]) -> float:
    return statistics.median(
        float(row.found["second_seconds"] / row.found["both_seconds"]) for row in rows
    )


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set."""
    cells = []
    for (data,), them in grouped(rows, "data").items():
        scores = [f"{100 * statistics.mean(values(them, key)):.1f}" for key in ("second", "both")]
        seconds = [
            f"{statistics.median(values(them, f'{key}_seconds')):.0f}" for key in ("second", "both")
        ]
        cells.append(
            [
                data,
                *scores,
                *seconds,
                f"{_ratio(them):.2f}",
                "yes" if _is_reached(them) else "**no**",
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
    return [
        f"{data}: a target is missed"
        for (data,), of in grouped(rows, "data").items()
        if not _is_reached(of)
    ]


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("continued", __doc__, ADD_ARGUMENTS, cases, measure, lines, failures=failures)

if __name__ == "__main__":
    BENCHMARK.main()
