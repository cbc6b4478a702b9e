"""Progress while many texts are classified."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from encoder_cls.bulk import progress_bar as progress_module
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.data.reading.locations import SourceLocation


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time, which only the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def files() -> list[Path]:
    """200 lines and 100 rows."""
    Path("a.txt").write_text("rain\n" * 199 + "rain")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["rain"] * 100}), "b.parquet")
    return [Path("a.txt"), Path("b.parquet")]


def test_a_log_has_a_plain_line_now_and_then(files, clock, capfd):
    """It has the number of texts, the share of the files, the rate and the time left."""
    with Progress(files, doing="classified") as progress:
        clock[0] += 29
        progress.done(SourceLocation("a.txt", 10), 10)
        clock[0] += 31
        progress.done(SourceLocation("a.txt", 200), 190)
        progress.done(SourceLocation("b.parquet", 1), 1)
        clock[0] += 30
        progress.done(SourceLocation("b.parquet", 50), 49)

    assert capfd.readouterr().err.splitlines() == [
        "classified 200 texts, 67%, 3 texts/s, 30 s left",
        "classified 250 texts, 83%, 3 texts/s, 18 s left",
    ]


def test_parts_that_were_done_before_do_not_count_for_the_rate(files, clock, capfd):
    """A part that is passed over says nothing of how long the rest takes."""
    with Progress(files, doing="classified") as progress:
        progress.passed_over = {"a.txt"}
        clock[0] += 60
        progress.done(SourceLocation("b.parquet", 50), 50)

    assert capfd.readouterr().err == "classified 50 texts, 83%, 1 texts/s, 60 s left\n"


def be_on_terminal(monkeypatch) -> None:
    """Make the standard error of a test a terminal; that of a fixture is another."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def do_half(progress: Progress, clock: list[float]) -> None:
    """Do half of the texts of `files`, in 120 seconds."""
    for line in (50, 100, 150):
        clock[0] += 40
        progress.done(SourceLocation("a.txt", line), 50)


def test_a_terminal_has_a_bar_and_warnings_above_it(files, clock, capfd, monkeypatch):
    be_on_terminal(monkeypatch)

    with Progress(files, doing="classified") as progress:
        do_half(progress, clock)
        progress.note("warning: something")

    err = capfd.readouterr().err
    assert re.search(r"classified  50%\|.*\| 150 texts, 1 texts/s, 2 min left", err)
    assert "warning: something\n" in err


def test_a_terminal_with_results_shows_no_progress(files, clock, capfd, monkeypatch):
    be_on_terminal(monkeypatch)

    with Progress(files, doing="classified", bar=False) as progress:
        do_half(progress, clock)

    assert capfd.readouterr().err == ""


def test_without_files_no_progress_is_shown(clock, capfd):
    """Nobody knows how much of a pipe is still to come."""
    with Progress([], doing="classified") as progress:
        clock[0] += 60
        progress.done(SourceLocation(""), 10)

    assert capfd.readouterr().err == ""


def test_predict_shows_its_progress(cli, trained_run, monkeypatch):
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 2)
    monkeypatch.setattr(progress_module, "SECONDS_BETWEEN_LINES", 0.0)
    Path("in.txt").write_text("rain\n" * 4)

    options = ["--input", "in.txt", "--output", "out.csv"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    without_rates = re.sub(r", [\d,]+ texts/s.*", "", outcome.err)
    assert without_rates.splitlines() == ["classified 2 texts, 50%", "classified 4 texts, 100%"]
