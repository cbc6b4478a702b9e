"""The command line in a process of its own, and checks of how it fails."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Seconds after which a test gives up, which a busy machine never needs. What must be quick is
# counted, not timed.
TIME_LIMIT = 300.0

# What `encoder-cls` needs beyond what the runtime declares: neither predicting nor serving may
# import them.
TRAINING_LIBRARIES = [
    "torch",
    "scipy",
    "sklearn",
    "pyarrow",
    "pandas",
    "datasets",
    "matplotlib",
    "tensorboard",
    "xlsxwriter",
]

# Date and time of a line of a log file, as a regular expression. A terminal shows no times.
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
TIME_OF_LINE = re.compile(f"^{TIME}  ", re.MULTILINE)

RUN_MAIN = "from encoder_cls.cli.app import main; main()"
COMMAND = [sys.executable, "-c", RUN_MAIN]


def run_process(
    *arguments: object, before: str = "", check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, after some lines of Python."""
    command = [sys.executable, "-c", f"{before}\n{RUN_MAIN}", *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=TIME_LIMIT)


def run_beside_hub(
    code: str, *arguments: str, cache: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code with a cache of the Hub, without proxies and other settings of the Hub."""
    unwanted = re.compile(r".*_proxy|(HF|HUGGINGFACE|TRANSFORMERS)_.*", re.IGNORECASE)
    inherited = {key: value for key, value in os.environ.items() if not unwanted.fullmatch(key)}
    quiet = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(cache),
        "PYTHONUTF8": "1",
    }

    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**inherited, **quiet, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=TIME_LIMIT,
        check=False,
    )


def setting(*values: str) -> list[str]:
    """Options of the command line that set these values."""
    words = []
    for value in values:
        words += ["--set", value]
    return words


def hashes(folder: Path) -> dict[Path, str]:
    """The hash of each file below a folder."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def succeed(cli, *arguments: object):
    """Run a command in this process, which must succeed, and return its outcome."""
    outcome = cli(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def assert_failed(outcome, code: int, *named: str) -> None:
    """Check the exit code, and that one or two lines on standard error say what is wrong."""
    assert outcome.code == code, outcome
    assert outcome.out == ""

    message = outcome.err[outcome.err.index("error: ") :]
    assert 1 <= len(message.splitlines()) <= 2
    assert "Traceback" not in outcome.err
    assert "unexpected" not in message
    for part in named:
        assert part in message
