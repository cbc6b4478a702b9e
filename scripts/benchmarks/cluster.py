"""Bulk prediction by a local Ray, one of whose workers is killed meanwhile, and by a local Spark.

    pip install 'ray[data]' pyspark pandas s3fs 'moto[server]'
    python scripts/benchmarks/cluster.py RUN [--texts 20000] [--page PAGE.md]

Writes Parquet files of short texts with an `id`, hands them to `encoder_cls.Predictor` by Ray's
`Dataset.map_batches` with one worker, with two, and with two of which one is killed with SIGKILL; does the same by
`encoder-cls predict --runner ray` from and to an object store, an S3 of moto on this machine; then by Spark's
`mapInPandas`; and prints how many workers were started, how many rows came out, how many ids, whether answers are
those of one process, and rows a second, the start of the workers counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from reporting import put_table, table

from encoder_cls import Predictor

PARTS = 20
KILL_AFTER = 3.0  # seconds after the first batch
PORT = 5055  # of the object store


class Recorded(Predictor):
    """A predictor that leaves its process's number where it can be found."""

    def __init__(self, model: str, folder: str) -> None:
        super().__init__(model)
        Path(folder, str(os.getpid())).touch()


def main() -> None:
    """Run all ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--page", type=Path, help="with a place for the table; default: standard output")
    arguments = parser.parse_args()
    model = str(arguments.run.resolve())
    with tempfile.TemporaryDirectory() as folder:
        words = Predictor(model).classifier.tokenizer.get_vocab()
        known = sorted(word for word in words if word.isalpha())[:2000]
        texts = [" ".join(known[(7 * i + 13 * k) % len(known)] for k in range(10)) for i in range(arguments.texts)]
        rows = pyarrow.table({"id": range(arguments.texts), "text": texts})
        size = -(-arguments.texts // PARTS)
        Path(folder, "in").mkdir()
        for part in range(PARTS):
            pyarrow.parquet.write_table(rows.slice(part * size, size), f"{folder}/in/part-{part:02}.parquet")
        began = time.monotonic()
        expected = Predictor(model)(rows)
        lines = [["one process", "1", *_line(expected, expected, time.monotonic() - began)]]
        for workers, kills in ((1, False), (2, False), (2, True)):
            found, seconds, started = _by_ray(model, folder, workers=workers, kills=kills)
            name = f"Ray, {workers} worker{'s' * (workers > 1)}{', one killed' * kills}"
            lines.append([name, str(started), *_line(found, expected, seconds)])
        with _object_store() as environment:
            for workers, kills in ((1, False), (2, False), (2, True)):
                found, seconds, started = _by_command(model, folder, environment, workers=workers, kills=kills)
                name = f"predict --runner ray, S3, {workers} worker{'s' * (workers > 1)}{', one killed' * kills}"
                lines.append([name, str(started), *_line(found, expected, seconds)])
        found, seconds = _by_spark(model, folder)
        lines.append(["Spark, 2 threads", "", *_line(found, expected, seconds)])
    columns = ["", "workers started", "rows", "ids", "answers are equal", "rows a second"]
    if arguments.page:
        put_table(["", *table(columns, lines)], arguments.page, name="clusters")
    else:
        print("\n".join(table(columns, lines)))


def _line(found: Any, expected: Any, seconds: float) -> list[str]:
    in_order = found.sort_by("id").select(["id", "label"])
    is_equal = in_order.equals(expected.select(["id", "label"]))
    ids = len(set(found.column("id").to_pylist()))
    return [f"{found.num_rows:,}", f"{ids:,}", "yes" if is_equal else "no", f"{found.num_rows / seconds:,.0f}"]


def _by_ray(model: str, folder: str, *, workers: int, kills: bool) -> tuple[Any, float, int]:
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    workers_folder = Path(tempfile.mkdtemp(dir=folder))
    killer = threading.Thread(target=_kill_one, args=(workers_folder,), daemon=True)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        if kills:
            killer.start()
        began = time.monotonic()
        answered = (
            ray.data.read_parquet(f"{folder}/in")
            .repartition(PARTS)
            .map_batches(
                Recorded,
                fn_constructor_args=[model, str(workers_folder)],
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=workers),
            )
        )
        tables = [pyarrow.table(it) for it in answered.iter_batches(batch_format="pyarrow", batch_size=None)]
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


@contextmanager
def _object_store() -> Iterator[dict[str, str]]:
    """An S3 on this machine: the environment in which it is found."""
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(PORT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}", "AWS_DEFAULT_REGION": "us-east-1"}
    environment |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    os.environ.update(environment)
    try:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", PORT)):
                break
            time.sleep(0.1)
        yield {**os.environ}
    finally:
        server.terminate()
        server.wait()


def _by_command(
    model: str, folder: str, environment: dict[str, str], *, workers: int, kills: bool
) -> tuple[Any, float, int]:
    import fsspec

    store, bucket = fsspec.filesystem("s3", skip_instance_cache=True), f"b{workers}{int(kills)}"
    store.mkdir(bucket)
    store.put(f"{folder}/in", f"{bucket}/in", recursive=True)
    command = [sys.executable, "-m", "encoder_cls", "predict", "--runner", "ray", "--model", model]
    command += ["--engine", "numpy", "--workers", str(workers)]
    command += ["--input", f"s3://{bucket}/in", "--output", f"s3://{bucket}/out"]
    began, seen = time.monotonic(), set[int]()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        first = None
        while process.poll() is None:
            running = _processes("ray::_Actor.answer")
            first = first or (time.monotonic() if running else None)
            if kills and first and time.monotonic() - first > KILL_AFTER and running:
                os.kill(running[0], signal.SIGKILL)
                kills = False
            seen |= set(running)
            time.sleep(0.05)
        if process.returncode:
            sys.exit(process.stderr.read() if process.stderr else "failed")
    seconds = time.monotonic() - began
    store.invalidate_cache()
    tables = [pyarrow.parquet.read_table(store.open(path)) for path in sorted(store.glob(f"{bucket}/out/*.parquet"))]
    return pyarrow.concat_tables(tables), seconds, len(seen)


def _processes(title: str) -> list[int]:
    """The numbers of the processes that are called so."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(title.encode()):
                found.append(int(path.parent.name))
    return found


def _by_spark(model: str, folder: str) -> tuple[Any, float]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        began = time.monotonic()
        frame = spark.read.parquet(f"{folder}/in")
        schema = "id long, text string, label string, probability double, reason string"
        frame.mapInPandas(Predictor(model).frames, schema).write.parquet(f"{folder}/out")
        return pyarrow.parquet.read_table(f"{folder}/out"), time.monotonic() - began
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
