"""Compare the test accuracy of encoder-cls with that of other methods, over several seeds.

    python scripts/benchmarks/accuracy.py FOLDER [--only DATASET]... [--method METHOD]... [--rounds N]
        [--output docs/results.md]

FOLDER has a subfolder for each data set (trec6, sst2, ...) with train.parquet, test.parquet and perhaps
validation.parquet, of the columns `text` and `label`; `example` is the bundled data. A round's number is its seed.
fastText and spaCy (its TextCatEnsemble) come with `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, mean_and_spread, median, values
from shared.commands import report, run, train
from shared.data import DATA, add_data_arguments, overrides, splits, write
from shared.page import NOT_MEASURED, table
from shared.peers import installed

PLAIN = (
    "pretrain.epochs=0", "model.linear=false", "model.char_ngram_buckets=0", "model.bigram_buckets=0",
    "train.rdrop_weight=0",
)  # fmt: skip
DEFAULT = "encoder-cls"
OURS = {DEFAULT: (), "plain encoder": PLAIN}
PEERS = {
    "fastText": "fasttext",
    "TF-IDF, words": "tfidf-words",
    "TF-IDF, characters too": "tfidf-chars",
    "spaCy": "spacy-ensemble",
}
METHODS = (*OURS, *PEERS)
FOREVER = 1e9  # seconds of a search


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    add_data_arguments(parser)
    parser.add_argument(
        "--method", choices=METHODS, action="append", help="repeatable; default: all"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by methods."""
    there = installed(list(PEERS.values()))
    methods = [it for it in arguments.method or METHODS if it in OURS or PEERS[it] in there]
    return [
        {"data": data, "method": method} for data in arguments.only or DATA for method in methods
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and score the test split."""
    folder, data, method, seed = arguments.folder, case["data"], case["method"], case["round"]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if method in OURS:
            ended = train([*overrides(folder, data, seed), *OURS[method]], work / "run")
            found = report(work / "run")
            return {
                "accuracy": found["accuracy"],
                "num_test": found["num_examples"],
                "calibration": found["ece"],
                "seconds": ended.seconds,
                "peak_bytes": ended.peak_bytes,
            }
        for name, texts in splits(folder, data, seed).items():
            write(work / f"{name}.parquet", texts)
        curve = json.loads(search(PEERS[method], seed, FOREVER, work))
    return {
        "accuracy": curve["points"][-1][1],
        "num_test": curve["num_test"],
        "seconds": curve["chosen_seconds"],
        "search_seconds": curve["seconds"],
        "setting": curve["chosen"],
    }


def search(system: str, seed: int, seconds: float, folder: Path) -> str:
    """The curve of another system, as JSON; it has a process of its own."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from shared.peers import main; main"
    call = f"{code}{(system, str(seed), str(seconds), str(folder))!r}"
    return run([sys.executable, "-c", call]).output.splitlines()[-1]


def lines(rows: Sequence[Row]) -> list[str]:
    """Accuracy; then calibration and time."""
    methods = [it for it in METHODS if any(row.case["method"] == it for row in rows)]
    scores, costs, chance = [], [], []
    for (data,), of_data in grouped(rows, "data").items():
        cells = grouped(of_data, "method")
        means = {
            it: statistics.mean(values(cells[it,], "accuracy")) for it in methods if (it,) in cells
        }
        best, seeds = max(means.values()), max(map(len, cells.values()))
        row = [data, str(of_data[0].found["num_test"]), str(seeds)]
        for method in methods:
            numbers = values(cells.get((method,), []), "accuracy")
            cell = mean_and_spread(numbers) if numbers else NOT_MEASURED
            cell = f"**{cell}**" if numbers and round(means[method], 3) == round(best, 3) else cell
            row.append(
                f"{cell} ({len(numbers)} of {seeds} seeds)" if 0 < len(numbers) < seeds else cell
            )
        scores.append(row)
        errors = values(cells.get((DEFAULT,), []), "calibration")
        calibration = f"{statistics.mean(errors):.3f}" if errors else NOT_MEASURED
        costs.append([data, calibration, *(_seconds(cells.get((it,), [])) for it in methods)])
        middle = statistics.median(values(of_data, "accuracy"))
        error = 200 * math.sqrt(2 * middle * (1 - middle) / of_data[0].found["num_test"])
        chance.append(f"{data} {error:.1f}")
    return [
        *table(["data set", "test texts", "seeds", *methods], scores),
        "",
        f"Two standard errors, by the number of test texts: {', '.join(chance)}.",
        "",
        *table(["data set", "calibration error", *(f"{it}, s" for it in methods)], costs),
    ]


def _seconds(rows: Sequence[Row]) -> str:
    """The median time, and that of the whole search."""
    if not rows:
        return NOT_MEASURED
    whole = f" ({median(rows, 'search_seconds'):,.0f})" if values(rows, "search_seconds") else ""
    return f"{median(rows, 'seconds'):,.1f}{whole}"


BENCHMARK = Benchmark("accuracy", __doc__, add_arguments, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
