"""Weights of a mixture: those that made the labels are fitted; few labels move them little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.special
from support.labels import (
    SCALES,
    SHIFTS,
    draw_classes,
    logits_and_labels,
    margins_and_labels,
)

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.mixture_weights import MIN_SHARE, fit_mixture_weights
from encoder_cls.linear_training.calibration import MAX_SCALE, fit_inverse_temperature
from encoder_cls.metrics.row_groups import RowGroups


def labels_of_a_sum(
    scales: Sequence[float], *, num_texts: int = 20_000
) -> tuple[list[np.ndarray], np.ndarray]:
    """Logits of several classifiers, and labels drawn from the softmax of their scaled sum."""
    random = np.random.default_rng(1)
    logits = list(random.standard_normal((len(scales), num_texts, 3)).astype(np.float32))

    scaled_sum = np.zeros((num_texts, 3))
    for scale, part in zip(scales, logits, strict=True):
        scaled_sum += scale * part
    probabilities = scipy.special.softmax(scaled_sum, axis=1)
    return logits, draw_classes(probabilities, random)


def test_of_a_classifier_that_is_calibrated_few_labels_change_little():
    """The scale lies between 1 and what the labels say."""
    logits, labels = logits_and_labels(2.0, num_texts=3000)

    (with_few,), _ = fit_mixture_weights([logits[:12]], labels[:12], RowGroups.single(12))
    (with_many,), _ = fit_mixture_weights([logits], labels, RowGroups.single(len(labels)))

    by_few_labels = fit_inverse_temperature(logits[:12], labels[:12])
    assert abs(by_few_labels - 1) > 2 * abs(with_few - 1)
    assert with_many == pytest.approx(fit_inverse_temperature(logits, labels), rel=0.02)


def test_the_mixture_weights_that_made_the_labels_are_fitted():
    """The second of three classifiers knows nothing; many labels overcome all caution."""
    logits, labels = labels_of_a_sum([2.0, 0.0, 0.5])

    weights, shares = fit_mixture_weights(logits, labels, RowGroups.single(len(labels)))

    assert weights == pytest.approx([2.0, 0.0, 0.5], abs=0.05)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) == shares[1] < 0.1


def test_few_labels_hardly_speak_against_the_last_classifier():
    """It knows nothing. With 12 labels it has the larger share, and with 3,000 labels none."""
    logits, labels = labels_of_a_sum([2.0, 0.0], num_texts=3000)

    _, with_few = fit_mixture_weights(
        [part[:12] for part in logits], labels[:12], RowGroups.single(12)
    )
    _, with_many = fit_mixture_weights(logits, labels, RowGroups.single(len(labels)))

    assert with_few[1] > 0.5
    assert with_many[1] < 0.05


def test_a_classifier_that_misleads_keeps_a_least_share():
    logits, labels = labels_of_a_sum([1.0], num_texts=3000)
    noise = np.random.default_rng(2).standard_normal(logits[0].shape).astype(np.float32)

    weights, shares = fit_mixture_weights(
        [logits[0] + noise, logits[0]], labels, RowGroups.single(len(labels))
    )

    assert min(weights) > 0
    assert MIN_SHARE / MAX_SCALE <= shares[0] < 0.05


def test_a_student_and_its_teacher_are_expected_to_have_equal_shares():
    """One text says little, so shares stay near a half; a thousand say which of both is right."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 1000)
    teacher = 2 * np.eye(3)[labels] + random.normal(size=(1000, 3))
    student = random.normal(size=(1000, 3))

    _, with_one = fit_mixture_weights(
        [student[:1], teacher[:1]], labels[:1], RowGroups.single(1), expects_equal_shares=True
    )
    _, with_many = fit_mixture_weights(
        [student, teacher], labels, RowGroups.single(len(labels)), expects_equal_shares=True
    )
    _, of_strangers = fit_mixture_weights(
        [student[:1], teacher[:1]], labels[:1], RowGroups.single(1)
    )

    assert with_one[0] == pytest.approx(0.5, abs=0.1)
    assert with_many[0] < 0.1
    assert of_strangers[0] < 0.2


def test_with_several_labels_noise_gets_next_to_no_weight():
    margins, labels = margins_and_labels(20_000)
    logits = (margins * SCALES + SHIFTS).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)

    weights, shares = fit_mixture_weights([noise, logits], labels, RowGroups.single(len(labels)))

    assert weights[1] == pytest.approx(1, rel=0.05)
    assert shares[0] < 0.05


def test_the_mixture_is_the_mean_of_its_parts_alone_weighted_by_their_shares():
    logits, _ = labels_of_a_sum([1.0, 1.0], num_texts=9)
    part_logits = dict(zip(("encoder", "linear"), logits, strict=True))
    mixture = Mixture(
        weights={"encoder": 0.6, "linear": 1.2}, shares={"encoder": 0.25, "linear": 0.75}
    )

    alone = mixture.parts_alone(part_logits)

    mean = 0.25 * alone["encoder"] + 0.75 * alone["linear"]
    np.testing.assert_allclose(mean, mixture.combined(part_logits), rtol=1e-5)


def test_a_part_alone_is_finite_without_a_share_and_keeps_its_weight_if_shares_are_unknown():
    logits = np.array([[1.0, -2.0]], dtype=np.float32)
    weights = {"encoder": 3.0}

    without_share = Mixture(weights=weights, shares={"encoder": 0.0})
    unknown = Mixture(weights=weights)

    assert np.isfinite(without_share.parts_alone({"encoder": logits})["encoder"]).all()
    assert unknown.parts_alone({"encoder": logits})["encoder"].tolist() == [[3.0, -6.0]]
