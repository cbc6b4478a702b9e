"""Bulk prediction by a local Ray, one of whose workers is killed meanwhile, and by a local Spark.

    pip install 'ray[data]' pyspark pandas
    python scripts/benchmarks/cluster.py RUN [--texts 20000] [--output docs/results.md]

Writes Parquet files of short texts with an `id`, and classifies them: in one process by
`encoder_cls.Predictor`; by Ray's `Dataset.map_batches` with one worker, with two, and with two of
which one is killed with SIGKILL; by Spark's `mapInPandas`. Rows a second count the start of the
workers. The command fails where a row is missing, comes twice, or has another label than one
process gives.
"""

from __future__ import annotations

import argparse
import math
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
# The number of workers of each way to classify by Ray.
RAY_WORKERS = {
    "Ray, 1 worker": 1,
    "Ray, 2 workers": 2,
    "Ray, 2 workers, one killed": 2,
}
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
    """Ways to classify the texts."""
    ways = ("one process", *RAY_WORKERS, SPARK)
    return [{"way": way, "texts": arguments.texts} for way in ways]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Classify the texts in one way, and compare the predictions with those of one process."""
    model = str(arguments.run.resolve())
    way = case["way"]
    rows, expected, seconds = prepared(model, case["texts"])
    if way in RAY_WORKERS:
        is_killing = way.endswith("killed")
        predictions, seconds, started = _by_ray(
            model, workers=RAY_WORKERS[way], is_killing=is_killing
        )
    elif way == SPARK:
        predictions, seconds = _by_spark(model)
        started = 0
    else:
        predictions = expected
        started = 1

    columns = ["id", "label"]
    has_same_labels = predictions.sort_by("id").select(columns).equals(expected.select(columns))
    num_ids = len(set(predictions.column("id").to_pylist()))
    has_all_rows = predictions.num_rows == num_ids == rows.num_rows
    return {
        "started": started,
        "rows": predictions.num_rows,
        "ids": num_ids,
        "equal": has_same_labels and has_all_rows,
        "speed": num_ids / seconds,
    }


@cache
def prepared(model: str, texts: int) -> tuple[Any, Any, float]:
    """Write the rows into files, and classify them in one process.

    Returns:
        The rows, the predictions, and the seconds of predicting.
    """
    vocabulary = Predictor(model).classifier.tokenizer.get_vocab()
    words = sorted(word for word in vocabulary if word.isalpha())[:2000]
    made_up_texts = [_made_up_text(words, row) for row in range(texts)]
    rows = pyarrow.table({"id": range(texts), "text": made_up_texts})

    folder = work_folder() / "in"
    folder.mkdir()
    size = math.ceil(texts / PARTS)
    for part in range(PARTS):
        path = folder / f"part-{part:02}.parquet"
        pyarrow.parquet.write_table(rows.slice(part * size, size), path)

    began = time.monotonic()
    expected = Predictor(model)(rows)
    return rows, expected, time.monotonic() - began


def _made_up_text(words: Sequence[str], row: int) -> str:
    """Ten words, others for each row."""
    numbers = [7 * row + 13 * place for place in range(10)]
    return " ".join(words[number % len(words)] for number in numbers)


def _by_ray(model: str, *, workers: int, is_killing: bool) -> tuple[Any, float, int]:
    """Classify the files by Ray.

    Returns:
        The predictions, the seconds, and how many workers were started.
    """
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    workers_folder = Path(tempfile.mkdtemp(dir=work_folder()))
    killer = threading.Thread(target=_kill_one, args=(workers_folder,), daemon=True)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        if is_killing:
            killer.start()

        began = time.monotonic()
        rows = ray.data.read_parquet(f"{work_folder()}/in").repartition(PARTS)
        predicted = rows.map_batches(
            Recorded,
            fn_constructor_args=[model, str(workers_folder)],
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=workers),
        )
        batches = predicted.iter_batches(batch_format="pyarrow", batch_size=None)
        tables = [pyarrow.table(batch) for batch in batches]
        seconds = time.monotonic() - began

        if is_killing:
            killer.join()
        return pyarrow.concat_tables(tables), seconds, len(list(workers_folder.iterdir()))
    finally:
        ray.shutdown()


def _kill_one(workers: Path) -> None:
    """Kill a worker, some seconds after the first one has left its number in a folder."""
    while not any(workers.iterdir()):
        time.sleep(0.01)

    time.sleep(KILL_AFTER)
    os.kill(int(next(workers.iterdir()).name), signal.SIGKILL)


def _by_spark(model: str) -> tuple[Any, float]:
    """Classify the files by Spark; returns the predictions and the seconds."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
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
    for (way,), group in grouped(rows, "way").items():
        last = group[-1].found
        counts = [f"{last[key]:,}" for key in ("started", "rows", "ids")]
        equal = "yes" if last["equal"] else "no"
        cells.append([way, *counts, equal, f"{median(group, 'speed'):,.0f}"])
    heads = ["", "workers started", "rows", "ids", "predictions are equal", "rows a second"]
    return table(heads, cells)


def failures(rows: Sequence[Row]) -> list[str]:
    """The ways whose predictions are not those of one process."""
    return [f"{row.case['way']}: other predictions" for row in rows if not row.found["equal"]]


BENCHMARK = Benchmark(
    "cluster", __doc__, add_arguments, cases, measure, lines, failures=failures, rounds=1
)

if __name__ == "__main__":
    BENCHMARK.main()
