"""Warnings about the rows and the classes of a data set; a sound one has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.data.data_warnings import data_warnings, seen_warnings, split_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.reading.reading import LeftOut, Notes
from encoder_cls.system.display import counted

Rows = Sequence[tuple[str, int]]
"""The text and the class of each row."""


def split_of(name: str, rows: Rows) -> Split:
    """A split whose rows are at `name:0` and so on."""
    return Split(
        texts=[text for text, _ in rows],
        labels=np.array([label for _, label in rows], dtype=np.int64),
        where=[f"{name}:{number}" for number in range(len(rows))],
    )


def dataset_of(
    train: Rows, validation: Rows, test: Rows | None = None, names: Sequence[str] = ("x", "y")
) -> Dataset:
    return Dataset(
        label_names=tuple(names),
        train=split_of("train", train),
        validation=split_of("validation", validation),
        test=split_of("test", test) if test else None,
    )


SOUND_TRAIN = [("a", 0), ("b", 1), ("c", 0), ("d", 1)]
SOUND = dataset_of(
    SOUND_TRAIN,
    [("e", 0), ("f", 1)],
    [("g", 0), ("h", 1)],
)


def test_a_sound_data_set_has_none():
    assert list(data_warnings(SOUND)) == []


ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 1)), min_size=1, max_size=9)


@settings(deadline=None, derandomize=True)
@given(train=ROWS, validation=ROWS, test=st.none() | ROWS)
def test_texts_that_are_there_twice_are_counted(train, validation, test):
    """The warnings agree with counting rows one by one; the first row is named."""
    expected = []
    num_labels = Counter(text for text, _ in set(train))
    contradicted = [row for row, (text, _) in enumerate(train) if num_labels[text] > 1]
    if contradicted:
        expected.append((counted(len(contradicted), "training text"), f"train:{contradicted[0]}"))

    repeating = [row for row, example in enumerate(train) if example in train[:row]]
    if repeating:
        start = f"{counted(len(repeating), 'training text')} repeat"
        expected.append((start, f"train:{repeating[0]}"))

    for name, rows in (("validation", validation), ("test", test or [])):
        known = [row for row, (text, _) in enumerate(rows) if text in num_labels]
        if known:
            texts = counted(len(rows), f"{name} text")
            expected.append((f"{len(known)} of {texts}", f"{name}:{known[0]}"))

    warnings = warnings_on_texts(dataset_of(train, validation, test))
    assert len(warnings) == len(expected)
    for warning, (start, place) in zip(warnings, expected, strict=True):
        assert warning.startswith(start)
        assert f"the first at {place}" in warning


def warnings_on_texts(dataset: Dataset) -> list[str]:
    """The warnings that are not about rare classes."""
    about_classes = ("classes with one training example", "classes without a text")
    return [warning for warning in data_warnings(dataset) if not warning.startswith(about_classes)]


def test_rows_left_out_are_counted():
    train = Notes(empty=LeftOut(1234, ["t:1", "t:2", "t:5"]))
    test = Notes(empty=LeftOut(1, ["e:7"]))
    dataset = replace(SOUND, sources=(("train", train), ("test", test)))

    assert list(data_warnings(dataset)) == [
        "rows of train without a text, which are left out: 1,234 (t:1, t:2, t:5, …)",
        "rows of test without a text, which are left out: 1 (e:7)",
    ]


def test_labels_that_train_does_not_have_are_named_with_what_follows():
    unseen = [("u", 2), ("v", 3), ("w", 2)]
    dataset = dataset_of(
        SOUND_TRAIN,
        [("e", 0), *unseen],
        [("f", 0), unseen[0]],
    )
    dataset = replace(
        dataset,
        validation=replace(dataset.validation, unseen_names=("p", "q")),
        test=replace(dataset.test, unseen_names=("r",)),
    )

    warnings = [warning for warning in data_warnings(dataset) if "never occur" in warning]

    assert warnings == [
        "labels of validation that never occur in train: 'p', 'q'; 3 of 4 rows have such labels, "
        "the first at validation:1; such rows are not used to select the weights",
        "labels of test that never occur in train: 'r'; 1 of 2 rows has such labels, the first at "
        "test:1; such rows are counted as mistakes",
    ]


def test_a_validation_row_with_an_unseen_label_among_several_counts_as_a_mistake():
    labels = np.array([[1, 0, 0], [1, 0, 1]], dtype=np.int8)
    validation = Split(texts=["e", "u"], labels=labels, where=["v:0", "v:1"], unseen_names=("p",))

    (warning,) = split_warnings("validation", validation, ["x", "y"])

    assert warning.endswith("the first at v:1; such rows are counted as mistakes")


def test_classes_of_one_example_are_named():
    train = [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 4), ("f", 5), ("g", 0)]
    dataset = dataset_of(train, [("v", 1)], names="ABCDEF")

    assert list(data_warnings(dataset)) == [
        "classes with one training example and none to validate with: 4 ('C', 'D', 'E', …); add "
        "examples",
        "classes without a text in validation, so that nothing shows how well they are recognized: "
        "1 of 6 ('A')",
    ]


def test_classes_that_a_split_lacks_are_named():
    train = []
    for label in range(6):
        train.append((f"a{label}", label))
        train.append((f"b{label}", label))
    all_but_the_first = [(f"v{label}", label) for label in range(1, 6)]
    dataset = dataset_of(train, all_but_the_first, [("e", 0)], names="ABCDEF")

    assert list(data_warnings(dataset)) == [
        "classes without a text in validation, so that nothing shows how well they are recognized: "
        "1 of 6 ('A')",
        "classes without a text in test, so that nothing shows how well they are recognized: "
        "5 of 6 ('B', 'C', 'D', …)",
    ]


def test_validation_texts_count_as_training_texts_where_the_model_learns_them():
    dataset = dataset_of(SOUND_TRAIN, [("e", 0), ("f", 1)], [("g", 0), ("f", 1)])

    assert list(data_warnings(dataset)) == []
    assert list(data_warnings(dataset, learns_validation=True)) == [
        "1 of 2 test texts is among the training texts, too, the first at test:1; such texts have "
        "better scores than new texts"
    ]


def test_scored_texts_that_a_model_has_learned_are_warned_of():
    assert list(seen_warnings("scored.csv", num_learned=2, num_texts=3)) == [
        "2 of 3 texts of scored.csv are among the training texts: these scores say little about "
        "new texts; score other texts"
    ]


def test_a_few_scored_texts_that_a_model_has_learned_are_usual():
    """Up to a tenth may be short texts that occur anywhere."""
    assert list(seen_warnings("scored.csv", num_learned=1, num_texts=10)) == []
    assert len(list(seen_warnings("scored.csv", num_learned=2, num_texts=10))) == 1
