"""The command line in a process of its own, and what its failures have in common."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 300.0  # seconds, which end a hang on a busy machine as well; what must be quick is counted, not timed
# What `encoder-cls` needs beyond what the runtime declares: neither predictions nor a server may need it.
TRAINING_LIBRARIES = [
    "torch",
    "scipy",
    "sklearn",
    "pyarrow",
    "pydantic",
    "pandas",
    "datasets",
    "jinja2",
    "matplotlib",
    "yaml",
    "tensorboard",
    "tqdm",
    "openpyxl",
]
RUN_MAIN = "from encoder_cls.cli.app import main; main()"
COMMAND = [sys.executable, "-c", RUN_MAIN]


def run_process(
    *arguments: object, before: str = "", check: bool = False
) -> subprocess.CompletedProcess[str]:
    """The program to its end, after some lines of Python."""
    command = [sys.executable, "-c", f"{before}\n{RUN_MAIN}", *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=TIME_LIMIT)


def run_beside_hub(
    code: str, *arguments: str, cache: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Python code with a cache of the Hub, no proxies, and no settings of the Hub but these."""
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
    """Options that set these values."""
    return [word for value in values for word in ("--set", value)]


def hashes(folder: Path) -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


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
