"""What it costs that several processes train together, and exactly: tokens a second, and the bytes that they exchange.

    python scripts/benchmarks/distributed.py CONFIG [--shards 2] [--rounds 3] [--set KEY=VALUE]
        [--page PAGE --name NAME]

Trains by the command line, in turns, one epoch on labels: by one process with whole batches; by one process with
batches in shards; by as many processes as there are shards, exactly; and the same with `train.exact=false`. One thread
a process. Of each training the median of its rows of `tokens_per_s`; of each way the median over the rounds, beside the
first way in the same round. The bytes are counted in 20 steps: those of the dense gradients and of the touched rows of
the tables that one shard sends to each other process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from reporting import cpu_name, note, put_table, table

from encoder_cls.config import load_config
from encoder_cls.training.gradient_shards import GradientShards
from encoder_cls.training.prepare import prepare
from encoder_cls.training.sampler import Shard
from encoder_cls.training.train_step import accumulate_gradients

STEPS = 20  # whose bytes are counted


def main() -> None:
    """Measure and write a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="as of encoder-cls train")
    parser.add_argument(
        "--page", type=Path, help="a Markdown file with a place for the table; default: standard output"
    )
    parser.add_argument(
        "--name", default="", help="of that place: it is between `<!-- table: NAME -->` and `<!-- end -->`"
    )
    arguments = parser.parse_args()
    shards = arguments.shards
    ways = {
        "one process": (1, 1, True),
        f"one process, {shards} shards": (1, shards, True),
        f"{shards} processes, {shards} shards": (shards, shards, True),
        f"{shards} processes, {shards} shards, `train.exact=false`": (shards, shards, False),
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(arguments.rounds):
        for way, (size, cut, is_exact) in ways.items():
            speeds[way].append(_speed(arguments.config, arguments.overrides, size, cut, is_exact=is_exact))
            note(f"round {number + 1}, {way}: {speeds[way][-1]:,.0f} tokens a second")
    first = next(iter(speeds.values()))
    rows = [
        [
            way,
            f"{statistics.median(found):,.0f}",
            f"{statistics.median(one / whole for one, whole in zip(found, first, strict=True)):.2f}",
        ]
        for way, found in speeds.items()
    ]
    dense, touched = _bytes_of_a_shard(arguments.config, arguments.overrides, shards)
    lines = [
        *table(["", "tokens a second", "beside one process"], rows),
        "",
        f"A shard sends {dense / 1e6:.2f} MB of dense gradients and {touched / 1e6:.2f} MB of rows of tables to each "
        f"other process in a step. {cpu_name()}, {os.cpu_count()} cores, torch {torch.__version__}.",
    ]
    if arguments.page:
        put_table(["", f"**{arguments.name}**", "", *lines], arguments.page, name=arguments.name)
    else:
        print("\n".join(lines))


def _speed(config: Path, overrides: Sequence[str], size: int, shards: int, *, is_exact: bool) -> float:
    """The median of the tokens a second of one training."""
    with tempfile.TemporaryDirectory() as folder:
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}", "-m"]
        values = [
            *("pretrain.epochs=0", "train.epochs=1", "train.log_every=1", "model.linear=false"),
            *(f"train.gradient_shards={shards}", f"train.exact={str(is_exact).lower()}", *overrides),
        ]
        settings = [part for value in values for part in ("--set", value)]
        command = [*start, "encoder_cls", "train", "--config", str(config), "--run-dir", f"{folder}/run", *settings]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            sys.exit(done.stderr)
        rows = map(json.loads, Path(f"{folder}/run/metrics.jsonl").read_text().splitlines())
        return statistics.median(float(row["tokens_per_s"]) for row in rows if row["split"] == "train")


def _bytes_of_a_shard(config: Path, overrides: Sequence[str], shards: int) -> tuple[float, float]:
    """What one shard of a step sends to another process: bytes of dense gradients, and of rows with their numbers."""
    torch.set_num_threads(1)
    setup = prepare(load_config(config, [*overrides, "model.linear=false"]))
    stage = setup.stages[-1]
    model, objective = setup.new_model(stage), stage.make_objective(torch.device("cpu"), None)
    gradients, dense, touched = GradientShards(model), 0, []
    for step in range(STEPS):
        accumulate_gradients(model, objective.batches_at(step, Shard(0, shards)), 1.0, precision=torch.float32)
        taken = gradients.take([])
        dense = taken.dense.nbytes
        touched.append(taken.rows[0].nbytes + taken.values[0].nbytes)
    return dense, statistics.mean(touched)


if __name__ == "__main__":
    main()
