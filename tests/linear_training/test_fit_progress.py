"""How much of the work of a fit is done."""

from __future__ import annotations

import pytest

from encoder_cls.linear_training.cost import UNREPORTED, FitProgress


def test_a_part_counts_its_own_work_as_a_share_of_the_whole():
    """A part of a quarter of the work counts four texts of its own, whatever one of them costs."""
    shares: list[float] = []
    whole = FitProgress(shares.append)
    whole.expect(30)
    part = whole.part(10)

    whole.add(30)
    part.expect(4)
    part.add(1)
    part.add(3)

    assert shares == pytest.approx([0.75, 0.8125, 1.0])


def test_work_that_a_part_expects_later_lowers_the_share_again():
    shares: list[float] = []
    part = FitProgress(shares.append).part(10)

    part.expect(1)
    part.add(1)
    part.expect(3)
    part.add(1)

    assert shares == pytest.approx([1.0, 0.5])


def test_a_part_of_a_fit_for_which_nobody_waits_is_not_reported():
    part = UNREPORTED.part(10)
    part.expect(1)
    part.add(1)
    assert part is UNREPORTED
