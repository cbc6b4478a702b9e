"""The progress of a training on a terminal and in a log file."""

from __future__ import annotations

import io
import re
import sys
import time

from support.programs import TIME, TIME_LIMIT

from encoder_cls.system import terminal_reporter
from encoder_cls.system.terminal_reporter import TerminalReporter


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


def test_a_log_file_tells_how_far_the_work_is_and_how_long_it_will_take(monkeypatch, capsys):
    """The seconds that are left follow from the share that is done; other work starts anew."""
    clock = 0.0
    monkeypatch.setattr(terminal_reporter.time, "monotonic", lambda: clock)
    monkeypatch.setattr(terminal_reporter, "SECONDS_BETWEEN_LINES", 0.0)

    # Without the context manager there is no thread that shows the work.
    reporter = TerminalReporter()
    reporter.working("fitting")
    clock = 30.0
    reporter.progressed(0.25)
    clock = 40.0
    reporter._show_work()
    reporter.working("scoring")
    clock = 42.0
    reporter._show_work()

    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["fitting: 25%, 40 s, about 80 s left", "scoring, 2 s"]


def test_a_log_file_tells_how_long_the_steps_will_take_at_most(monkeypatch, capsys):
    """The speed is that since the training was resumed."""
    clock = 0.0
    monkeypatch.setattr(terminal_reporter.time, "monotonic", lambda: clock)
    reporter = TerminalReporter()
    reporter.encoder_started("model", step=100, total_steps=400, epochs=4)

    clock = 60.0
    values = {"loss": 0.5, "tokens_per_s": 1000.0}
    reporter.step_done(step=160, epoch=1.0, loss=0.5, values=values)

    assert "step    160 of 400: loss 0.500, 1,000 tokens/s, 4 min left at most" in (
        capsys.readouterr().err
    )


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
