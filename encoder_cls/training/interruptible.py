"""Who asks to stop; something long that no signal interrupts in, its result out, or what is raised meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

SECONDS_BETWEEN_LOOKS = 0.05

T = TypeVar("T")
StopSignal = Callable[[], int | None]
"""Says which signal has asked to stop, if any."""


def run_interruptibly(work: Callable[[], T], stop_if_asked: Callable[[], None]) -> T:
    """Call a function in a thread, and ask every few milliseconds whether to stop waiting for it.

    Args:
        work: the function; where it is not waited for any more, it is left behind and ends with the process.
        stop_if_asked: raises what ends the wait.

    Raises:
        BaseException: what either of them raises.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # to be raised where it is waited for
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    while not wait([future], SECONDS_BETWEEN_LOOKS).done:
        stop_if_asked()
    return future.result()
