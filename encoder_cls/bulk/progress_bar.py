"""How far the texts of files are classified: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from encoder_cls.data.reading.formats import count_rows
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.system.display import counted, duration
from encoder_cls.system.terminal import has_terminal, is_quiet, note

SECONDS_BEFORE_BAR = 1.0
SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Shows how many texts are done, the rate and the time left; nothing without files.

    Args:
        files: whose lines measure the progress.
        doing: such as "classified".
        bar: whether a terminal has a bar; not where the results appear on it.
    """

    def __init__(self, files: Sequence[Path], *, doing: str, bar: bool = True) -> None:
        self._files = files
        self._doing = doing
        self._on_terminal = has_terminal()
        self._is_shown = bool(files) and (bar or not self._on_terminal) and not is_quiet()
        self._bar: Any = None

        # The lines of each file, counted when there is first something to show.
        self._lines: dict[str, int] | None = None
        # The line up to which a file is done.
        self._reached: dict[str, int] = {}
        # Files that were done earlier, which do not count for the rate.
        self.passed_over: set[str] = set()
        self._num_texts = 0

        self._start = time.monotonic()
        # When there is something to show for the first time, and then for the next one.
        self._next_time = self._start + SECONDS_BETWEEN_LINES
        if self._on_terminal:
            self._next_time = self._start + SECONDS_BEFORE_BAR

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def done(self, where: SourceLocation, num_texts: int) -> None:
        """Count texts as done, the last one at this location."""
        self._reached[where.file] = where.line
        self._num_texts += num_texts
        if self._is_shown and time.monotonic() >= self._next_time:
            self._show()

    def note(self, message: str) -> None:
        """Write a line to standard error, above the bar."""
        note(message, above=self._bar)

    def _show(self) -> None:
        if self._lines is None:
            self._lines = count_rows(self._files)
        total = sum(self._lines.values())

        # The lines that are done, of this process and of earlier ones.
        done_here = 0
        for file, line in self._reached.items():
            done_here += min(line, self._lines.get(file, 0))
        done = done_here + sum(self._lines.get(file, 0) for file in self.passed_over)

        # The rate, and the time that the other lines take if they are like those.
        seconds = time.monotonic() - self._start
        rate = f"{self._num_texts / seconds:,.0f} texts/s"
        if done_here and total:
            rate += f", {duration(seconds * (total - done) / done_here)} left"

        texts = counted(self._num_texts, "text")
        if self._on_terminal and self._bar is None:
            self._open_bar(total)
        if self._bar is not None:
            self._bar.set_description_str(f"{texts}, {rate}", refresh=False)
            self._bar.update(done - self._bar.n)
            return

        share = ""
        if total:
            share = f", {done / total:.0%}"
        note(f"{self._doing} {texts}{share}, {rate}")
        self._next_time = time.monotonic() + SECONDS_BETWEEN_LINES

    def _open_bar(self, total: int) -> None:
        # Import this library here, because most predictions need no bar.
        from tqdm import tqdm

        shape = "{desc}"
        if total:
            shape = "{percentage:3.0f}%|{bar}| {desc}"
        self._bar = tqdm(
            total=total or None,
            bar_format=f"{self._doing} {shape}",
            dynamic_ncols=True,
            file=sys.stderr,
        )
