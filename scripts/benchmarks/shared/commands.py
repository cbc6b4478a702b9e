"""Commands in processes of their own: seconds, memory and the files of a run."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

# A child's peak of memory includes that of its parent at the fork, so a small process starts it.
LAUNCH = """
import os, subprocess, sys, time

folder = sys.argv[1]
start = time.perf_counter()
process = subprocess.Popen(
    sys.argv[2:], stdout=open(folder + '/out', 'w'), stderr=open(folder + '/err', 'w')
)
_, status, usage = os.wait4(process.pid, 0)
seconds = time.perf_counter() - start

peak_bytes = usage.ru_maxrss * 1024
processor_seconds = usage.ru_utime + usage.ru_stime
print(seconds, peak_bytes, processor_seconds, os.waitstatus_to_exitcode(status))
"""
PROGRAM = [sys.executable, "-m", "encoder_cls"]


@dataclass(frozen=True)
class Ended:
    """A command that has ended: wall and processor seconds, peak of resident memory, output."""

    seconds: float
    peak_bytes: float
    processor_seconds: float
    output: str


def run(command: Sequence[str]) -> Ended:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; the message is the end of its standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        launched = [sys.executable, "-S", "-c", LAUNCH, folder, *command]
        done = subprocess.run(launched, capture_output=True, text=True, check=True)
        seconds, peak, processor, code = map(float, done.stdout.split())

        if code:
            errors = Path(folder, "err").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(errors[-2000:].strip())
        output = Path(folder, "out").read_text(encoding="utf-8", errors="replace")
    return Ended(seconds, peak, processor, output)


def watch(command: Sequence[str], *, every: float) -> Generator[tuple[int, float, str], None, None]:
    """Run a command, and yield every so many seconds: its process, its seconds, its messages.

    The command ends when the caller stops iterating.

    Raises:
        RuntimeError: it failed; the message is the end of its standard error.
    """
    began = time.monotonic()
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process,
    ):
        try:
            while process.poll() is None:
                yield process.pid, time.monotonic() - began, _content(log)
                time.sleep(every)
        finally:
            process.terminate()

        if process.returncode:
            raise RuntimeError(_content(log)[-500:])


def _content(log: IO[bytes]) -> str:
    """The first mebibyte of a file that another process writes, without moving its position."""
    return os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")


def memory_of(pid: int, key: str) -> int:
    """The bytes of a process under a key of Linux's status, such as `VmHWM`, the peak.

    A process that has ended has 0.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            kilobytes = int(line.split()[1])
            return kilobytes * 1024
    return 0


def train_command(
    overrides: Sequence[str], run_dir: Path, *words: str, device: str = "cpu"
) -> list[str]:
    """The command line of a training."""
    command = [*PROGRAM, "train", *words, "--device", device, "--run-dir", str(run_dir)]
    for override in overrides:
        command += ["--set", override]
    return command


def train(overrides: Sequence[str], run_dir: Path, *words: str, device: str = "cpu") -> Ended:
    """Train as a user does."""
    return run(train_command(overrides, run_dir, *words, device=device))


def report(run_dir: Path) -> dict[str, Any]:
    """The report on the test split."""
    path = run_dir / "eval" / "report.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The logged rows; a last line that was cut off is left out."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


@cache
def work_folder() -> Path:
    """A folder for what several cases share, removed at the end."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)
