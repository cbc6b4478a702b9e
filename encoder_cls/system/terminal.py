"""The standard streams: results on standard output, everything else on standard error.

A stream that is closed is replaced by one that leads nowhere: else the next file that is opened would take its number,
and what is printed would be written into it.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import suppress
from typing import Any, TextIO

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import printable

STREAMS = ("stdin", "stdout", "stderr")  # by their numbers

_is_quiet = False


def mend_streams() -> None:
    """Open what is closed, and make standard output UTF-8, as files are, whatever the environment says.

    A closed standard input stays none for Python: there is nothing to be read.
    """
    for number, name in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free: this one
        if number and getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def print_out(text: str) -> bool:
    """Write to standard output at once; whether there is still somebody who reads it.

    Raises:
        EncoderClsError: it cannot be written to.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough, as with `| head`. Nothing more may be written, not even at exit.
        _lead_nowhere(sys.stdout)
        return False
    except OSError as error:
        _lead_nowhere(sys.stdout)
        raise EncoderClsError(f"standard output: cannot write: {error.strerror or error}") from None
    return True


def be_quiet() -> None:
    """Note nothing from now on but errors: another process of the same work tells all else."""
    global _is_quiet  # noqa: PLW0603 - of the whole process, as the streams are
    _is_quiet = True


def note(message: str, *, is_error: bool = False) -> None:
    """Write a line to standard error; where that cannot be, the work goes on nevertheless."""
    if _is_quiet and not is_error:
        return
    try:
        sys.stderr.write(printable(f"{message}\n", keep="\n"))
        sys.stderr.flush()
    except OSError:
        with suppress(OSError):
            descriptor = sys.stderr.fileno()
            kept = os.dup(descriptor)
            _lead_nowhere(sys.stderr)
            sys.stderr.flush()  # what waits is lost; at exit it would be an error once more
            os.dup2(kept, descriptor)
            os.close(kept)


def note_above(bar: Any, message: str) -> None:
    """Write a line to standard error above a bar of tqdm."""
    bar.write(printable(message, keep="\n"), file=sys.stderr)


def warn_if_output_closed() -> None:
    """Tell that results go nowhere, where there was no standard output from the start."""
    if is_output_closed():
        note("warning: standard output is closed, results go nowhere; --output names a file for them")


def is_output_closed() -> bool:
    """Whether there was no standard output from the start."""
    return getattr(sys.stdout, "name", None) == os.devnull


def is_output_a_file() -> bool:
    """Whether standard output goes to a file, in which something may stand already."""
    try:
        return stat.S_ISREG(os.fstat(1).st_mode)
    except OSError:
        return False


def _lead_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
