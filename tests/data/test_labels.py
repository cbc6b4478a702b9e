"""What labels are: one answer for all of them, and the same for those of digits and for integers."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from support.data import classes_of, load, refusal, write, write_labelled

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.continued_data import BaseData
from encoder_cls.data.label_names import names_as_texts
from encoder_cls.data.load_dataset import load_dataset, load_split
from encoder_cls.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lost_or_stolen_card", "lost or stolen card"),
        ("Sci/Tech", "Sci Tech"),
        ("cardArrival", "card Arrival"),
        ("top-up-limits", "top up limits"),
        ("topUpATM", "top Up ATM"),
        ("reverted_card_payment?", "reverted card payment"),
        ("größeÄndern", "größe Ändern"),
        ("HUM", "HUM"),
        ("4", ""),
        ("__", ""),
    ],
)
def test_a_name_is_split_into_its_words(name, text):
    """At characters other than letters and digits, and after small letters; a number has no words."""
    assert names_as_texts([name]) == [text]


GOOD = "text,label\none,x\ntwo,y\n"
FOLD = "data.fold_labels=true"
SPELLINGS = ["Late", "late ", "refund", "re\u200bfund", "late", "REFUND", "LATE", "refund"]


def test_labels_that_look_alike_are_one_class_where_they_are_folded():
    """Called by the most frequent spelling in train, without spaces around; another split changes no name."""
    test = write_labelled("t.jsonl", "LATE", "LATE", "LATE", " Refund", "REFUND", "REFUND")
    dataset = load(write_labelled("a.jsonl", *SPELLINGS), fold_labels=True, test=test)
    late, refund = "late", "refund"
    assert classes_of(dataset, dataset.train) == [
        late,
        late,
        refund,
        refund,
        late,
        refund,
        late,
        refund,
    ]
    assert classes_of(dataset, dataset.test) == [late] * 3 + [refund] * 3
    assert not [it for it in data_warnings(dataset) if "differ only" in it]
    (first, second) = (it for it in data_warnings(load("a.jsonl")) if "differ only" in it)
    assert "'LATE', 'Late', 'late', 'late ' differ only" in first
    assert FOLD in first
    assert FOLD in second


def test_of_equally_frequent_spellings_the_first_names_the_class():
    assert load(write_labelled("a.jsonl", *"bXxxX"), fold_labels=True).label_names == ("X", "b")


def test_one_of_two_names_that_folded_labels_have_is_refused():
    with pytest.raises(
        ConfigError, match=r"one class of 'a' and 'A', which are two in data\.label_names"
    ):
        load(write_labelled("a.jsonl", "a", "b"), fold_labels=True, label_names=["a", "A", "b"])


def test_labels_of_other_data_are_folded_to_the_classes_of_a_run():
    config = DataConfig(train=write_labelled("a.jsonl", "LATE", "late", "late"), fold_labels=True)
    assert load_split("a.jsonl", config, ("LATE", "other")).labels.tolist() == [0, 0, 0]
    former = load_dataset(DataConfig(train=write_labelled("b.jsonl", *["Late", "x"] * 4)))
    base = BaseData("former", former)
    assert load_dataset(config, base=base).label_names == ("Late", "x")
    with pytest.raises(ConfigError, match="which are two in the run"):
        load_split("a.jsonl", config, ("LATE", "Late"))


def test_several_labels_of_a_text_are_folded_too():
    dataset = load(
        write_labelled("a.jsonl", ["Late", "late"], ["refund", "late"], ["REFUND"], ["refund"], []),
        fold_labels=True,
    )
    assert dataset.label_names == ("late", "refund")
    assert dataset.train.labels.tolist() == [[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]]


def test_empty_labels_are_counted_and_their_use_can_be_pasted():
    """Names are those of all splits, once where only spaces around them differ, with any characters."""
    source = write_labelled("a.jsonl", "late", "", "late ", None, 'it\'s "lost"', "late", " ")
    validation = write_labelled("v.jsonl", *["late"] * 24, "paid")
    message = refusal(source, validation=validation)
    assert message.startswith("a.jsonl:2: the label is empty, as in 3 of 7 rows; to use")
    _, override = shlex.split(
        message.partition("add ")[2].partition("; data.bad_rows=skip leaves")[0]
    )
    assert override == 'data.label_names=["it\'s \\"lost\\"", "late", "paid"]'
    dataset = load(
        source, validation=validation, label_names=json.loads(override.partition("=")[2])
    )
    assert classes_of(dataset, dataset.train) == ["late", "late", 'it\'s "lost"', "late"]
    assert [*dataset.unlabelled.where] == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:7"]
    assert len(load(source, validation=validation, bad_rows="skip").train) == 4


def test_of_several_labels_an_empty_one_is_written_as_an_empty_list():
    """With `data.label_names` it would mean that the text has none of them."""
    source = write_labelled("a.jsonl", None, ["x", "y"], ["x"])
    message = refusal(source, validation=write_labelled("v.jsonl", ["x"]))
    assert message.startswith("a.jsonl:1: the label is empty; write [] where")


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        ("01,02", ["01", "02", "03"], ("01", "02")),
        ("00,01", ["no", "yes"], ("no", "yes")),
        ("b,a,B", None, ("B", "a", "b")),
        ("10,9,-1", None, ("-1", "9", "10")),
        ("10,9,x", None, ("10", "9", "x")),
        ("01,1,001", None, ("001", "01", "1")),
        (f"{'9' * 5000},1", None, ("1", "9" * 5000)),
        ("0,2,2", ["low", "mid", "high"], ("low", "high")),
        ("high,mid", ["low", "mid", "high"], ("mid", "high")),
        ("2,1", ["1", "2"], ("1", "2")),
    ],
)
def test_the_order_of_classes(labels, names, expected):
    """That of `label_names`, else of the numbers where all are integers, else of the alphabet."""
    lines = "".join(f"text,{label}\n" for label in labels.split(","))
    assert load(write("a.csv", f"text,label\n{lines}"), label_names=names).label_names == expected


def others(unseen: str, *, of: int = 100) -> str:
    """A file of so many rows, the last of which have these labels, which train does not have."""
    seen = "".join(f"t{i},{'xy'[i % 2]}\n" for i in range(of - len(unseen)))
    return write(
        "b.csv",
        "text,label\n" + seen + "".join(f"u{i},{label}\n" for i, label in enumerate(unseen)),
    )


def test_few_labels_that_train_does_not_have_are_numbered_behind_the_classes():
    """Each split by itself, in the order of classes; only the known rows of validation choose the weights."""
    dataset = load(write("a.csv", GOOD), validation=others("zawza"), test=write("c.csv", GOOD))
    validation = dataset.validation
    assert (dataset.label_names, validation.unseen_names) == (("x", "y"), ("a", "w", "z"))
    assert validation.labels[-5:].tolist() == [4, 2, 3, 4, 2]
    assert (len(validation), len(dataset.selection), dataset.selection.unseen_names) == (
        100,
        95,
        (),
    )
    assert list(dataset.selection.texts) == validation.texts[:95]
    assert (
        load_split("b.csv", DataConfig(train="a.csv"), ("x", "y")).fingerprint
        == validation.fingerprint
    )
    assert (
        load("a.csv", validation=others("zbwzb")).validation.fingerprint != validation.fingerprint
    )


@pytest.mark.parametrize("split", ["validation", "test"])
def test_many_labels_that_train_does_not_have_are_refused(split):
    """More than 5% of the rows: another data set was meant; the error names them, the first line, and what is known."""
    message = r"b\.csv:96: label 'z' never occurs in train \('x', 'y'\); 6 of 100 rows .* \('a', 'w', 'z'\)"
    assert re.match(message, refusal(write("a.csv", GOOD), **{split: others("zawzaa")}))
    with pytest.raises(DataError, match=message):
        load_split("b.csv", DataConfig(train="a.csv"), ("x", "y"))
    assert re.match(
        r"b\.csv:4: label 'z'", refusal("a.csv", **{split: write("b.csv", GOOD + "three,z\n")})
    )


def test_a_name_that_train_does_not_have_is_such_a_label():
    """One in `data.label_names`, in their order; one that is not in them is refused."""
    names = ["x", "w", "y", "a"]
    dataset = load(write("a.csv", GOOD), test=others("aw"), label_names=names)
    assert (dataset.label_names, dataset.test.unseen_names) == (("x", "y"), ("w", "a"))
    assert dataset.test.labels[-2:].tolist() == [3, 2]
    assert "b.csv:101: label 'q' is not in data.label_names" in refusal(
        "a.csv", test=others("q"), label_names=names
    )


STARS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(("train", "split"), [("a.csv", "validation"), ("a.jsonl", "test")])
@pytest.mark.parametrize(
    ("labels", "of_other", "names", "are"),
    [
        ([0, 1, 2, 3, 4, 4], [1], STARS, "indices"),
        ([1, 2, 3, 4, 5, 5], [1], STARS, "names"),
        ([1, 2, 1, 2], [*[1, 2] * 20, 0], STARS[1:3], "indices"),
        ([1, 2, 1, 2], [*[1, 2] * 20, 5], STARS[:2], "names"),
    ],
)
def test_names_of_digits_are_decided_on_once_for_a_data_set(
    train, split, labels, of_other, names, are
):
    """All labels of all splits are names, or all are indices, typed or of digits; so five classes stay five."""
    other = {split: write_labelled("b.csv", *of_other)}
    dataset = load(write_labelled(train, *labels), label_names=STARS, **other)
    assert (dataset.label_names, dataset.labels_are) == (tuple(names), are)
    assert dataset.train.labels.tolist() == [label - min(labels) for label in labels]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (
            [1, 2],
            STARS,
            "a.csv:2: label 1 may be the name '1' or the number of '2' in data.label_names; if names",
        ),
        (
            ["high", 1],
            ["low", "mid", "high"],
            "a.csv:3: label '1' is not in data.label_names; labels are either all",
        ),
        (
            [1, "high"],
            ["low", "mid", "high"],
            "a.csv:3: label 'high' is a name where others are numbers; labels are",
        ),
        ([0, 7], ["a", "b", "c"], "a.csv:3: label 7 has no name; data.label_names holds 3 names"),
        ([1, 6], STARS, "a.csv:3: label '6' is not in data.label_names"),
        (
            [1, -1],
            ["neg", "pos"],
            "a.csv:3: label '-1' is not in data.label_names; if it means \"no label\"",
        ),
        (["9" * 5000], ["a", "b"], "a.csv:2: label '999"),
        (["a", "q"], ["a", "b"], "a.csv:3: label 'q' is not in data.label_names"),
    ],
)
def test_labels_that_are_both_or_neither_are_refused_with_the_first_such_row(
    labels, names, message
):
    """A mixture is refused, too: which row is wrong depends on the others."""
    assert refusal(write_labelled("a.csv", *labels), label_names=names).startswith(message)


def test_a_split_by_itself_is_read_as_the_training_data_was():
    """The file alone may be ambiguous; then it is refused, unless the data set has decided."""
    source = write_labelled("b.csv", 1, 2)
    config = DataConfig(train="a.csv", label_names=("1", "2", "3"))
    with pytest.raises(DataError, match=r"^b\.csv:2: label 1 may be"):
        load_split(source, config, ("1", "2", "3"))
    assert load_split(source, config, ("1", "2", "3"), labels_are="names").labels.tolist() == [0, 1]
    assert load_split(source, config, ("1", "2", "3"), labels_are="indices").labels.tolist() == [
        1,
        2,
    ]
    with pytest.raises(DataError, match=r"^b\.csv:3: label 3 has no name"):
        load_split(write_labelled("b.csv", 1, 3), config, ("1", "2", "3"), labels_are="indices")


def test_an_integer_and_its_digits_are_one_class():
    assert load(write_labelled("a.jsonl", 1, "1", 0)).label_names == ("0", "1")
