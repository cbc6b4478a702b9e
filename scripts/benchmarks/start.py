"""From typing `encoder-cls train` to its first step.

    python scripts/benchmarks/start.py FOLDER [--only DATASET]... [--rounds N] [--output docs/results.md]

FOLDER is as that of `accuracy.py`. The default recipe trains in a process of its own; a phase ends when the line comes
that says what is next, the last one with the first row of `metrics.jsonl`. Memory is the peak until then.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, median, values
from shared.commands import memory_of, metrics, train_command, watch
from shared.data import DATA, add_data_arguments, overrides
from shared.page import table

# A line on standard error that begins so -> what has been done when it comes.
LINES = {"reading ": "imports", "data: ": "texts, tokenizer", "training in ": "run folder, first weights"}
PHASES = (*LINES.values(), "first step")
SECONDS_BETWEEN_LOOKS = 0.01


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets."""
    return [{"data": data} for data in arguments.only or DATA]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The seconds of each phase; then the training is stopped.

    Raises:
        RuntimeError: it ended before the first step.
    """
    found, last = Found(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = train_command([*overrides(arguments.folder, case["data"]), "train.log_every=1"], run)
        with closing(watch(command, every=SECONDS_BETWEEN_LOOKS)) as looks:
            for pid, seconds, said in looks:
                for start, phase in LINES.items():
                    if phase not in found and f"\n{start}" in f"\n{said}":
                        found[phase], last = seconds - last, seconds
                if len(found) == len(LINES) and any(row.get("step", 0) >= 1 for row in metrics(run)):
                    return {**found, "first step": seconds - last, "in all": seconds, "peak": memory_of(pid, "VmHWM")}
    raise RuntimeError(said)


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set, medians over the rounds."""
    cells = []
    for (data,), them in grouped(rows, "data").items():
        seconds = [f"{median(them, phase):.2f}" for phase in (*PHASES, "in all")]
        memory = f"{median(them, 'peak') / 2**20:,.0f}" if values(them, "peak") else "-"
        cells.append([data, *seconds, memory])
    return table(["data", *PHASES, "in all", "memory, MiB"], cells)


BENCHMARK = Benchmark("start", __doc__, add_data_arguments, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
