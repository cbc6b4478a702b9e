"""Test accuracy on TextGCN's data sets, beside what papers report of them.

    python scripts/benchmarks/published.py FOLDER [--only DATASET]... [--rounds N]
        [--output docs/published.md]

FOLDER is as that of `accuracy.py`, with the data sets of the page, whose splits are those of the
papers. A round's number is its seed, which also draws a tenth of train for validation.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, mean_and_spread, values
from shared.commands import report, train
from shared.data import add_data_arguments, overrides
from shared.page import table

DATA = ("R8", "mr", "ohsumed", "20ng")
OURS = "encoder-cls"
# In percent, by the order of DATA. The page says where each is from.
PUBLISHED = {
    "WideMLP [1]": (97.3, 76.7, 66.1, 84.2),
    "TextGCN [2]": (97.1, 76.7, 68.4, 86.3),
    "BERT, pretrained [2]": (97.8, 85.7, 70.5, 85.3),
}


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets."""
    return [{"data": data} for data in arguments.only or DATA]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train with the default config, and score the test split."""
    with tempfile.TemporaryDirectory() as name:
        run = Path(name, "run")
        ended = train(overrides(arguments.folder, case["data"], case["round"]), run)
        found = report(run)
    return {
        "accuracy": found["accuracy"],
        "num_test": found["num_examples"],
        "seconds": ended.processor_seconds,
    }


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set."""
    cells = []
    for (data,), group in grouped(rows, "data").items():
        ours = mean_and_spread(values(group, "accuracy"))
        published = [f"{figures[DATA.index(data)]:.1f}" for figures in PUBLISHED.values()]
        cells.append([data, f"{group[0].found['num_test']:,}", str(len(group)), ours, *published])
    return table(["data set", "test texts", "seeds", OURS, *PUBLISHED], cells)


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("published", __doc__, ADD_ARGUMENTS, cases, measure, lines)

if __name__ == "__main__":
    BENCHMARK.main()
