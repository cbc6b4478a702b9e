"""Doubts: what is said of a data set is true, and nothing is said of a sound one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.data import Dataset, Split
from encoder_cls.doubts import doubts

ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 1)), min_size=1, max_size=9)


def split_of(rows, name="f") -> Split:
    return Split(
        texts=[text for text, _ in rows],
        labels=np.array([label for _, label in rows], dtype=np.int64),
        where=[f"{name}:{number}" for number in range(len(rows))],
    )


def dataset_of(train, validation, test=None, names=("x", "y")) -> Dataset:
    parts = [split_of(rows, name) if rows else None for name, rows in (("t", train), ("v", validation), ("e", test))]
    return Dataset(label_names=names, train=parts[0], validation=parts[1], test=parts[2])


def test_a_sound_data_set_has_none():
    """Texts that are each there once or, in train, again with the same label, and classes of different names."""
    assert list(doubts(dataset_of([("a", 0), ("b", 1), ("a", 0)], [("c", 0)], [("d", 1)]))) == []


@settings(deadline=None, derandomize=True)
@given(train=ROWS, validation=ROWS, test=st.none() | ROWS)
def test_texts_that_are_there_twice_are_counted(train, validation, test):
    """Compared with counting them one by one; the first is named."""
    labels = Counter(text for text, _ in set(train))
    contradicted = [place for place, (text, _) in enumerate(train) if labels[text] > 1]
    expected = [(f"{len(contradicted)} training", f"t:{contradicted[0]}")] if contradicted else []
    for name, rows, place in (("validation", validation, "v"), ("test", test, "e")):
        known = [number for number, (text, _) in enumerate(rows or ()) if text in labels]
        if known:
            expected.append((f"{len(known)} of {len(rows)} {name} texts", f"{place}:{known[0]}"))
    found = list(doubts(dataset_of(train, validation, test)))
    assert len(found) == len(expected)
    for line, (count, place) in zip(found, expected, strict=True):
        assert line.startswith(count)
        assert f"the first at {place}" in line


def test_rows_left_out_are_counted():
    """For each split that has some."""
    dataset = dataset_of([("a", 0)], [("b", 0)], [("c", 0)])
    dataset = replace(dataset, train=replace(dataset.train, left_out=1234), test=replace(dataset.test, left_out=1))
    assert list(doubts(dataset)) == [
        "rows of data.train without a text, which are left out: 1,234",
        "rows of data.test without a text, which are left out: 1",
    ]


def test_classes_that_are_written_alike_are_named():
    """Those, and no others."""
    names = ("Billing", "a  b", "a b ", "billing", "other")
    found = list(doubts(dataset_of([("a", 0)], [("b", 0)], names=names)))
    assert found == [
        "the classes 'Billing', 'billing' differ in case or spaces only",
        "the classes 'a  b', 'a b ' differ in case or spaces only",
    ]
