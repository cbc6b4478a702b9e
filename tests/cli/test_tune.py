"""`encoder-cls tune`: what it prints and leaves, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.programs import assert_failed

from encoder_cls.evaluation import comparisons
from encoder_cls.run import terminal_reporter
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import libraries
from encoder_cls.system.display import seconds_named
from encoder_cls.tuning.search import Search

OPTIONS = [
    "--set",
    "model.encoder=false",
    "--set",
    "tune={train.class_weights: [none, balanced]}",
    "--device",
    "cpu",
]


@pytest.fixture
def search(tmp_path) -> list[object]:
    """The command of a search that has time for one trial."""
    data = tmp_path / "train.csv"
    data.write_text(
        "text,label\n" + "".join(f"{('red', 'blue')[i % 2]} {i % 7},{i % 2}\n" for i in range(80))
    )
    options = [*OPTIONS, "--set", f"data={{train: {data}, validation: null, test: null}}"]
    return ["tune", *options, "--run-dir", tmp_path / "search", "--budget", "0.001s"]


def test_a_search_ends_with_the_report_of_the_best_and_goes_on(tmp_path, cli, search, monkeypatch):
    """It names what it does; where another trial is the best, a paired test compares it with the config as it is."""
    monkeypatch.setattr(terminal_reporter, "SECONDS_BEFORE_FIRST_LINE", 0.0)
    done = cli(*search)
    assert "trial 0: fitting the linear classifier" in done.err
    assert "trained-000: fitting the TF-IDF baseline" in done.err
    assert done.code == 0, done.err
    assert "none was better than the config as it is" in done.out
    assert RunDir(tmp_path / "search" / "trained-000").is_finished()
    found = json.loads(cli(*search, "--json").out)
    assert [it["number"] for it in found["trials"]] == [0]
    assert found["best"]["number"] == 0
    assert 0 < found["report"]["accuracy"] <= 1
    compare = comparisons.compare_answers
    monkeypatch.setattr(
        Search, "best", property(lambda search: replace(search.results[0], number=1))
    )
    for interval, words in (((-0.2, -0.1), "it is better than"), ((-0.2, 0.1), "is as good")):
        monkeypatch.setattr(
            "encoder_cls.run.against.compare_answers",
            lambda *more, its=interval, **run: replace(
                compare(*more, **run), accuracy_difference_interval=its
            ),
        )
        done = cli(*search)
        assert done.code == 0, done.err
        assert words in done.out


def test_a_search_of_texts_with_several_labels_names_both_runs(tmp_path, cli, monkeypatch):
    """Their answers are not compared one by one; the best is not the default here, whatever chance says."""
    data = tmp_path / "train.csv"
    rows = (
        f"{('red', 'blue', 'red blue')[i % 3]} {i % 7},{('r', 'b', 'r|b')[i % 3]}\n"
        for i in range(90)
    )
    data.write_text("text,label\n" + "".join(rows))
    values = {"train": str(data), "validation": "null", "test": "null", "label_separator": "'|'"}
    options = [part for key, value in values.items() for part in ("--set", f"data.{key}={value}")]
    monkeypatch.setattr(
        Search, "best", property(lambda search: replace(search.results[0], number=1))
    )
    done = cli("tune", *OPTIONS, *options, "--run-dir", tmp_path / "search", "--budget", "0.001s")
    assert done.code == 0, done.err
    assert f"encoder-cls compare {tmp_path}/search/trained-*" in done.out
    assert all(
        RunDir(tmp_path / "search" / f"trained-00{number}").is_finished() for number in (0, 1)
    )


def test_a_missing_library_is_named_with_its_extra(cli, monkeypatch):
    monkeypatch.setattr(libraries, "is_installed", lambda library: library != "optuna")
    assert_failed(cli("tune"), 2, "pip install 'encoder-cls[tune]'")


def test_what_cannot_be_is_refused(tmp_path, cli):
    for options, message in (
        (["--budget", "soon"], "--budget soon: write a time with its unit"),
        (["--set", "tune={train.nothing: [1, 2]}"], "tune.train.nothing: no value"),
        (["--set", "tune={train.epochs: {low: 3, high: 2}}"], "low 3 is not below high 2"),
    ):
        assert_failed(cli("tune", "--run-dir", tmp_path / "search", *options), 2, message)


def test_times_have_a_unit():
    assert [seconds_named(text) for text in ("90s", "30m", "1.5h")] == [90, 1800, 5400]
    for text in ("", "5", "m", "-3m", "0s", "infm", "nanm", "3 d"):
        with pytest.raises(ValueError, match="write a time"):
            seconds_named(text)
