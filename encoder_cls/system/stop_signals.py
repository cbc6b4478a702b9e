"""Stop a training by signals: the first signal lets it save its work, a second ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from encoder_cls.system.stop import stopping_at
from encoder_cls.system.terminal import (
    discard_output_to_lost_terminal,
    handling_signals,
    hangup_signals,
)

STANDARD_ERROR = 2


class ProcessGroup(Protocol):
    """Processes that work together, of which this is one."""

    size: int

    @property
    def is_first(self) -> bool:
        """Whether this one decides."""

    def ask_to_stop(self, signal_number: int) -> None:
        """Pass a signal on to the first one."""

    def asked_to_stop(self) -> int | None:
        """The signal that another one has passed on, if any."""


@contextmanager
def stop_signals(group: ProcessGroup | None = None) -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP make `check_stop` raise a `StoppedError`.

    A second one ends the process at once; not a SIGHUP, which a closing terminal may send more than
    once.

    Of a `group`, the first process stops, and the others pass their signals on to it. Second ones
    are ignored, because torchrun repeats the signals of the terminal.
    """
    signals = _ReceivedSignals(group)
    handled = (signal.SIGINT, signal.SIGTERM, *signals.hangups)
    with handling_signals(handled, signals.receive), stopping_at(signals.signal_to_stop_at):
        yield


class _ReceivedSignals:
    """`hangups` has SIGHUP if it is handled."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self.hangups = hangup_signals()
        # The other processes; None if this one is alone.
        self._group = group if group and group.size > 1 else None
        self._numbers: list[int] = []

    def signal_to_stop_at(self) -> int | None:
        """The first signal; only the first process of a group stops by itself."""
        if self._group and not self._group.is_first:
            return None
        if self._numbers:
            return self._numbers[0]
        return self._group.asked_to_stop() if self._group else None

    def receive(self, number: int) -> None:
        is_alone = self._group is None
        is_hangup = number in self.hangups
        if is_hangup:
            discard_output_to_lost_terminal()

        is_second = any(earlier not in self.hangups for earlier in self._numbers)
        if is_second and is_alone and not is_hangup:
            os._exit(128 + number)

        self._numbers.append(number)
        if self._group and not self._group.is_first:
            self._group.ask_to_stop(number)
        elif len(self._numbers) == 1:
            message = "stopping after this step"
            if is_alone and not is_hangup:
                message += "; press Ctrl-C again to stop at once"
            _write_at_once(message)


def _write_at_once(message: str) -> None:
    """Write without `sys.stderr`, which may be writing when a signal arrives."""
    with suppress(OSError):
        os.write(STANDARD_ERROR, f"\n{message}\n".encode())
