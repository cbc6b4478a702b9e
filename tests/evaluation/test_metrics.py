"""Metrics: each number against another way to compute it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as peers

from encoder_cls.evaluation.report import FEWEST_ANSWERS, WANTED_ACCURACY, suggest_threshold
from encoder_cls.metrics.classification import (
    MOST_CONFUSED,
    CalibrationBins,
    ClassCounts,
    average_precisions,
    best_f1_threshold,
    compute_metrics,
)
from encoder_cls.metrics.logits import sigmoid, softmax

NAMES = ("a", "b", "c", "d", "e")
LABELS = ("a", "b", "c", "never", "unseen")
THRESHOLDS = (0.5, 0.3, 0.6, 0.9)


def random_case() -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of 200 texts, often right; the last class never occurs and is never predicted."""
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(200, 5)).astype(np.float32)
    logits[:, 4] = -20
    return logits, (logits + draw.normal(scale=0.9, size=(200, 5))).argmax(axis=1)


def test_metrics_agree_with_scikit_learn():
    """A class that does not occur leaves macro-F1 alone."""
    logits, labels = random_case()
    metrics, predictions = compute_metrics(logits, labels, NAMES), logits.argmax(axis=1)
    assert metrics.num_examples == 200
    assert metrics.accuracy == pytest.approx(peers.accuracy_score(labels, predictions))
    assert metrics.macro_f1 == pytest.approx(peers.f1_score(labels, predictions, average="macro"))
    assert metrics.loss == pytest.approx(peers.log_loss(labels, softmax(logits), labels=range(5)))
    assert (
        metrics.confusion_matrix
        == peers.confusion_matrix(labels, predictions, labels=range(5)).tolist()
    )
    assert list(metrics.per_class) == list(NAMES)
    for number, scores in enumerate(metrics.per_class.values()):
        truth, found = labels == number, predictions == number
        assert scores.support == truth.sum()
        for score, value in (
            ("precision", scores.precision),
            ("recall", scores.recall),
            ("f1", scores.f1),
        ):
            expected = getattr(peers, f"{score}_score")(truth, found, zero_division=0)
            assert value == (pytest.approx(expected) if truth.any() else None)


@pytest.mark.parametrize(
    ("confidence", "correct", "expected"),
    [
        ([1, 1], [True, True], 0),
        ([0.95, 0.95], [True, False], 0.45),
        ([1, 1, 0.5], [True, True, False], 0.5 / 3),
        ([0.9, 0.6], [False, True], 0.65),
        ([1, 0.95], [False, True], 0.475),
    ],
)
def test_the_calibration_error_of_known_cases(confidence, correct, expected):
    """Certainty belongs to the last bin; gaps of opposite sign in different bins do not cancel."""
    assert CalibrationBins.of(
        np.array(confidence), np.array(correct)
    ).expected_error == pytest.approx(expected)


def test_the_most_confused_classes_come_first():
    """Mistakes only, the most frequent first, of equals the first class first; no more than are named."""
    matrix = np.array([[9, 2, 0], [7, 1, 0], [2, 3, 4]])
    labels, predictions = (
        part.repeat(matrix.ravel()) for part in np.indices(matrix.shape).reshape(2, -1)
    )
    metrics = compute_metrics(np.eye(3, dtype=np.float32)[predictions], labels, ("x", "y", "z"))
    found = [(it.label, it.prediction, it.count) for it in metrics.most_confused]
    assert found == [("y", "x", 7), ("z", "y", 3), ("x", "y", 2), ("z", "x", 2)]
    many = np.arange(MOST_CONFUSED + 6)
    metrics = compute_metrics(
        np.eye(len(many), dtype=np.float32)[many[::-1]], many, [str(i) for i in many]
    )
    assert len(metrics.most_confused) == MOST_CONFUSED


def test_labels_that_training_never_showed_are_mistakes_without_a_probability():
    """They count in accuracy, have a recall of 0, and change neither the loss nor the calibration error."""
    logits, labels = random_case()
    known = compute_metrics(logits, labels, NAMES)
    metrics = compute_metrics(
        np.vstack([logits, logits[:20]]), np.append(labels, [5] * 15 + [6] * 5), (*NAMES, "x", "y")
    )
    assert metrics.num_examples == 220
    assert metrics.accuracy == pytest.approx(known.accuracy * 200 / 220)
    assert (metrics.loss, metrics.ece, metrics.calibration) == (
        known.loss,
        known.ece,
        known.calibration,
    )
    assert metrics.unseen_labels == {"x": 15, "y": 5}
    assert (metrics.per_class["x"].recall, metrics.per_class["x"].support) == (0, 15)
    assert np.sum(metrics.confusion_matrix, axis=1)[5:].tolist() == [15, 5]
    assert known.unseen_labels == {}


def test_the_suggested_threshold_is_the_lowest_that_is_accurate_enough():
    """Compared with trying every one that can be shown; as it is shown, it is kept to, and leaves enough answers."""
    random = np.random.default_rng(0)
    found = []
    for texts in (15, 30, 200, 200, 200):
        confidence = random.choice([0.25, 0.5, 0.9996, 1.0, *random.random(20)], size=texts)
        correct = random.random(texts) < 0.8 + 0.2 * confidence
        answered = [(step / 1000, correct[confidence >= step / 1000]) for step in range(1000)]
        keeping = [
            step
            for step, right in answered
            if len(right) >= FEWEST_ANSWERS and right.mean() >= WANTED_ACCURACY
        ]
        found.append(suggest_threshold(confidence, correct)[0])
        assert found[-1] == (keeping[0] if keeping else None)
    assert found[0] is None
    assert any(found)


@pytest.fixture(scope="module")
def scored() -> tuple[np.ndarray, np.ndarray]:
    """Logits of four classes and labels of five: one that no text has, one that training never showed."""
    random = np.random.default_rng(0)
    labels = (random.random((300, 5)) < [0.4, 0.2, 0.05, 0, 0.02]).astype(np.int8)
    logits = (
        (labels[:, :4] * 2 - 1 + random.normal(size=(300, 4))).round(1).astype(np.float32)
    )  # some are equal
    return logits, labels


def test_the_scores_are_those_of_scikit_learn(scored):
    """Macro values over the labels that some text has; a label without a logit is missed in each text."""
    logits, labels = scored
    found = compute_metrics(logits, labels, LABELS, THRESHOLDS)
    answers = np.hstack([sigmoid(logits) >= THRESHOLDS, np.zeros((300, 1), dtype=bool)])
    occurring = [0, 1, 2, 4]
    assert found.micro_f1 == pytest.approx(peers.f1_score(labels, answers, average="micro"))
    assert found.macro_f1 == pytest.approx(
        peers.f1_score(labels[:, occurring], answers[:, occurring], average="macro")
    )
    assert found.samples_f1 == pytest.approx(
        peers.f1_score(labels, answers, average="samples", zero_division=1)
    )
    assert found.subset_accuracy == pytest.approx(peers.accuracy_score(labels, answers))
    expected = [peers.average_precision_score(labels[:, it], logits[:, it]) for it in range(3)]
    assert average_precisions(logits.astype(float), labels[:, :4])[:3] == pytest.approx(expected)
    assert found.mean_average_precision == pytest.approx(np.mean([*expected, 0]))
    assert found.loss == pytest.approx(
        4 * peers.log_loss(labels[:, :4].ravel(), sigmoid(logits).ravel())
    )
    assert found.unseen_labels == {"unseen": labels[:, 4].sum()}
    rare, never, unseen = (found.per_class[name] for name in ("c", "never", "unseen"))
    assert (rare.threshold, never.threshold, unseen.threshold) == (0.6, 0.9, None)
    assert (never.support, never.average_precision, never.f1, unseen.f1) == (0, None, None, 0)
    assert found.labels_per_text == pytest.approx(labels.sum(axis=1).mean())


def test_texts_without_labels_are_right_where_none_are_given():
    """Whole texts, F1 1 and all labels right; where there is nothing at all no score is undefined."""
    nothing = compute_metrics(
        np.full((3, 2), -5, np.float32), np.zeros((3, 2)), ("a", "b"), (0.5, 0.5)
    )
    assert (nothing.samples_f1, nothing.subset_accuracy) == (1, 1)
    assert (nothing.micro_f1, nothing.macro_f1, nothing.mean_average_precision, nothing.ece) == (
        0,
        0,
        0,
        0,
    )


def test_no_threshold_has_a_better_f1_than_the_best(scored):
    """None of all that there could be has a better one; without positives there is nothing to choose by."""
    logits, labels = scored
    scores, targets = logits[:, 1].astype(float), labels[:, 1]
    best = best_f1_threshold(scores, targets)
    found = ClassCounts.of((scores >= best)[:, None], targets[:, None]).micro_f1
    assert found == pytest.approx(
        max(peers.f1_score(targets, scores >= it) for it in np.unique(scores))
    )
    assert best_f1_threshold(scores, np.zeros(300)) == 0
