"""The TF-IDF baseline: what it learns, what it leaves out, and what it needs at most."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from support.reports import split_of

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.evaluation import baseline
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.system.lazy_sequences import DiskBackedTexts

TRAIN = split_of(["good fine", "bad poor"] * 4, [0, 1] * 4)


def scores_of(train: Split, split: Split) -> dict | None:
    """The scores of a baseline that learned from the first split, on the second."""
    dataset = Dataset(label_names=("a", "b"), train=train, validation=split, test=None)
    return baseline_scores(dataset, split)


def test_the_baseline_learns_words():
    different = [f"{word} {letter}" for letter in "pqrs" for word in ("fine", "poor")]
    scores = scores_of(TRAIN, split_of(different, [0, 1] * 4))

    low, high = scores.pop("accuracy_interval")
    assert 0.5 < low < 1
    assert high == 1
    assert scores == {
        "accuracy": 1.0,
        "macro_f1": 1.0,
        "macro_f1_interval": None,
        "texts": 8,
        "of_texts": 8,
        "features": 6,
        "of_features": 6,
    }


def test_the_baseline_learns_from_the_validation_texts_that_the_model_has_learned_from():
    validation = split_of(["new odd"] * 4, [1] * 4)
    dataset = Dataset(label_names=("a", "b"), train=TRAIN, validation=validation, test=None)
    test = split_of(["odd"] * 4, [1] * 4)

    both = baseline_scores(dataset, test, with_validation=True)

    assert (both["accuracy"], both["texts"], both["of_texts"]) == (1, 12, 12)
    assert baseline_scores(dataset, test)["of_texts"] == 8


def test_words_of_the_other_class_are_predicted_wrongly():
    different = [f"{word} {letter}" for letter in "pqrs" for word in ("poor", "fine")]
    scores = scores_of(TRAIN, split_of(different, [0, 1] * 4))

    assert scores["accuracy"] == 0
    assert scores["macro_f1"] == 0
    low, high = scores["accuracy_interval"]
    assert low == 0
    assert 0 < high < 0.5


def test_a_label_that_training_never_showed_is_a_mistake():
    scores = scores_of(TRAIN, split_of(["fine", "poor", "new", "new"] * 4, [0, 1, 2, 2] * 4))
    assert scores["accuracy"] == 0.5


def test_the_baseline_learns_several_labels():
    """One SVM for each label; a label that all texts have is always given."""
    train = split_of(["good fine", "bad poor"] * 4, [[1, 0, 1], [0, 1, 1]] * 4)
    test = split_of(["fine", "poor"] * 4, [[1, 0, 1], [0, 1, 1]] * 4)
    dataset = Dataset(label_names=("a", "b", "c"), train=train, validation=test, test=None)

    scores = baseline_scores(dataset, test)

    assert scores["micro_f1"] == 1
    assert scores["macro_f1"] == 1
    assert scores["mean_average_precision"] == 1


def test_the_time_is_estimated_from_a_label_that_can_be_learned(monkeypatch):
    """The first label is on one text, which the sample lacks, and the second one on all texts."""
    monkeypatch.setattr(baseline, "TIMED_CHARACTERS", 100)
    labels = np.array([[0, 1, 0], [0, 1, 1]] * 200)
    labels[0, 0] = 1
    split = split_of(["good fine", "bad poor"] * 200, labels)
    validation = split_of(["good", "bad"], [[0, 1, 0], [0, 1, 1]])
    dataset = Dataset(label_names=("a", "b", "c"), train=split, validation=validation, test=None)

    scores = baseline_scores(dataset, split, seconds=60)

    assert scores["texts"] == 400
    assert scores["micro_f1"] > 0.99


def test_the_baseline_reads_a_sample_of_much_text(monkeypatch):
    """It has as many characters as the limit allows, from everywhere, and is the same each time."""
    texts = []
    for number in range(300):
        word = ["poor", "good"][number % 2]
        noise = "x" * (number % 7)
        texts.append(f"{word} {noise}")
    split = split_of(DiskBackedTexts(texts), np.arange(300) % 2)
    monkeypatch.setattr(baseline, "MAX_SCORES", 15)
    monkeypatch.setattr(baseline, "MAX_CHARACTERS", 800)

    scores = scores_of(split, split)

    assert scores == scores_of(split, split)
    assert scores["accuracy"] == 1
    assert scores["of_texts"] == 300
    # A text has 5 to 11 characters.
    assert 800 / 12 < scores["texts"] < 800 / 5

    monkeypatch.setattr(baseline, "MAX_CHARACTERS", sum(map(len, texts)))
    assert scores_of(split, split)["texts"] == 300


@pytest.mark.parametrize(("num_classes", "is_sampled"), [(2, False), (30, True)])
def test_the_more_classes_the_less_the_baseline_reads(monkeypatch, num_classes, is_sampled):
    """Both characters and features, times classes, have a limit, for time and for memory."""
    texts = [f"word{number % 60} filler{number % 7}" for number in range(600)]
    split = split_of(texts, np.arange(600) % num_classes)
    monkeypatch.setattr(baseline, "MAX_CHARACTERS_BY_CLASSES", 100_000)
    monkeypatch.setattr(baseline, "MAX_WEIGHTS", 900)

    scores = scores_of(split, split)

    assert (scores["texts"] < 600) == is_sampled
    assert scores["features"] == min(scores["of_features"], 900 // num_classes)
    assert scores["accuracy"] > 0


def test_of_a_very_long_text_the_baseline_reads_the_start(monkeypatch):
    """The words of a text are in memory at once."""
    monkeypatch.setattr(baseline, "MAX_TEXT_LENGTH", 9)
    train = split_of(["good fine bad poor", "bad poor good fine"] * 4, [0, 1] * 4)

    scores = scores_of(train, split_of(["good fine", "bad poor"], [0, 1]))

    assert scores["accuracy"] == 1
    assert scores["texts"] == 8
    assert scores["of_features"] == 6


def test_texts_without_words_have_no_baseline():
    blank = split_of([" ", "  "] * 4, [0, 1] * 4)
    assert scores_of(blank, blank) is None


def test_too_little_memory_leaves_out_the_baseline(monkeypatch):
    def fit(self, *_):
        raise MemoryError

    monkeypatch.setattr(LinearSVC, "fit", fit)
    assert scores_of(TRAIN, TRAIN) is None
