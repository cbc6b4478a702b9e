"""Which rows are held out: about the fraction of all, of each class its part, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.data.dataset import Split, equal_texts, group_number, texts_alike
from encoder_cls.data.holdout import FEW_ROWS, rows_to_hold_out

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def mixed(sizes: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(sizes)), sizes))


def held_out(sizes: Sequence[int], fraction: float, seed: int = 0) -> np.ndarray:
    """How many rows of each class are held out."""
    labels = mixed(sizes)
    chosen = rows_to_hold_out(labels, np.arange(len(labels)), fraction=fraction, seed=seed)
    return np.bincount(labels[chosen], minlength=len(sizes))


@pytest.mark.parametrize("sizes", [[50, 50], [50, 400, 73, 1234], [5, 20, 500], [7] * 3 + [900]])
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_of_large_classes_are_those_that_the_first_version_held_out(sizes, seed):
    """So a run that was started then is the same today: of each class the rounded part of its shuffled rows."""
    labels = mixed(sizes)
    random = np.random.default_rng(seed)
    expected = []
    for label, size in enumerate(sizes):
        expected += random.permutation(np.flatnonzero(labels == label))[: max(1, round(0.1 * size))].tolist()
    found = rows_to_hold_out(labels, np.arange(len(labels)), fraction=0.1, seed=seed)
    assert np.flatnonzero(found).tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("sizes", "fraction", "expected"),
    [
        ([2] * 1000, 0.1, 200),
        ([2] * 1000, 0.01, 20),
        ([2] * 1000, 0.5, 1000),
        ([3] * 100, 0.1, 30),
        ([1] * 1000 + [1000], 0.1, 200),
        ([2, 2], 0.1, 1),
        ([1, 2], 0.1, 1),
        ([15] * 100, 0.1, 150),
        ([4, 4], 0.1, 2),  # a quarter of little data: then each class is validated
        ([4] * 12, 0.1, 12),
        ([4] * 100, 0.1, 40),
        ([1] * 10, 0.5, 0),
    ],
)
def test_of_many_small_classes_no_more_is_held_out(sizes, fraction, expected):
    """The fraction of all rows, one at least, where a class has a row to spare."""
    assert held_out(sizes, fraction).sum() == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sizes=SIZES, fraction=st.sampled_from([0.01, 0.1, 0.3, 0.5]), seed=st.integers(0, 3))
def test_about_the_fraction_is_held_out_and_a_row_of_each_class_stays(sizes, fraction, seed):
    """Whatever the sizes, but for a tenth or some rows of little data; and of a larger class no fewer, but for one."""
    counts = held_out(sizes, fraction, seed)
    assert np.all(counts < sizes)
    room = sum(max(size - 1, 0) if size < 4 else size // 2 for size in sizes)
    wanted = fraction * sum(sizes)
    assert counts.sum() <= max(1, 1.1 * wanted, min(wanted + FEW_ROWS, sum(sizes) / 4), round(wanted))
    if sum(sizes) - sizes.count(1) >= 0.9 * sum(sizes) and fraction < 0.5:
        assert counts.sum() >= min(room, wanted - max(1, 0.1 * wanted))
    assert (counts.sum() > 0) == (max(sizes) > 1)
    assert all(
        a <= b + 1 for a, m in zip(counts, sizes, strict=True) for b, n in zip(counts, sizes, strict=True) if m < n
    )


def test_the_seed_decides_which_small_classes_give_a_row():
    first, again, other = (held_out([2] * 50, 0.1, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_texts_are_alike_that_differ_in_punctuation_and_digits():
    """Marks of letters count, and texts without letters; so do digits where many texts have but these."""
    near = ["Where is it", "where is it !!", "Where is it? 12 \U0001f642", "where... IS it"]
    others = ["where was it", "ที่", "ทา", "12", "13", "!!", "", *(f"code {number}" for number in range(11))]
    first, *numbers = texts_alike([*near, *others]).tolist()
    assert numbers[:3] == [first] * 3
    assert len({first, *numbers[3:]}) == 1 + len(others)
    texts, labels = [*near, "no", "a 1", "a 2"], np.array([0, 0, 0, 0, 0, 1, 1])
    *together, one, other = Split(texts=texts, labels=labels, where=["x"] * 7).together.tolist()
    assert together[:4] == [first] * 4
    assert one != other  # else the class could not be held out


def test_texts_are_equal_that_differ_in_case_and_white_space():
    """And no others."""
    first, again, other, upper, another = equal_texts(["Straße 1", "strasse\t 1\n", "strasse1", "STRASSE 1", "b"])
    assert first == again == upper
    assert len({first, other, another, group_number("strasse1"), group_number("b")}) == 5


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=2, max_size=120),
    fraction=st.sampled_from([0.1, 0.3]),
    seed=st.integers(0, 3),
)
def test_a_group_is_on_one_side_and_a_row_of_each_class_stays(rows, fraction, seed):
    """However large the groups are, and however many classes they have rows of."""
    names, labels = np.unique([label for label, _ in rows], return_inverse=True)
    groups = np.array([group for _, group in rows])
    is_held_out = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)
    assert not set(groups[is_held_out]) & set(groups[~is_held_out])
    assert set(labels[~is_held_out]) == set(range(len(names)))
    found = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)
    assert np.array_equal(found, is_held_out)
    can_go = [set(labels[groups != group]) == set(labels) for group in set(groups)]
    assert is_held_out.any() == any(can_go)


@pytest.mark.parametrize("seed", range(3))
def test_with_small_groups_the_fraction_and_the_classes_are_as_without(seed):
    """Every third text is there twice or three times: of 100 and 600 rows, 10 and 60 are held out."""
    labels = mixed([100, 600])
    groups = np.arange(700)
    for label in (0, 1):
        members = np.flatnonzero(labels == label)
        groups[members[1::3]] = groups[members[0::3]][: len(members[1::3])]
    is_held_out = rows_to_hold_out(labels, groups, fraction=0.1, seed=seed)
    assert np.bincount(labels[is_held_out]).tolist() == [10, 60]
    assert len(set(groups[is_held_out])) < 70


def test_of_groups_larger_than_a_class_s_part_as_many_are_held_out_as_bring_the_whole_nearest():
    """Ten classes of three texts, each there twenty times: of 600 rows 60 are wanted, those of three texts."""
    labels = np.repeat(np.arange(10), 60)
    groups = np.repeat(np.arange(30), 20)
    is_held_out = rows_to_hold_out(labels, groups, fraction=0.1, seed=0)
    assert len(set(groups[is_held_out])) == 3
    assert len(set(labels[is_held_out])) == 3


def test_the_smallest_group_is_held_out_where_each_is_more_than_is_wanted():
    """Something has to validate."""
    labels, groups = np.repeat([0, 0, 1, 1], [50, 40, 30, 60]), np.repeat(np.arange(4), [50, 40, 30, 60])
    assert set(groups[rows_to_hold_out(labels, groups, fraction=0.05, seed=0)]) == {2}
