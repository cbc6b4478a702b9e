"""The time that a training is expected to take."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.training import expected_time as module
from encoder_cls.training.expected_time import expected_time

TEN_WORDS = "one two three four five six seven eight nine ten"


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    monkeypatch.setattr(module, "usable_processes", lambda: 1)


def dataset_of(num_texts: int, *, words: int = 1, num_classes: int = 2) -> Dataset:
    """A data set whose texts have `words` times ten words."""
    split = Split(
        texts=[" ".join([TEN_WORDS] * words)] * num_texts,
        labels=np.arange(num_texts) % num_classes,
        where=["a"] * num_texts,
    )
    names = tuple(f"class {number}" for number in range(num_classes))
    return Dataset(label_names=names, train=split, validation=split, test=None)


def longest(dataset: Dataset) -> float:
    return expected_time(dataset, max_tokens=512).longest


def test_the_time_grows_with_texts_words_and_classes():
    small = dataset_of(20_000)
    assert longest(small) < longest(dataset_of(200_000))
    assert longest(small) < longest(dataset_of(20_000, words=20))
    assert longest(small) < longest(dataset_of(20_000, num_classes=100))


@pytest.mark.parametrize(
    ("num_texts", "words", "num_classes", "seconds"),
    [
        # Short questions, messages of customers, and news in four topics.
        (5_000, 1, 6, (55, 61)),
        (9_000, 1, 77, (110, 183)),
        (33_000, 4, 4, (440, 440)),
    ],
)
def test_trainings_that_were_measured_are_within_the_range(
    num_texts: int, words: int, num_classes: int, seconds: tuple[float, float]
):
    """Processor seconds on one core: the shortest and the longest of some trainings."""
    dataset = dataset_of(num_texts, words=words, num_classes=num_classes)
    expected = expected_time(dataset, max_tokens=512)
    assert expected.shortest < seconds[0]
    assert seconds[1] < expected.longest


def test_more_cores_take_less_time(monkeypatch):
    dataset = dataset_of(5_000)
    alone = longest(dataset)
    monkeypatch.setattr(module, "usable_processes", lambda: 2)
    assert longest(dataset) < 0.7 * alone
