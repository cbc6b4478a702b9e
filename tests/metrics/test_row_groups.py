"""Rows that belong together count as the independent rows that they are worth."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.metrics.row_groups import RowGroups


def test_rows_on_their_own_all_count():
    groups = RowGroups.single(5)

    assert (groups.num_rows, groups.num_groups, groups.are_single) == (5, 5, True)
    assert groups.effective_number(np.array([1, 1, 0, 1, 0])) == 5
    assert groups.weights().tolist() == [1] * 5


def test_copies_count_once():
    groups = RowGroups(np.repeat(np.arange(30), 20))
    is_right = np.repeat(np.arange(30) % 3 > 0, 20)

    assert (groups.num_rows, groups.num_groups) == (600, 30)
    assert groups.correlation(is_right) == pytest.approx(1)
    assert 26 < groups.effective_number(is_right) < 30
    assert groups.weights().sum() == pytest.approx(30)


def test_a_group_of_most_rows_counts_as_one_row_where_its_rows_are_alike():
    groups = RowGroups(np.array([0] * 90 + list(range(1, 11))))

    # At most (sum of sizes)^2 / (sum of squared sizes), by Kish.
    assert groups.effective_number(np.ones(100)) < 100**2 / (90**2 + 10)


def test_values_without_correlation_all_count():
    groups = RowGroups(np.repeat(np.arange(200), 5))
    values = np.tile([1, 0, 1, 1, 0], 200)

    assert groups.effective_number(values) == 1000


def test_the_intraclass_correlation_is_found():
    random = np.random.default_rng(0)
    groups = RowGroups(random.permutation(np.repeat(np.arange(2000), random.integers(1, 12, 2000))))
    shared = random.standard_normal(groups.num_groups)[groups.numbers]
    values = np.sqrt(0.3) * shared + np.sqrt(0.7) * random.standard_normal(groups.num_rows)

    assert groups.correlation(values) == pytest.approx(0.3, abs=0.03)


def test_sums_and_subsets_go_by_group():
    groups = RowGroups(np.array([7, -3, 7, 5]))

    assert groups.sums(np.array([1, 2, 3, 4])).tolist() == [2, 4, 4]
    assert groups.sums(np.array([True, True, True, False])).tolist() == [1, 0, 2]
    assert groups.subset(np.array([0, 1])).num_groups == 2
    assert groups.subset(np.array([True, False, True, False])).num_groups == 1
    assert RowGroups.single(3).sums(np.array([[1, 2], [3, 4], [5, 6]])).tolist() == [
        [1, 2],
        [3, 4],
        [5, 6],
    ]
