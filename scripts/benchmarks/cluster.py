"""Bulk prediction by a local Ray, one of whose workers is killed meanwhile, and by a local Spark.

    pip install 'ray[data]' pyspark pandas
    python scripts/benchmarks/cluster.py RUN [--texts 20000] [--output docs/results.md]

Writes Parquet files of short texts with an `id`, and answers them: in one process by `encoder_cls.Predictor`; by Ray's
`Dataset.map_batches` with one worker, with two, and with two of which one is killed with SIGKILL; by Spark's
`mapInPandas`. Rows a second count the start of the workers. The command fails where a row is missing, comes twice, or
has another label than one process gives.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from shared.benchmark import Benchmark, Case, Found, Row, grouped, median
from shared.commands import work_folder
from shared.page import table

from encoder_cls import Predictor

PARTS = 20
KILL_AFTER = 3.0  # seconds after the first batch
RAY_WORKERS = {"Ray, 1 worker": 1, "Ray, 2 workers": 2, "Ray, 2 workers, one killed": 2}
SPARK = "Spark, 2 threads"


class Recorded(Predictor):
    """A predictor that leaves its process's number in a folder."""

    def __init__(self, model: str, folder: str) -> None:
        super().__init__(model)
        Path(folder, str(os.getpid())).touch()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the number of texts."""
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=20_000)


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Ways to answer."""
    return [{"way": way, "texts": arguments.texts} for way in ("one process", *RAY_WORKERS, SPARK)]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """One of them; answers are compared with those of one process."""
    model, way = str(arguments.run.resolve()), case["way"]
    rows, expected, seconds = prepared(model, case["texts"])
    answers, started = expected, 1
    if way in RAY_WORKERS:
        answers, seconds, started = _by_ray(
            model, workers=RAY_WORKERS[way], kills=way.endswith("killed")
        )
    elif way == SPARK:
        answers, seconds = _by_spark(model)
        started = 0
    is_equal = (
        answers.sort_by("id").select(["id", "label"]).equals(expected.select(["id", "label"]))
    )
    ids = len(set(answers.column("id").to_pylist()))
    equal = bool(is_equal) and answers.num_rows == ids == rows.num_rows
    return {
        "started": started,
        "rows": answers.num_rows,
        "ids": ids,
        "equal": equal,
        "speed": ids / seconds,
    }


@cache
def prepared(model: str, texts: int) -> tuple[Any, Any, float]:
    """The rows, which are in files as well, the answers of one process, and its seconds."""
    known = sorted(
        word for word in Predictor(model).classifier.tokenizer.get_vocab() if word.isalpha()
    )[:2000]
    made = [
        " ".join(known[(7 * row + 13 * place) % len(known)] for place in range(10))
        for row in range(texts)
    ]
    rows, size = pyarrow.table({"id": range(texts), "text": made}), -(-texts // PARTS)
    (work_folder() / "in").mkdir()
    for part in range(PARTS):
        pyarrow.parquet.write_table(
            rows.slice(part * size, size), work_folder() / "in" / f"part-{part:02}.parquet"
        )
    began = time.monotonic()
    expected = Predictor(model)(rows)
    return rows, expected, time.monotonic() - began


def _by_ray(model: str, *, workers: int, kills: bool) -> tuple[Any, float, int]:
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    workers_folder = Path(tempfile.mkdtemp(dir=work_folder()))
    killer = threading.Thread(target=_kill_one, args=(workers_folder,), daemon=True)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        if kills:
            killer.start()
        began = time.monotonic()
        rows = ray.data.read_parquet(f"{work_folder()}/in").repartition(PARTS)
        answered = rows.map_batches(
            Recorded,
            fn_constructor_args=[model, str(workers_folder)],
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=workers),
        )
        tables = [
            pyarrow.table(it)
            for it in answered.iter_batches(batch_format="pyarrow", batch_size=None)
        ]
        seconds = time.monotonic() - began
        if kills:
            killer.join()
        return pyarrow.concat_tables(tables), seconds, len(list(workers_folder.iterdir()))
    finally:
        ray.shutdown()


def _kill_one(workers: Path) -> None:
    while not any(workers.iterdir()):
        time.sleep(0.01)
    time.sleep(KILL_AFTER)
    os.kill(int(next(workers.iterdir()).name), signal.SIGKILL)


def _by_spark(model: str) -> tuple[Any, float]:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    target = tempfile.mkdtemp(dir=work_folder()) + "/out"
    try:
        began = time.monotonic()
        frame = spark.read.parquet(f"{work_folder()}/in")
        schema = "id long, text string, label string, probability double, reason string"
        frame.mapInPandas(Predictor(model).frames, schema).write.parquet(target)
        return pyarrow.parquet.read_table(target), time.monotonic() - began
    finally:
        spark.stop()


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each way."""
    cells = []
    for (way,), them in grouped(rows, "way").items():
        counts = [f"{them[-1].found[key]:,}" for key in ("started", "rows", "ids")]
        is_equal = "yes" if them[-1].found["equal"] else "no"
        cells.append([way, *counts, is_equal, f"{median(them, 'speed'):,.0f}"])
    return table(
        ["", "workers started", "rows", "ids", "answers are equal", "rows a second"], cells
    )


def failures(rows: Sequence[Row]) -> list[str]:
    """The ways whose answers are not those of one process."""
    return [f"{row.case['way']}: other answers" for row in rows if not row.found["equal"]]


BENCHMARK = Benchmark(
    "cluster", __doc__, add_arguments, cases, measure, lines, failures=failures, rounds=1
)

if __name__ == "__main__":
    BENCHMARK.main()
