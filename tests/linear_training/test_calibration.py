"""Calibration fits the scales and shifts that made the labels; few examples change little."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from support.labels import (
    SCALES,
    SHIFTS,
    draw_classes,
    logits_and_labels,
    margins_and_labels,
)

from encoder_cls.linear_training.calibration import (
    MAX_SCALE,
    MAX_SHIFT,
    calibrate,
    fit_inverse_temperature,
    fit_platt,
    fit_platt_per_label,
    smoothed_targets,
)
from encoder_cls.metrics.log_loss import cross_entropy, one_hot
from encoder_cls.metrics.logits import combine_logits, log_sigmoid, softmax
from encoder_cls.metrics.row_groups import RowGroups

Floats = NDArray[np.floating]

LOGITS = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 5)),
    elements=st.floats(-1e4, 1e4, width=32),
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(logits=LOGITS)
def test_softmax_is_scipy_s(logits):
    """They are equal even if the exponentials of the logits overflow."""
    expected = scipy.special.softmax(logits.astype(np.float64), axis=-1)

    probabilities = softmax(logits)

    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities, expected, atol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1)
    assert softmax(logits[0]).tolist() == probabilities[0].tolist()


def test_cross_entropy_is_scikit_learn_s():
    logits, labels = logits_and_labels(1.0, num_texts=200)
    probabilities = softmax(logits)
    targets = one_hot(labels, probabilities.shape[1])

    assert cross_entropy(probabilities, targets) == pytest.approx(log_loss(labels, probabilities))


def test_a_text_with_probability_0_does_not_make_all_others_count_for_nothing():
    target = np.array([[0.0, 1.0]])
    likely = np.array([[0.25, 0.75]])
    impossible = np.array([[1.0, 0.0]])

    assert cross_entropy(likely, target) == pytest.approx(-np.log(0.75))
    assert 20 < cross_entropy(impossible, target) < 100


@pytest.mark.parametrize("temperature", [0.25, 0.8, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("num_classes", [2, 7])
def test_the_temperature_that_made_the_labels_is_fitted(temperature, num_classes):
    logits, labels = logits_and_labels(temperature, num_classes=num_classes)

    fitted = 1 / fit_inverse_temperature(logits, labels)

    assert fitted == pytest.approx(temperature, rel=0.1)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(logits=LOGITS, seed=st.integers(0, 99))
def test_a_temperature_is_bounded_and_changes_no_prediction(logits, seed):
    """This holds for any logits and labels, even for a few random ones."""
    num_texts, num_classes = logits.shape
    labels = np.random.default_rng(seed).integers(0, num_classes, size=num_texts)

    scale = fit_inverse_temperature(logits, labels)

    assert 1 / MAX_SCALE <= scale <= MAX_SCALE
    scaled = combine_logits([logits], [scale])
    predictions = logits.argmax(axis=1)
    assert np.array_equal(scaled[np.arange(num_texts), predictions], scaled.max(axis=1))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(margins=LOGITS, seed=st.integers(0, 99))
def test_a_scale_and_a_shift_are_bounded_and_keep_logarithms_finite(margins, seed):
    num_texts, num_classes = margins.shape
    labels = np.random.default_rng(seed).integers(0, num_classes, size=num_texts)

    scale, shift = fit_platt(margins, labels)

    assert 1 / MAX_SCALE <= scale <= MAX_SCALE * (1 + 1e-9)
    assert abs(shift) <= MAX_SHIFT
    assert np.isfinite(log_sigmoid(margins * scale + shift)).all()


def test_labels_that_are_all_right_prove_no_certainty():
    """60 correct texts of 3 classes are 60 1/3 of 61: one more text has all classes equally."""
    labels = np.arange(60) % 3
    logits = np.eye(3, dtype=np.float32)[labels]

    scale = fit_inverse_temperature(logits, labels)

    confidence = softmax(logits * scale).max(axis=1)
    np.testing.assert_allclose(confidence, (60 + 1 / 3) / 61, rtol=1e-4)


def test_labels_that_are_all_wrong_give_the_least_scale():
    labels = np.arange(60) % 3
    logits = -np.eye(3, dtype=np.float32)[labels]

    assert fit_inverse_temperature(logits, labels) == pytest.approx(1 / MAX_SCALE, rel=1e-3)


def test_scale_and_shift_of_float32_margins_have_the_lowest_loss():
    """No point of a fine grid around them has a lower loss, which float32 could not resolve."""
    random = np.random.default_rng(0)
    margins = random.normal(size=(300, 4)).astype(np.float32)

    def probabilities(scale: float, shift: float) -> Floats:
        return softmax(log_sigmoid(combine_logits([margins], [scale]) + shift))

    labels = draw_classes(probabilities(3.0, -0.7), random)
    targets = smoothed_targets(labels, 4, len(labels))

    def loss(scale: float, shift: float) -> float:
        return cross_entropy(probabilities(scale, shift), targets)

    scale, shift = fit_platt(margins, labels)

    steps = [-0.3, -0.01, -0.001, 0, 0.001, 0.01, 0.3]
    losses_nearby = []
    for scale_step, shift_step in itertools.product(steps, repeat=2):
        losses_nearby.append(loss(scale + scale_step, shift + shift_step))
    assert loss(scale, shift) <= min(losses_nearby) + 1e-8


def test_each_label_has_the_scale_and_the_shift_that_many_examples_show():
    margins, labels = margins_and_labels(20_000)

    scales, shifts = fit_platt_per_label(margins, labels, np.ones(len(labels)))

    assert scales == pytest.approx(SCALES, rel=0.1)
    assert shifts == pytest.approx(SHIFTS, abs=0.1)


def test_few_examples_leave_the_scales_of_labels_near_each_other():
    margins, labels = margins_and_labels(20_000)
    scales, _ = fit_platt_per_label(margins, labels, np.ones(len(labels)))

    scales_of_few, _ = fit_platt_per_label(margins[:10], labels[:10], np.ones(10))

    assert np.ptp(scales_of_few) < np.ptp(scales) / 2


@pytest.mark.parametrize("value", [0, 1])
def test_a_label_that_all_or_no_text_has_gets_a_finite_scale(value):
    margins, labels = margins_and_labels(200)
    labels[:, 0] = value

    scales, shifts = fit_platt_per_label(margins, labels, np.ones(len(labels)))

    assert np.isfinite(scales).all()
    assert np.isfinite(shifts).all()


def test_the_temperature_of_several_labels_is_that_of_all():
    """Logits that are twice too large are halved."""
    margins, labels = margins_and_labels(20_000)
    logits = (margins * SCALES + SHIFTS).astype(np.float32)

    assert fit_inverse_temperature(2 * logits, labels) == pytest.approx(0.5, rel=0.05)


def test_a_text_with_the_weight_2_counts_as_two_texts_in_calibration():
    logits, labels = logits_and_labels(2.0, num_texts=2000)
    margins = log_sigmoid(logits.astype(np.float64))
    # Every other text counts twice.
    counts = 1 + np.arange(2000) % 2
    weights = counts / counts.mean()
    repeated = np.repeat(np.arange(2000), counts)

    scale = fit_inverse_temperature(logits, labels, weights)
    scale_and_shift = fit_platt(margins, labels, weights)

    expected_scale = fit_inverse_temperature(logits[repeated], labels[repeated])
    expected_scale_and_shift = fit_platt(margins[repeated], labels[repeated])
    assert scale == pytest.approx(expected_scale, rel=2e-3)
    assert scale_and_shift == pytest.approx(expected_scale_and_shift, rel=2e-2)


def test_copies_of_held_out_texts_calibrate_as_single_texts_do():
    """Also the smoothing of targets, and the penalty of rare labels, see one of each."""
    random = np.random.default_rng(8)
    copies = RowGroups(np.repeat(np.arange(12), 20))
    single = RowGroups.single(12)
    weights = np.ones(3, dtype=np.float32)

    for labels in (random.integers(0, 3, 12), random.integers(0, 2, (12, 3)).astype(np.int8)):
        margins = random.normal(size=(12, 3)).astype(np.float32)
        once = calibrate(margins, labels, weights, single)
        copied = calibrate(
            np.repeat(margins, 20, axis=0), np.repeat(labels, 20, axis=0), weights, copies
        )
        assert copied.scale == pytest.approx(once.scale, rel=0.01)
        assert copied.shift == pytest.approx(once.shift, abs=0.01)
        assert copied.loss == pytest.approx(once.loss, rel=0.001)
