"""The work that is done at the moment, named for whoever waits for it.

Code that takes long names what it begins. A program with somebody waiting shows that with its seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Lock, Thread
from typing import Any

from encoder_cls.system.terminal import note, note_above

FIRST_LINE, SECONDS_BETWEEN_LINES = 1.0, 30.0  # where there is no terminal

_show: ContextVar[Callable[[str, bool], None]] = ContextVar("show", default=lambda *_: None)


def begin_work(what: str) -> None:
    """Name the work that begins now, in place of that before; nothing: what is done shows itself."""
    _show.get()(what, False)


def note_work(line: str) -> None:
    """Note what has been done, on a line that stays."""
    _show.get()(line, True)


@contextmanager
def within_work(what: str) -> Iterator[None]:
    """Put the name of a larger work before those of its parts."""
    show = _show.get()
    token = _show.set(lambda part, stays: show(f"{what}: {part}" if part else what, stays))
    try:
        begin_work("")
        yield
    finally:
        _show.reset(token)
        begin_work("")


@contextmanager
def showing_work(bar: Any = None) -> Iterator[None]:
    """Show the work of the block with its seconds: as a bar's name, else on a terminal's last line or as lines.

    Lines come after the first second, then now and then.
    """
    from tqdm import tqdm

    shown = tqdm(bar_format="{desc}", leave=False) if bar is None and sys.stderr.isatty() else bar
    lock, ended, what, since, next_line = Lock(), Event(), "", 0.0, 0.0

    def update() -> None:
        nonlocal next_line
        seconds = time.monotonic() - since
        text = f"{what}, {seconds:.0f} s" if seconds >= 1 else what
        if what and shown is not None:
            shown.set_description_str(text)
        elif what and seconds >= next_line:
            note(text)
            next_line += SECONDS_BETWEEN_LINES

    def show(text: str, stays: bool) -> None:
        nonlocal what, since, next_line
        with lock:
            if stays:
                note_above(shown, text) if shown is not None else note(text)
                return
            if shown is not None and what and not text:
                shown.set_description_str("", refresh=False)
                shown.clear()
            what, since, next_line = text, time.monotonic(), FIRST_LINE
            update()

    def keep_updating() -> None:
        while not ended.wait(1.0):
            with lock:
                update()

    token = _show.set(show)
    thread = Thread(target=keep_updating, daemon=True)
    thread.start()
    try:
        yield
    finally:
        _show.reset(token)
        ended.set()
        thread.join()
        if shown is not bar:
            shown.close()
