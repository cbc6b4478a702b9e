"""Naive Bayes by expectation maximization: a sum written out, and what texts without labels teach."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from encoder_cls.linear import few_labels as naive_bayes_em
from encoder_cls.linear.few_labels import SMOOTHING, UNLABELLED_WEIGHT, log_ratios


def ratios_of(labelled, labels, unlabelled, *, weights=1, num_classes=2):
    targets = np.eye(num_classes)[labels] * np.broadcast_to(weights, len(labels))[:, None]
    texts = [
        sp.csr_matrix(np.array(rows, dtype=np.float32).reshape(-1, 4))
        for rows in (labelled, unlabelled)
    ]
    return log_ratios(texts[0], targets, texts[1])


def test_without_further_texts_it_is_naive_bayes():
    """Shares of the features of each class, and of those of the others; a text counts by its weight."""
    labelled, labels, weights = [[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]], [0, 1, 2], [1, 2, 0.5]
    found = ratios_of(labelled, labels, [], weights=weights, num_classes=3)
    counts = SMOOTHING + np.array([[1, 1, 0, 0], [2, 0, 2, 0], [0, 0, 0.5, 0.5]])
    for number in range(3):
        inside, outside = counts[number], np.delete(counts, number, axis=0).sum(axis=0)
        expected = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        assert found[:, number] == pytest.approx(expected, rel=1e-5)


def test_an_iteration_is_that_of_the_paper(monkeypatch):
    """Class probabilities of the texts without labels, then counts in which they have a weight below 1."""
    monkeypatch.setattr(naive_bayes_em, "ITERATIONS", 1)
    labelled, labels, other = [[1, 1, 0, 0], [0, 0, 1, 0]], [0, 1], np.array([0, 1, 0, 1.0])
    known = np.array(labelled, dtype=float)
    shares = (known + SMOOTHING) / (known + SMOOTHING).sum(axis=1, keepdims=True)
    likelihoods = np.exp(np.log(shares) @ other)
    guess = likelihoods / likelihoods.sum()
    counts = known + UNLABELLED_WEIGHT * guess[:, None] * other + SMOOTHING
    expected = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    assert ratios_of(labelled, labels, [other])[:, 0] == pytest.approx(expected, rel=1e-5)


def test_a_class_without_a_text_is_no_error():
    """As where its only texts are held out."""
    labelled = [[1, 0, 0, 0], [0, 1, 0, 0]]
    labels = [0, 1]
    unlabelled = [[1, 1, 0, 0]]
    assert np.isfinite(ratios_of(labelled, labels, unlabelled, num_classes=3)).all()
