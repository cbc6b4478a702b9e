"""Guarantees: exact bounds, tests in a fixed sequence, and sets that have the label as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.classifier.guarantees import THRESHOLDS, Guarantees


def draw(random, texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of three classes, and labels that are as often right as these say."""
    probabilities = random.dirichlet([0.3, 0.3, 0.3], size=texts)
    labels = (probabilities.cumsum(axis=1) < random.random((texts, 1))).sum(axis=1)
    return probabilities, np.minimum(labels, 2)


def test_a_guarantee_fails_for_one_model_in_ten_at_most():
    """Of 300 held-out samples; measured on very many texts. Without a bound it would be every second one."""
    random = np.random.default_rng(0)
    many = Guarantees.of(*draw(random, 200_000))
    precision = dict(zip(THRESHOLDS, many.right / many.answers, strict=True))
    broken = plain = promised = 0
    for _ in range(300):
        guarantees = Guarantees.of(*draw(random, 400))
        threshold = guarantees.precision_threshold(0.9)
        broken += threshold is not None and precision[threshold] < 0.9
        promised += threshold is not None
        reached = np.flatnonzero(guarantees.right >= 0.9 * guarantees.answers)
        plain += precision[THRESHOLDS[reached[0]]] < 0.9
    assert broken <= 300 * (0.1 + 3 * (0.09 / 300) ** 0.5)
    assert plain > 100
    assert promised > 200


def test_sets_have_the_label_as_often_as_guaranteed():
    """Over many samples, and hardly more often; sets of so many held-out texts cannot guarantee more."""
    random = np.random.default_rng(1)
    many, labels = draw(random, 20_000)
    found = []
    for _ in range(200):
        threshold = Guarantees.of(*draw(random, 99)).coverage_threshold(0.9)
        assert threshold is not None
        found.append((many[np.arange(len(labels)), labels] >= threshold).mean())
    assert 0.895 < np.mean(found) < 0.925
    few = Guarantees.of(*draw(random, 9))
    assert few.coverage_threshold(0.9) is not None
    assert few.coverage_threshold(0.91) is None
    assert few.highest_coverage == 0.9


def test_few_texts_guarantee_little():
    sure = np.tile([0.9, 0.1], (10, 1))
    guarantees = Guarantees.of(sure, np.zeros(10, dtype=int))
    assert guarantees.precision_threshold(0.95) is None
    assert guarantees.highest_precision == pytest.approx(0.1**0.1, abs=0.001)
    assert guarantees.precision_threshold(guarantees.highest_precision) is not None
    wrong = Guarantees.of(sure, np.ones(10, dtype=int))
    assert wrong.highest_precision == 0
    assert wrong.precision_threshold(0.5) is None


def test_a_label_that_training_never_shows_is_not_right_and_in_no_set():
    """Of 100 texts five have one: no more than 95% can be right, or covered, whatever the threshold."""
    labels = np.arange(100) % 2
    probabilities = np.where(np.arange(2) == labels[:, None], 0.99, 0.01)
    labels[:5] = 2
    guarantees = Guarantees.from_json(Guarantees.of(probabilities, labels).to_json())
    assert (guarantees.num_texts, guarantees.right[0], guarantees.covered[0]) == (100, 95, 95)
    assert guarantees.precision_threshold(0.95) is None
    assert guarantees.coverage_threshold(0.94) is not None
    assert guarantees.coverage_threshold(0.95) is None
    assert guarantees.highest_coverage == 0.94


def test_one_wrong_label_among_the_surest_answers_does_not_end_it():
    confidence = np.linspace(0.999, 0.6, 2000)
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    labels = np.zeros(2000, dtype=int)
    labels[:3] = 1
    threshold = Guarantees.of(probabilities, labels).precision_threshold(0.98)
    assert threshold is not None
    assert threshold <= 0.6


def test_certainty_is_not_guaranteed():
    guarantees = Guarantees.of(*draw(np.random.default_rng(2), 400))
    assert guarantees.precision_threshold(1.0) is None
    assert guarantees.coverage_threshold(1.0) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values | {"right": values["answers"][:-1]},
        lambda values: values | {"right": values["covered"][::-1]},
        lambda values: values | {"right": [count + 1 for count in values["right"]]},
        lambda values: values | {"answers": [0.5] * len(THRESHOLDS)},
        lambda values: values | {"covered": [0] * len(THRESHOLDS)},
        lambda values: values | {"covered": [count + 1 for count in values["covered"]]},
        lambda values: {name: [0] * len(THRESHOLDS) for name in values},
        lambda values: values | {"more": []},
    ],
)
def test_a_table_that_contradicts_itself_is_refused(damage):
    values = Guarantees.of(*draw(np.random.default_rng(3), 50)).to_json()
    assert Guarantees.from_json(values).to_json() == values
    with pytest.raises(ValueError, match=r"guarantees|inhomogeneous"):
        Guarantees.from_json(damage(values))
