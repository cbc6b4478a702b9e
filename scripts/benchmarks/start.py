"""From typing `encoder-cls train` to its first step.

    python scripts/benchmarks/start.py FOLDER [--only DATASET]... [--rounds N] [--output docs/results.md]

FOLDER is as that of `accuracy.py`. The default recipe trains in a process of its own; a phase ends when the line comes
that says what is next, the last one with the first row of `metrics.jsonl`. Memory is the peak until then.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, median, values
from shared.commands import metrics, train_command
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
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        run, log = Path(folder, "run"), Path(folder, "log")
        command = train_command([*overrides(arguments.folder, case["data"]), "train.log_every=1"], run)
        began = last = time.monotonic()
        with log.open("w") as file, subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL) as process:
            while "first step" not in found:
                if process.poll() is not None:
                    raise RuntimeError(log.read_text(encoding="utf-8")[-500:])
                said, now = log.read_text(encoding="utf-8").splitlines(), time.monotonic()
                for start, phase in LINES.items():
                    if phase not in found and any(line.startswith(start) for line in said):
                        found[phase], last = now - last, now
                if "run folder, first weights" in found and any(row.get("step", 0) >= 1 for row in metrics(run)):
                    found["first step"], found["in all"] = now - last, now - began
                    with suppress(OSError):
                        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                        found["peak"] = next(int(it.split()[1]) * 1024 for it in status if it.startswith("VmHWM:"))
                time.sleep(SECONDS_BETWEEN_LOOKS)
            process.terminate()
    return found


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set, medians over the rounds."""
    cells = []
    for (data,), them in grouped(rows, "data").items():
        seconds = [f"{median(them, phase):.2f}" for phase in (*PHASES, "in all")]
        memory = f"{median(them, 'peak') / 2**20:,.0f}" if values(them, "peak") else "-"
        cells.append([data, *seconds, memory])
    return table(["data", *PHASES, "in all", "memory, MiB"], cells)


BENCHMARK = Benchmark(
    name="start", doc=__doc__, add_arguments=add_data_arguments, cases=cases, measure=measure, lines=lines, rounds=5
)

if __name__ == "__main__":
    BENCHMARK.main()
