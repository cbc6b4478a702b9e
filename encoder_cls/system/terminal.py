"""Standard streams, signals and work in progress: results on standard output, everything else on standard error.

Code that takes long names its work; programs at a terminal show that name with the seconds.
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
from contextvars import ContextVar
from threading import Event, Lock, Thread
from typing import Any, TextIO

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import printable

FIRST_LINE, SECONDS_BETWEEN_LINES = 1.0, 30.0  # of work in progress, without a terminal

_is_quiet = False
_show: ContextVar[Callable[[str, bool], None]] = ContextVar("show", default=lambda *_: None)


def open_streams() -> None:
    """Open closed standard streams, and make standard output UTF-8, as files are, in any environment.

    Otherwise the next file that is opened would get the number of a closed stream, and the output with it.
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
    """Write to standard output at once; False if its reader has gone; `EncoderClsError` if it cannot be written."""
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


def note(message: str, *, is_error: bool = False, above: Any = None) -> None:
    """Write a line to standard error, above a bar of tqdm if there is one; the work goes on where that fails."""
    if _is_quiet and not is_error:
        return
    try:
        if above is not None:
            above.write(printable(message, keep="\n"), file=sys.stderr)
            return
        sys.stderr.write(printable(f"{message}\n", keep="\n"))
        sys.stderr.flush()
    except OSError:
        with suppress(OSError):  # else the buffer would be an error once more at exit
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

    For process 1 Linux ignores signals that have no handler: `docker stop` would wait for ten seconds and then kill it.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def hangup_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP, which says that the terminal has gone; nothing where it is ignored, as `nohup` wants, or unknown."""
    if not hasattr(signal, "SIGHUP") or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return ()
    return (signal.SIGHUP,)


def has_lost_terminal() -> bool:
    """Whether standard input was a terminal that has gone: its window was closed, or its connection lost."""
    return _is_lost_terminal(0)


def discard_output_to_lost_terminal() -> None:
    """Discard what is written to a terminal that has gone, which would be an error."""
    for number in (1, 2):
        if _is_lost_terminal(number):
            with open(os.devnull, "wb") as null:  # noqa: PTH123
                os.dup2(null.fileno(), number)


def _is_lost_terminal(number: int) -> bool:
    """Whether a file descriptor is of a terminal that has gone; other files have another error here."""
    try:
        os.get_terminal_size(number)
    except OSError as error:
        return error.errno == errno.EIO
    return False


@contextmanager
def handling_signals(numbers: Iterable[int], handle: Callable[[int], object]) -> Iterator[None]:
    """Call a function with the number of each of these signals while the block runs."""
    previous = {
        number: signal.signal(number, lambda received, _: handle(received)) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def begin_work(what: str) -> None:
    """Name the work that starts now, in place of the name before; an empty name shows nothing."""
    _show.get()(what, False)


def note_work(line: str) -> None:
    """Note finished work on a line that stays."""
    _show.get()(line, True)


@contextmanager
def within_work(what: str) -> Iterator[None]:
    """Put the name of a larger work before those of its parts."""
    show = _show.get()
    token = _show.set(lambda part, stays: show(f"{what}: {part}" if part else what, stays))
    try:
        begin_work("")
        yield
    finally:
        _show.reset(token)
        begin_work("")


@contextmanager
def showing_work(bar: Any = None) -> Iterator[None]:
    """Show the work of the block with its seconds: as a bar's name, else on a terminal's last line or as lines.

    Lines come after the first second, then now and then.
    """
    from tqdm import tqdm

    is_own = bar is None and sys.stderr.isatty() and not _is_quiet
    shown = tqdm(bar_format="{desc}", leave=False) if is_own else bar
    lock, ended, what, since, next_line = Lock(), Event(), "", 0.0, 0.0

    def update() -> None:
        nonlocal next_line
        seconds = time.monotonic() - since
        text = f"{what}, {seconds:.0f} s" if seconds >= 1 else what
        if what and shown is not None:
            shown.set_description_str(text)
        elif what and seconds >= next_line:
            note(text)
            next_line += SECONDS_BETWEEN_LINES

    def show(text: str, stays: bool) -> None:
        nonlocal what, since, next_line
        with lock:
            if stays:
                note(text, above=shown)
                return
            if shown is not None and what and not text:
                shown.set_description_str("", refresh=False)
                shown.clear()
            what, since, next_line = text, time.monotonic(), FIRST_LINE
            update()

    def keep_updating() -> None:
        while not ended.wait(1.0):
            with lock:
                update()

    token = _show.set(show)
    thread = Thread(target=keep_updating, daemon=True)
    thread.start()
    try:
        yield
    finally:
        _show.reset(token)
        ended.set()
        thread.join()
        if is_own:
            shown.close()
