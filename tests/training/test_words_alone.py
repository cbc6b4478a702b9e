"""A linear model of words alone, where n-grams of characters take the place of words."""

from __future__ import annotations

import pytest
from support.events import Event, Noted
from support.small_runs import config_of_many_topics, run_all

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.linear.ngrams import TEMPLATE_IDS
from encoder_cls.linear_training import features, fit_data
from encoder_cls.system.reporter import Reporter
from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare

NUM_CLASSES = 12
TEXTS_PER_CLASS = 25


@pytest.fixture
def config(tmp_path) -> Config:
    """A run on texts of many classes, each with two words of its class among common words."""
    return config_of_many_topics(tmp_path, classes=NUM_CLASSES, texts_per_class=TEXTS_PER_CLASS)


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
    monkeypatch.setattr(fit_data, "MIN_COMPARED", 1000)
    shares_without_comparison = shares_of_fit(config)

    assert len(shares) == len(shares_without_comparison) + 1 + NUM_CLASSES
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def shares_of_fit(config: Config) -> list[float]:
    """The shares of the work that the fit of the linear model reports as done."""
    shares: list[float] = []

    class SharesReporter(Reporter):
        def progressed(self, share: float) -> None:
            shares.append(share)

    fit_linear_classifier(prepare(config), reporter=SharesReporter())
    return shares
