"""Progress through files: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from encoder_cls.system.display import counted
from encoder_cls.system.encodings import is_gzipped
from encoder_cls.system.terminal import note, note_above

if TYPE_CHECKING:
    from encoder_cls.data.rows import SourceLocation

SECONDS_BEFORE_BAR = 1.0  # what is done by then needs none
SECONDS_BETWEEN_LINES = 30.0
READ_BYTES = 1 << 20


class Progress:
    """Shows how many texts are done, how many a second, and how long the rest takes.

    The lines of the files are counted when there is first something to show. No bar where a terminal shows the results.
    """

    def __init__(self, files: Sequence[Path], *, doing: str, bar: bool = True) -> None:
        self._files = files
        self._doing = doing
        self._on_terminal = sys.stderr.isatty()
        self._is_shown = bar or not self._on_terminal
        self._bar: Any = None
        self._lines: dict[str, int] | None = None  # of each file, once they are counted
        self._reached: dict[str, int] = {}  # the line up to which a file is done
        self._passed_over: set[str] = set()
        self._texts = 0
        self._began = time.monotonic()
        self._next = self._began + (SECONDS_BEFORE_BAR if self._on_terminal else SECONDS_BETWEEN_LINES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def done(self, where: SourceLocation, texts: int) -> None:
        """Count texts as done, the last of them at this location."""
        self._reached[where.file] = where.line
        self._texts += texts
        if self._is_shown and time.monotonic() >= self._next:
            self._show()

    def pass_over(self, file: Path) -> None:
        """Count a file as done before."""
        self._passed_over.add(str(file))

    def note(self, message: str) -> None:
        """Write a line to standard error, above the bar where there is one."""
        if self._bar is not None:
            note_above(self._bar, message)
        else:
            note(message)

    def _show(self) -> None:
        if self._lines is None:
            self._lines = count_lines(self._files)
        seconds = time.monotonic() - self._began
        rate = f"{self._texts / seconds:,.0f} texts/s"
        own = sum(min(line, self._lines.get(file, 0)) for file, line in self._reached.items())
        before = sum(self._lines.get(file, 0) for file in self._passed_over - self._reached.keys())
        total = sum(self._lines.values())
        left = f", {duration(seconds * (total - own - before) / own)} left" if own and total else ""
        if not self._on_terminal:
            share = f", {(own + before) / total:.0%}" if total else ""
            note(f"{self._doing} {counted(self._texts, 'text')}{share}, {rate}{left}")
            self._next = time.monotonic() + SECONDS_BETWEEN_LINES
        elif self._bar is None:
            self._open_bar(total)
        if self._bar is not None:
            self._bar.set_description_str(f"{counted(self._texts, 'text')}, {rate}{left}", refresh=False)
            self._bar.update(own + before - self._bar.n)

    def _open_bar(self, total: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError:  # not needed to predict
            self._on_terminal = False
            return
        shape = self._doing + (" {percentage:3.0f}%|{bar}| {desc}" if total else " {desc}")
        self._bar = tqdm(total=total or None, bar_format=shape, dynamic_ncols=True, file=sys.stderr)


def count_lines(files: Iterable[Path]) -> dict[str, int]:
    """The lines, or the rows, of each file; nothing where those of one cannot be counted quickly."""
    counted: dict[str, int] = {}
    for path in files:
        if not path.is_file() or is_gzipped(path) or path.suffix.lower() in (".xlsx", ".json"):
            return {}
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet

            counted[str(path)] = pyarrow.parquet.read_metadata(path).num_rows
            continue
        lines, last = 0, b"\n"
        with path.open("rb", buffering=0) as file:
            while block := file.read(READ_BYTES):
                lines, last = lines + block.count(b"\n"), block[-1:]
        counted[str(path)] = lines + (last != b"\n")
    return counted


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
