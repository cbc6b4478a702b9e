"""Which rows are held out: the wanted part of each class, the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import load, refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data import splitting
from encoder_cls.data.dataset import Split
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.data.splitting import hold_out, rows_to_hold_out


def mixed_labels(sizes: Sequence[int]) -> np.ndarray:
    """The labels of classes of these sizes, in random order."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(7).permutation(labels)


def mixed_split(sizes: Sequence[int]) -> Split:
    """Texts of classes of these sizes, in random order; each text begins with its label."""
    labels = mixed_labels(sizes)
    texts = [f"{label} {row}" for row, label in enumerate(labels)]
    where = [f"a.csv:{row + 2}" for row in range(len(texts))]
    return Split(texts=texts, labels=labels, where=where)


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
        # A quarter of little data: then each class is validated.
        ([4, 4], 0.1, 2),
        ([4] * 12, 0.1, 12),
        ([4] * 100, 0.1, 40),
        ([1] * 10, 0.5, 0),
    ],
)
def test_of_many_small_classes_no_more_is_held_out(sizes, fraction, expected):
    """It is the fraction of all rows, at least one, where a class has a row to spare."""
    labels = mixed_labels(sizes)
    groups = np.arange(len(labels))

    is_held_out = rows_to_hold_out(labels, groups, fraction=fraction, seed=0)

    assert is_held_out.sum() == expected


def test_the_seed_decides_which_of_many_equal_classes_are_validated():
    labels = mixed_labels([2] * 1000)
    groups = np.arange(len(labels))

    chosen = []
    for seed in (0, 1):
        is_held_out = rows_to_hold_out(labels, groups, fraction=0.01, seed=seed)
        chosen.append(set(labels[is_held_out].tolist()))

    assert len(chosen[0]) == len(chosen[1]) == 20
    assert chosen[0] != chosen[1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=2, max_size=120),
    fraction=st.sampled_from([0.1, 0.3]),
    seed=st.integers(0, 3),
)
def test_a_group_is_on_one_side_and_a_row_of_each_class_stays(rows, fraction, seed):
    """This holds however large the groups are, and however many classes they have rows of."""
    classes, labels = np.unique([label for label, _ in rows], return_inverse=True)
    groups = np.array([group for _, group in rows])

    is_held_out = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)
    again = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)

    assert not set(groups[is_held_out]) & set(groups[~is_held_out])
    assert set(labels[~is_held_out]) == set(range(len(classes)))
    assert np.array_equal(again, is_held_out)

    # Nothing is held out only if each group has all rows of a class.
    can_go = [set(labels[groups != group]) == set(labels) for group in set(groups)]
    assert is_held_out.any() == any(can_go)


def test_the_smallest_group_is_held_out_where_each_is_more_than_is_wanted():
    sizes = [50, 40, 30, 60]
    labels = np.repeat([0, 0, 1, 1], sizes)
    groups = np.repeat(np.arange(4), sizes)

    is_held_out = rows_to_hold_out(labels, groups, fraction=0.05, seed=0)

    assert set(groups[is_held_out]) == {2}


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_held_out_part_is_stratified(fraction):
    """Every class is on both sides, in its proportion."""
    sizes = np.array([2, 3, 10, 200])
    _, validation = hold_out(mixed_split(sizes.tolist()), fraction=fraction, seed=0)

    held_out = np.bincount(validation.labels, minlength=4)
    assert np.all(held_out >= 1)
    assert np.all(sizes - held_out >= 1)
    assert np.all(np.abs(held_out - fraction * sizes) <= 1)


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_each_text_is_in_one_part_in_the_order_of_the_file(fraction):
    split = mixed_split([2, 3, 10, 200])
    train, validation = hold_out(split, fraction=fraction, seed=0)

    assert sorted([*train.texts, *validation.texts]) == sorted(split.texts)
    for part in (train, validation):
        assert part.where == [split.where[split.texts.index(text)] for text in part.texts]
        assert part.labels.tolist() == [int(text.split()[0]) for text in part.texts]
        assert part.where == sorted(part.where, key=split.where.index)


def test_of_many_texts_a_limited_number_is_held_out(monkeypatch):
    monkeypatch.setattr(splitting, "MAX_HELD_OUT", 20)

    train, validation = hold_out(mixed_split([100, 300]), fraction=0.2, seed=0)

    assert len(train) == 380
    assert np.bincount(validation.labels).tolist() == [5, 15]


def test_texts_that_must_stay_are_not_held_out():
    split = mixed_split([10, 30])
    must_stay = np.arange(40) % 2 == 0

    train, validation = hold_out(split, fraction=0.2, seed=0, must_stay=must_stay)

    staying_texts = {split.texts[row] for row in np.flatnonzero(must_stay)}
    assert staying_texts <= set(train.texts)
    assert len(validation) == 4


def test_where_all_texts_must_stay_nothing_is_held_out():
    split = mixed_split([10, 30])
    must_stay = np.ones(40, dtype=bool)

    _, validation = hold_out(split, fraction=0.2, seed=0, must_stay=must_stay, is_needed=False)

    assert len(validation) == 0


def test_the_seed_decides_what_is_held_out():
    rows = [f"t{number},{number % 2}\n" for number in range(40)]
    config = DataConfig(train=write("a.csv", "text,label\n" + "".join(rows)))
    dataset = load_dataset(config)
    same = load_dataset(config)
    other = load_dataset(config.model_copy(update={"split_seed": 1}))

    assert len(dataset.train) == 36
    assert len(dataset.validation) == 4
    assert dataset.test is None
    assert list(same.validation.texts) == list(dataset.validation.texts)
    assert list(other.validation.texts) != list(dataset.validation.texts)


@pytest.mark.parametrize("seed", range(3))
def test_no_validation_text_is_like_a_training_text(seed):
    """Case, spaces, marks and digits make no other text of it, nor does another label."""
    words = [first + second for first in "abcdef" for second in "abcdefghij"]
    lines = ["text,label"]
    for number, word in enumerate(words):
        lines.append(f"Text  {word},{number % 2}")
        lines.append(f"text {word} !! 4,{1 - number % 2}")
    source = write("a.csv", "\n".join(lines) + "\n")

    dataset = load(source, validation=None, split_seed=seed)

    learned_words = {text.casefold().split()[1] for text in dataset.train.texts}
    held_out_words = {text.casefold().split()[1] for text in dataset.validation.texts}
    assert not learned_words & held_out_words
    assert len(dataset.validation) == 2 * len(held_out_words) == 12


def test_a_class_of_one_example_stays_in_train():
    """It can be learned, if not validated."""
    source = write("a.csv", "text,label\n1,x\n2,rare\n3,x\n")
    dataset = load(source, validation=None)

    assert sorted(dataset.train.labels) == [0, 1]
    assert dataset.validation.labels.tolist() == [1]


def test_classes_of_one_example_each_are_an_error_with_a_hint():
    source = write("a.csv", "text,label\n1,x\n2,y\n")

    message = refusal(source, validation=None)

    assert re.match(r"a\.csv:2: no text can be held out .* data\.validation", message)


@pytest.mark.parametrize(("separator", "num_labels"), [(None, 1), ("|", 2)])
def test_the_order_of_names_does_not_change_what_is_held_out(separator, num_labels):
    """This holds for one label a text, and for several."""
    random = np.random.default_rng(0)
    names = ["red", "green", "blue", "black"]
    rows = ["text,label"]
    for number in range(80):
        labels = random.choice(names, num_labels, replace=False)
        letter = chr(ord("a") + number % 26)
        rows.append(f"{number} text {letter}{number},{'|'.join(labels)}")
    source = write("a.csv", "\n".join(rows) + "\n")

    held_out = []
    for order in (names, names[::-1], sorted(names), None):
        config = DataConfig(train=source, label_names=order, label_separator=separator)
        dataset = load_dataset(config)
        assert dataset.label_names == tuple(order or sorted(names))
        held_out.append(list(dataset.validation.where))

    assert 5 < len(held_out[0]) < 20
    assert held_out == [held_out[0]] * 4
