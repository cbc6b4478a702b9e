"""A pool of texts: which to label next, and what a model learns from a few labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.topics import labelled_texts

from encoder_cls import PoolFit, TextPool, estimate_accuracy
from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear_training import pool_fit
from encoder_cls.linear_training.cost import LABELS_ALONE, TWO_ROUNDS, CorpusSizes
from encoder_cls.linear_training.few_labels import fit_linear_from_few_labels
from encoder_cls.linear_training.pool_fit import SMALL_FOLDS, chosen_effort, class_has_other_texts
from encoder_cls.linear_training.self_training import SelfTraining

LABELLED_TEXTS = labelled_texts(30, seed=5)
TEXTS = [text for text, _ in LABELLED_TEXTS]
TOPICS = [topic for _, topic in LABELLED_TEXTS]
LABELS = dict(enumerate(TOPICS[:24]))


@pytest.fixture(scope="module")
def fit() -> PoolFit:
    return TextPool(TEXTS).fit(LABELS)


def test_the_pool_is_predicted_from_a_few_labels(fit):
    assert fit.class_names == sorted(set(TOPICS))
    is_right = [fit.labels_of(text) == [topic] for text, topic in enumerate(TOPICS)]
    assert np.mean(is_right) > 0.9
    np.testing.assert_allclose(fit.probabilities.sum(axis=1), 1)
    assert ((fit.uncertainty >= 0) & (fit.uncertainty <= 1)).all()
    assert len(fit.is_right) == len(LABELS)


def test_representatives_have_all_topics_and_no_labels(fit):
    pool = TextPool(TEXTS)
    assert {TOPICS[text] for text in pool.representatives(6)} == set(TOPICS)

    chosen = pool.representatives(6, weights=fit.uncertainty, labelled=list(LABELS))
    assert len(set(chosen)) == 6
    assert not set(chosen) & set(LABELS)
    assert set(pool.representatives(100, among=10)) == set(range(10))


def test_texts_without_a_word_in_common_are_chosen_too():
    assert sorted(TextPool(["abc", "xyz"]).representatives(2)) == [0, 1]


def test_too_few_classes_are_refused():
    with pytest.raises(ValueError, match="too few classes"):
        TextPool(TEXTS).fit({0: "a", 1: "a"})


def test_a_labelled_text_is_predicted_from_nearly_all_other_labels(monkeypatch):
    """With larger folds, the accuracy would be that of a model with fewer labels."""
    fold_counts = []

    def counted_fit(*arguments: Any, **options: Any) -> Any:
        linear, result = fit_linear_from_few_labels(*arguments, **options)
        fold_counts.append(result.effort.num_folds)
        return linear, result

    monkeypatch.setattr(pool_fit, "fit_linear_from_few_labels", counted_fit)
    TextPool(TEXTS).fit(LABELS)
    assert fold_counts == [12]


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "classes", "tokens", "effort"),
    [
        (60, 1440, 6, 12, SMALL_FOLDS),
        (100, 20_000, 4, 48, TWO_ROUNDS),
        (300, 9000, 74, 15, TWO_ROUNDS),
        (2000, 50_000, 500, 1000, LABELS_ALONE),
    ],
)
def test_a_fit_does_less_where_it_would_be_more_work(labelled, unlabelled, classes, tokens, effort):
    sizes = CorpusSizes(labelled=labelled, unlabelled=unlabelled, classes=classes)
    assert chosen_effort(sizes, tokens, TrainConfig()) == effort


def test_a_busy_computer_gives_the_same_predictions(fit, monkeypatch):
    """The time that machines take decides nothing."""
    monkeypatch.setattr(SelfTraining, "seconds_to_fit", lambda _: 1e9)
    again = TextPool(TEXTS).fit(LABELS)
    assert (again.probabilities == fit.probabilities).all()


def test_the_only_text_of_a_class_does_not_count_as_predictable():
    """Without it, the model would not know the class."""
    has_label = np.array(
        [
            [1, 0, 1],
            [1, 1, 0],
            [0, 0, 1],
            [0, 0, 0],
        ]
    )
    assert class_has_other_texts(has_label > 0).tolist() == [True, False, True, True]


def test_the_estimate_counts_the_texts_drawn_at_random():
    """Its interval is that of fewer texts, since the models are often wrong together.

    Wilson's for 8 of 10 would be from .490 to .943.
    """
    is_right = np.array([True] * 8 + [False] * 92)

    found = estimate_accuracy(is_right, range(10), error_factor=0.75)

    assert found.labels == 100
    assert found.accuracy == pytest.approx(0.8)
    assert found.low == pytest.approx(0.436, abs=0.001)
    assert found.high == pytest.approx(0.954, abs=0.001)
    assert found.with_twice == pytest.approx(0.85)
    assert estimate_accuracy(is_right[:10]).low == found.low
