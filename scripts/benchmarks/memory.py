"""The memory and time of a training as the number of texts grows.

    python scripts/benchmarks/memory.py [--texts 1000000]... [--linear] [--default-recipe] [--cache]
        [--set section.key=value]... [--output docs/results.md]

Makes files of random texts of about 12 words by Zipf's law, and trains on each for one epoch, to
the end of the final report: a tiny model, with --linear beside a linear model; with
--default-recipe what `encoder-cls train` trains by default. Peak is the most memory that was
resident; files that are mapped into memory count as long as the system has room for them, and own
is the most without these. Seconds are of the processor. With --cache each size has a second row:
the same once more, from what the first has kept. `TMPDIR` names the folder for all files.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, median, values
from shared.commands import memory_of, metrics, train_command, watch
from shared.page import NOT_MEASURED, table

# The random texts.
VOCABULARY = 200_000
MEAN_WORDS = 12
CLASSES = 4
# Texts made at once.
CHUNK = 50_000
SECONDS_BETWEEN_LOOKS = 0.02
TINY = (
    "model.d_model=16",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.d_ff=32",
    "model.char_ngram_buckets=1024",
    "model.bigram_buckets=1024",
    "pretrain.epochs=0",
    "train.epochs=1",
    "train.batch_size=2048",
    "train.batch_tokens=65536",
    "train.precision=float32",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    parser.add_argument(
        "--texts", type=int, action="append", help="repeatable; default: 100000 and 1000000"
    )
    parser.add_argument(
        "--linear", action="store_true", help="a linear model beside the tiny encoder"
    )
    parser.add_argument("--default-recipe", action="store_true", help="in place of a tiny model")
    parser.add_argument("--cache", action="store_true", help="each size once more, from a cache")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a config value, repeatable"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Numbers of texts."""
    settings = []
    if not arguments.default_recipe:
        settings += [*TINY, f"model.linear={json.dumps(arguments.linear)}"]
    settings += arguments.set

    # The second training is from the cache.
    times = 1
    if arguments.cache:
        times = 2
    numbers = arguments.texts or (10**5, 10**6)
    return [{"texts": number, "times": times, "settings": settings} for number in numbers]


def measure(_arguments: argparse.Namespace, case: Case) -> Found:
    """Measure each of the trainings on so many texts, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder / "train.csv", case["texts"])
        cache = "null"
        if case["times"] > 1:
            cache = str(folder / "cache")
        settings = [
            f"data.train={folder / 'train.csv'}",
            "data.validation=null",
            "data.test=null",
            f"data.cache={cache}",
            *case["settings"],
        ]

        trainings = []
        for time in range(case["times"]):
            trainings.append(watched(settings, folder / str(time)))
        return {"trainings": trainings}


def write_texts(path: Path, texts: int, *, vocabulary: int = VOCABULARY) -> None:
    """Write a CSV file of random texts, each of a class that its first word decides."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = []
    for length in random.integers(2, 12, vocabulary):
        letters_of_word = letters[random.integers(0, 26, length)]
        words.append("".join(letters_of_word))

    with path.open("w") as file:
        file.write("text,label\n")
        for start in range(0, texts, CHUNK):
            counts = 1 + random.poisson(MEAN_WORDS - 1, min(CHUNK, texts - start))
            # By Zipf's law, the frequency falls with the rank: its logarithm is evenly distributed.
            ranks = (vocabulary ** random.random(counts.sum())).astype(int) - 1
            for ranks_of_text in np.split(ranks, np.cumsum(counts)[:-1]):
                text = " ".join([words[rank] for rank in ranks_of_text.tolist()])
                file.write(f"{text},class {ranks_of_text[0] % CLASSES}\n")


def watched(overrides: Sequence[str], run_dir: Path, *words: str) -> Found:
    """Look at a training's memory and time until it ends."""
    own = 0
    peak = 0
    wall = 0.0
    processor = 0.0
    first_step = None
    command = train_command(overrides, run_dir, *words)
    for pid, seconds, messages in watch(command, every=SECONDS_BETWEEN_LOOKS):
        wall = seconds
        own = max(own, memory_of(pid, "RssAnon"))
        peak = max(peak, memory_of(pid, "VmHWM"))
        processor = _processor_seconds(pid)
        if first_step is None and "training in" in messages:
            first_step = processor

    if first_step is None:
        first_step = processor

    speed = None
    speeds = [row["tokens_per_s"] for row in metrics(run_dir) if "tokens_per_s" in row]
    if speeds:
        speed = statistics.median(speeds)
    return {
        "first_step": first_step,
        "seconds": processor,
        "wall": wall,
        "peak": peak,
        "own": own,
        "speed": speed,
    }


def _processor_seconds(pid: int) -> float:
    """The time that a process has computed so far, its system calls included."""
    # The name in brackets may have spaces; user and system time are fields 14 and 15 (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_ticks = int(fields[11])
    system_ticks = int(fields[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each training, medians over the rounds."""
    cells = []
    for (texts, times), group in grouped(rows, "texts", "times").items():
        for number in range(times):
            trainings = [replace(row, found=row.found["trainings"][number]) for row in group]
            name = f"{texts:,}"
            if number > 0:
                name += " from the cache"
            speed = NOT_MEASURED
            if values(trainings, "speed"):
                speed = f"{median(trainings, 'speed'):,.0f}"
            cells.append(
                [
                    name,
                    f"{median(trainings, 'first_step'):,.1f}",
                    f"{median(trainings, 'seconds'):,.1f}",
                    f"{median(trainings, 'peak') / 2**20:,.0f}",
                    f"{median(trainings, 'own') / 2**20:,.0f}",
                    speed,
                ]
            )

    heads = ["texts", "to first step, s", "in all, s", "peak, MiB", "own, MiB", "tokens/s"]
    return table(heads, cells)


BENCHMARK = Benchmark("memory", __doc__, add_arguments, cases, measure, lines, rounds=1)

if __name__ == "__main__":
    BENCHMARK.main()
