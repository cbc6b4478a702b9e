"""Tokens a second of several processes that train together, beside one.

    python scripts/benchmarks/distributed.py CONFIG [--rounds 3] [--output docs/results.md]

Trains by the command line, one epoch on labels: by one process; by one process whose batches are
cut into two shards; and by two processes on this machine, each with one thread. The speed is the
median of what a training logs. Three shapes are measured: 2 layers of width 128, 4 layers of width
256, and the same with batches of 512 texts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, median, pivot
from shared.commands import metrics, run

# The config values of each shape.
LARGE = ("model.d_model=256", "model.num_layers=4", "model.d_ff=1024")
SHAPES = {
    "width 128": (),
    "width 256": LARGE,
    "width 256, batches of 512": (*LARGE, "train.batch_size=512"),
}
# The processes and the shards of each way to train.
WAYS = {
    "one process": (1, 1),
    "one process, 2 shards": (1, 2),
    "2 processes, 2 shards": (2, 2),
}
FIXED = ("pretrain.epochs=0", "train.epochs=1", "train.log_every=1", "model.linear=false")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to train."""
    parser.add_argument("config", type=Path)


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Shapes by ways to train."""
    found: list[Case] = []
    for shape in SHAPES:
        for way, (processes, shards) in WAYS.items():
            case = {"shape": shape, "way": way, "processes": processes, "shards": shards}
            found.append(case)
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Tokens a second of one training."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={case['processes']}", "-m", "encoder_cls", "train"]
        command += ["--config", str(arguments.config), "--run-dir", f"{folder}/run"]
        shards = f"train.gradient_shards={case['shards']}"
        for value in [*FIXED, shards, *SHAPES[case["shape"]]]:
            command += ["--set", value]

        run(command)
        rows = metrics(Path(folder, "run"))
    speeds = [row["tokens_per_s"] for row in rows if row.get("split") == "train"]
    return {"speed": statistics.median(speeds)}


def lines(rows: Sequence[Row]) -> list[str]:
    """Ways by shapes: tokens a second and, in brackets, the ratio to one process."""
    of_one_process = [row for row in rows if row.case["way"] == "one process"]
    base_speeds = {}
    for (shape,), group in grouped(of_one_process, "shape").items():
        base_speeds[shape] = median(group, "speed")

    def cell(group: list[Row]) -> str:
        speed = median(group, "speed")
        base = base_speeds.get(group[0].case["shape"])
        if not base:
            return f"{speed:,.0f}"
        return f"{speed:,.0f} ({speed / base:.2f})"

    return pivot(rows, "way", "shape", cell)


BENCHMARK = Benchmark("distributed", __doc__, add_arguments, cases, measure, lines)

if __name__ == "__main__":
    BENCHMARK.main()
