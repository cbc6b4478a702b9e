"""Classifiers that learn batch by batch take the steps of AdaGrad on the features of each batch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from encoder_cls.linear_training.online_svm import INITIAL_SQUARES, LEARNING_RATE, Batch, OnlineSvms

NUM_FEATURES = 12
NUM_MACHINES = 3


def random_batch(seed: int, num_texts: int = 5) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """Features, targets and text weights of some texts."""
    random = np.random.default_rng(seed)
    values = random.random((num_texts, NUM_FEATURES))
    is_present = random.random((num_texts, NUM_FEATURES)) < 0.3
    features = sp.csr_matrix((values * is_present).astype(np.float32))

    targets = random.random((num_texts, NUM_MACHINES)) < 0.4
    text_weights = random.uniform(0.5, 2, (num_texts, NUM_MACHINES))
    return features, targets, text_weights


@pytest.fixture
def ratios() -> np.ndarray:
    random = np.random.default_rng(7)
    return random.uniform(0.1, 2, (NUM_FEATURES, NUM_MACHINES)).astype(np.float32)


def loss(
    weights: np.ndarray, features: np.ndarray, targets: np.ndarray, text_weights: np.ndarray
) -> float:
    """The squared hinge loss; the last weights are biases."""
    margins = features @ weights[:-1] + weights[-1]
    signs = np.where(targets, 1, -1)
    hinge_losses = np.maximum(0, 1 - signs * margins)
    return float((text_weights * hinge_losses**2).sum())


def numeric_gradient(weights: np.ndarray, *batch: np.ndarray) -> np.ndarray:
    """The gradient of the loss by central differences."""
    gradient = np.zeros_like(weights)
    for index in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[index] = 1e-5
        loss_above = loss(weights + step, *batch)
        loss_below = loss(weights - step, *batch)
        gradient[index] = (loss_above - loss_below) / 2e-5
    return gradient


def test_steps_are_those_of_adagrad_on_the_squared_hinge_loss(ratios):
    svms = OnlineSvms(ratios)
    weights = np.zeros((NUM_FEATURES + 1, NUM_MACHINES))
    squares = np.full_like(weights, INITIAL_SQUARES)
    # Features are multiplied by ratios; the last row belongs to the biases.
    scales = np.vstack([ratios, np.ones(NUM_MACHINES)])

    for seed in range(4):
        features, targets, text_weights = random_batch(seed)
        svms.learn(Batch.of(features, targets, text_weights))

        gradient = scales * numeric_gradient(
            weights * scales, features.toarray(), targets, text_weights
        )
        squares += gradient**2
        weights -= LEARNING_RATE * gradient / np.sqrt(squares)

    classifiers = svms.classifiers()
    assert classifiers.weights == pytest.approx((weights * scales)[:-1], abs=1e-4)
    assert classifiers.biases == pytest.approx(weights[-1], abs=1e-4)


def test_features_that_do_not_occur_keep_their_weights(ratios):
    svms = OnlineSvms(ratios)
    features, targets, text_weights = random_batch(0)
    does_occur = features.getnnz(axis=0) > 0

    svms.learn(Batch.of(features, targets, text_weights))

    weights = svms.classifiers().weights
    assert not weights[~does_occur].any()
    assert weights[does_occur].any(axis=1).all()


def test_machines_that_were_taken_do_not_learn_on(ratios):
    svms = OnlineSvms(ratios)
    svms.learn(Batch.of(*random_batch(0)))
    classifiers = svms.classifiers()
    weights = classifiers.weights.copy()
    biases = classifiers.biases.copy()

    svms.learn(Batch.of(*random_batch(1)))

    assert np.array_equal(classifiers.weights, weights)
    assert np.array_equal(classifiers.biases, biases)
