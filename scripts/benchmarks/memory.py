"""How much memory a training takes as the number of texts grows.

    python scripts/benchmarks/memory.py [--texts 100000 300000 1000000] [--linear] [--default-recipe] [--cache]
        [--prepare-only] [--set section.key=value]...

Makes files of short random texts (about 12 words; of the 200,000 of a vocabulary each is the rarer the later it stands
there, as in language), trains a tiny model on each of them for one epoch, in a process of its own and to the end of the
final report, and prints a table. `peak` is the most memory that was resident. In it, files that are mapped into memory
count as long as the system has room for them; `own` is the most without these. Seconds are of the processor, so that
they can be compared where other programs run, and tokens a second the median of what the training logs. With --cache
each size has a second line: the same again, from the cache (`data.cache`) that the first has filled. --default-recipe
trains as `encoder-cls train` does where a config names the data alone, in place of the tiny model. --set is that of
`encoder-cls train`. `TMPDIR` names the folder for the texts, and for what the training puts on disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder_cls.tracking.metric_log import read_metrics
from encoder_cls.tracking.run_dir import RunDir

VOCABULARY = 200_000
MEAN_WORDS = 12
CLASSES = 4
CHUNK = 50_000  # texts made at once
SECONDS_BETWEEN_LOOKS = 0.02

DATA = """\
data: {{train: {folder}/train.csv, cache: {cache}}}
"""
TINY_MODEL = """\
model: {{d_model: 16, num_layers: 1, num_heads: 2, d_ff: 32, char_ngram_buckets: 1024, bigram_buckets: 1024,
  linear: {linear}}}
pretrain: {{epochs: 0}}
train: {{epochs: 1, batch_size: 2048, batch_tokens: 65536, precision: float32}}
"""


@dataclass(frozen=True)
class Measured:
    """A finished training: processor seconds until its first step and in all, peaks of its memory in bytes.

    Tokens a second are none where there was no step.
    """

    texts: int
    seconds_to_first_step: float
    seconds: float
    peak_bytes: int
    own_bytes: int
    tokens_per_second: float | None = None


def main() -> None:
    """Measure each number of texts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--linear", action="store_true", help="a linear classifier beside the encoder")
    parser.add_argument("--default-recipe", action="store_true", help="in place of a tiny model")
    parser.add_argument("--cache", action="store_true", help="each size once more, from a cache")
    parser.add_argument("--prepare-only", action="store_true", help="end before the first step")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a config value, repeatable")
    arguments = parser.parse_args()
    print("|      texts | to first step, s | in all, s | peak, MiB | own, MiB | tokens/s |")
    print("| ---------: | ---------------: | --------: | --------: | -------: | -------: |")
    found = []
    for texts in arguments.texts:
        measurements = measure(
            texts,
            prepare_only=arguments.prepare_only,
            linear=arguments.linear,
            default_recipe=arguments.default_recipe,
            times=2 if arguments.cache else 1,
            overrides=arguments.set,
        )
        for measured in measurements:
            print(row(measured), flush=True)
        found.append(measured)
    if len(found) > 1:
        slopes = [bytes_per_text(found[0], found[-1], what) for what in ("peak_bytes", "own_bytes")]
        print("\nBytes for each further text: {:.0f}, of these {:.0f} own".format(*slopes))


def row(measured: Measured) -> str:
    """A row of the table."""
    return (
        f"| {measured.texts:10,} | {measured.seconds_to_first_step:16.1f} | {measured.seconds:9.1f} "
        f"| {measured.peak_bytes / 2**20:9,.0f} | {measured.own_bytes / 2**20:8,.0f} "
        f"| {measured.tokens_per_second or 0:8,.0f} |"
    )


def bytes_per_text(less: Measured, more: Measured, what: str) -> float:
    """By how much a peak grows with each text."""
    return float((getattr(more, what) - getattr(less, what)) / (more.texts - less.texts))


def measure(
    texts: int,
    *,
    vocabulary: int = VOCABULARY,
    prepare_only: bool = False,
    linear: bool = False,
    default_recipe: bool = False,
    times: int = 1,
    overrides: Sequence[str] = (),
) -> Iterator[Measured]:
    """Train on so many texts, in a temporary folder, or only prepare to; several times: with a cache."""
    with tempfile.TemporaryDirectory() as folder:
        write_texts(Path(folder) / "train.csv", texts, vocabulary=vocabulary)
        config = Path(folder) / "config.yaml"
        content = DATA.format(folder=folder, cache=f"{folder}/cache" if times > 1 else "null")
        if not default_recipe:
            content += TINY_MODEL.format(linear=str(linear).lower())
        config.write_text(content)
        command = [
            str(Path(sys.executable).with_name("encoder-cls")),
            "train",
            "--config",
            str(config),
            "--device",
            "cpu",
            *(["--dry-run"] if prepare_only else []),
            *(word for override in overrides for word in ("--set", override)),
        ]
        for number in range(times):
            run_dir = RunDir(Path(folder) / str(number))
            measured = run([*command, "--run-dir", str(run_dir.path)], texts)
            rows = [] if prepare_only else read_metrics(run_dir.metrics_file)
            speeds = [row["tokens_per_s"] for row in rows if "tokens_per_s" in row]
            yield replace(measured, tokens_per_second=statistics.median(speeds) if speeds else None)


def write_texts(path: Path, texts: int, *, vocabulary: int, seed: int = 0) -> None:
    """Write a CSV file of random texts; the first word tells the class."""
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(letters[random.integers(0, 26, length)]) for length in random.integers(2, 12, vocabulary)]
    with path.open("w") as file:
        file.write("text,label\n")
        for start in range(0, texts, CHUNK):
            counts = 1 + random.poisson(MEAN_WORDS - 1, min(CHUNK, texts - start))
            # The logarithm of the rank is evenly distributed: the frequency falls with the rank (Zipf's law).
            ranks = (vocabulary ** random.random(counts.sum())).astype(int) - 1
            for drawn in np.split(ranks, np.cumsum(counts)[:-1]):
                file.write(f"{' '.join([words[rank] for rank in drawn.tolist()])},class {drawn[0] % CLASSES}\n")


def run(command: list[str], texts: int) -> Measured:
    """Run a training to its end, looking at it all the time.

    Raises:
        SystemExit: it failed; its standard error is shown.
    """
    own_bytes, seconds_to_first_step = 0, 0.0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            own_bytes = max(own_bytes, _own_bytes(process.pid))
            if not seconds_to_first_step and b"training in" in os.pread(errors.fileno(), 1 << 16, 0):
                seconds_to_first_step = _processor_seconds(process.pid)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(command)}\n{os.pread(errors.fileno(), 1 << 16, 0).decode()}")
    seconds = usage.ru_utime + usage.ru_stime
    return Measured(texts, seconds_to_first_step or seconds, seconds, usage.ru_maxrss * 1024, own_bytes)


def _own_bytes(pid: int) -> int:
    """The resident memory of a process that no file backs; 0 once it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def _processor_seconds(pid: int) -> float:
    """The time that a process has computed so far, its system calls included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
