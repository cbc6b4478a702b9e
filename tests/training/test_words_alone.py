"""A linear model of words alone, where n-grams of characters take the place of words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.events import Event, Noted
from support.small_runs import NO_TECHNIQUES, make_config, run_all

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.linear.ngrams import TEMPLATE_IDS
from encoder_cls.linear_training import (
    cost,
    features,
    linear_fit,
    many_labels,
    model_selection,
    nb_svm,
)
from encoder_cls.system.reporter import Reporter
from encoder_cls.training import linear_stage
from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare

NUM_CLASSES = 12
TEXTS_PER_CLASS = 25
LETTERS = str.maketrans("0123456789", "qwertzuiop")


@pytest.fixture
def config(tmp_path) -> Config:
    """A run on texts of many classes, each with two words of its class among common words."""
    random = np.random.default_rng(0)
    lines = ["text,label"]
    for number in range(TEXTS_PER_CLASS * NUM_CLASSES):
        label = number % NUM_CLASSES
        words = [f"common{word}" for word in random.integers(0, 100, 6)]
        words += [f"topic{label}x{end}" for end in random.permutation(3)[:2]]
        # Texts that differ only in digits would count as copies.
        text = " ".join(random.permutation(words)).translate(LETTERS)
        lines.append(f"{text},class {label}")
    path = Path(tmp_path / "texts.csv")
    path.write_text("\n".join(lines) + "\n")

    data = {"train": str(path)}
    return make_config(tmp_path, linear=True, data=data, model={"encoder": False}, **NO_TECHNIQUES)


def uses_words_alone(events: list[Event]) -> bool:
    """Whether a run notes that its linear model uses words alone."""
    notes = [event.message for event in events if isinstance(event, Noted)]
    return any(note.startswith("linear model: words alone") for note in notes)


def test_words_alone_are_used_where_they_are_surely_better(config, tmp_path, monkeypatch):
    """A model may have 140 features: all words, or the most frequent parts of words."""
    monkeypatch.setattr(features, "MAX_FEATURES", 140)

    events = run_all(config, tmp_path / "run")

    assert uses_words_alone(events)
    # The saved model has learned from the validation texts, too, and from words alone as well.
    assert load_classifier(tmp_path / "run").linear.feature_ids.max() < TEMPLATE_IDS
    assert events[-1].report.evaluation.metrics.accuracy > 0.9


def test_all_features_are_used_where_words_alone_are_not_surely_better(config, tmp_path):
    events = run_all(config, tmp_path / "run")

    assert not uses_words_alone(events)


def test_the_comparison_with_words_alone_is_a_part_of_the_progress(config, monkeypatch):
    """Counting the words of the texts is reported, then each of the classifiers."""
    shares = shares_of_fit(config)
    monkeypatch.setattr(many_labels, "MIN_TEXTS_FOR_WORDS", 1000)
    shares_without_comparison = shares_of_fit(config)

    assert len(shares) == len(shares_without_comparison) + 1 + NUM_CLASSES
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_with_very_many_classes_words_alone_choose_c(config, monkeypatch):
    """All features are fitted only with the C that is best for words, and are counted once."""
    fits = []
    fit_one_vs_rest = model_selection.fit_one_vs_rest

    def recorded_fit(matrix: Any, *arguments: Any, svm_c: float) -> Any:
        fits.append((matrix.shape[1], svm_c))
        return fit_one_vs_rest(matrix, *arguments, svm_c=svm_c)

    monkeypatch.setattr(model_selection, "MANY_CLASSES", NUM_CLASSES)
    monkeypatch.setattr(nb_svm, "MAX_WORK", 1000)
    monkeypatch.setattr(model_selection, "fit_one_vs_rest", recorded_fit)
    shares = shares_of_fit(config)

    num_words = min(num_features for num_features, _ in fits)
    of_words = {svm_c for num_features, svm_c in fits if num_features == num_words}
    of_all = {svm_c for num_features, svm_c in fits if num_features > num_words}
    assert len(of_words) >= 3
    assert of_words <= set(model_selection.C_VALUES_OF_MANY_CLASSES)
    assert len(of_all) == 1
    assert of_all <= of_words
    assert shares[-1] == pytest.approx(1)


def test_with_very_many_classes_and_little_time_only_words_are_fitted(config, monkeypatch):
    monkeypatch.setattr(model_selection, "MANY_CLASSES", NUM_CLASSES)
    monkeypatch.setattr(nb_svm, "MAX_WORK", 1000)
    monkeypatch.setattr(linear_fit, "PLANNED_COST_OF_MANY_CLASSES", 0)
    monkeypatch.setattr(cost, "affordable_effort", lambda efforts, *_, **__: efforts[-1])
    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: time.monotonic() + 600)

    fitted = fit_linear_classifier(prepare(config))
    again = fit_linear_classifier(prepare(config), work=fitted.fit.work)

    assert fitted.fit.effort is cost.WORDS_ONE_C_VALUE
    assert fitted.classifier.linear.feature_ids.max() < TEMPLATE_IDS
    assert again.classifier.linear.biases.tolist() == fitted.classifier.linear.biases.tolist()


def shares_of_fit(config: Config) -> list[float]:
    """The shares of the work that the fit of the linear model reports as done."""
    shares: list[float] = []

    class SharesReporter(Reporter):
        def progressed(self, share: float) -> None:
            shares.append(share)

    fit_linear_classifier(prepare(config), reporter=SharesReporter())
    return shares
