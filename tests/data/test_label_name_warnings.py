"""Warnings about labels that probably mean something else than the classes that they become."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import pytest
from support.data import load, write

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.label_name_warnings import label_warnings, several_labels


def dataset_with(names: Sequence[str], *, unseen_names: Sequence[str] = ()) -> Dataset:
    """A data set with two texts of each class; its validation texts may have other labels, too."""
    num_train = 2 * len(names)
    train = Split(
        texts=[f"text {number}" for number in range(num_train)],
        labels=np.tile(np.arange(len(names)), 2),
        where=[f"t:{number}" for number in range(num_train)],
    )

    num_validation = len(names) + len(unseen_names)
    validation = Split(
        texts=[f"validation text {number}" for number in range(num_validation)],
        labels=np.arange(num_validation),
        where=[f"v:{number}" for number in range(num_validation)],
        unseen_names=tuple(unseen_names),
    )
    return Dataset(label_names=tuple(names), train=train, validation=validation, test=None)


def warnings_with(phrase: str, dataset: Dataset) -> list[str]:
    """The warnings about labels that have a phrase."""
    return [warning for warning in label_warnings(dataset) if phrase in warning]


def test_a_label_of_many_commas_is_looked_through_once():
    """An expression that tries each comma would take minutes."""
    start = time.process_time()
    assert not warnings_with("lists", dataset_with(["(" + "," * 150_000, "x", "y"]))
    assert time.process_time() - start < 2


def test_ordinary_names_have_none():
    assert list(label_warnings(dataset_with(["x", "y"]))) == []


def test_classes_that_are_written_alike_are_named():
    """Labels that train does not have are compared, too."""
    names = ["Billing", "a  b", "a b ", "billing", "other"]
    warnings = warnings_with("differ", dataset_with(names, unseen_names=["OTHER"]))

    end = (
        "differ only in case, in spaces or in how Unicode writes the same characters; "
        "data.fold_labels=true makes them one"
    )
    assert warnings == [
        f"the classes 'Billing', 'billing' {end}",
        f"the classes 'a  b', 'a b ' {end}",
        f"the classes 'other', 'OTHER' {end}",
    ]


@pytest.mark.parametrize(
    ("name", "other_name", "written"),
    [
        ("café", "cafe\u0301", r"'caf\xe9', 'cafe\u0301'"),
        ("spam", "sp\u200bam", r"'spam', 'sp\u200bam'"),
        ("spam", "\ufeffspam\u00ad", r"'spam', '\ufeffspam\xad'"),
        ("spam", "ｓｐａｍ", "'spam', 'ｓｐａｍ'"),
        ("straße", "STRASSE", "'straße', 'STRASSE'"),
        ("\u0390", "\u0399\u0308\u0301", "'\u0390', '\u0399\u0308\u0301'"),
    ],
)
def test_classes_that_look_alike_are_named_so_that_they_do_not(name, other_name, written):
    """Unicode has several ways to write a character, and characters that nobody sees."""
    (warning,) = label_warnings(dataset_with([name, other_name]))
    assert warning.startswith(f"the classes {written} differ")


def test_many_classes_in_two_spellings_take_a_few_lines():
    names = []
    for number in range(50):
        names += [f"sku-{number}", f"SKU-{number}"]

    warnings = warnings_with("differ", dataset_with(names))

    assert len(warnings) == 4
    assert warnings[-1] == "further groups of classes that differ only in this way: 47"


def test_labels_with_a_space_that_ends_no_label_are_named():
    """A fastText line may have a no-break space after its label."""
    (warning,) = warnings_with("unusual space", dataset_with(["a", "a\xa0cat"]))
    assert "1 ('a\\xa0cat')" in warning


def test_numbers_beside_names_are_named_with_the_first_of_each():
    """JSON lines or a table with `1` in some rows, `refund` in others, have too many classes."""
    (warning,) = label_warnings(dataset_with(["0", "refund"]))
    assert warning.startswith(
        "labels are numbers in some rows and names in others: 1 class ('0', the first at t:0) and"
    )
    assert "'refund', the first at t:1" in warning


@pytest.mark.parametrize("names", [["1", "1.2", "1.2.3"], ["1/2", "2/3", "3/1", "1/3"]], ids=str)
def test_codes_with_levels_are_neither_lists_nor_numbers_beside_names(names):
    dataset = dataset_with(names)
    assert len(list(label_warnings(dataset))) == 1
    assert list(label_warnings(dataset, have_levels=True)) == []


def test_minus_one_beside_numbers_from_0_on_is_warned_of():
    """The warning says how a text without a label is written."""
    (warning,) = label_warnings(dataset_with(["-1", "0"]))
    assert warning.startswith(
        "-1 is a class, of 2 training texts, the first at t:0, beside numbers from 0 on; if it "
        'means "no label", leave these labels empty and name the classes in data.label_names'
    )


@pytest.mark.parametrize("names", [("-1", "1"), ("-1", "-2"), ("-1", "no"), ("0", "1")], ids=str)
def test_minus_one_may_be_a_class_of_other_numbers(names):
    assert warnings_with("-1 is", dataset_with(names)) == []


def load_labels(labels: Sequence[str], *, separator: str | None = None) -> Dataset:
    """The data set of a file with these labels."""
    lines = []
    for number, label in enumerate(labels):
        lines.append(json.dumps({"text": f"text {number}", "label": label}))
    return load(write("a.jsonl", "\n".join(lines)), label_separator=separator)


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
    """The warning has the ways to write several labels."""
    (warning,) = warnings_with("lists", load_labels(labels))
    assert "data.label_separator" in warning
    assert "JSON lines" in warning


def test_classes_that_list_several_labels_ask_about_the_separator():
    names = ["late", "refund", "late|refund", "lost|late", "lost|refund", "lost"]
    (warning,) = warnings_with("list several labels", dataset_with(names))

    assert "6 training texts such as 'late|refund'" in warning
    assert warning.endswith("""--set 'data.label_separator="|"'""")


def test_lists_that_a_separator_has_cut_are_warned_of():
    labels = ["['late', 'refund']", "['refund', 'lost']", "['lost']"]
    (warning,) = warnings_with("lists", load_labels(labels, separator=","))
    assert "data.label_separator has cut them" in warning


@pytest.mark.parametrize(
    "labels",
    [
        ["late (EU)", "[spam]", "ham", "refund"],
        ["f(x, y)", "g(x)", "[h"],
    ],
)
def test_names_with_brackets_are_no_lists(labels):
    assert warnings_with("lists", load_labels(labels)) == []


@pytest.mark.parametrize("separator", ["|", ";", ", ", "/", "\n", " + "])
def test_a_separator_between_labels_is_found(separator: str):
    """Labels occur in several combinations, and alone."""
    lists = [["late", "refund"], ["late", "rude staff"], ["late", "refund", "rude staff"]]
    counts = {"late": 40, "refund": 25, "rude staff": 5}
    for number, labels in enumerate(lists, start=1):
        counts[separator.join(labels)] = number

    found = several_labels(counts)

    assert found is not None
    assert found.separator == separator.strip(" ")
    assert found.num_rows == 6
    assert found.names == ("late", "refund", "rude staff")
    assert found.example == separator.join(lists[2])


@pytest.mark.parametrize(
    "names",
    [
        ["billing", "refund", "delivery"],
        # The parts of a name occur nowhere else.
        ["Payday loan, title loan, or personal loan", "Money transfer, virtual currency", "Other"],
        ["Food/Fruit", "Food/Vegetables", "Home/Chairs", "Home/Lamps"],
        ["Q&A", "R&D", "Sales"],
        # Two names with a comma that share a part.
        ["Paris, France", "Lyon, France", "France"],
        # Numbers with a decimal comma.
        ["1,0", "1,5", "2,0", "2,5"],
    ],
)
def test_a_separator_inside_names_is_not_found(names: list[str]):
    assert several_labels(dict.fromkeys(names, 10)) is None


def test_classes_that_look_like_a_more_frequent_one_are_named_with_a_line_to_paste():
    names = ["Überweisung", "Überweisng", "other"]
    split = Split(
        texts=[f"text {number}" for number in range(12)],
        labels=np.array([0] * 10 + [1, 2]),
        where=["a"] * 12,
    )
    dataset = Dataset(label_names=tuple(names), train=split, validation=split, test=None)

    [warning] = label_warnings(dataset)

    assert warning == (
        "classes that look like another one, with their training texts: 'Überweisng' (1) like "
        "'Überweisung' (10); if they are the same, add --set "
        """'data.label_map={"Überweisng": "Überweisung"}'"""
    )
