"""Standard streams and signals.

Results go to standard output, and all other lines to standard error.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import printable

WARNING = "warning: "

# Whether this process writes no notes to standard error except errors, and perhaps warnings.
_is_quiet = False
_shows_warnings = True


def open_streams() -> None:
    """Open closed standard streams, and let standard output be UTF-8.

    Otherwise the next file would get the number of a closed stream, and all printed lines.
    `sys.stdin` remains None if it is closed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The new descriptor gets the lowest free number, which is `number`.
            os.open(os.devnull, os.O_RDWR)

    if sys.stdout is None:
        sys.stdout = _writable_null()
    if sys.stderr is None:
        sys.stderr = _writable_null()

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _writable_null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def print_out(text: str) -> bool:
    """Write to standard output, flush it, and return whether it has a reader.

    It has none after `| head` has read enough.

    Raises:
        EncoderClsError: standard output cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Discard the buffer. Otherwise Python would try to write it at exit, and fail again.
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return False
        raise EncoderClsError(f"standard output: cannot write: {error.strerror or error}") from None
    return True


def be_quiet(*, shows_warnings: bool = False) -> None:
    """Write only errors, and warnings if `shows_warnings`, from now on."""
    global _is_quiet, _shows_warnings  # noqa: PLW0603 - the whole process has the same streams
    _is_quiet = True
    _shows_warnings = shows_warnings


def is_quiet() -> bool:
    """Whether this process writes only errors, and perhaps warnings."""
    return _is_quiet


def note(
    message: str, *, is_error: bool = False, has_time: bool = False, above: Any = None
) -> None:
    """Write a line to standard error, above a progress bar of tqdm; a failure is ignored.

    An error is written even if this process is quiet. With `has_time`, the time stands before it,
    unless on a terminal.
    """
    if sys.stderr is None:
        return
    is_shown_warning = _shows_warnings and message.startswith(WARNING)
    if _is_quiet and not is_error and not is_shown_warning:
        return
    if has_time and not has_terminal():
        message = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {message}"

    try:
        if above is not None:
            above.write(printable(message, keep="\n"), file=sys.stderr)
            return
        sys.stderr.write(printable(f"{message}\n", keep="\n"))
        sys.stderr.flush()
    except OSError:
        # Discard the buffer. Otherwise Python would try to write it at exit, and fail again.
        with suppress(OSError):
            _discard(sys.stderr)


def has_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def warn_if_output_closed() -> None:
    """Warn that results are lost if standard output was closed at the start."""
    if is_output_closed():
        note(f"{WARNING}standard output is closed, so results are lost; name a file with --output")


def is_output_closed() -> bool:
    """Whether standard output was closed at the start."""
    return getattr(sys.stdout, "name", None) == os.devnull


def _discard(stream: TextIO) -> None:
    with open(os.devnull, "wb") as null:  # noqa: PTH123
        os.dup2(null.fileno(), stream.fileno())


def end_at_sigterm_as_process_1() -> None:
    """Let SIGTERM end process 1, as the program of a container is.

    Linux ignores signals to it that have no handler, so `docker stop` would wait for ten seconds.
    """

    def exit_at_once(number: int, _: object) -> None:
        os._exit(128 + number)

    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, exit_at_once)


def hangup_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP, if this process should handle it.

    Windows has none, and a program started by `nohup` ignores it.
    """
    if not hasattr(signal, "SIGHUP"):
        return ()
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return ()
    return (signal.SIGHUP,)


def has_lost_terminal() -> bool:
    """Whether the terminal of standard input has been closed."""
    return _is_lost_terminal(0)


def discard_output_to_lost_terminal() -> None:
    """Discard output to a closed terminal, which would be an error."""
    for number in (1, 2):
        if _is_lost_terminal(number):
            with open(os.devnull, "wb") as null:  # noqa: PTH123
                os.dup2(null.fileno(), number)


def _is_lost_terminal(number: int) -> bool:
    try:
        os.get_terminal_size(number)
    except OSError as error:
        # Files and pipes cause another error.
        return error.errno == errno.EIO
    return False


@contextmanager
def handling_signals(numbers: Iterable[int], handle: Callable[[int], object]) -> Iterator[None]:
    """Let a function handle signals, by number, while the block runs."""

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
