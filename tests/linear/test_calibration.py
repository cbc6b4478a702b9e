"""Scales, shifts and thresholds: those that made the labels are fitted; few examples move little."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import log_loss

from encoder_cls.linear import calibration
from encoder_cls.linear.calibration import (
    MAX_SCALE,
    MAX_SHIFT,
    MIN_WEIGHT,
    effective_size,
    fit_inverse_temperature,
    fit_mixture_weights,
    fit_platt,
    fit_platt_per_label,
    fit_thresholds,
    folds,
    targets_of,
    weights_like_pool,
)
from encoder_cls.metrics.classification import (
    ClassCounts,
    best_f1_threshold,
    cross_entropy,
    one_hot,
)
from encoder_cls.metrics.logits import combine_logits, log_sigmoid, sigmoid, softmax

LOGITS = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 5)),
    elements=st.floats(-1e4, 1e4, width=32),
)


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
    np.testing.assert_allclose(
        probabilities, scipy.special.softmax(logits.astype(np.float64), axis=-1), atol=1e-12
    )
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1)
    assert softmax(logits[0]).tolist() == probabilities[0].tolist()


def test_cross_entropy_is_scikit_learn_s():
    """The mean of -ln p of the labels; one text with probability 0 cannot make all others count for nothing."""
    logits, labels = draw(1.0, texts=200)
    probabilities = softmax(logits)
    assert cross_entropy(probabilities, one_hot(labels, probabilities.shape[1])) == pytest.approx(
        log_loss(labels, probabilities)
    )
    target = np.array([[0.0, 1.0]])
    likely = np.array([[0.25, 0.75]])
    impossible = np.array([[1.0, 0.0]])
    assert cross_entropy(likely, target) == pytest.approx(-np.log(0.75))
    assert 20 < cross_entropy(impossible, target) < 100


@pytest.mark.parametrize("temperature", [0.25, 0.8, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_temperature_that_made_the_labels_is_fitted(temperature, classes):
    """Overconfident or underconfident logits: within a tenth of the truth from twenty thousand texts."""
    logits, labels = draw(temperature, classes=classes)
    assert 1 / fit_inverse_temperature(logits, labels) == pytest.approx(temperature, rel=0.1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(logits=LOGITS, seed=st.integers(0, 99))
def test_scales_are_bounded_and_change_no_prediction(logits, seed):
    """For any logits and labels, however few or foolish; the logarithms of sigmoids stay finite."""
    labels = np.random.default_rng(seed).integers(0, logits.shape[1], size=len(logits))
    scale = fit_inverse_temperature(logits, labels)
    assert 1 / MAX_SCALE <= scale <= MAX_SCALE
    scaled = combine_logits([logits], [scale])
    best = np.take_along_axis(scaled, logits.argmax(axis=1)[:, None], axis=1)
    assert (best == scaled.max(axis=1, keepdims=True)).all()
    scale, shift = fit_platt(logits, labels)
    assert 1 / MAX_SCALE <= scale <= MAX_SCALE * (1 + 1e-9)
    assert abs(shift) <= MAX_SHIFT
    assert np.isfinite(log_sigmoid(logits * scale + shift)).all()


def test_labels_that_are_all_right_make_as_certain_as_one_more_text_that_is_anyones_guess():
    """60 right texts of 3 classes are 60 1/3 in 61, not certainty; wrong ones give the least scale."""
    labels = np.arange(60) % 3
    logits = np.eye(3, dtype=np.float32)[labels]
    confidence = softmax(logits * fit_inverse_temperature(logits, labels)).max(axis=1)
    np.testing.assert_allclose(confidence, (60 + 1 / 3) / 61, rtol=1e-4)
    assert fit_inverse_temperature(-logits, labels) == pytest.approx(1 / MAX_SCALE, rel=1e-3)


def drawn_from_a_sum(scales, *, texts: int = 20_000):
    """Scores of several classifiers, and labels drawn from the softmax of their scaled sum."""
    random = np.random.default_rng(1)
    scores = list(random.standard_normal((len(scales), texts, 3)).astype(np.float32))
    shares = scipy.special.softmax(
        sum(s * score for s, score in zip(scales, scores, strict=True)), axis=1
    )
    return scores, (random.random((texts, 1)) > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)


def test_of_one_that_is_calibrated_few_labels_change_little():
    """The scale is between 1 and what the labels say: near 1 of 12 of them, near that of 3,000."""
    logits, labels = draw(2.0, texts=3000)
    (of_few,), (of_many,) = (fit_mixture_weights([logits[:n]], labels[:n])[0] for n in (12, 3000))
    assert abs(fit_inverse_temperature(logits[:12], labels[:12]) - 1) > 2 * abs(of_few - 1)
    assert of_many == pytest.approx(fit_inverse_temperature(logits, labels), rel=0.02)


def test_the_scales_that_made_the_labels_are_fitted():
    """Of three classifiers, of which one knows nothing; many labels overcome all caution."""
    scores, labels = drawn_from_a_sum([2.0, 0.0, 0.5])
    scales, parts = fit_mixture_weights(scores, labels)
    assert scales == pytest.approx([2.0, 0.0, 0.5], abs=0.05)
    assert sum(parts) == pytest.approx(1)
    assert min(parts) == parts[1] < 0.1


def test_few_labels_hardly_speak_against_the_last_classifier():
    """One that knows nothing has the larger share by 12 labels, and none by 3,000."""
    scores, labels = drawn_from_a_sum([2.0, 0.0], texts=3000)
    of_few, of_many = (
        fit_mixture_weights([score[:n] for score in scores], labels[:n])[1] for n in (12, 3000)
    )
    assert of_few[1] > 0.5
    assert of_many[1] < 0.05


def test_what_misleads_in_company_keeps_a_least_part():
    """A classifier that is right, and only says so louder than another: no scale is zero or below."""
    scores, labels = drawn_from_a_sum([1.0], texts=3000)
    noisy = scores[0] + np.random.default_rng(2).standard_normal(scores[0].shape).astype(np.float32)
    scales, parts = fit_mixture_weights([noisy, scores[0]], labels)
    assert min(scales) > 0
    assert parts[0] < 0.05
    assert parts[0] >= MIN_WEIGHT / MAX_SCALE


def test_scale_and_shift_of_float32_margins_have_the_lowest_loss():
    """On a fine grid around them: in float32 a loss has no slope to follow."""
    random = np.random.default_rng(0)
    margins = random.normal(size=(300, 4)).astype(np.float32)

    def probabilities(numbers):
        return softmax(log_sigmoid(combine_logits([margins], numbers[:1]) + numbers[1]))

    # Draw a class for each text: as many as there are upper bounds below a random number.
    upper_bounds = probabilities((3.0, -0.7)).cumsum(axis=1)[:, :-1]
    labels = (random.random((300, 1)) > upper_bounds).sum(axis=1)
    targets = targets_of(labels, 4)
    found = fit_platt(margins, labels)
    steps = itertools.product([-0.3, -0.01, -0.001, 0, 0.001, 0.01, 0.3], repeat=2)
    losses = [cross_entropy(probabilities(found + np.array(step)), targets) for step in steps]
    assert cross_entropy(probabilities(found), targets) <= min(losses) + 1e-8


def test_a_student_and_its_teacher_are_expected_to_count_alike():
    """One text says little: shares stay near a half; a thousand say which of both is right."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 1000)
    teacher = 2 * np.eye(3)[labels] + random.normal(size=(1000, 3))
    student = random.normal(size=(1000, 3))
    _, few = fit_mixture_weights([student[:1], teacher[:1]], labels[:1], expects_equal_shares=True)
    _, many = fit_mixture_weights([student, teacher], labels, expects_equal_shares=True)
    _, alone = fit_mixture_weights([student[:1], teacher[:1]], labels[:1])
    assert few[0] == pytest.approx(0.5, abs=0.1)
    assert alone[0] < 0.2
    assert many[0] < 0.1


SCALES, SHIFTS = np.array([2.0, 2.0, 0.5, 2.0]), np.array([-1.0, -1.0, 0.0, -1.0])


def drawn_labels(texts: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Margins, and labels that are as probable as `SCALES` and `SHIFTS` have it."""
    random = np.random.default_rng(seed)
    margins = random.normal(-0.5, 1, size=(texts, len(SCALES))).astype(np.float32)
    return margins, (random.random(margins.shape) < sigmoid(margins * SCALES + SHIFTS)).astype(
        np.int8
    )


def test_each_label_has_the_scale_and_the_shift_that_many_examples_show():
    """Also where they differ from those of the others; few examples leave them near these."""
    margins, labels = drawn_labels(20_000)
    scales, shifts = fit_platt_per_label(margins, labels)
    assert scales == pytest.approx(SCALES, rel=0.1)
    assert shifts == pytest.approx(SHIFTS, abs=0.1)
    few, _ = fit_platt_per_label(margins[:10], labels[:10])
    assert np.ptp(few) < np.ptp(scales) / 2


@pytest.mark.parametrize("value", [0, 1])
def test_a_label_that_all_or_no_text_has_gets_a_finite_scale(value):
    """As likely as one more text would leave it."""
    margins, labels = drawn_labels(200)
    labels[:, 0] = value
    scales, shifts = fit_platt_per_label(margins, labels)
    assert np.isfinite([*scales, *shifts]).all()
    thresholds = fit_thresholds(
        (margins * scales + shifts).astype(np.float32), labels, np.arange(200)
    )
    assert ((thresholds >= 0) & (thresholds <= 1)).all()


def test_mixture_weights_and_temperature_are_those_of_all_labels():
    """Logits that are twice too large are halved; a part of noise gets next to no weight."""
    margins, labels = drawn_labels(20_000)
    logits = (margins * SCALES + SHIFTS).astype(np.float32)
    assert fit_inverse_temperature(2 * logits, labels) == pytest.approx(0.5, rel=0.05)
    noise = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    weights, shares = fit_mixture_weights([noise, logits], labels)
    assert weights[1] == pytest.approx(1, rel=0.05)
    assert shares[0] < 0.05


def test_thresholds_of_rare_labels_do_not_overfit():
    """On new texts they are better than each label's own best ones, and about as good as one for all in micro-F1."""
    random = np.random.default_rng(0)
    rates = np.array([0.3, 0.1, *[0.006] * 10])
    base = np.log(rates / (1 - rates))

    def texts(number: int) -> tuple[np.ndarray, np.ndarray]:
        logits = base + 1.6 * random.normal(size=(number, len(rates)))
        return logits.astype(np.float32), (random.random(logits.shape) < sigmoid(logits)).astype(
            np.int8
        )

    logits, labels = texts(800)
    new_logits, new_labels = texts(20_000)
    own = [best_f1_threshold(*of_label) for of_label in zip(logits.T, labels.T, strict=True)]
    common = max(np.linspace(-3, 1, 81), key=lambda t: ClassCounts.of(logits >= t, labels).micro_f1)
    found = ClassCounts.of(
        sigmoid(new_logits) >= fit_thresholds(logits, labels, np.arange(800)), new_labels
    )
    assert found.micro_f1 > ClassCounts.of(new_logits >= np.array(own), new_labels).micro_f1 + 0.005
    assert found.micro_f1 > ClassCounts.of(new_logits >= common, new_labels).micro_f1 - 0.02
    assert found.macro_f1 > ClassCounts.of(new_logits >= common, new_labels).macro_f1 + 0.05


def test_repeated_texts_do_not_choose_the_rule(monkeypatch):
    """They are in one fold of the cross-validation."""
    logits, labels = (np.repeat(it, 5, axis=0) for it in drawn_labels(40))
    parts = []
    monkeypatch.setattr(calibration, "folds", lambda them: parts.extend(folds(them)) or parts)
    texts = np.repeat(np.arange(40), 5)
    fit_thresholds(logits, labels, texts)
    sampled = texts[np.random.default_rng(0).permutation(200)]
    assert sum(len(set(sampled[part])) for part in parts) == 40


def test_weighted_texts_have_the_confidences_of_all_texts():
    """Whatever the confidence of those that were chosen; of a random choice all weigh about the same."""
    random = np.random.default_rng(0)
    pool = random.random(4000)
    drawn = random.random(200)
    unsure = 0.3 * random.random(200)
    chosen = np.concatenate([drawn, unsure])
    weights = weights_like_pool(chosen, pool, pool_size=4000)
    assert weights.mean() == pytest.approx(1)
    assert chosen.mean() < 0.36
    assert np.average(chosen, weights=weights) == pytest.approx(0.5, abs=0.03)
    assert 200 < effective_size(weights) < 360
    assert weights_like_pool(drawn, pool, pool_size=4000) == pytest.approx(np.ones(200), abs=0.3)
    # Where nearly all texts have a label, those with one are as all are.
    assert weights_like_pool(chosen, pool[:40], pool_size=40) == pytest.approx(
        np.ones(400), abs=0.2
    )


def test_without_a_pool_or_with_too_few_labels_all_texts_weigh_the_same():
    for number, size in ((200, 0), (39, 500)):
        confidence = np.linspace(0, 0.2, number)
        weights = weights_like_pool(confidence, np.linspace(0, 1, size), pool_size=size)
        assert weights.tolist() == [1.0] * number


def test_a_weight_of_a_text_counts_as_so_many_texts_in_calibration():
    logits, labels = draw(2.0, texts=2000)
    weights = 1.0 + (np.arange(2000) % 2)
    repeated = np.repeat(np.arange(2000), weights.astype(int))
    even = weights / weights.mean()
    expected = fit_inverse_temperature(logits[repeated], labels[repeated])
    assert fit_inverse_temperature(logits, labels, even) == pytest.approx(expected, rel=2e-3)
    margins = log_sigmoid(logits.astype(np.float64))
    assert fit_platt(margins, labels, even) == pytest.approx(
        fit_platt(margins[repeated], labels[repeated]), rel=2e-2
    )
