"""The progress of a training on a terminal and in a log file."""

from __future__ import annotations

import io
import re
import sys
import time

from support.programs import TIME, TIME_LIMIT

from encoder_cls.run import terminal_reporter
from encoder_cls.run.terminal_reporter import TerminalReporter


def test_a_log_file_has_lines_about_long_work(monkeypatch, capsys):
    """Long work has a line after a second, and more at intervals; short work has none."""
    monkeypatch.setattr(terminal_reporter, "SECONDS_BETWEEN_LINES", 0.3)
    lines = []

    deadline = time.monotonic() + TIME_LIMIT
    with TerminalReporter() as reporter:
        reporter.working("short")
        reporter.working("long")
        while len(lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            lines += capsys.readouterr().err.splitlines()
        reporter.working("")

    seconds = [int(re.fullmatch(f"{TIME}  long, (\\d+) s", line)[1]) for line in lines]
    assert 1 <= seconds[0] < seconds[1]


def test_a_log_file_has_the_time_before_each_line_except_warnings(capsys):
    """Warnings begin with `warning:`, so that they are found; a quiet process shows them alone."""
    with TerminalReporter() as reporter:
        reporter.note("begun")
        reporter.warning("few texts")

    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"{TIME}  begun", first)
    assert second == "warning: few texts"


def test_a_terminal_shows_work_at_once_and_cleans_up(monkeypatch):
    """The current work is on the last line, and notes stay above it."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)

    with TerminalReporter() as reporter:
        reporter.working("fitting")
        shown = terminal.getvalue()
        reporter.note("done")
        reporter.working("end")

    assert "fitting" in shown
    assert "done\n" in terminal.getvalue()
    assert terminal.getvalue().rstrip(" \r").endswith("end")
    assert terminal.getvalue().endswith("\r")
