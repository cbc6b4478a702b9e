"""Progress while many texts are classified."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from encoder_cls.bulk import progress
from encoder_cls.bulk.progress import Progress
from encoder_cls.data.reading.locations import SourceLocation


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time, which only the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def files() -> list[Path]:
    """200 lines and 100 rows."""
    Path("a.txt").write_text("rain\n" * 199 + "rain")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["rain"] * 100}), "b.parquet")
    return [Path("a.txt"), Path("b.parquet")]


def test_a_log_has_a_plain_line_now_and_then(files, clock, capfd):
    """How many texts, how much of the files, how many a second, and how long it still takes."""
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


def test_what_was_done_before_counts_as_done_and_not_as_quick(files, clock, capfd):
    """A part that is passed over says nothing of how long the rest takes."""
    with Progress(files, doing="classified") as progress:
        progress.passed_over = {"a.txt"}
        clock[0] += 60
        progress.done(SourceLocation("b.parquet", 50), 50)
    assert capfd.readouterr().err == "classified 50 texts, 83%, 1 texts/s, 60 s left\n"


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_a_terminal_has_a_bar_and_warnings_above_it(files, clock, capfd, monkeypatch, has_tqdm):
    """Where tqdm is not installed, which only predicting does not need, plain lines; beside results nothing."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    with (
        Progress(files, doing="classified") as progress,
        Progress(files, doing="shown", bar=False) as hidden,
    ):
        for line in (50, 100, 150):
            clock[0] += 40
            progress.done(SourceLocation("a.txt", line), 50)
            hidden.done(SourceLocation("a.txt", line), 50)
        progress.note("warning: something")
    err = capfd.readouterr().err
    assert ("warning: something\n" in err, "shown" in err) == (True, False)
    bar = r"classified  50%\|.*\| 150 texts, 1 texts/s, 2 min left"
    assert re.search(bar if has_tqdm else "classified 150 texts, 50%", err)


def test_predict_shows_its_progress(cli, trained_run, monkeypatch):
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 2)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    Path("in.txt").write_text("rain\n" * 4)
    lines = cli(
        "predict", "--model", trained_run.path, "--input", "in.txt", "--output", "out.csv"
    ).err.splitlines()
    assert [re.sub(r", [\d,]+ texts/s.*", "", line) for line in lines] == [
        *("classified 2 texts, 50%", "classified 4 texts, 100%")
    ]
