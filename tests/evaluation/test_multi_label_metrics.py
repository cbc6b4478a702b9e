"""The measures of several labels a text: those of scikit-learn, over the labels that some text has."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as peers

from encoder_cls.evaluation.metrics import average_precisions, best_f1_threshold, compute_multi_label_metrics, f1_scores
from encoder_cls.evaluation.scores import micro_f1_interval, score_multi_label_parts
from encoder_cls.inference.task import sigmoid

NAMES = ("a", "b", "c", "never", "unseen")
THRESHOLDS = (0.5, 0.3, 0.6, 0.9)


@pytest.fixture(scope="module")
def scored() -> tuple[np.ndarray, np.ndarray]:
    """Logits of four classes and labels of five: one that no text has, one that training never showed."""
    random = np.random.default_rng(0)
    labels = (random.random((300, 5)) < [0.4, 0.2, 0.05, 0, 0.02]).astype(np.int8)
    logits = (labels[:, :4] * 2 - 1 + random.normal(size=(300, 4))).round(1).astype(np.float32)  # some are equal
    return logits, labels


def test_the_scores_are_those_of_scikit_learn(scored):
    """Macro values over the labels that some text has; a label without a logit is missed in each text."""
    logits, labels = scored
    found = compute_multi_label_metrics(logits, labels, NAMES, THRESHOLDS)
    answers = np.hstack([sigmoid(logits) >= THRESHOLDS, np.zeros((300, 1), dtype=bool)])
    occurring = [0, 1, 2, 4]
    assert found.micro_f1 == pytest.approx(peers.f1_score(labels, answers, average="micro"))
    assert found.macro_f1 == pytest.approx(peers.f1_score(labels[:, occurring], answers[:, occurring], average="macro"))
    assert found.samples_f1 == pytest.approx(peers.f1_score(labels, answers, average="samples", zero_division=1))
    assert found.subset_accuracy == pytest.approx(peers.accuracy_score(labels, answers))
    expected = [peers.average_precision_score(labels[:, it], logits[:, it]) for it in range(3)]
    assert average_precisions(logits.astype(float), labels[:, :4])[:3] == pytest.approx(expected)
    assert found.mean_average_precision == pytest.approx(np.mean([*expected, 0]))
    assert found.loss == pytest.approx(4 * peers.log_loss(labels[:, :4].ravel(), sigmoid(logits).ravel()))
    assert found.unseen_labels == {"unseen": labels[:, 4].sum()}
    rare, never, unseen = (found.per_class[name] for name in ("c", "never", "unseen"))
    assert (rare.threshold, never.threshold, unseen.threshold) == (0.6, 0.9, None)
    assert (never.support, never.average_precision, never.f1, unseen.f1) == (0, None, None, 0)
    assert found.labels_per_text == pytest.approx(labels.sum(axis=1).mean())


def test_texts_without_labels_are_right_where_none_are_given():
    """Whole texts, F1 1 and all labels right; where there is nothing at all no score is undefined."""
    nothing = compute_multi_label_metrics(np.full((3, 2), -5, np.float32), np.zeros((3, 2)), ("a", "b"), (0.5, 0.5))
    assert (nothing.samples_f1, nothing.subset_accuracy) == (1, 1)
    assert (nothing.micro_f1, nothing.macro_f1, nothing.mean_average_precision, nothing.ece) == (0, 0, 0, 0)


def test_the_threshold_with_the_best_f1_is_found(scored):
    """None of all that there could be has a better one; without positives there is nothing to choose by."""
    logits, labels = scored
    scores, targets = logits[:, 1].astype(float), labels[:, 1]
    best = best_f1_threshold(scores, targets)
    found = f1_scores((scores >= best)[:, None], targets[:, None]).micro
    assert found == pytest.approx(max(peers.f1_score(targets, scores >= it) for it in np.unique(scores)))
    assert best_f1_threshold(scores, np.zeros(300)) == 0


def test_intervals_hold_what_other_texts_would_give(scored):
    """That of the score is about two standard errors of a bootstrap wide; equal answers differ by nothing."""
    logits, labels = scored
    answers = np.hstack([sigmoid(logits) >= THRESHOLDS, np.zeros((300, 1), dtype=bool)])
    random = np.random.default_rng(1)
    drawn = [random.integers(300, size=300) for _ in range(300)]
    expected = np.quantile([f1_scores(answers[rows], labels[rows]).micro for rows in drawn], [0.025, 0.975])
    assert micro_f1_interval(labels, answers) == pytest.approx(expected, abs=0.01)
    assert micro_f1_interval(labels, answers, answers) == (0, 0)
    worse = {"encoder": logits, "linear": -logits}
    parts, comparison = score_multi_label_parts(logits, worse, labels, THRESHOLDS)
    assert comparison is not None
    assert comparison.is_sure
    assert comparison.combined_minus_linear == parts["combined"].micro_f1 - parts["linear"].micro_f1 > 0.3
