"""What only predicts needs no library of training, and nothing of POSIX systems alone: it runs where these are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.programs import TRAINING_LIBRARIES

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in FORBIDDEN or name in FORBIDDEN:
            raise ImportError(f"{name} is not to be imported")
sys.meta_path.insert(0, Blocked())
"""
# Modules and names that Windows has not. No test runs there; that the names are not asked for is what can be seen here.
POSIX_MODULES = ["fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"]
WITHOUT_POSIX = """
import mmap, os, select, shutil, signal, subprocess, sys, tempfile
import numpy, safetensors.numpy, tokenizers, typer.main  # which know what system they are on
for name in POSIX_MODULES:
    sys.modules.pop(name, None)
for module, names in (
    (os, "O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_CLOEXEC fchmod fchown chown fork forkpty getuid geteuid getgid uname"
         " sched_getaffinity sched_setaffinity sysconf statvfs posix_fadvise posix_fallocate pread pwrite mkfifo setsid"
         " killpg nice getloadavg wait3 wait4 confstr sync"),
    (mmap, "MADV_DONTNEED MADV_WILLNEED MADV_SEQUENTIAL MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS PROT_READ PROT_WRITE"),
    (select, "poll epoll"),
    (signal, "SIGHUP SIGKILL SIGALRM SIGUSR1 SIGUSR2 SIGPIPE SIGQUIT SIGCHLD alarm setitimer pthread_sigmask"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
COMMAND_LINE = """
import contextlib, io, json
from encoder_cls.cli.app import main
outcomes = []
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["encoder-cls", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            outcomes.append([int(ended.code or 0), out.getvalue(), err.getvalue()])
print(json.dumps({"outcomes": outcomes, "found": sorted(set(FORBIDDEN) & set(sys.modules))}))
"""

TEXTS = ["rain and snow today", "a big soup with <b>salt</b>", "the team and the ball"]


def run_commands(
    commands: list[list[object]], *, forbidden: list[str], before: str = ""
) -> list[list]:
    """How commands end in a process in which the forbidden modules cannot be imported."""
    arguments = json.dumps([[str(argument) for argument in command] for command in commands])
    program = [sys.executable, "-c", f"{before}FORBIDDEN = {forbidden!r}\n{BLOCKED}{COMMAND_LINE}"]
    done = subprocess.run(program, check=False, capture_output=True, text=True, input=arguments)
    assert done.returncode == 0, done.stderr
    prediction = json.loads(done.stdout)
    assert prediction["found"] == []
    return prediction["outcomes"]


def files_of_texts(folder: Path) -> list[Path]:
    """The texts in files of each kind that is read by column or by line."""
    content = {
        "a.txt": "".join(f"{text}\n" for text in TEXTS),
        "a.csv": "id,text\n" + "".join(f'{number},"{text}"\n' for number, text in enumerate(TEXTS)),
        "a.tsv": "text\tid\n" + "".join(f"{text}\t{number}\n" for number, text in enumerate(TEXTS)),
        "a.jsonl": "".join(json.dumps({"text": text, "id": text[:3]}) + "\n" for text in TEXTS),
    }
    for name, text in content.items():
        (folder / name).write_text(text)
    return [folder / name for name in content]


@pytest.mark.parametrize(
    "system", ["without the libraries of training", "without what only POSIX systems have"]
)
def test_every_prediction_is_what_the_whole_program_gives(cli, trained_run, tmp_path, system):
    """Each format, source and page, to the byte: the real command line in a process where the rest is not there."""
    model = ["predict", "--model", trained_run.path]
    commands = [
        *(
            [*model, "--format", name, "--top-k", 2, *TEXTS]
            for name in ("text", "jsonl", "tsv", "csv", "html")
        ),
        *([*model, "--explain", "--format", name, *TEXTS] for name in ("text", "jsonl", "csv")),
        *([*model, "--input", file] for file in files_of_texts(tmp_path)),
        [*model, "--input", tmp_path / "a.csv", "--output", "answers.jsonl"],
        [*model, "--attention", "maps.html", *TEXTS],
        [*model, "--engine", "numpy", "--device", "cpu", *TEXTS],
        ["--help"],
        ["predict", "--help"],
        ["--version"],
    ]
    expected = [cli(*command) for command in commands]
    files = [tmp_path / "answers.jsonl", tmp_path / "maps.html"]
    contents = [file.read_bytes() for file in files]
    for file in files:  # which are to be replaced
        file.write_bytes(b"")
    blocked = (
        {"forbidden": POSIX_MODULES, "before": f"{POSIX_MODULES = }{WITHOUT_POSIX}"}
        if "POSIX" in system
        else {"forbidden": TRAINING_LIBRARIES}
    )
    outcomes = run_commands(commands, **blocked)
    assert [outcome[0] for outcome in outcomes] == [0] * len(commands), outcomes
    for command, outcome, whole in zip(commands, outcomes, expected, strict=True):
        if "--help" not in command:  # whose width is the terminal's
            assert outcome == [whole.code, whole.out, whole.err], command
    assert [file.read_bytes() for file in files] == contents


def test_what_is_not_installed_is_named_in_one_line(trained_run, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "a.parquet")
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "1.csv").write_text("text\nrain\n")
    (tmp_path / "both" / "2.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    model = ["predict", "--model", trained_run.path]
    needs_torch = "needs PyTorch: pip install encoder-cls"
    refusals = [
        (["train"], needs_torch),
        (["train", "--dry-run", "--run-dir", "new"], needs_torch),
        (["eval", trained_run.path], needs_torch),
        ([*model, "--engine", "torch", "rain"], needs_torch),
        ([*model, "--device", "cuda", "rain"], needs_torch),
        (
            [*model, "--input", tmp_path / "a.parquet"],
            "a.parquet: needs pyarrow: pip install pyarrow",
        ),
        ([*model, "--input", tmp_path / "both"], "2.parquet: needs pyarrow: pip install pyarrow"),
        (
            [*model, "--input", "hub:some/data"],
            "hub:some/data: needs datasets: pip install datasets",
        ),
    ]
    outcomes = run_commands([command for command, _ in refusals], forbidden=TRAINING_LIBRARIES)
    for (command, message), (code, out, err) in zip(refusals, outcomes, strict=True):
        assert (code, out, err.count("\n")) == (2, "", 1), (command, err)
        assert err.endswith(f"{message}\n")
        assert err.startswith("error: ")
    assert not (tmp_path / "new").exists()
