"""`encoder-cls tune`: what it prints and leaves, and what it refuses."""

from __future__ import annotations

import json

import pytest

from encoder_cls.cli.options import duration_named
from encoder_cls.errors import ConfigError
from encoder_cls.tracking.run_dir import RunDir

OPTIONS = ["--set", "model.encoder=false", "--set", "tune={train.class_weights: [none, balanced]}", "--device", "cpu"]


def test_a_search_ends_with_the_report_of_the_best_and_goes_on(tmp_path, cli):
    data = tmp_path / "train.csv"
    data.write_text("text,label\n" + "".join(f"{('red', 'blue')[i % 2]} {i % 7},{i % 2}\n" for i in range(80)))
    options = [*OPTIONS, "--set", f"data={{train: {data}, validation: null, test: null}}"]
    search = ["tune", *options, "--run-dir", tmp_path / "search", "--budget", "0.001s"]
    done = cli(*search)
    assert done.code == 0, done.err
    assert "none was better than the config as it is" in done.out
    assert RunDir(tmp_path / "search" / "trained-000").is_finished()
    found = json.loads(cli(*search, "--json").out)
    assert [it["number"] for it in found["trials"]] == [0]
    assert found["best"]["number"] == 0
    assert 0 < found["report"]["accuracy"] <= 1


def test_what_cannot_be_is_refused(tmp_path, cli):
    for options, message in (
        (["--budget", "soon"], "--budget soon: write a time with its unit"),
        (["--set", "tune={train.nothing: [1, 2]}"], "tune.train.nothing: no value"),
        (["--set", "tune={train.epochs: {low: 3, high: 2}}"], "low 3 is not below high 2"),
    ):
        refused = cli("tune", "--run-dir", tmp_path / "search", *options)
        assert refused.code == 2
        assert message in refused.err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400)])
def test_times_have_a_unit(text, seconds):
    assert duration_named(text, option="--budget") == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "-3m", "0s", "infm", "nanm", "3 d"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="--budget"):
        duration_named(text, option="--budget")
