"""What people see of a training: a progress bar on a terminal, lines now and then in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

from encoder_cls.metrics.scores import Place, scores_shown_in
from encoder_cls.system.display import counted
from encoder_cls.system.reporter import Reporter
from encoder_cls.system.terminal import is_quiet, note

# In a log file, seconds of a work before its first line, and between two lines about it.
SECONDS_BEFORE_FIRST_LINE = 1.0
SECONDS_BETWEEN_LINES = 30.0

# The names of the numbers that the line of a validation shows, by key.
SHOWN_NUMBERS = {score.key: score.name for score in scores_shown_in(Place.VALIDATION)}
SHOWN_NUMBERS["linear_weight"] = "linear weight"


class TerminalReporter(Reporter):
    """Writes to standard error.

    It is a context manager, in which a thread shows the seconds of long work.

    Attributes:
        last_total: the steps of the whole run, as far as they are known.
    """

    def __init__(self, *, run: Path | None = None, num_processes: int = 1) -> None:
        self.last_total = 0
        self._run = run
        self._num_processes = num_processes

        # The bar of a terminal; once training has started, it counts steps.
        self._bar: Any = None
        self._has_steps = False

        # The work in progress, when it began, and its seconds at its next line.
        self._work = ""
        self._since = 0.0
        self._next_line = 0.0
        self._last_step_line = time.monotonic()

        self._lock = Lock()
        self._ended = Event()
        self._thread = Thread(target=self._keep_showing_seconds, daemon=True)

    def __enter__(self) -> Self:
        from tqdm import tqdm

        if sys.stderr.isatty() and not is_quiet():
            self._bar = tqdm(bar_format="{desc}", leave=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._bar is not None:
            self._bar.close()

    def note(self, message: str) -> None:
        """Write a line, above the bar."""
        with self._lock:
            note(message, above=self._bar)

    def warning(self, message: str) -> None:
        """Write a warning."""
        self.note(f"warning: {message}")

    def working(self, what: str) -> None:
        """Show the work in progress: as the bar's name, else as a line now and then."""
        with self._lock:
            if self._bar is not None and self._work and not what:
                self._bar.set_description_str("", refresh=False)
                self._bar.clear()
            self._work = what
            self._since = time.monotonic()
            self._next_line = SECONDS_BEFORE_FIRST_LINE
            self._show_seconds()

    def training_started(self, *, step: int, total_steps: int) -> None:
        """Say where the run is, and show its steps from now on."""
        where = f"training in {self._run}" if self._run else "training"
        if self._num_processes > 1:
            where += f" with {self._num_processes} processes"
        if step:
            where += f", going on after step {step}"
        self.note(where)

        self.last_total = total_steps
        if self._bar is None or total_steps == 0:
            return

        from tqdm import tqdm

        with self._lock:
            self._bar.close()
            self._bar = tqdm(total=total_steps, initial=step, unit="step", dynamic_ncols=True)
            self._has_steps = True

    def encoder_started(self, name: str, *, step: int, total_steps: int) -> None:  # noqa: ARG002
        """Name the training in the bar."""
        self._set_total(total_steps)
        if self._has_steps:
            self._bar.set_description(name)

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Say how many steps there is time for."""
        self._set_total(total_steps)
        number = counted(steps, "step") if steps else "no step"
        self.note(f"time budget: {number} of {name}")

    def step_done(
        self,
        *,
        step: int,
        epoch: float,
        loss: float,  # noqa: ARG002
        values: Mapping[str, float] | None,
    ) -> None:
        """Move the bar; without a terminal, write a line now and then."""
        if self._has_steps:
            self._bar.update()
        if values is None:
            return

        numbers = f"loss {values['loss']:.3f}, {values['tokens_per_s']:,.0f} tokens/s"
        if self._has_steps:
            self._bar.set_postfix_str(numbers)
        elif time.monotonic() - self._last_step_line > SECONDS_BETWEEN_LINES:
            self.note(f"{_step_and_epoch('', step, epoch)} of {self.last_total}: {numbers}")
            self._last_step_line = time.monotonic()

    def validated(
        self, name: str, *, step: int, epoch: float, scores: Mapping[str, float], is_best: bool
    ) -> None:
        """Write the scores, with a star if they are the best so far."""
        when = _step_and_epoch(name, step, epoch) if step else "linear model"
        shown = []
        for key, value in scores.items():
            if key in SHOWN_NUMBERS:
                shown.append(f"{SHOWN_NUMBERS[key]} {value:.4f}")
        star = "  *" if is_best else ""
        self.note(f"{when}: validation {'  '.join(shown)}{star}")
        self._last_step_line = time.monotonic()

    def _set_total(self, total_steps: int) -> None:
        self.last_total = total_steps
        if self._has_steps:
            self._bar.total = total_steps
            self._bar.refresh()

    def _keep_showing_seconds(self) -> None:
        while not self._ended.wait(1.0):
            with self._lock:
                self._show_seconds()

    def _show_seconds(self) -> None:
        """Show the work in progress with its seconds."""
        if not self._work:
            return
        seconds = time.monotonic() - self._since
        text = f"{self._work}, {seconds:.0f} s" if seconds >= 1 else self._work
        if self._bar is not None:
            self._bar.set_description_str(text)
        elif seconds >= self._next_line:
            note(text)
            self._next_line += SECONDS_BETWEEN_LINES


def _step_and_epoch(name: str, step: int, epoch: float) -> str:
    return f"{name:11}  epoch {epoch:5.1f}  step {step:6d}"
