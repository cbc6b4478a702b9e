"""Run what no signal interrupts in a thread, while asking whether to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from threading import Lock, Thread, local
from typing import TypeVar

SECONDS_BETWEEN_LOOKS = 0.05
SECONDS_TO_END = 2.0  # for a thread that nobody waits for any more

T = TypeVar("T")
StopSignal = Callable[[], int | None]
"""Says which signal has asked to stop, if any."""

_thread = local()  # has a `lock` in threads of `run_interruptibly`; who stops waiting for one keeps it


def run_interruptibly(work: Callable[[], T], stop_if_asked: Callable[[], None]) -> T:
    """Call a function in a thread, and ask every few milliseconds whether to stop waiting for it.

    Args:
        work: the function; where it is not waited for any more, its thread ends at the next `while_waited_for`.
        stop_if_asked: raises what ends the wait.

    Raises:
        BaseException: what either of them raises.
    """
    future: Future[T] = Future()
    lock = Lock()

    def run() -> None:
        _thread.lock = lock
        try:
            future.set_result(work())
        except BaseException as error:  # to be raised where it is waited for
            future.set_exception(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while not wait([future], SECONDS_BETWEEN_LOOKS).done:
            stop_if_asked()
    except BaseException:
        lock.acquire()
        thread.join(SECONDS_TO_END)
        raise
    return future.result()


@contextmanager
def while_waited_for() -> Iterator[None]:
    """Keep whoever waits for this thread waiting.

    Raises:
        CancelledError: nobody waits any more.
    """
    lock = getattr(_thread, "lock", None) or Lock()
    if not lock.acquire(blocking=False):
        raise CancelledError
    try:
        yield
    finally:
        lock.release()
