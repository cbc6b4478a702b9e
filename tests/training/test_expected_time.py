"""The time that a training is expected to take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from encoder_cls.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from encoder_cls.data.dataset import Dataset, Split, Unlabelled
from encoder_cls.training import expected_time as module
from encoder_cls.training.expected_time import (
    ExpectedTime,
    expected_time,
    machine_slowness,
)

TEN_WORDS = "one two three four five six seven eight nine ten"


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    monkeypatch.setattr(module, "usable_processes", lambda: 1)


def dataset_of(
    num_texts: int, *, words: int = 1, num_classes: int = 2, num_unlabelled: int = 0
) -> Dataset:
    """A data set whose texts have `words` times ten words, a tenth of them for validation."""
    text = " ".join([TEN_WORDS] * words)

    def split_of(size: int) -> Split:
        return Split(texts=[text] * size, labels=np.arange(size) % num_classes, where=["a"] * size)

    names = tuple(f"class {number}" for number in range(num_classes))
    return Dataset(
        label_names=names,
        train=split_of(num_texts),
        validation=split_of(num_texts // 9),
        test=None,
        unlabelled=Unlabelled(texts=[text] * num_unlabelled, where=["a"] * num_unlabelled),
    )


def expected(
    dataset: Dataset, model: ModelConfig | None = None, train: TrainConfig | None = None
) -> ExpectedTime:
    config = Config(
        name="data",
        data=DataConfig(train="data"),
        model=model or ModelConfig(),
        train=train or TrainConfig(),
    )
    return expected_time(config, dataset)


def test_the_report_takes_longer_with_more_texts_to_score():
    dataset = dataset_of(20_000)
    with_test = replace(dataset, test=dataset_of(1_000_000).train)

    assert expected(with_test).report > expected(dataset).report + 10
    assert expected(with_test).linear == expected(dataset).linear


def test_the_time_grows_with_texts_words_and_classes():
    small = expected(dataset_of(20_000)).total
    assert small < expected(dataset_of(200_000)).total
    assert small < expected(dataset_of(20_000, words=20)).total
    assert small < expected(dataset_of(20_000, num_classes=100)).total


def test_the_time_of_the_encoder_grows_with_its_layers_and_falls_without_rdrop():
    dataset = dataset_of(3000)
    usual = expected(dataset).encoder
    wide = expected(dataset, ModelConfig(d_model=256, num_layers=4, d_ff=1024)).encoder
    assert 4 * usual < wide < 8 * usual
    assert expected(dataset, train=TrainConfig(rdrop_weight=0)).encoder < 0.8 * usual
    assert usual < expected(dataset, train=TrainConfig(patience=None)).encoder


@pytest.mark.parametrize(
    ("dataset", "linear", "encoder"),
    [
        # Processor seconds that were measured on one core.
        pytest.param(dataset_of(2_700, words=4, num_classes=4), 7, 60, id="news"),
        pytest.param(dataset_of(4_906, num_classes=6), 4, 37, id="questions"),
        pytest.param(dataset_of(9_000, num_classes=77), 34, 101, id="many classes"),
        pytest.param(dataset_of(33_486, words=4, num_classes=4), 51, 351, id="much news"),
        pytest.param(dataset_of(179, words=4, num_classes=4, num_unlabelled=3000), 18, 0, id="few"),
        pytest.param(dataset_of(22_500, words=20), 16, None, id="in passes"),
    ],
)
def test_trainings_that_were_measured_took_about_the_expected_time(
    dataset: Dataset, linear: float, encoder: float | None
):
    """The estimate is off by a factor of two at most."""
    found = expected(dataset)
    assert linear / 2 < found.linear < linear * 2
    if encoder is not None:
        assert encoder / 2 <= found.encoder <= encoder * 2


def test_more_cores_take_less_time(monkeypatch):
    dataset = dataset_of(5_000)
    alone = expected(dataset)
    monkeypatch.setattr(module, "usable_processes", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    together = expected(dataset)
    assert together.encoder < 0.7 * alone.encoder
    assert together.linear == alone.linear

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert expected(dataset) == alone


def test_a_slower_machine_takes_more_time(monkeypatch):
    dataset = dataset_of(5_000)
    alone = expected(dataset)
    monkeypatch.setattr(module, "machine_slowness", lambda: 3.0)
    assert expected(dataset).total == pytest.approx(3 * alone.total)


def test_the_shortest_of_several_times_shows_the_speed_of_a_machine(monkeypatch):
    """Other programs disturb a part of the work."""
    monkeypatch.setattr(module, "REPETITIONS", 3)
    factors = [9.0, 2.0, 5.0]
    times = []
    for factor in factors:
        times += [10.0, 10.0 + factor * module.REFERENCE_SECONDS]
    clock = iter(times)
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))

    assert machine_slowness() == pytest.approx(2)
