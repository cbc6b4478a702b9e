"""Report the progress of a training: as a bar on a terminal, or as lines in a log file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

from encoder_cls.system.display import counted, duration
from encoder_cls.system.reporter import Reporter
from encoder_cls.system.terminal import WARNING, has_terminal, is_quiet, note

# How long a piece of work takes before a log file gets its first line about it.
SECONDS_BEFORE_FIRST_LINE = 1.0
# The time between two lines about the same work in a log file.
SECONDS_BETWEEN_LINES = 30.0
# The share of some work that must be done before the time that is left is estimated from it.
MIN_SHARE = 0.02


class TerminalReporter(Reporter):
    """Writes the progress of a training to standard error.

    While it is open, a thread shows how long the current work takes. The first line names the run
    folder and the number of processes, if any.

    Args:
        score_names: of the scores of a validation that are shown, by key.

    Attributes:
        last_total: the steps of the whole run, as far as known; 0 before training.
    """

    def __init__(
        self,
        *,
        run: Path | None = None,
        num_processes: int = 1,
        score_names: Mapping[str, str] | None = None,
    ) -> None:
        self.last_total = 0
        self._score_names = score_names or {}
        self._run = run
        self._num_processes = num_processes

        # The bar; None without a terminal. Once the training has started, it counts steps.
        self._bar: Any = None
        self._has_steps = False

        # The current work, empty without any; when it began; the share that is done, and when it
        # will be done, as far as both are known; and how many seconds after its beginning a log
        # file gets the next line about it.
        self._work = ""
        self._since = 0.0
        self._share: float | None = None
        self._expected_end: float | None = None
        self._next_line = 0.0

        # The time and the step from which the speed of the encoder's training is measured.
        self._first_step = 0
        self._first_step_time = time.monotonic()
        self._last_step_line = time.monotonic()

        self._lock = Lock()
        self._ended = Event()
        self._thread = Thread(target=self._keep_showing_seconds, daemon=True)

    def __enter__(self) -> Self:
        from tqdm import tqdm

        if has_terminal() and not is_quiet():
            self._bar = tqdm(bar_format="{desc}", leave=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._bar is not None:
            self._bar.close()

    def note(self, message: str) -> None:
        """Write a line above the bar, or with the time into a log file."""
        with self._lock:
            note(message, has_time=True, above=self._bar)

    def warning(self, message: str) -> None:
        """Write a warning as a note; a log file has `warning:`, too."""
        with self._lock:
            note(f"{WARNING}{message}", above=self._bar)

    def working(self, what: str) -> None:
        """Show the current work, as the bar's name or in lines; "" ends it."""
        with self._lock:
            if self._bar is not None and self._work and not what:
                self._bar.set_description_str("", refresh=False)
                self._bar.clear()
            self._work = what
            self._since = time.monotonic()
            self._share = None
            self._expected_end = None
            self._next_line = SECONDS_BEFORE_FIRST_LINE
            self._show_work()

    def progressed(self, share: float) -> None:
        """Show the share that is done, and the time that is left."""
        with self._lock:
            now = time.monotonic()
            self._share = share
            if share >= MIN_SHARE:
                self._expected_end = self._since + (now - self._since) / share

    def training_started(self, *, step: int, total_steps: int) -> None:
        """Let the bar count steps from now on."""
        where = f"training in {self._run}" if self._run else "training"
        if self._num_processes > 1:
            where += f" with {self._num_processes} processes"
        if step:
            where += f", continuing after step {step}"
        self.note(where)

        self.last_total = total_steps
        if self._bar is None or total_steps == 0:
            return

        from tqdm import tqdm

        with self._lock:
            self._bar.close()
            self._bar = tqdm(total=total_steps, initial=step, unit="step", dynamic_ncols=True)
            self._has_steps = True

    def encoder_started(
        self,
        name: str,
        *,
        step: int,
        total_steps: int,
        epochs: int,  # noqa: ARG002
    ) -> None:
        """Show the name in the bar."""
        self._first_step = step
        self._first_step_time = time.monotonic()
        self._set_total(total_steps)
        if self._has_steps:
            self._bar.set_description(name)

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Write how many steps there is time for."""
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
        """Move the bar, or write a line if the last one is old enough."""
        if self._has_steps:
            self._bar.update()
        if values is None:
            return

        numbers = f"loss {values['loss']:.3f}, {values['tokens_per_s']:,.0f} tokens/s"
        if self._has_steps:
            self._bar.set_postfix_str(numbers)
        elif time.monotonic() - self._last_step_line > SECONDS_BETWEEN_LINES:
            seconds = time.monotonic() - self._first_step_time
            left = seconds * (self.last_total - step) / (step - self._first_step)
            self.note(
                f"{_step_and_epoch('', step, epoch)} of {self.last_total}: {numbers}, "
                f"{duration(left)} left at most"
            )
            self._last_step_line = time.monotonic()

    def validated(
        self, name: str, *, step: int, epoch: float, scores: Mapping[str, float], is_best: bool
    ) -> None:
        """Write the scores, with a star if they are the best so far."""
        when = _step_and_epoch(name, step, epoch) if step else "linear model"
        shown = []
        for key, value in scores.items():
            if key in self._score_names:
                shown.append(f"{self._score_names[key]} {value:.4f}")
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
                self._show_work()

    def _show_work(self) -> None:
        if not self._work:
            return
        now = time.monotonic()
        seconds = now - self._since

        text = self._work
        if self._share is not None:
            text += f": {self._share:.0%}"
        if seconds >= 1:
            text += f", {seconds:.0f} s"
        if seconds >= 1 and self._expected_end is not None:
            left = max(0.0, self._expected_end - now)
            text += f", about {duration(left)} left"

        if self._bar is not None:
            self._bar.set_description_str(text)
        elif seconds >= self._next_line:
            note(text, has_time=True)
            self._next_line += SECONDS_BETWEEN_LINES


def _step_and_epoch(name: str, step: int, epoch: float) -> str:
    return f"{name:11}  epoch {epoch:5.1f}  step {step:6d}"
