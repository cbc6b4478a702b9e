"""The steps of self-training: class shares, alignment of margins, and the surest predictions."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.linear_training.self_training import align_margins, choose_surest, shrunk_shares


@pytest.mark.parametrize("counts", [[10, 10, 10], [11, 10, 9]], ids=str)
def test_shares_of_nearly_equal_counts_are_equal(counts):
    assert shrunk_shares(np.array(counts)) == pytest.approx([1 / 3] * 3)


def test_shares_of_counts_far_apart_are_hardly_shrunk():
    assert shrunk_shares(np.array([900, 90, 10])) == pytest.approx([0.9, 0.09, 0.01], abs=0.01)


def test_shares_are_shrunk_as_far_as_chance_explains_their_differences():
    shares = shrunk_shares(np.array([35, 15, 10]))

    # Chance explains the degrees of freedom over the chi-square of the counts against 20 each.
    chi_square = (15**2 + 5**2 + 10**2) / 20
    chance = 2 / chi_square
    assert shares[0] == pytest.approx(chance / 3 + (1 - chance) * 35 / 60)


def test_margins_are_shifted_until_predictions_have_the_shares():
    margins = np.random.default_rng(0).normal([0.8, 0, 0], size=(3000, 3))
    shares = np.array([0.2, 0.3, 0.5])

    shifted = align_margins(margins, shares)

    found_shares = np.bincount(shifted.argmax(axis=1)) / 3000
    assert found_shares == pytest.approx(shares, abs=0.03)

    # All margins of a class are shifted alike.
    shifts = shifted - margins
    assert shifts.std(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


# A row for each text; its lead is the difference between its two largest margins.
MARGINS = np.array(
    [
        [0.1, 0, 0],
        [5, 4.9, 0],
        [1, 0, 0],
        [2, 0, 1.5],
        [0, 0.2, 0],
        [0, 0.1, 0],
    ]
)


def test_the_surest_texts_of_each_class_have_the_largest_leads_over_the_second():
    chosen, predictions = choose_surest(MARGINS, 0.5)

    assert sorted(chosen) == [2, 3, 4]
    assert sorted(predictions) == [0, 0, 1]


def test_at_least_one_text_of_each_class_is_chosen():
    chosen, _ = choose_surest(MARGINS, 0.01)

    assert sorted(chosen) == [2, 4]


def test_a_share_of_1_chooses_all_texts():
    chosen, _ = choose_surest(MARGINS, 1.0)

    assert sorted(chosen) == list(range(6))
