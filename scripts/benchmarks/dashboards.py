"""What dashboards cost: the CPU time of all that is written for people to look at, beside that of the whole training.

    python scripts/benchmarks/dashboards.py FOLDER [section.key=value ...]

Trains the bundled example into a new folder, on one thread. CPU time, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from tensorboard.summary.writer.event_file_writer import _AsyncWriterThread

from encoder_cls.config import load_config
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training import final_report
from encoder_cls.training.prepare import prepare
from encoder_cls.training.trainer import train

MEASURED: list[tuple[Any, str]] = [
    *((MetricLog, name) for name in ("__init__", "log", "flush", "__exit__")),
    *((final_report, name) for name in ("write_report", "log_final_report")),
    (_AsyncWriterThread, "run"),
]


def timed(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    """The function, its CPU time in the thread that calls it added up under a name."""

    @wraps(function)
    def measured(*arguments: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*arguments, **options)
        finally:
            seconds[name] += time.thread_time() - began

    return measured


def main() -> None:
    """Train, and print a line for each part and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new one, for the run")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="of the default config")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seconds: dict[str, float] = defaultdict(float)
    for owner, name in MEASURED:
        setattr(owner, name, timed(getattr(owner, name), f"{owner.__name__.rpartition('.')[2]}.{name}", seconds))
    setup = prepare(load_config(None, arguments.overrides))
    for _ in train(setup, RunDir(arguments.folder), device=torch.device("cpu")):
        pass
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{spent:8.2f} s  {name}")
    dashboards, total = sum(seconds.values()), time.process_time()
    print(f"{dashboards:8.2f} s of {total:.0f} s, {dashboards / (total - dashboards):.2%} of all else")


if __name__ == "__main__":
    main()
