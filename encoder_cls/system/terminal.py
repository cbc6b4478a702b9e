"""Standard streams and signals: results on standard output, everything else on standard error."""

from __future__ import annotations

import errno
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
    """Open closed standard streams, and make standard output UTF-8 in any environment.

    Otherwise the next file that is opened would get the number of a closed stream, and would
    receive what is printed. `sys.stdin` stays None for a closed standard input.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The new descriptor gets the lowest number that is free: this one.
            os.open(os.devnull, os.O_RDWR)

    if sys.stdout is None:
        sys.stdout = _writable_null()
    if sys.stderr is None:
        sys.stderr = _writable_null()

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _writable_null() -> TextIO:
    """A stream, open as long as the process, that discards what is written to it."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def print_out(text: str) -> bool:
    """Write to standard output at once; False if its reader has gone, as with `| head`.

    Raises:
        EncoderClsError: standard output cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would be written, and fail again, at exit.
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return False
        raise EncoderClsError(f"standard output: cannot write: {error.strerror or error}") from None
    return True


def be_quiet() -> None:
    """Write nothing but errors from now on: another process of the same work writes the rest."""
    global _is_quiet  # noqa: PLW0603 - of the whole process, as the streams are
    _is_quiet = True


def is_quiet() -> bool:
    """Whether this process writes nothing but errors."""
    return _is_quiet


def note(message: str, *, is_error: bool = False, above: Any = None) -> None:
    """Write a line to standard error; the work goes on where that fails.

    `above` is the progress bar of tqdm above which the line appears, if there is one.
    """
    if _is_quiet and not is_error:
        return

    try:
        if above is not None:
            above.write(printable(message, keep="\n"), file=sys.stderr)
            return
        sys.stderr.write(printable(f"{message}\n", keep="\n"))
        sys.stderr.flush()
    except OSError:
        # What is still buffered would be written, and fail again, at exit.
        with suppress(OSError):
            _discard(sys.stderr)


def warn_if_output_closed() -> None:
    """Note that results go nowhere, if standard output was closed from the start."""
    if is_output_closed():
        note(
            "warning: standard output is closed, results go nowhere; --output names a file for them"
        )


def is_output_closed() -> bool:
    """Whether standard output was closed from the start."""
    return getattr(sys.stdout, "name", None) == os.devnull


def _discard(stream: TextIO) -> None:
    """Discard all further output to a stream."""
    with open(os.devnull, "wb") as null:  # noqa: PTH123
        os.dup2(null.fileno(), stream.fileno())


def end_at_sigterm_as_process_1() -> None:
    """Let SIGTERM end this process, also where it is process 1, as the program of a container is.

    For process 1, Linux ignores signals that have no handler: `docker stop` would wait for ten
    seconds and then kill it.
    """

    def exit_at_once(number: int, _: object) -> None:
        os._exit(128 + number)

    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, exit_at_once)


def hangup_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP, which says that the terminal has gone, if it is to be noticed.

    It does not exist on Windows, and is ignored by a program that `nohup` has started.
    """
    if not hasattr(signal, "SIGHUP"):
        return ()
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return ()
    return (signal.SIGHUP,)


def has_lost_terminal() -> bool:
    """Whether standard input was a terminal that has gone, with its window or connection."""
    return _is_lost_terminal(0)


def discard_output_to_lost_terminal() -> None:
    """Discard what is written to a terminal that has gone, which would be an error."""
    for number in (1, 2):
        if _is_lost_terminal(number):
            with open(os.devnull, "wb") as null:  # noqa: PTH123
                os.dup2(null.fileno(), number)


def _is_lost_terminal(number: int) -> bool:
    """Whether a file descriptor is of a terminal that has gone."""
    try:
        os.get_terminal_size(number)
    except OSError as error:
        # The error of files and pipes is another one.
        return error.errno == errno.EIO
    return False


@contextmanager
def handling_signals(numbers: Iterable[int], handle: Callable[[int], object]) -> Iterator[None]:
    """Call a function with the number of each of these signals while the block runs."""

    def handler(number: int, _: object) -> None:
        handle(number)

    previous_handlers = {}
    for number in numbers:
        previous_handlers[number] = signal.signal(number, handler)

    try:
        yield
    finally:
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, previous_handler)
