"""One training in, its scores out: each method trains in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import peers

import encoder_cls
from accuracy_benchmark.methods import OURS
from accuracy_benchmark.plan import Training
from accuracy_benchmark.splits import split_files


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a training reached.

    Attributes:
        accuracy: on the test split, a fraction.
        num_test: texts in the test split.
        seconds: to train with the chosen setting; of encoder-cls from starting the command to the end of the report.
        search_seconds: to train with all settings; none where there is no choice.
        ece: expected calibration error, a fraction; none where the method has no probabilities.
        settings: what differs from the defaults of the method: config overrides, or the setting chosen on validation.
    """

    accuracy: float
    num_test: int
    seconds: float
    search_seconds: float | None = None
    ece: float | None = None
    settings: str = ""


def measure(folder: Path, training: Training, *, threads: int) -> Scores:
    """Train and score.

    Raises:
        RuntimeError: the process failed; the last line that it wrote is the message.
    """
    with split_files(folder, training.data, seed=training.seed, size=training.size) as overrides:
        if training.method in OURS:
            return train_ours(overrides, OURS[training.method], seed=training.seed, threads=threads)
        return train_peer(training.method, overrides, seed=training.seed, threads=threads)


def train_ours(overrides: Sequence[str], settings: Sequence[str], *, seed: int, threads: int) -> Scores:
    """Train as a user would, with the command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("encoder-cls")), "train", "--device", "cpu"]
        command += ["--run-dir", f"{folder}/run"]
        command += [word for override in [*overrides, *settings, f"seed={seed}"] for word in ("--set", override)]
        began = time.monotonic()
        _run(command, threads)
        seconds = time.monotonic() - began
        report = json.loads(Path(folder, "run", "eval", "report.json").read_text(encoding="utf-8"))
    return Scores(
        accuracy=report["accuracy"],
        num_test=report["num_examples"],
        seconds=seconds,
        ece=report["ece"],
        settings=", ".join(settings),
    )


def train_peer(method: str, overrides: Sequence[str], *, seed: int, threads: int) -> Scores:
    """Train another method on the same splits."""
    command = [sys.executable, str(Path(peers.__file__)), method, str(seed), str(threads), *overrides]
    outcome = json.loads(_run(command, threads).splitlines()[-1])
    return Scores(settings=outcome.pop("chosen"), **outcome)


def _run(command: Sequence[str], threads: int) -> str:
    """What a command printed."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(threads))
    if ended.returncode:
        raise RuntimeError((ended.stderr.strip() or f"exit code {ended.returncode}").splitlines()[-1])
    return ended.stdout


def _environment(threads: int) -> Mapping[str, str]:
    """This process's, but with so many threads, and with the same `encoder_cls`, wherever it was found."""
    package = str(Path(encoder_cls.__file__).resolve().parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(paths)}
