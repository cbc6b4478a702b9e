"""Stop a training by a signal: the first one asks it to stop, a second one ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from encoder_cls.system.stop import stopping_at
from encoder_cls.system.terminal import (
    discard_output_to_lost_terminal,
    handling_signals,
    hangup_signals,
)

if TYPE_CHECKING:
    from encoder_cls.encoder.distributed import ProcessGroup

# File descriptor.
STANDARD_ERROR = 2


@contextmanager
def stop_signals(group: ProcessGroup | None = None) -> Iterator[None]:
    """Stop the work of the block at the first SIGINT, SIGTERM or SIGHUP, and end at a second one.

    A terminal that goes away may send SIGHUP more than once, so that this signal is never the
    second one. Of several processes, the others pass signals on to the first one, and all ignore a
    second signal, since torchrun repeats those of the terminal.
    """
    from encoder_cls.encoder.distributed import ALONE

    signals = _ReceivedSignals(group or ALONE)
    handled = (signal.SIGINT, signal.SIGTERM, *signals.hangups)
    with handling_signals(handled, signals.receive), stopping_at(signals.signal_to_stop_at):
        yield


class _ReceivedSignals:
    """The signals that this process has received."""

    def __init__(self, group: ProcessGroup) -> None:
        self.hangups = hangup_signals()
        self._group = group
        self._numbers: list[int] = []

    def signal_to_stop_at(self) -> int | None:
        """The signal to stop at, if any; the other processes end when the first one does."""
        if not self._group.is_first:
            return None
        if self._numbers:
            return self._numbers[0]
        return self._group.asked_to_stop()

    def receive(self, number: int) -> None:
        """Handle a signal."""
        is_alone = self._group.size == 1
        is_hangup = number in self.hangups
        if is_hangup:
            discard_output_to_lost_terminal()

        is_second = any(earlier not in self.hangups for earlier in self._numbers)
        if is_second and is_alone and not is_hangup:
            os._exit(128 + number)

        self._numbers.append(number)
        if not self._group.is_first:
            self._group.ask_to_stop(number)
        elif len(self._numbers) == 1:
            message = "stopping after this step"
            if is_alone and not is_hangup:
                message += "; once more to stop at once"
            _write_at_once(message)


def _write_at_once(message: str) -> None:
    """Write a line to standard error, but not through sys.stderr, which may be writing one now."""
    with suppress(OSError):
        os.write(STANDARD_ERROR, f"\n{message}\n".encode())
