"""The standard streams and signals: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import printable

_is_quiet = False


def open_streams() -> None:
    """Open closed standard streams, and make standard output UTF-8, as files are, in any environment.

    Else the next file to be opened would take the number of a closed stream, and the output would be written into it.
    A closed standard input stays None for Python.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free: this one
        if number and getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def print_out(text: str) -> bool:
    """Write to standard output at once; False if its reader has gone, an `EncoderClsError` if it takes no more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _discard(sys.stdout)  # also what would be written at exit
        if isinstance(error, BrokenPipeError):  # the reader has seen enough, as with `| head`
            return False
        raise EncoderClsError(f"standard output: cannot write: {error.strerror or error}") from None
    return True


def be_quiet() -> None:
    """Note nothing but errors from now on: another process of the same work notes everything else."""
    global _is_quiet  # noqa: PLW0603 - of the whole process, as the streams are
    _is_quiet = True


def note(message: str, *, is_error: bool = False) -> None:
    """Write a line to standard error; where that fails, the work goes on nevertheless."""
    if _is_quiet and not is_error:
        return
    try:
        sys.stderr.write(printable(f"{message}\n", keep="\n"))
        sys.stderr.flush()
    except OSError:
        with suppress(OSError):
            descriptor = sys.stderr.fileno()
            kept = os.dup(descriptor)
            _discard(sys.stderr)
            sys.stderr.flush()  # the buffer is lost; at exit it would be an error once more
            os.dup2(kept, descriptor)
            os.close(kept)


def note_above(bar: Any, message: str) -> None:
    """Write a line to standard error above a bar of tqdm."""
    bar.write(printable(message, keep="\n"), file=sys.stderr)


def warn_if_output_closed() -> None:
    """Note that results go nowhere, if there was no standard output from the start."""
    if is_output_closed():
        note("warning: standard output is closed, results go nowhere; --output names a file for them")


def is_output_closed() -> bool:
    """Whether there was no standard output from the start."""
    return getattr(sys.stdout, "name", None) == os.devnull


def _discard(stream: TextIO) -> None:
    """Discard all further output to a stream."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def handling_signals(numbers: Iterable[int], handle: Callable[[int], object]) -> Iterator[None]:
    """Call a function with the number of each of these signals while the block runs."""
    previous = {number: signal.signal(number, lambda received, _: handle(received)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
