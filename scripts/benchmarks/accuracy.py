"""Compare the test accuracy of encoder-cls with that of other methods, over several seeds.

    python scripts/benchmarks/accuracy.py FOLDER [--only DATASET]... [--method METHOD]...
        [--rounds N] [--output docs/results.md]

FOLDER has a subfolder for each data set (trec6, sst2, ...) with train.parquet, test.parquet and
perhaps validation.parquet, of the columns `text` and `label`; `example` is the bundled data. A
round's number is its seed. fastText, spaCy (its TextCatEnsemble) and Hugging Face's Trainer (of a
BERT from random weights) come with `pip install -e '.[bench]'`; the last two have 200 seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, mean_and_spread, median, values
from shared.commands import report, run, train
from shared.data import DATA, add_data_arguments, overrides, splits, write
from shared.page import NOT_MEASURED, table
from shared.peers import HF_TRAINER, SPACY, installed

OURS = "encoder-cls"
PEERS = {
    "fastText": "fasttext",
    "TF-IDF, words": "tfidf-words",
    "TF-IDF, characters too": "tfidf-chars",
    "spaCy": SPACY,
    "HF Trainer": HF_TRAINER,
}
METHODS = (OURS, *PEERS)
# The seconds of a search; networks may not reach their last epoch.
FOREVER = 1e9
LIMITS = {SPACY: 200, HF_TRAINER: 200}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    add_data_arguments(parser)
    parser.add_argument(
        "--method", choices=METHODS, action="append", help="repeatable; default: all"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by methods."""
    peers = installed(list(PEERS.values()))
    found = []
    for data in arguments.only or DATA:
        for method in arguments.method or METHODS:
            if method == OURS or PEERS[method] in peers:
                found.append({"data": data, "method": method})
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and score the test split."""
    with tempfile.TemporaryDirectory() as temporary:
        if case["method"] == OURS:
            return _measure_ours(arguments.folder, case, Path(temporary))
        return _measure_peer(arguments.folder, case, Path(temporary))


def _measure_ours(folder: Path, case: Case, work: Path) -> Found:
    ended = train(overrides(folder, case["data"], case["round"]), work / "run")
    found = report(work / "run")
    return {
        "accuracy": found["accuracy"],
        "num_test": found["num_examples"],
        "calibration": found["ece"],
        "seconds": ended.seconds,
        "peak_bytes": ended.peak_bytes,
    }


def _measure_peer(folder: Path, case: Case, work: Path) -> Found:
    for name, texts in splits(folder, case["data"], case["round"]).items():
        write(work / f"{name}.parquet", texts)

    system = PEERS[case["method"]]
    limit = LIMITS.get(system, FOREVER)
    curve = json.loads(search(system, case["round"], limit, work))
    points = curve["points"]
    return {
        "accuracy": points[-1][1] if points else None,  # no epoch has ended in time
        "num_test": curve["num_test"],
        "seconds": curve["chosen_seconds"] if points else None,
        "search_seconds": curve["seconds"],
        "setting": curve["chosen"],
    }


def search(system: str, seed: int, seconds: float, folder: Path) -> str:
    """Search in a process of its own; returns the curve of another system as JSON."""
    here = str(Path(__file__).parent)
    arguments = (system, str(seed), str(seconds), str(folder))
    code = (
        f"import sys; sys.path.insert(0, {here!r}); "
        f"from shared.peers import main; main(*{arguments!r})"
    )
    return run([sys.executable, "-c", code]).output.splitlines()[-1]


def lines(rows: Sequence[Row]) -> list[str]:
    """Accuracy; then calibration and time."""
    measured = {row.case["method"] for row in rows}
    methods = [method for method in METHODS if method in measured]

    scores = []
    costs = []
    errors = []
    for (data,), group in grouped(rows, "data").items():
        by_method = {method: found for (method,), found in grouped(group, "method").items()}
        scores.append(_score_line(data, by_method, methods))
        costs.append(_cost_line(data, by_method, methods))
        errors.append(f"{data} {_two_standard_errors(group):.1f}")

    return [
        *table(["data set", "test texts", "seeds", *methods], scores),
        "",
        f"Two standard errors, by the number of test texts: {', '.join(errors)}.",
        "",
        *table(["data set", "calibration error", *(f"{name}, s" for name in methods)], costs),
    ]


def _score_line(
    data: str, by_method: Mapping[str, Sequence[Row]], methods: Sequence[str]
) -> list[str]:
    """The accuracy of each method on a data set, the best ones in bold."""
    means = {}
    for method, group in by_method.items():
        numbers = values(group, "accuracy")
        if numbers:
            means[method] = round(statistics.mean(numbers), 3)
    best = max(means.values(), default=None)
    seeds = max(len(group) for group in by_method.values())

    first = next(iter(by_method.values()))[0]
    line = [data, str(first.found["num_test"]), str(seeds)]
    for method in methods:
        numbers = values(by_method.get(method, []), "accuracy")
        if not numbers:
            line.append(NOT_MEASURED)
            continue

        cell = mean_and_spread(numbers)
        if means.get(method) == best:
            cell = f"**{cell}**"
        if len(numbers) < seeds:
            cell += f" ({len(numbers)} of {seeds} seeds)"
        line.append(cell)
    return line


def _cost_line(
    data: str, by_method: Mapping[str, Sequence[Row]], methods: Sequence[str]
) -> list[str]:
    """The calibration error of encoder-cls, and the seconds of each method."""
    errors = values(by_method.get(OURS, []), "calibration")
    calibration = f"{statistics.mean(errors):.3f}" if errors else NOT_MEASURED
    return [data, calibration, *(_seconds(by_method.get(method, [])) for method in methods)]


def _two_standard_errors(rows: Sequence[Row]) -> float:
    """Two standard errors of the difference of two accuracies on the test texts, in points."""
    middle = statistics.median(values(rows, "accuracy"))
    return 200 * math.sqrt(2 * middle * (1 - middle) / rows[0].found["num_test"])


def _seconds(rows: Sequence[Row]) -> str:
    """The median time to train and, in brackets, that of a whole search."""
    if not values(rows, "seconds"):
        return NOT_MEASURED
    seconds = f"{median(rows, 'seconds'):,.1f}"
    if values(rows, "search_seconds"):
        seconds += f" ({median(rows, 'search_seconds'):,.0f})"
    return seconds


BENCHMARK = Benchmark("accuracy", __doc__, add_arguments, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
