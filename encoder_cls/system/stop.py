"""Requests to stop, noticed wherever work takes long.

`checking` adds a function that may end the work. Loops call `check_stop` between two pieces of
work; a call that cannot be cut into pieces runs in a thread of `run_interruptibly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import TypeVar

from encoder_cls.errors import StoppedError

SECONDS_BETWEEN_LOOKS = 0.05
# The time that an abandoned thread has to end.
SECONDS_TO_END = 2.0

T = TypeVar("T")

_checks: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("checks", default=())


def checking(check: Callable[[], None]) -> AbstractContextManager[None]:
    """Let `check_stop` also call this function, which ends the work by raising an error."""
    return _calling((*_checks.get(), check))


def deferring_stops() -> AbstractContextManager[None]:
    """Let `check_stop` do nothing until the block ends."""
    return _calling(())


@contextmanager
def _calling(checks: tuple[Callable[[], None], ...]) -> Iterator[None]:
    token = _checks.set(checks)
    try:
        yield
    finally:
        _checks.reset(token)


def stopping_at(asked: Callable[[], int | None]) -> AbstractContextManager[None]:
    """Let `check_stop` raise a `StoppedError` once a function returns the number of a signal."""

    def check() -> None:
        signal_number = asked()
        if signal_number is not None:
            raise StoppedError("stopped before the training began", signal_number=signal_number)

    return checking(check)


def check_stop() -> None:
    """Raise an error if the work is to end."""
    for check in _checks.get():
        check()


def run_interruptibly(work: Callable[[], T]) -> T:
    """Run a blocking call in a thread while polling for a stop.

    After a stop the thread is abandoned, and `check_stop` ends the call there.

    Raises:
        BaseException: what the call or `check_stop` raises.
    """
    check_stop()
    future: Future[T] = Future()
    is_abandoned = Event()

    def end_if_abandoned() -> None:
        if is_abandoned.is_set():
            raise CancelledError

    def run() -> None:
        with _calling((end_if_abandoned,)):
            try:
                future.set_result(work())
            except BaseException as error:
                # It is raised again where the result is waited for.
                future.set_exception(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while not wait([future], SECONDS_BETWEEN_LOOKS).done:
            check_stop()
    except BaseException:
        is_abandoned.set()
        thread.join(SECONDS_TO_END)
        raise
    return future.result()
