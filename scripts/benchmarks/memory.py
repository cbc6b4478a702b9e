"""The memory and time of a training as the number of texts grows.

    python scripts/benchmarks/memory.py [--texts 1000000]... [--linear] [--default-recipe] [--cache]
        [--set section.key=value]... [--output docs/results.md]

Makes files of random texts of about 12 words by Zipf's law, and trains on each for one epoch, to the end of the final
report: a tiny model, with --linear beside a linear classifier; with --default-recipe what `encoder-cls train` trains by
default. Peak is the most memory that was resident; files that are mapped into memory count as long as the system has
room for them, and own is the most without these. Seconds are of the processor. With --cache each size has a second row:
the same once more, from what the first has kept. `TMPDIR` names the folder for all files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, median, values
from shared.commands import memory_of, metrics, train_command, watch
from shared.page import table

VOCABULARY, MEAN_WORDS, CLASSES = 200_000, 12, 4
CHUNK = 50_000  # texts made at once
SECONDS_BETWEEN_LOOKS = 0.02
TINY = (
    "model.d_model=16", "model.num_layers=1", "model.num_heads=2", "model.d_ff=32", "model.char_ngram_buckets=1024",
    "model.bigram_buckets=1024", "pretrain.epochs=0", "train.epochs=1", "train.batch_size=2048",
    "train.batch_tokens=65536", "train.precision=float32",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    parser.add_argument(
        "--texts", type=int, action="append", help="repeatable; default: 100000 and 1000000"
    )
    parser.add_argument(
        "--linear", action="store_true", help="a linear classifier beside the tiny encoder"
    )
    parser.add_argument("--default-recipe", action="store_true", help="in place of a tiny model")
    parser.add_argument("--cache", action="store_true", help="each size once more, from a cache")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a config value, repeatable"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Numbers of texts."""
    tiny = (
        () if arguments.default_recipe else (*TINY, f"model.linear={str(arguments.linear).lower()}")
    )
    case = {"times": 2 if arguments.cache else 1, "settings": [*tiny, *arguments.set]}
    return [{"texts": number, **case} for number in arguments.texts or (10**5, 10**6)]


def measure(_arguments: argparse.Namespace, case: Case) -> Found:
    """What each of the trainings on so many texts takes, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder / "train.csv", case["texts"])
        cache = folder / "cache" if case["times"] > 1 else "null"
        data = [
            f"data.train={folder / 'train.csv'}",
            "data.validation=null",
            "data.test=null",
            f"data.cache={cache}",
        ]
        return {
            "trainings": [
                watched([*data, *case["settings"]], folder / str(it)) for it in range(case["times"])
            ]
        }


def write_texts(path: Path, texts: int, *, vocabulary: int = VOCABULARY) -> None:
    """Write a CSV file of random texts, each of a class that its first word decides."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = [
        "".join(letters[random.integers(0, 26, length)])
        for length in random.integers(2, 12, vocabulary)
    ]
    with path.open("w") as file:
        file.write("text,label\n")
        for start in range(0, texts, CHUNK):
            counts = 1 + random.poisson(MEAN_WORDS - 1, min(CHUNK, texts - start))
            # The logarithm of the rank is evenly distributed: the frequency falls with the rank (Zipf's law).
            ranks = (vocabulary ** random.random(counts.sum())).astype(int) - 1
            for drawn in np.split(ranks, np.cumsum(counts)[:-1]):
                file.write(
                    f"{' '.join([words[rank] for rank in drawn.tolist()])},class {drawn[0] % CLASSES}\n"
                )


def watched(overrides: Sequence[str], run_dir: Path, *words: str) -> Found:
    """Look at a training's memory and time until it ends."""
    own, peak, wall, seconds, first_step = 0, 0, 0.0, 0.0, 0.0
    for pid, passed, said in watch(
        train_command(overrides, run_dir, *words), every=SECONDS_BETWEEN_LOOKS
    ):
        wall, own, peak = (
            passed,
            max(own, memory_of(pid, "RssAnon")),
            max(peak, memory_of(pid, "VmHWM")),
        )
        seconds = _processor_seconds(pid)
        if not first_step and "training in" in said:
            first_step = seconds
    speeds = [row["tokens_per_s"] for row in metrics(run_dir) if "tokens_per_s" in row]
    speed = statistics.median(speeds) if speeds else None
    times = {"first_step": first_step or seconds, "seconds": seconds, "wall": wall}
    return {**times, "peak": peak, "own": own, "speed": speed}


def _processor_seconds(pid: int) -> float:
    """The time that a process has computed so far, its system calls included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each training, medians over the rounds."""
    cells = []
    for (texts, times), them in grouped(rows, "texts", "times").items():
        for number in range(times):
            each = [Row(**{**vars(row), "found": row.found["trainings"][number]}) for row in them]
            name = f"{texts:,}{' from the cache' * (number > 0)}"
            seconds = [f"{median(each, key):,.1f}" for key in ("first_step", "seconds")]
            memory = [f"{median(each, key) / 2**20:,.0f}" for key in ("peak", "own")]
            cells.append(
                [
                    name,
                    *seconds,
                    *memory,
                    f"{median(each, 'speed'):,.0f}" if values(each, "speed") else "-",
                ]
            )
    return table(
        ["texts", "to first step, s", "in all, s", "peak, MiB", "own, MiB", "tokens/s"], cells
    )


BENCHMARK = Benchmark("memory", __doc__, add_arguments, cases, measure, lines, rounds=1)

if __name__ == "__main__":
    BENCHMARK.main()
