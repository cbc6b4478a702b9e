"""The standard streams, as processes find them."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
from encoder_cls.system.terminal import is_output_closed, open_streams, note, print_out
open_streams()
first = open("first", "w")
note(f"closed {is_output_closed()}\\n\\x1b")
print(print_out("k\\u00fcche \\ud800\\n"), first.fileno() > 2, file=first)
"""


def run_in_shell(redirection: str, **environment: str) -> tuple[int, bytes, bytes, str]:
    """Exit code, standard output, standard error, and what the process says in the first file that it opens."""
    command = ["sh", "-c", f'"$0" -c "$1" {redirection}', sys.executable, CODE]
    ended = subprocess.run(
        command,
        capture_output=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), **environment},
    )
    with open("first", encoding="utf-8") as file:  # noqa: PTH123 - in the current folder
        return ended.returncode, ended.stdout, ended.stderr, file.read()


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_results_are_utf_8_whatever_the_environment_says(environment):
    """A file that is written to has the same bytes on every machine; what UTF-8 cannot hold is escaped."""
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
    assert (code, first) == (0, "True True\n")
    assert out == (b"" if number == 1 else "küche \\ud800\n".encode())
    assert err == (b"" if number == 2 else f"closed {number == 1}\n\\x1b\n".encode())


def test_a_full_disk_ends_what_is_printed_and_not_what_is_noted():
    """Results that are lost are an error; a line on how the work goes is not worth the work."""
    code, _, err, _ = run_in_shell("> /dev/full")
    assert code == 1
    assert err.splitlines()[-1].endswith(
        b"EncoderClsError: standard output: cannot write: No space left on device"
    )
    assert run_in_shell("2> /dev/full")[0] == 0
