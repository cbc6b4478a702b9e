"""The standard streams, as processes find them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from encoder_cls.system.terminal import is_output_closed, open_streams, note, print_out
open_streams()
first = open("first", "w")
note(f"closed {is_output_closed()}\\n\\x1b")
print(print_out("k\\u00fcche \\ud800\\n"), first.fileno() > 2, file=first)
"""


def run_in_shell(redirection: str, **environment: str) -> tuple[int, bytes, bytes, str]:
    """Exit code, standard output, standard error, and the first file that the process opens."""
    command = ["sh", "-c", f'"$0" -c "$1" {redirection}', sys.executable, CODE]
    environment = {"PYTHONPATH": ":".join(sys.path)} | environment
    ended = subprocess.run(command, capture_output=True, check=False, env=environment)
    first_file = Path("first").read_text(encoding="utf-8")
    return ended.returncode, ended.stdout, ended.stderr, first_file


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_results_are_utf_8_whatever_the_environment_says(environment):
    """A file has the same bytes on every machine; what UTF-8 cannot hold is escaped."""
    assert run_in_shell("", **environment) == (
        0,
        "küche \\ud800\n".encode(),
        b"closed False\n\\x1b\n",
        "True True\n",
    )


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_stream_is_replaced(number):
    """No file that is opened later takes its number, and nothing ends for it."""
    code, out, err, first = run_in_shell(f"{number}>&-")
    assert code == 0
    assert first == "True True\n"

    expected_out = "küche \\ud800\n".encode()
    expected_err = f"closed {number == 1}\n\\x1b\n".encode()
    if number == 1:
        expected_out = b""
    if number == 2:
        expected_err = b""
    assert out == expected_out
    assert err == expected_err


def test_a_full_disk_ends_what_is_printed_and_not_what_is_noted():
    """Results that are lost are an error; a line on how the work goes is not worth the work."""
    code, _, err, _ = run_in_shell("> /dev/full")
    assert code == 1
    assert err.splitlines()[-1].endswith(
        b"EncoderClsError: standard output: cannot write: No space left on device"
    )
    assert run_in_shell("2> /dev/full")[0] == 0
