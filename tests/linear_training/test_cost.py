"""How much of the work of a fit is done."""

from __future__ import annotations

import pytest

from encoder_cls.linear_training.cost import (
    count_work,
    counting_at,
    expect_work,
    reporting_progress,
)


def test_work_of_cheaper_features_counts_less():
    shares: list[float] = []

    with reporting_progress(shares.append):
        expect_work(30)
        with counting_at(0.25):
            expect_work(40)
            count_work(20)
        count_work(30)

    assert shares == pytest.approx([0.125, 0.875])


def test_work_that_is_expected_later_lowers_the_share_again():
    shares: list[float] = []

    with reporting_progress(shares.append):
        expect_work(1)
        count_work(1)
        expect_work(3)
        count_work(1)

    assert shares == pytest.approx([1.0, 0.5])


def test_the_work_of_a_fit_for_which_nobody_waits_is_not_reported():
    shares: list[float] = []
    with reporting_progress(shares.append):
        pass

    expect_work(1)
    with counting_at(0.5):
        count_work(1)

    assert shares == []
