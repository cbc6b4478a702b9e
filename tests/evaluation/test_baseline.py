"""The TF-IDF baseline: what it learns, what it leaves out, and what it needs at most."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from support.reports import split_of

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.evaluation import baseline
from encoder_cls.evaluation.baseline import baseline_scores, fit_svm
from encoder_cls.system.disk_arrays import DiskBackedTexts

TRAIN = split_of(["good fine", "bad poor"] * 4, [0, 1] * 4)


def scores_of(train: Split, split: Split) -> dict | None:
    dataset = Dataset(label_names=("a", "b"), train=train, validation=split, test=None)
    return baseline_scores(dataset, split)


def test_the_baseline_learns_words():
    """It is trained on the one split and scored on the other, where a label that training never showed is a mistake."""
    right, wrong, unseen = (
        scores_of(TRAIN, split_of(texts * 4, labels * 4))
        for texts, labels in (
            (["fine", "poor"], [0, 1]),
            (["poor", "fine"], [0, 1]),
            (["fine", "poor", "new", "new"], [0, 1, 2, 2]),
        )
    )
    low, high = right.pop("accuracy_interval")
    assert 0.5 < low < high == 1
    assert right.pop("macro_f1_interval") == (1, 1)
    amounts = {"texts": 8, "of_texts": 8, "features": 6, "of_features": 6}
    assert right == {"accuracy": 1.0, "macro_f1": 1.0} | amounts
    assert wrong["accuracy_interval"][0] == 0 < wrong["accuracy_interval"][1] < 0.5
    assert (wrong["accuracy"], wrong["macro_f1"], unseen["accuracy"]) == (0, 0, 0.5)


def test_the_baseline_reads_a_sample_of_much_text(monkeypatch):
    """No more characters than the limit, of texts drawn from everywhere; the same texts each time."""
    texts = [f"{'good' if i % 2 else 'poor'} {'x' * (i % 7)}" for i in range(300)]
    split = split_of(DiskBackedTexts(texts), np.arange(300) % 2)
    monkeypatch.setattr(baseline, "MOST_SCORES", 15)
    monkeypatch.setattr(baseline, "MOST_CHARACTERS", 800)
    first, again = (scores_of(split, split) for _ in range(2))
    assert first == again
    assert (first["accuracy"], first["of_texts"]) == (1.0, 300)
    assert 800 / 12 < first["texts"] < 800 / 5  # of 5 to 11 characters each
    monkeypatch.setattr(baseline, "MOST_CHARACTERS", sum(map(len, texts)))
    assert scores_of(split, split)["texts"] == 300


@pytest.mark.parametrize("classes", [2, 30])
def test_the_more_classes_the_less_the_baseline_reads(monkeypatch, classes):
    """Characters times classes, and features times classes, stay within what memory and a minute are enough for."""
    split = split_of([f"word{i % 60} filler{i % 7}" for i in range(600)], np.arange(600) % classes)
    monkeypatch.setattr(baseline, "MOST_CHARACTERS_BY_CLASSES", 100_000)
    monkeypatch.setattr(baseline, "MOST_WEIGHTS", 900)
    found = scores_of(split, split)
    assert (found["texts"] < 600) == (classes == 30)
    assert found["features"] == min(found["of_features"], 900 // classes)
    assert found["accuracy"] > 0


def test_fits_in_threads_give_the_weights_of_one_after_the_other():
    """The library has one random generator a process, by which each decides what it looks at first."""
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(200, 300)), random.integers(0, 2, 200)
    alone = fit_svm(features, labels, tol=0.01).coef_
    with ThreadPoolExecutor(2) as threads:
        found = [
            svm.coef_
            for svm in threads.map(lambda _: fit_svm(features, labels, tol=0.01), range(16))
        ]
    assert all(np.array_equal(weights, alone) for weights in found)


def test_of_a_very_long_text_the_baseline_reads_the_start(monkeypatch):
    """A text is a list of words for a moment: one of a gigabyte would take dozens."""
    monkeypatch.setattr(baseline, "LONGEST_TEXT", 9)
    train = split_of(["good fine bad poor", "bad poor good fine"] * 4, [0, 1] * 4)
    found = scores_of(train, split_of(["good fine", "bad poor"], [0, 1]))
    assert (found["accuracy"], found["texts"], found["of_features"]) == (1.0, 8, 6)


def test_there_is_a_report_without_a_baseline(monkeypatch):
    """Texts without words teach nothing; too little memory costs no run."""
    blank = split_of([" ", "  "] * 4, [0, 1] * 4)
    assert scores_of(blank, blank) is None

    def fit(self, *_):
        raise MemoryError

    monkeypatch.setattr(LinearSVC, "fit", fit)
    assert scores_of(TRAIN, TRAIN) is None
