"""The script that tries the lowest and the newest versions: which Python it takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import check_versions

# The Python that runs the tests, which alone `uv` finds.
FOUND = f"{sys.version_info.major}.{sys.version_info.minor}"
# A later one, which is not installed.
LATER = f"{sys.version_info.major}.{sys.version_info.minor + 1}"


def write_command(name: str, script: str) -> Path:
    """Write a command of the current folder, as a script of the shell."""
    command = Path.cwd() / name
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return command


@pytest.fixture(autouse=True)
def _uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The PATH has a `uv` that finds the Python of the tests alone, and no other program."""
    write_command("uv", f'[ "$4" = {FOUND} ] && echo {sys.executable}')
    monkeypatch.setenv("PATH", str(Path.cwd()))
    monkeypatch.setattr(check_versions, "PYTHONS", [FOUND, LATER])


def test_a_python_that_is_not_installed_is_named(capsys):
    assert check_versions.newest_installed() == sys.executable
    assert capsys.readouterr().err == f"Python {LATER} is not installed, so it is not tried\n"


def test_a_later_python_that_does_not_run_is_an_error():
    """So does a shim of pyenv without a version that is chosen."""
    shim = write_command(f"python{LATER}", "echo 'pyenv: command not found' >&2; exit 127")

    with pytest.raises(SystemExit) as caught:
        check_versions.newest_installed()

    message = str(caught.value)
    assert message.startswith(f"error: {shim} does not run Python {LATER}:\npyenv: command not")


def test_a_python_of_another_version_than_its_name_is_an_error():
    shim = write_command(f"python{LATER}", f'exec {sys.executable} "$@"')

    with pytest.raises(SystemExit) as caught:
        check_versions.newest_installed()

    assert str(caught.value).startswith(f"error: {shim} does not run Python {LATER}:\n{FOUND}\n")


def test_a_later_python_that_runs_is_taken():
    command = write_command(f"python{LATER}", f"echo {LATER}")
    assert check_versions.newest_installed() == str(command)
