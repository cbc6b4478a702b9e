"""What training and predicting cost on real data sets, with the committed configs: time, memory, speed.

    python scripts/benchmarks/data_sets.py FOLDER [--only NAME] [--output docs/benchmarks.md]

FOLDER holds a subfolder for each config of `configs/` (trec6, sst2, ...) with train.parquet, test.parquet and, where
the data set has one, validation.parquet, each with the columns `text` and `label`. Every command runs as a user's
would, in a process of its own; times are whole-process wall times, memory is the process's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
DATA = ["trec6", "sst2", "banking77", "ag_news", "imdb"]
COLUMNS = [
    "data set", "training texts", "accuracy %", "train, s", "peak memory, MiB", "training tokens/s", "predict, texts/s",
]  # fmt: skip

NOTES = """\
One run each, with seed 0; for accuracy over several seeds and beside other methods see [accuracy.md](accuracy.md).
Training time is from typing the command to the end of the final report: pretraining, the linear model and the linear
reference included. Tokens/s is the median over all steps of a run, those of pretraining and those on labels, of real
tokens, never padding; those of a text that passes twice count twice. Prediction is of the test texts, the start of
the process included."""


@dataclass(frozen=True)
class Measured:
    """A finished command: wall time in seconds and peak resident memory in bytes."""

    seconds: float
    peak_bytes: int


def main() -> None:
    """Measure what is asked for, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=DATA, action="append", help="repeatable; default: all")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args()

    rows, commands = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only or DATA:
            commands.append(shlex.join(train_command(name, Path("FOLDER"), arguments.folder)))
            command = train_command(name, arguments.folder, arguments.folder)
            rows.append(measure(command, arguments.folder / name, Path(folder) / name))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    text = document(rows, commands)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)


def train_command(name: str, folder: Path, real_folder: Path) -> list[str]:
    """The command line that trains a committed config on local files, with `folder` for their place."""
    has_validation = (real_folder / name / "validation.parquet").exists()
    data = {
        "train": folder / name / "train.parquet",
        "validation": folder / name / "validation.parquet" if has_validation else "null",
        "test": folder / name / "test.parquet",
        "label_column": "label",
    }
    overrides = [word for key, value in data.items() for word in ("--set", f"data.{key}={value}")]
    return ["encoder-cls", "train", "--config", f"configs/{name}.yaml", *overrides]


def measure(command: list[str], data: Path, folder: Path) -> list[str]:
    """Train, then predict the test texts; the cells of a table row."""
    trained = run([*command, "--run-dir", str(folder)])
    report = json.loads((folder / "eval" / "report.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    answers = folder / "answers.jsonl"
    predict = ["encoder-cls", "predict", "--model", str(folder), "--input", str(data / "test.parquet")]
    predicted = run([*predict, "--format", "jsonl", "--output", str(answers)])
    num_examples = report["num_examples"]
    assert len(answers.read_text().splitlines()) == num_examples
    card = (folder / "model" / "README.md").read_text()
    return [
        data.name,
        card.split("Trained on ")[1].split(" texts")[0],
        f"{100 * report['accuracy']:.1f}",
        f"{trained.seconds:.0f}",
        f"{trained.peak_bytes / 2**20:,.0f}",
        f"{statistics.median(row['tokens_per_s'] for row in rows if 'tokens_per_s' in row):,.0f}",
        f"{num_examples / predicted.seconds:,.0f}",
    ]


def run(command: list[str]) -> Measured:
    """Run a command to its end.

    Raises:
        SystemExit: it failed; its standard error is shown.
    """
    with tempfile.TemporaryFile("w+") as errors:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{shlex.join(command)}\n{errors.read()}")
    return Measured(seconds=seconds, peak_bytes=usage.ru_maxrss * 1024)


def document(rows: list[list[str]], commands: list[str]) -> str:
    """The Markdown page."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    lines = [
        "# Benchmarks",
        "",
        f"On {machine}, {versions}, with the committed configs. Made by",
        "`python scripts/benchmarks/data_sets.py FOLDER --output docs/benchmarks.md`.",
        "",
        NOTES,
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "| --- |" + " ---: |" * (len(COLUMNS) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        "```sh",
        *commands,
        "```",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
