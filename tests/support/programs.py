"""The command line in a process of its own, and what its failures have in common."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from support.time_limit import TIME_LIMIT

RUN_MAIN = "from encoder_cls.cli import main; main()"
COMMAND = [sys.executable, "-c", RUN_MAIN]


def run_process(
    *arguments: object, before: str = "", check: bool = False, **options
) -> subprocess.CompletedProcess[str]:
    """The program to its end, after some lines of Python."""
    command = [sys.executable, "-c", f"{before}\n{RUN_MAIN}", *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=TIME_LIMIT, **options)


def setting(*values: str) -> list[str]:
    """Options that set these values."""
    return [word for value in values for word in ("--set", value)]


def hashes(folder: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def assert_failed(outcome, code: int, *named: str) -> None:
    """A failure is one or two lines on standard error that name what is wrong, and a code."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    message = outcome.err[outcome.err.index("error: ") :]
    assert 1 <= len(message.splitlines()) <= 2
    assert "Traceback" not in outcome.err
    assert "unexpected" not in message
    for part in named:
        assert part in message
