"""SIGINT and SIGTERM in, an answer for the training loop out."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_cls.training.process_group import ProcessGroup


@contextmanager
def stop_signals(group: ProcessGroup) -> Iterator[Callable[[], int | None]]:
    """Turn the first SIGINT or SIGTERM into an answer for the training loop; a second one ends at once.

    Of several processes the first is told of each other's; and as torchrun, too, sends them what a terminal has sent,
    a second one changes nothing there.
    """
    received: list[int] = []

    def receive(number: int, _frame: Any) -> None:
        if received and group.size == 1:
            os._exit(128 + number)
        received.append(number)
        if not group.leads:
            group.ask_to_stop(number)
        if len(received) > 1 or not group.leads:
            return
        with suppress(OSError):  # not through sys.stderr, which may be writing a line at this very moment
            os.write(2, b"\nstopping after this step" + b"; once more to stop at once" * (group.size == 1) + b"\n")

    former = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else group.asked_to_stop()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
