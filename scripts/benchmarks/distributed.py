"""Tokens a second of several processes that train together, beside one.

    python scripts/benchmarks/distributed.py CONFIG [--rounds 3] [--output docs/deploy.md]

Trains by the command line, one epoch on labels: by one process; by one process whose batches are cut into two shards;
and by two processes on this machine, each with one thread. The speed is the median of what a training logs.
Three shapes are measured: 2 layers of width 128, 4 layers of width 256, and the same with batches of 512 texts.
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

LARGE = ("model.d_model=256", "model.num_layers=4", "model.d_ff=1024")
SHAPES = {
    "width 128": (),
    "width 256": LARGE,
    "width 256, batches of 512": (*LARGE, "train.batch_size=512"),
}
WAYS = {"one process": (1, 1), "one process, 2 shards": (1, 2), "2 processes, 2 shards": (2, 2)}
FIXED = ("pretrain.epochs=0", "train.epochs=1", "train.log_every=1", "model.linear=false")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to train."""
    parser.add_argument("config", type=Path)


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Shapes by ways to train."""
    return [
        {"shape": shape, "way": way, "processes": processes, "shards": shards}
        for shape in SHAPES
        for way, (processes, shards) in WAYS.items()
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Tokens a second of one training."""
    values = [*FIXED, f"train.gradient_shards={case['shards']}", *SHAPES[case["shape"]]]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={case['processes']}", "-m", "encoder_cls", "train"]
        command += ["--config", str(arguments.config), "--run-dir", f"{folder}/run"]
        run([*command, *(word for value in values for word in ("--set", value))])
        rows = metrics(Path(folder, "run"))
    return {
        "speed": statistics.median(
            row["tokens_per_s"] for row in rows if row.get("split") == "train"
        )
    }


def lines(rows: Sequence[Row]) -> list[str]:
    """Ways by shapes: tokens a second and, in brackets, the ratio to one process."""
    whole = {
        shape: median(of, "speed")
        for (shape, way), of in grouped(rows, "shape", "way").items()
        if way == "one process"
    }

    def cell(them: list[Row]) -> str:
        speed, one = median(them, "speed"), whole.get(them[0].case["shape"])
        return f"{speed:,.0f}" + (f" ({speed / one:.2f})" if one else "")

    return pivot(rows, "way", "shape", cell)


BENCHMARK = Benchmark("distributed", __doc__, add_arguments, cases, measure, lines)

if __name__ == "__main__":
    BENCHMARK.main()
