"""A run whose time limit is too short to read all training rows reads a share of them."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from support.reports import said
from support.small_runs import CPU, WITH_LINEAR, make_config

from encoder_cls.config.schema import Config
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.findings import Kind
from encoder_cls.run.evaluate import evaluate
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training import reading_time
from encoder_cls.training.prepare import prepare
from encoder_cls.training.reading_time import (
    ReadingEstimate,
    affordable_train_fraction,
    with_train_fraction,
)
from encoder_cls.training.time_budget import TimeBudget
from encoder_cls.training.train import train

SECONDS = 100
NUM_ROWS = 1_000_000


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    """The config of a run of 100 seconds, on a source that counts as large."""
    monkeypatch.setattr(reading_time, "LARGE_SOURCE", 1)
    return make_config(tmp_path, **WITH_LINEAR, time_budget=f"{SECONDS}s")


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path / "run")


def let_reading_take(monkeypatch, seconds: float) -> None:
    """Let the estimate be that reading all rows takes so long."""
    estimate = ReadingEstimate(NUM_ROWS, seconds)
    monkeypatch.setattr(reading_time, "estimate_reading", lambda *_: estimate)


def fraction_now(config: Config, run: RunDir) -> float | None:
    return affordable_train_fraction(config, run, budget=TimeBudget(config))


@pytest.mark.parametrize(
    ("seconds_to_read", "least", "most"),
    [
        (1, 1.0, 1.0),
        # It takes 2.5 seconds to leave out all rows, and 19.5 seconds more to prepare 31% of them.
        (10, 0.30, 0.32),
        (50, 0.05, 0.06),
    ],
)
def test_as_many_rows_are_read_as_there_is_time_for(
    config, run, monkeypatch, seconds_to_read, least, most
):
    let_reading_take(monkeypatch, seconds_to_read)

    assert least <= fraction_now(config, run) <= most


def test_a_limit_that_is_too_short_for_a_small_share_is_refused(config, run, monkeypatch):
    let_reading_take(monkeypatch, 1000)

    with pytest.raises(ConfigError, match=r"MB of text .* take at least about 626 s on"):
        fraction_now(config, run)


@pytest.mark.parametrize(
    ("role", "seconds_to_read", "whole"),
    [
        # Rows of test are collected in as much time as it takes to read them.
        ("test", 30, r"15[0-9]"),
        # Those of validation are prepared, as those of train are.
        ("validation", 10, r"16[0-9]"),
    ],
)
def test_a_limit_that_is_too_short_to_read_the_other_sources_is_refused(
    config, run, tmp_path, monkeypatch, role, seconds_to_read, whole
):
    other = tmp_path / "other.csv"
    other.write_bytes(Path(config.data.train).read_bytes())
    data = config.data.model_copy(update={"validation": None, "test": None, role: str(other)})
    seconds = {"train": 0.1, role: seconds_to_read}
    monkeypatch.setattr(
        reading_time,
        "estimate_reading",
        lambda _, role: ReadingEstimate(NUM_ROWS, seconds[role]),
    )

    message = rf"data\.{role}\) take at least about {whole} s on"
    with pytest.raises(ConfigError, match=message):
        fraction_now(config.model_copy(update={"data": data}), run)


def test_a_refusal_asks_for_more_than_the_limit_that_was_given(config, run, monkeypatch):
    let_reading_take(monkeypatch, 0.1)
    config = config.model_copy(
        update={"train": config.train.model_copy(update={"time_budget": 2 / 60})}
    )
    two_seconds_ago = TimeBudget(config, started=time.monotonic() - 2)

    with pytest.raises(ConfigError, match=r"at least about [3-9] s"):
        affordable_train_fraction(config, run, budget=two_seconds_ago)


def test_the_time_of_all_rows_is_estimated_from_the_first(config, run, monkeypatch):
    monkeypatch.setattr(reading_time, "TIMED_ROWS", 10)

    estimate = reading_time.estimate_reading(config, "train")

    assert estimate.num_rows == 61  # with the header
    assert estimate.seconds > 0


def test_the_rows_of_packed_files_are_estimated_by_their_size(config, run, tmp_path):
    packed = tmp_path / "train.csv.gz"
    packed.write_bytes(gzip.compress(Path(config.data.train).read_bytes()))
    data = config.data.model_copy(update={"train": str(packed)})

    estimate = reading_time.estimate_reading(config.model_copy(update={"data": data}), "train")

    assert 1 < estimate.num_rows < 60


@pytest.mark.parametrize("source", ["example:train", "hub:owner/name"])
def test_all_rows_of_a_source_of_unknown_size_are_read(config, run, monkeypatch, source):
    let_reading_take(monkeypatch, 20)
    data = config.data.model_copy(update={"train": source})

    assert fraction_now(config.model_copy(update={"data": data}), run) is None


def test_all_rows_are_read_without_a_limit(config, run, monkeypatch):
    let_reading_take(monkeypatch, 20)
    train_section = config.train.model_copy(update={"time_budget": None})

    assert fraction_now(config.model_copy(update={"train": train_section}), run) is None


def test_all_rows_of_a_small_source_are_read(config, run, monkeypatch):
    let_reading_take(monkeypatch, 20)
    monkeypatch.setattr(reading_time, "LARGE_SOURCE", 1_000_000)

    assert fraction_now(config, run) is None


def test_a_share_is_the_same_rows_each_time(config):
    half = with_train_fraction(config, 0.5)

    dataset = load_dataset(half.data)

    num_read = len(dataset.train) + len(dataset.validation)
    assert 20 < num_read < 40
    assert dataset.num_unread == 60 - num_read
    assert f"read {num_read} of 60 rows of {config.data.train}" in dataset.notes[0]
    assert load_dataset(half.data).train.fingerprint == dataset.train.fingerprint


def test_a_share_of_the_bundled_example_is_read():
    reading = Reading(fraction=0.5)
    num_rows = sum(1 for _ in read_rows("example:train", Columns(["text"]), Reading()))

    num_read = sum(1 for _ in read_rows("example:train", Columns(["text"]), reading))

    assert 0.4 * num_rows < num_read < 0.6 * num_rows
    assert reading.notes.num_unread == num_rows - num_read


def test_a_run_records_its_share_and_reads_it_again(config, run, monkeypatch):
    """A resumed run, and a report on it, have the rows that it has learned from."""
    let_reading_take(monkeypatch, 10)
    fraction = fraction_now(config, run)
    assert fraction < 1
    prepared = prepare(with_train_fraction(config, fraction))
    train(prepared, run, device=CPU)

    let_reading_take(monkeypatch, 5)
    assert fraction_now(config, run) == fraction
    run.check_trainable(config, resume=True)
    with pytest.raises(ConfigError, match=r"another data\.train_fraction"):
        run.check_trainable(with_train_fraction(config, 0.9), resume=True)

    report = evaluate(run.path)
    num_unread = prepared.dataset.num_unread
    assert report.run_facts.num_unread == num_unread
    assert said(report, Kind.ADVICE).startswith(
        f"the model has not learned from {num_unread} training texts"
    )
