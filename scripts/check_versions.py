"""Run the suite and the README's command with the lowest and the newest versions declared.

    python scripts/check_versions.py

The lowest version of each direct dependency is tried on the oldest Python of the classifiers, the
newest versions on the newest Python that is installed, in environments that uv (`pip install uv`)
makes for it. What uv downloads, some 3 GB for each version of PyTorch, stays in its cache. Prints a
table; the exit code is 1 if a test or the command fails, or if a Python on the PATH does not run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The versions of Python that the classifiers name, the oldest first.
PYTHONS: list[str] = [
    name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name
]
# The libraries whose versions are in the table.
SHOWN = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib", "pyarrow", "typer", "pydantic")
# Prints the versions of Python and of the libraries that are named.
VERSIONS = """
import json, platform, sys
from importlib.metadata import version
print(json.dumps([platform.python_version(), *map(version, sys.argv[1:])]))
"""
# The README's main command, cut short: the linear model, then an epoch of the encoder.
EXAMPLE = ["train", "--set", "pretrain.epochs=0", "--set", "train.epochs=1", "--run-dir", "run"]
# The variables of this environment that a new one must not inherit.
UNWANTED = {"PYTHONPATH", "VIRTUAL_ENV"}
# What uv calls the versions that are tried.
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}


def run(*command: object, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command without the settings of this environment, and capture its output."""
    inherited = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    return subprocess.run(
        [*map(str, command)], check=False, capture_output=True, text=True, cwd=folder, env=inherited
    )


def uv(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run uv; a failure ends the script.

    Raises:
        SystemExit: with the last lines of its output.
    """
    done = run("uv", *arguments)
    if done.returncode:
        sys.exit(f"error: uv {' '.join(map(str, arguments))}:\n{last_lines(done)}")
    return done


def last_lines(done: subprocess.CompletedProcess[str], number: int = 30) -> str:
    """The end of the output of a command."""
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-number:])


# Prints the version of Python, such as 3.13.
PYTHON_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])))"


def newest_installed() -> str:
    """The path of the newest of the Pythons declared that is installed on this machine.

    Raises:
        SystemExit: no declared Python is installed; or there is a command for a newer one, such as
            `python3.13`, that does not run this version, as a shim of pyenv may do.
    """
    for python in reversed(PYTHONS):
        found = run("uv", "python", "find", "--no-python-downloads", python)
        if found.returncode == 0:
            path = found.stdout.strip()
            check_version(path, python)
            return path

        command = shutil.which(f"python{python}")
        if command:
            check_version(command, python)
            return command
        print(f"Python {python} is not installed, so it is not tried", file=sys.stderr)
    sys.exit(f"error: none of the declared Pythons is installed ({', '.join(PYTHONS)})")


def check_version(path: str, python: str) -> None:
    """Ask a Python for its version.

    Raises:
        SystemExit: it does not run, or it has another version.
    """
    asked = run(path, "-c", PYTHON_VERSION)
    if asked.returncode == 0 and asked.stdout.strip() == python:
        return
    sys.exit(
        f"error: {path} does not run Python {python}:\n{last_lines(asked)}\n"
        f"make it run, such as by PYENV_VERSION for a shim of pyenv, or take it off the PATH"
    )


def tried(name: str, python: str, work: Path) -> tuple[list[str], bool]:
    """Run the suite and the command in a new environment.

    Returns:
        A row of the table, and whether both succeeded.
    """
    folder = work / name
    uv("venv", "--quiet", "--python", python, folder)
    inside = folder / "bin" / "python"
    install = ["pip", "install", "--quiet", "--python", inside]
    uv(*install, "--resolution", RESOLUTIONS[name], "--editable", f"{ROOT}[dev]")
    versions = json.loads(run(inside, "-c", VERSIONS, *SHOWN).stdout)

    suite = run(inside, "-m", "pytest", "-p", "no:cacheprovider", "-n", os.cpu_count())
    example = run(folder / "bin" / "encoder-cls", *EXAMPLE, folder=folder)
    for done in (suite, example):
        if done.returncode:
            print(f"{name}, Python {versions[0]}: exit code {done.returncode}")
            print(f"{last_lines(done)}\n", flush=True)

    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", last_lines(suite, 1))
    tests = ", ".join(counts) or "none"
    scores = "failed" if example.returncode else test_scores(folder / "run")
    return [name, *versions, tests, scores], not suite.returncode and not example.returncode


def test_scores(run_folder: Path) -> str:
    """The scores of a run on its test texts, from its log."""
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    test = [row for row in rows if row["split"] == "test"][-1]
    return f"accuracy {test['accuracy']:.3f}, calibration error {test['ece']:.3f}"


def main() -> None:
    """Try both, one after the other, and print the table."""
    if shutil.which("uv") is None:
        sys.exit("error: uv is not installed: pip install uv")

    pythons = {"lowest": PYTHONS[0], "newest": newest_installed()}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = [tried(name, python, Path(folder).resolve()) for name, python in pythons.items()]

    head = ["versions", "Python", *SHOWN, "tests", "the example"]
    for cells in (head, ["---"] * len(head), *(row for row, _ in results)):
        print(f"| {' | '.join(cells)} |")
    has_failed = not all(succeeded for _, succeeded in results)
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
