"""Temperatures: the one that made the logits is found again, and no prediction changes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import log_loss

from encoder_cls.calibration import HOTTEST, cross_entropy, fit_pool, fit_temperature, one_hot, pool, softmax

LOGITS = arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=st.floats(-1e4, 1e4, width=32))


def draw(temperature: float, *, texts: int = 20_000, classes: int = 4, seed: int = 0):
    """Logits, and labels drawn from their softmax at a temperature."""
    random = np.random.default_rng(seed)
    logits = (3 * random.standard_normal((texts, classes))).astype(np.float32)
    shares = scipy.special.softmax(logits.astype(np.float64) / temperature, axis=1).cumsum(axis=1)
    return logits, (random.random((texts, 1)) > shares[:, :-1]).sum(axis=1)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(logits=LOGITS)
def test_softmax_is_scipy_s(logits):
    """Also of logits whose exponents no number can hold; in float64, each row summing to 1."""
    probabilities = softmax(logits)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities, scipy.special.softmax(logits.astype(np.float64), axis=-1), atol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1)
    assert softmax(logits[0]).tolist() == probabilities[0].tolist()


def test_cross_entropy_is_scikit_learn_s():
    """The mean of -ln p of the labels."""
    logits, labels = draw(1.0, texts=200)
    probabilities = softmax(logits)
    assert cross_entropy(probabilities, one_hot(labels, probabilities.shape[1])) == pytest.approx(
        log_loss(labels, probabilities)
    )
    assert cross_entropy(np.array([[0.25, 0.75]]), np.array([[0.0, 1.0]])) == pytest.approx(-np.log(0.75))


def test_the_surprise_at_the_impossible_is_large_but_finite():
    """One text with probability 0 cannot make all others count for nothing."""
    assert 20 < cross_entropy(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])) < 100


@pytest.mark.parametrize("temperature", [0.25, 0.8, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_temperature_that_made_the_labels_is_found(temperature, classes):
    """Overconfident or underconfident logits: within a tenth of the truth from twenty thousand texts."""
    logits, labels = draw(temperature, classes=classes)
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.1)


def test_no_other_temperature_explains_the_labels_better():
    """The fitted one has the least cross entropy of a grid, and less than no temperature."""
    logits, labels = draw(3.0, texts=500)
    targets = one_hot(labels, logits.shape[1])
    found = cross_entropy(softmax(logits / fit_temperature(logits, labels)), targets)
    assert found <= min(cross_entropy(softmax(logits / t), targets) for t in np.geomspace(0.05, 20, 200)) + 1e-6
    assert found < cross_entropy(softmax(logits), targets) - 0.01


@settings(max_examples=60, deadline=None, derandomize=True)
@given(logits=LOGITS, seed=st.integers(0, 99))
def test_a_temperature_is_positive_bounded_and_changes_no_prediction(logits, seed):
    """For any logits and labels, however few or foolish."""
    labels = np.random.default_rng(seed).integers(0, logits.shape[1], size=len(logits))
    temperature = fit_temperature(logits, labels)
    assert 1 / HOTTEST <= temperature <= HOTTEST
    cooled = logits / np.float32(temperature)
    best = np.take_along_axis(cooled, logits.argmax(axis=1)[:, None], axis=1)
    assert (best == cooled.max(axis=1, keepdims=True)).all()


def test_labels_that_are_all_right_make_as_certain_as_one_more_text_that_is_anyones_guess():
    """60 right texts of 3 classes are 60 1/3 in 61, not certainty."""
    labels = np.arange(60) % 3
    logits = np.eye(3, dtype=np.float32)[labels]
    confidence = softmax(logits / fit_temperature(logits, labels)).max(axis=1)
    np.testing.assert_allclose(confidence, (60 + 1 / 3) / 61, rtol=1e-4)


def test_labels_that_are_all_wrong_give_the_hottest_temperature():
    """Nothing to calibrate on: without a limit the probabilities would be 1 / classes."""
    labels = np.arange(60) % 3
    logits = -np.eye(3, dtype=np.float32)[labels]
    assert fit_temperature(logits, labels) == pytest.approx(HOTTEST, rel=1e-3)


def test_the_scales_that_made_the_labels_are_found():
    """Labels drawn from a scaled sum of two kinds of scores, of which a third kind knows nothing."""
    random = np.random.default_rng(1)
    first, second, third = random.standard_normal((3, 1, 20_000, 3)).astype(np.float32)
    shares = softmax(2.0 * first[0] + 0.5 * second[0]).cumsum(axis=1)
    labels = (random.random((20_000, 1)) > shares[:, :-1]).sum(axis=1)
    scales, parts = fit_pool([first, second, third], labels)
    assert scales == pytest.approx([2.0, 0.5, 0.0], abs=0.05)
    assert sum(parts) == pytest.approx(1)
    assert min(parts) == parts[2] < 0.1


def test_a_pool_of_one_kind_with_one_member_is_a_temperature():
    """The same number is found in both ways."""
    logits, labels = draw(2.5, texts=2000)
    assert fit_pool([logits[None]], labels)[0][0] == pytest.approx(1 / fit_temperature(logits, labels), rel=1e-3)


def test_members_are_averaged_by_their_probabilities():
    """After what other kinds say was added to each of them; that by hand."""
    members = np.array([[[9e4, 0, 0]], [[0, 0.9, 0]], [[0, 0.9, 0.5]]], dtype=np.float32)
    other = np.array([[[0, 0, 0.3]]], dtype=np.float32)
    expected = np.mean([scipy.special.softmax(0.5 * member[0] + 2 * other[0, 0]) for member in members], axis=0)
    np.testing.assert_allclose(pool([members, other], [0.5, 2.0]), [expected], rtol=1e-6)
