"""Stop long work on request, for example after a signal.

`checking` adds a function that may ask to stop; long loops call `check_stop`; a call that cannot be
divided runs in a thread (`run_interruptibly`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from encoder_cls.errors import StoppedError

if TYPE_CHECKING:
    from concurrent.futures import Future

# The time between two checks while a thread runs.
SECONDS_BETWEEN_LOOKS = 0.05
# The maximum time to wait for the end of an abandoned thread.
SECONDS_TO_END = 2.0

T = TypeVar("T")

_checks: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("checks", default=())


def checking(check: Callable[[], None]) -> AbstractContextManager[None]:
    """Let `check_stop` also call `check`, which raises an error if the work should end."""
    return _calling((*_checks.get(), check))


def deferring_stops() -> AbstractContextManager[None]:
    """Let `check_stop` do nothing while the block runs."""
    return _calling(())


@contextmanager
def _calling(checks: tuple[Callable[[], None], ...]) -> Iterator[None]:
    token = _checks.set(checks)
    try:
        yield
    finally:
        _checks.reset(token)


def stopping_at(asked: Callable[[], int | None]) -> AbstractContextManager[None]:
    """Let `check_stop` raise a `StoppedError` if `asked` returns the number of a signal."""

    def check() -> None:
        signal_number = asked()
        if signal_number is not None:
            raise StoppedError("stopped before the training began", signal_number=signal_number)

    return checking(check)


def check_stop() -> None:
    """Raise an error if the work should end."""
    for check in _checks.get():
        check()


def run_interruptibly(work: Callable[[], T]) -> T:
    """Run a blocking call in a thread, and stop waiting if `check_stop` raises an error.

    The thread is then abandoned, unless the call itself calls `check_stop`.
    """
    # Imported here, because predicting needs no thread, and the import takes some milliseconds.
    from concurrent.futures import CancelledError, Future, wait

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
            # `future.result` raises the error again.
            except BaseException as error:
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
