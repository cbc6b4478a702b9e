"""`encoder-cls tune`: what it prints and leaves, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.programs import assert_failed, setting
from support.small_runs import WITHOUT_TECHNIQUES

from encoder_cls.evaluation import comparisons
from encoder_cls.extras.tune.search import Search, TrialResult
from encoder_cls.system import libraries, terminal_reporter
from encoder_cls.system.display import seconds_named

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")
OPTIONS = [
    *setting(
        "model.encoder=false",
        "tune={train.class_weights: [none, balanced]}",
        *WITHOUT_TECHNIQUES,
    ),
    "--device",
    "cpu",
]


@pytest.fixture
def search(tmp_path) -> list[object]:
    """The command of a search that has time for one trial."""
    data = tmp_path / "train.csv"
    lines = ["text,label"]
    for number in range(40):
        lines.append(f"red {number % 7},0")
        lines.append(f"blue {number % 7},1")
    data.write_text("\n".join([*lines, ""]))
    options = [*OPTIONS, "--set", f"data={{train: {data}, validation: null, test: null}}"]
    return ["tune", *options, "--run-dir", tmp_path / "my search", "--budget", "0.001s"]


def is_finished(run: Path) -> bool:
    return (run / "model" / "README.md").exists()


@pytest.fixture
def another_trial_is_best(monkeypatch) -> None:
    """The best trial is not the config as it is, whatever chance says."""

    def best(search: Search) -> TrialResult:
        return replace(search.results[0], number=1)

    monkeypatch.setattr(Search, "best", property(best))


def test_a_search_ends_with_the_report_of_the_best(tmp_path, cli, search, monkeypatch):
    monkeypatch.setattr(terminal_reporter, "SECONDS_BEFORE_FIRST_LINE", 0.0)
    done = cli(*search)
    assert done.code == 0, done.err
    assert "trial 0: fitting the linear model" in done.err
    assert "trained-000: fitting the TF-IDF baseline" in done.err
    assert "none was better than the config as it is" in done.out
    best = tmp_path / "my search" / "trained-000"
    assert f"next: encoder-cls predict --model '{best}'" in done.err
    assert is_finished(best)

    again = json.loads(cli(*search, "--json").out)
    assert [trial["number"] for trial in again["trials"]] == [0]
    assert again["best"]["number"] == 0
    assert 0 < again["report"]["accuracy"] <= 1


@pytest.mark.usefixtures("another_trial_is_best")
@pytest.mark.parametrize(
    ("interval", "conclusion"),
    [
        ((-0.2, -0.1), "it is better than"),
        pytest.param(*((-0.2, 0.1), "is as good"), marks=pytest.mark.slow),
    ],
)
def test_a_paired_test_compares_the_best_with_the_config_as_it_is(
    cli, search, monkeypatch, interval, conclusion
):
    def compared(*arguments, **options):
        comparison = comparisons.compare_predictions(*arguments, **options)
        return replace(comparison, difference_interval=interval)

    monkeypatch.setattr("encoder_cls.run.against.compare_predictions", compared)
    done = cli(*search)
    assert done.code == 0, done.err
    assert conclusion in done.out


@pytest.mark.usefixtures("another_trial_is_best")
def test_the_best_of_texts_with_several_labels_is_compared_with_the_config_as_it_is(tmp_path, cli):
    data = tmp_path / "train.csv"
    lines = ["text,label"]
    for number in range(30):
        lines.append(f"red {number % 7},r")
        lines.append(f"blue {number % 7},b")
        lines.append(f"red blue {number % 7},r|b")
    data.write_text("\n".join([*lines, ""]))
    options = setting(
        f"data.train={data}", "data.validation=null", "data.test=null", "data.label_separator='|'"
    )

    done = cli("tune", *OPTIONS, *options, "--run-dir", tmp_path / "search", "--budget", "0.001s")
    assert done.code == 0, done.err
    assert f"{tmp_path}/search/trained-000" in done.out
    assert "points of micro-F1" in done.out
    assert is_finished(tmp_path / "search" / "trained-000")
    assert is_finished(tmp_path / "search" / "trained-001")


def test_a_missing_library_is_named_with_its_extra(cli, monkeypatch):
    monkeypatch.setattr(libraries, "is_installed", lambda library: library != "optuna")
    assert_failed(cli("tune"), 2, "pip install 'encoder-cls[tune]'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "--budget soon: write a time with its unit"),
        (["--set", "tune={train.nothing: [1, 2]}"], "tune.train.nothing: not a setting"),
        (["--set", "tune={train.epochs: {low: 3, high: 2}}"], "low 3 is not below high 2"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(tmp_path, cli, options, message):
    assert_failed(cli("tune", "--run-dir", tmp_path / "search", *options), 2, message)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400)])
def test_times_have_a_unit(text, seconds):
    assert seconds_named(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "-3m", "0s", "infm", "nanm", "3 d"])
def test_a_time_without_a_number_and_a_unit_is_refused(text):
    with pytest.raises(ValueError, match="write a time"):
        seconds_named(text)
