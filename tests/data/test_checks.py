"""Warnings about a data set are true, and a sound one has none."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import load, write

from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.reading.options import LeftOut, Notes

ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 1)), min_size=1, max_size=9)


def split_of(rows, name="f") -> Split:
    return Split(
        texts=[text for text, _ in rows],
        labels=np.array([label for _, label in rows], dtype=np.int64),
        where=[f"{name}:{number}" for number in range(len(rows))],
    )


def dataset_of(train, validation, test=None, names=("x", "y")) -> Dataset:
    parts = [
        split_of(rows, name) if rows else None
        for name, rows in (("t", train), ("v", validation), ("e", test))
    ]
    return Dataset(label_names=names, train=parts[0], validation=parts[1], test=parts[2])


SOUND_TRAIN = [("a", 0), ("b", 1), ("c", 0), ("d", 1)]
SOUND = dataset_of(
    SOUND_TRAIN,
    [("e", 0), ("f", 1)],
    [("g", 0), ("h", 1)],
)


def test_a_sound_data_set_has_none():
    assert list(data_warnings(SOUND)) == []


@settings(deadline=None, derandomize=True)
@given(train=ROWS, validation=ROWS, test=st.none() | ROWS)
def test_texts_that_are_there_twice_are_counted(train, validation, test):
    """Compared with counting them one by one; the first is named."""
    labels = Counter(text for text, _ in set(train))
    contradicted = [place for place, (text, _) in enumerate(train) if labels[text] > 1]
    expected = [(f"{len(contradicted)} training", f"t:{contradicted[0]}")] if contradicted else []
    repeating = [place for place, row in enumerate(train) if row in train[:place]]
    expected += (
        [(f"{len(repeating)} training texts repeat", f"t:{repeating[0]}")] if repeating else []
    )
    for name, rows, place in (("validation", validation, "v"), ("test", test, "e")):
        known = [number for number, (text, _) in enumerate(rows or ()) if text in labels]
        if known:
            expected.append((f"{len(known)} of {len(rows)} {name} texts", f"{place}:{known[0]}"))
    of_classes = ("one training example", "classes without a text")
    found = [
        it
        for it in data_warnings(dataset_of(train, validation, test))
        if not any(map(it.__contains__, of_classes))
    ]
    assert len(found) == len(expected)
    for line, (count, place) in zip(found, expected, strict=True):
        assert line.startswith(count)
        assert f"the first at {place}" in line


def test_rows_left_out_are_counted():
    train = Notes(empty=LeftOut(1234, ["t:1", "t:2", "t:5"]))
    dataset = replace(SOUND, sources=(("train", train), ("test", Notes(empty=LeftOut(1, ["e:7"])))))
    assert list(data_warnings(dataset)) == [
        "rows of train without a text, which are left out: 1,234 (t:1, t:2, t:5, …)",
        "rows of test without a text, which are left out: 1 (e:7)",
    ]


def test_classes_that_are_written_alike_are_named():
    names = ("Billing", "a  b", "a b ", "billing", "other")
    of_each = [(f"v{n}", n) for n in range(5)]
    dataset = dataset_of(
        [(f"{n}{i}", n) for n in range(5) for i in "ab"], of_each, [("e", 5)], names=names
    )
    dataset = replace(dataset, test=replace(dataset.test, unseen_names=("OTHER",)))
    assert [line for line in data_warnings(dataset) if "differ" in line] == [
        f"the classes {alike} differ only in case, in spaces or in how Unicode writes the same characters; "
        "data.fold_labels=true makes them one"
        for alike in ("'Billing', 'billing'", "'a  b', 'a b '", "'other', 'OTHER'")
    ]


@pytest.mark.parametrize(
    ("one", "other", "written"),
    [
        ("café", "cafe\u0301", r"'caf\xe9', 'cafe\u0301'"),
        ("spam", "sp\u200bam", r"'spam', 'sp\u200bam'"),
        ("spam", "\ufeffspam\u00ad", r"'spam', '\ufeffspam\xad'"),
        ("spam", "ｓｐａｍ", "'spam', 'ｓｐａｍ'"),
        ("straße", "STRASSE", "'straße', 'STRASSE'"),
        ("\u0390", "\u0399\u0308\u0301", "'\u0390', '\u0399\u0308\u0301'"),
    ],
)
def test_classes_that_look_alike_are_named_so_that_they_do_not(one, other, written):
    """Unicode has several ways to write a character, and characters that nobody sees."""
    assert f"the classes {written} differ" in next(
        data_warnings(replace(SOUND, label_names=(one, other)))
    )


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
    assert [line for line in data_warnings(dataset) if "never occur" in line] == [
        "labels of validation that never occur in train: 'p', 'q'; their 3 of 4 rows, the first at v:1, are left "
        "out of what chooses the weights",
        "labels of test that never occur in train: 'r'; their 1 of 2 rows, the first at e:1, are counted as mistakes",
    ]


def test_classes_of_one_example_are_named():
    rows = [(text, label) for label, text in enumerate("abcdef")]
    dataset = dataset_of([*rows, ("g", 0)], [("v", 1)], names=tuple("ABCDEF"))
    assert list(data_warnings(dataset)) == [
        "classes with one training example and none to validate with: 4 ('C', 'D', 'E', …); add examples",
        "classes without a text in validation, so that nothing shows how well they are recognized: 1 of 6 ('A')",
    ]


def test_classes_that_a_split_lacks_are_named():
    names, rows = (
        tuple("ABCDEF"),
        [(f"{text}{label}", label) for label in range(6) for text in "ab"],
    )
    all_but_a = [(f"v{label}", label) for label in range(1, 6)]
    assert list(data_warnings(dataset_of(rows, all_but_a, [("e", 0)], names=names))) == [
        "classes without a text in validation, so that nothing shows how well they are recognized: 1 of 6 ('A')",
        "classes without a text in test, so that nothing shows how well they are recognized: 5 of 6 ('B', 'C', 'D', …)",
    ]


def test_many_classes_in_two_spellings_take_a_few_lines():
    names = tuple(f"{sku}-{number}" for number in range(50) for sku in ("sku", "SKU"))
    *pairs, rest = [
        line for line in data_warnings(replace(SOUND, label_names=names)) if "differ" in line
    ]
    assert (len(pairs), rest) == (3, "groups of classes that differ only so, beside these: 47")


def test_labels_with_a_space_that_ends_no_label_are_named():
    """As they come of a fastText line with a no-break space after its label."""
    (line,) = (
        it
        for it in data_warnings(replace(SOUND, label_names=("a", "a\xa0cat")))
        if "unusual space" in it
    )
    assert "1 ('a\\xa0cat')" in line


def test_numbers_beside_names_are_named_with_the_first_of_each():
    """JSON lines with `1` in some rows and `refund` in others give twice as many classes; a table does so, too."""
    (line,) = data_warnings(replace(SOUND, label_names=("0", "refund")))
    assert line.startswith(
        "labels are numbers in some rows and names in others: 1 class ('0', the first at t:0) and"
    )
    assert "'refund', the first at t:1" in line


@pytest.mark.parametrize(
    ("names", "is_warned_of"),
    [
        (("-1", "0"), True),
        (("-1", "1"), False),
        (("-1", "-2"), False),
        (("-1", "no"), False),
        (("0", "1"), False),
    ],
    ids=str,
)
def test_minus_one_beside_numbers_from_0_on_is_warned_of(names, is_warned_of):
    """The warning says how a text without a label is written."""
    warnings = [
        line for line in data_warnings(replace(SOUND, label_names=names)) if "-1 is" in line
    ]
    expected = (
        "-1 is a class, of 2 training texts, the first at t:0, beside numbers from 0 on; if it means "
        '"no label", leave these labels empty and name the classes in data.label_names'
    )
    assert len(warnings) == is_warned_of
    assert all(line.startswith(expected) for line in warnings)


def table_of(labels: list[str], **values: object) -> Dataset:
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]
    return load(write("a.jsonl", "\n".join(map(json.dumps, rows))), **values)


@pytest.mark.parametrize(
    "labels",
    [
        ["['late', 'refund']", "['late']", "[]"],
        ['["late", "refund"]', '["late"]', "late"],
        ["{late,refund}", "{late}", "{refund}"],
        ["('late', 'refund')", "('late', 'lost')", "late"],
    ],
)
def test_lists_that_were_written_as_text_are_warned_of(labels):
    """With the ways to write several labels; also where a separator has cut the lists."""
    (warning,) = [it for it in data_warnings(table_of(labels)) if "lists" in it]
    assert "data.label_separator" in warning
    assert "JSON lines" in warning


def test_lists_that_a_separator_has_cut_are_warned_of():
    labels = ["['late', 'refund']", "['refund', 'lost']", "['lost']"]
    (warning,) = [
        it for it in data_warnings(table_of(labels, label_separator=",")) if "lists" in it
    ]
    assert "data.label_separator has cut them" in warning


def test_names_with_brackets_are_no_lists():
    for labels in (["late (EU)", "[spam]", "ham", "refund"], ["f(x, y)", "g(x)", "[h"]):
        assert not [it for it in data_warnings(table_of(labels)) if "lists" in it]
