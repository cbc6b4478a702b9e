"""Detection of texts that are unlike those held out."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.classifier.familiarity import FEWEST_TEXTS, Familiarity


def test_a_hundredth_of_the_usual_texts_is_flagged_and_strange_ones_are():
    """A number that is always the same says nothing."""
    random = np.random.default_rng(0)
    constant = np.ones((500, 1))
    numbers = np.hstack([random.normal(size=(500, 3)), constant, random.normal(size=(500, 1))])
    familiarity = Familiarity.of(numbers)
    assert familiarity.are_unfamiliar(numbers).sum() == 5

    # Large numbers are unusual, small ones are not.
    large = [9.0, 9, 9, 1, 0]
    small = [-9.0, -9, -9, 1, -9]
    large_at_the_end = [0.0, 0, 0, 5, 9]
    found = familiarity.are_unfamiliar(np.array([large, small, large_at_the_end]))
    assert found.tolist() == [True, False, True]


def test_few_texts_do_not_show_what_is_usual():
    numbers = np.random.default_rng(0).normal(size=(50, 5))
    assert Familiarity.of(numbers[: FEWEST_TEXTS - 1]) is None
    assert not Familiarity.of(numbers).are_unfamiliar(numbers).any()


def test_evidence_counts_on_both_sides():
    """The first two of twelve numbers are evidence, which makes strange words familiar."""
    numbers = np.random.default_rng(0).normal(size=(500, 12))
    is_evidence = np.arange(12) < 2
    familiarity = Familiarity.of(numbers)
    few = numbers[:9]

    assert familiarity.are_unfamiliar(few + 9 * is_evidence).all()
    rare = few + 9 * ~is_evidence
    assert familiarity.are_unfamiliar(rare).all()
    assert not familiarity.are_unfamiliar(rare - 99 * is_evidence).any()


def test_what_is_saved_is_what_is_read():
    numbers = np.random.default_rng(0).normal(size=(500, 12))
    familiarity = Familiarity.of(numbers)
    read = Familiarity.from_json(familiarity.to_json(), has_linear=True)
    assert read.are_unfamiliar(numbers).sum() == 5


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
def test_numbers_that_do_not_fit_the_model_are_refused(values, message):
    saved = {"means": [0.0] * 12, "deviations": [1.0] * 12, "threshold": 5.0}
    assert Familiarity.from_json(saved, has_linear=True).to_json() == saved
    with pytest.raises(ValueError, match=message):
        Familiarity.from_json(saved | values, has_linear=True)
    with pytest.raises(ValueError, match=r"familiarity\.means"):
        Familiarity.from_json(saved, has_linear=False)
