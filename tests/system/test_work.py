"""The work that is done is named, with its seconds."""

from __future__ import annotations

import io
import re
import sys
import time

from support.programs import TIME_LIMIT

from encoder_cls.system import terminal
from encoder_cls.system.terminal import begin_work, note_work, showing_work, within_work


def test_lines_come_after_a_first_while_then_now_and_then(monkeypatch, capsys):
    """Short work has none; nobody's work none at all."""
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0.3)
    begin_work("unseen")
    lines, deadline = [], time.monotonic() + TIME_LIMIT
    with showing_work():
        begin_work("short")
        begin_work("long")
        while len(lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            lines += capsys.readouterr().err.splitlines()
        begin_work("")
    seconds = [int(re.fullmatch(r"long, (\d+) s", line)[1]) for line in lines]
    assert 1 <= seconds[0] < seconds[1]


def test_a_terminal_shows_it_at_once_and_cleans_up(monkeypatch):
    """On its last line, above which stays what is noted; parts after the name of the whole."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with showing_work():
        with within_work("trial 0"):
            begin_work("fitting")
            shown = terminal.getvalue()
            note_work("done")
        begin_work("end")
    assert "trial 0: fitting" in shown
    assert "trial 0: done\n" in terminal.getvalue()
    assert terminal.getvalue().rstrip(" \r").endswith("end")
    assert terminal.getvalue().endswith("\r")
