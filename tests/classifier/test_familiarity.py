"""Detection of texts that are unlike those held out."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.classifier.familiarity import MIN_TEXTS, Familiarity


def usual_numbers() -> np.ndarray:
    """The five features of 500 texts; the fourth feature is always 1."""
    random = np.random.default_rng(0)
    constant = np.ones((500, 1))
    return np.hstack([random.normal(size=(500, 3)), constant, random.normal(size=(500, 1))])


def test_a_hundredth_of_the_usual_texts_is_flagged():
    numbers = usual_numbers()

    assert Familiarity.of(numbers).are_unfamiliar(numbers).sum() == 5


@pytest.mark.parametrize(
    ("numbers", "is_unfamiliar"),
    [
        ([9.0, 9, 9, 1, 0], True),
        ([-9.0, -9, -9, 1, -9], False),
        ([0.0, 0, 0, 5, 9], True),
        ([0.0, 0, 0, 99, 0], False),
    ],
    ids=["large", "small", "large at the end", "another constant"],
)
def test_large_numbers_are_unusual(numbers, is_unfamiliar):
    """Small deviations do not make a text unfamiliar, and a constant feature says nothing."""
    familiarity = Familiarity.of(usual_numbers())

    assert familiarity.are_unfamiliar(np.array([numbers])).tolist() == [is_unfamiliar]


def test_few_texts_do_not_show_what_is_usual():
    numbers = np.random.default_rng(0).normal(size=(50, 5))

    assert Familiarity.of(numbers[: MIN_TEXTS - 1]) is None
    assert not Familiarity.of(numbers).are_unfamiliar(numbers).any()


def test_evidence_counts_on_both_sides():
    """The first two of twelve features are evidence, which makes strange words familiar."""
    numbers = np.random.default_rng(0).normal(size=(500, 12))
    is_evidence = np.arange(12) < 2
    usual = numbers[:9]
    without_evidence = usual + 9 * is_evidence
    rare = usual + 9 * ~is_evidence
    rare_with_evidence = rare - 99 * is_evidence

    familiarity = Familiarity.of(numbers)

    assert familiarity.are_unfamiliar(without_evidence).all()
    assert familiarity.are_unfamiliar(rare).all()
    assert not familiarity.are_unfamiliar(rare_with_evidence).any()


def test_what_is_saved_is_what_is_read():
    numbers = np.random.default_rng(0).normal(size=(500, 12))
    familiarity = Familiarity.of(numbers)

    read = Familiarity.from_json(familiarity.to_json(), has_linear=True)

    assert read.are_unfamiliar(numbers).sum() == 5


# The values of a classifier with a linear model.
SAVED = {"means": [0.0] * 12, "deviations": [1.0] * 12, "threshold": 5.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"means": [0.0] * 11}, r"familiarity\.means: .*expected 12 finite numbers"),
        ({"means": [0.0] * 11 + [float("inf")]}, r"familiarity\.means"),
        ({"deviations": [1.0] * 13}, r"familiarity\.deviations"),
        ({"deviations": [1.0] * 11 + [-1.0]}, r"familiarity\.deviations: .*none below 0"),
        ({"threshold": float("nan")}, r"familiarity\.threshold"),
    ],
)
def test_numbers_that_no_model_has_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Familiarity.from_json(SAVED | values, has_linear=True)


def test_numbers_of_other_parts_are_refused():
    assert Familiarity.from_json(SAVED, has_linear=True).to_json() == SAVED

    with pytest.raises(ValueError, match=r"familiarity\.means"):
        Familiarity.from_json(SAVED, has_linear=False)
