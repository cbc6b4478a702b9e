"""What labels are: names or indices for all splits of a data set, alone, folded, or unknown."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from support.data import classes_of, load, refusal, write, write_labelled

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.continued_data import BaseData
from encoder_cls.data.data_warnings import data_warnings
from encoder_cls.data.dataset import Dataset
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
    """Words end at characters other than letters and digits, and before capitals."""
    assert names_as_texts([name]) == [text]


GOOD = "text,label\none,x\ntwo,y\n"

# Folded labels


SPELLINGS = ["Late", "late ", "refund", "re\u200bfund", "late", "REFUND", "LATE", "refund"]


def test_labels_that_look_alike_are_one_class_where_they_are_folded():
    """It has the name of the most frequent spelling in train, without spaces around."""
    test = write_labelled("t.jsonl", "LATE", "LATE", "LATE", " Refund", "REFUND", "REFUND")
    dataset = load(write_labelled("a.jsonl", *SPELLINGS), fold_labels=True, test=test)

    assert classes_of(dataset, dataset.train) == [
        "late",
        "late",
        "refund",
        "refund",
        "late",
        "refund",
        "late",
        "refund",
    ]
    assert classes_of(dataset, dataset.test) == ["late"] * 3 + ["refund"] * 3
    assert spelling_warnings(dataset) == []


def test_labels_that_look_alike_are_warned_of_with_the_setting_to_fold_them():
    first, second = spelling_warnings(load(write_labelled("a.jsonl", *SPELLINGS)))

    assert "'LATE', 'Late', 'late', 'late ' differ only" in first
    assert "data.fold_labels=true" in first
    assert "data.fold_labels=true" in second


def spelling_warnings(dataset: Dataset) -> list[str]:
    return [warning for warning in data_warnings(dataset) if "differ only" in warning]


def test_of_equally_frequent_spellings_the_first_names_the_class():
    dataset = load(write_labelled("a.jsonl", "b", "X", "x", "x", "X"), fold_labels=True)
    assert dataset.label_names == ("X", "b")


def test_one_of_two_names_that_folded_labels_have_is_refused():
    source = write_labelled("a.jsonl", "a", "b")
    message = r"one class of 'a' and 'A', which are two in data\.label_names"
    with pytest.raises(ConfigError, match=message):
        load(source, fold_labels=True, label_names=["a", "A", "b"])


def test_labels_of_other_data_are_folded_to_the_classes_of_a_run():
    source = write_labelled("a.jsonl", "LATE", "late", "late")
    config = DataConfig(train=source, fold_labels=True)
    assert load_split(source, config, ("LATE", "other")).labels.tolist() == [0, 0, 0]

    with pytest.raises(ConfigError, match="which are two in the run"):
        load_split(source, config, ("LATE", "Late"))


def test_labels_of_a_continued_run_are_folded_to_the_classes_of_its_base_run():
    base_config = DataConfig(train=write_labelled("b.jsonl", *["Late", "x"] * 4))
    base = BaseData("former", load_dataset(base_config))

    source = write_labelled("a.jsonl", "LATE", "late", "late")
    dataset = load_dataset(DataConfig(train=source, fold_labels=True), base=base)

    assert dataset.label_names == ("Late", "x")


def test_several_labels_of_a_text_are_folded_too():
    labels = [["Late", "late"], ["refund", "late"], ["REFUND"], ["refund"], []]
    dataset = load(write_labelled("a.jsonl", *labels), fold_labels=True)

    assert dataset.label_names == ("late", "refund")
    assert dataset.train.labels.tolist() == [[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]]


# Empty labels


def write_with_empty_labels() -> tuple[str, str]:
    """Write training texts, some without a label, and validation texts; return both names."""
    train = write_labelled("a.jsonl", "late", "", "late ", None, 'it\'s "lost"', "late", " ")
    validation = write_labelled("v.jsonl", *["late"] * 24, "paid")
    return train, validation


def test_empty_labels_are_counted_and_their_use_can_be_pasted():
    """The error has the names of all splits, each once, whatever characters they have."""
    train, validation = write_with_empty_labels()

    message = refusal(train, validation=validation)

    assert message.startswith("a.jsonl:2: the label is empty, as in 3 of 7 rows; to use")
    advice = message.partition("add ")[2].partition("; data.bad_rows=skip leaves")[0]
    option, override = shlex.split(advice)
    assert option == "--set"
    assert override == 'data.label_names=["it\'s \\"lost\\"", "late", "paid"]'

    names = json.loads(override.removeprefix("data.label_names="))
    dataset = load(train, validation=validation, label_names=names)
    assert classes_of(dataset, dataset.train) == ["late", "late", 'it\'s "lost"', "late"]
    assert list(dataset.unlabelled.where) == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:7"]


def test_rows_with_an_empty_label_can_be_left_out():
    train, validation = write_with_empty_labels()
    dataset = load(train, validation=validation, bad_rows="skip")
    assert len(dataset.train) == 4


def test_of_several_labels_an_empty_one_is_written_as_an_empty_list():
    """With `data.label_names` it would mean that the text has none of them."""
    source = write_labelled("a.jsonl", None, ["x", "y"], ["x"])
    message = refusal(source, validation=write_labelled("v.jsonl", ["x"]))
    assert message.startswith("a.jsonl:1: the label is empty; write [] where")


# The order of classes


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
    """It is that of `label_names`; without them that of the numbers, or else of the alphabet."""
    lines = [f"text,{label}\n" for label in labels.split(",")]
    source = write("a.csv", "text,label\n" + "".join(lines))
    assert load(source, label_names=names).label_names == expected


# Labels that train does not have


def write_with_unseen(unseen_labels: str) -> str:
    """Write 100 rows, the last of which have these labels of a letter each, the others x or y."""
    lines = ["text,label"]
    for number in range(100 - len(unseen_labels)):
        label = "xy"[number % 2]
        lines.append(f"t{number},{label}")
    for number, label in enumerate(unseen_labels):
        lines.append(f"u{number},{label}")
    return write("b.csv", "\n".join(lines) + "\n")


def test_few_labels_that_train_does_not_have_are_numbered_behind_the_classes():
    """Each split has its own, in the order of classes."""
    train = write("a.csv", GOOD)
    dataset = load(train, validation=write_with_unseen("zawza"), test=write("c.csv", GOOD))

    assert dataset.label_names == ("x", "y")
    assert dataset.validation.unseen_names == ("a", "w", "z")
    assert len(dataset.validation) == 100
    assert dataset.validation.labels[-5:].tolist() == [4, 2, 3, 4, 2]

    split = load_split("b.csv", DataConfig(train=train), ("x", "y"))
    assert split.fingerprint == dataset.validation.fingerprint


def test_only_known_rows_of_validation_choose_the_weights():
    dataset = load(write("a.csv", GOOD), validation=write_with_unseen("zawza"))

    assert len(dataset.known_validation) == 95
    assert dataset.known_validation.unseen_names == ()
    assert list(dataset.known_validation.texts) == dataset.validation.texts[:95]


def test_the_fingerprint_changes_with_a_label_that_train_does_not_have():
    """The numbers of both sets of labels are equal, their names are not."""
    train = write("a.csv", GOOD)
    validation = load(train, validation=write_with_unseen("zawza")).validation
    other = load(train, validation=write_with_unseen("zbwzb")).validation

    assert other.labels.tolist() == validation.labels.tolist()
    assert other.fingerprint != validation.fingerprint


@pytest.mark.parametrize("split", ["validation", "test"])
def test_many_labels_that_train_does_not_have_are_refused(split):
    """More than 5% of the rows have such labels: probably another data set was meant."""
    train = write("a.csv", GOOD)
    source = write_with_unseen("zawzaa")
    message = (
        r"b\.csv:96: label 'z' never occurs in train \('x', 'y'\); "
        r"6 of 100 rows .* \('a', 'w', 'z'\)"
    )

    assert re.match(message, refusal(train, **{split: source}))
    with pytest.raises(DataError, match=message):
        load_split(source, DataConfig(train=train), ("x", "y"))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_of_few_rows_one_with_an_unknown_label_is_too_many(split):
    source = write("b.csv", GOOD + "three,z\n")
    message = refusal(write("a.csv", GOOD), **{split: source})
    assert message.startswith("b.csv:4: label 'z'")


def test_a_name_that_train_does_not_have_is_such_a_label():
    """These labels have the order of `data.label_names`."""
    names = ["x", "w", "y", "a"]
    dataset = load(write("a.csv", GOOD), test=write_with_unseen("aw"), label_names=names)

    assert dataset.label_names == ("x", "y")
    assert dataset.test.unseen_names == ("w", "a")
    assert dataset.test.labels[-2:].tolist() == [3, 2]


def test_a_label_that_no_name_is_given_to_is_refused():
    names = ["x", "w", "y", "a"]
    message = refusal(write("a.csv", GOOD), test=write_with_unseen("q"), label_names=names)
    assert message.startswith("b.csv:101: label 'q' is not in data.label_names")


# Names or indices


STARS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(("train", "split"), [("a.csv", "validation"), ("a.jsonl", "test")])
@pytest.mark.parametrize(
    ("labels", "labels_of_split", "names", "labels_are"),
    [
        ([0, 1, 2, 3, 4, 4], [1], STARS, "indices"),
        ([1, 2, 3, 4, 5, 5], [1], STARS, "names"),
        ([1, 2, 1, 2], [*[1, 2] * 20, 0], STARS[1:3], "indices"),
        ([1, 2, 1, 2], [*[1, 2] * 20, 5], STARS[:2], "names"),
    ],
)
def test_names_of_digits_are_decided_on_once_for_a_data_set(
    train, split, labels, labels_of_split, names, labels_are
):
    """All labels of all splits are names, or all are indices, integers or of digits.

    So five classes stay five.
    """
    source = write_labelled(train, *labels)
    other_source = write_labelled("b.csv", *labels_of_split)

    dataset = load(source, label_names=STARS, **{split: other_source})

    assert dataset.label_names == tuple(names)
    assert dataset.labels_are == labels_are
    assert dataset.train.labels.tolist() == [label - min(labels) for label in labels]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (
            [1, 2],
            STARS,
            "a.csv:2: label 1 may be the name '1' or the number of '2' in data.label_names; if "
            "names",
        ),
        (
            ["high", 1],
            ["low", "mid", "2"],
            "a.csv:2: label 'high' is not in data.label_names",
        ),
        (
            ["low", 1],
            ["low", "mid", "2"],
            "a.csv:3: label '1' is not in data.label_names; labels are either all",
        ),
        (
            [1, "low"],
            ["low", "mid", "2"],
            "a.csv:3: label 'low' is a name where others are numbers; labels are",
        ),
        (
            ["low", 7],
            ["low", "mid", "high"],
            "a.csv:3: label 7 has no name; data.label_names holds 3 names",
        ),
        (
            [0, 7],
            ["a", "b", "c"],
            "a.csv:3: label 7 has no name; data.label_names holds 3 names",
        ),
        (
            [1, 6],
            STARS,
            "a.csv:3: label '6' is not in data.label_names",
        ),
        (
            [1, -1],
            ["neg", "pos"],
            "a.csv:3: label '-1' is not in data.label_names; if it means \"no label\"",
        ),
        (
            ["9" * 5000],
            ["a", "b"],
            "a.csv:2: label '999",
        ),
        (
            ["a", "q"],
            ["a", "b"],
            "a.csv:3: label 'q' is not in data.label_names",
        ),
    ],
)
def test_labels_that_are_both_or_neither_are_refused_with_the_first_such_row(
    labels, names, message
):
    """If a name is a number, a mixture is refused: a number could be a name or an index."""
    assert refusal(write_labelled("a.csv", *labels), label_names=names).startswith(message)


@pytest.mark.parametrize("labels", [["high", 1, "0", "mid"], [2, "mid", "low", "1"]])
def test_names_and_numbers_of_the_same_classes_may_be_mixed(labels: list[object]):
    """Also where another file of the same data has names or numbers alone."""
    names = ["low", "mid", "high"]
    dataset = load(
        write_labelled("a.csv", *labels), label_names=names, test=write_labelled("b.csv", 0, 1)
    )

    assert classes_of(dataset, dataset.train) == ["high", "mid", "low", "mid"]
    assert dataset.test is not None
    assert classes_of(dataset, dataset.test) == ["low", "mid"]

    source = write_labelled("c.csv", "mid", 2)
    split = load_split(
        source, DataConfig(train=source, label_names=names), tuple(names), labels_are="names"
    )
    assert split.labels.tolist() == [1, 2]


def test_an_ambiguous_file_by_itself_is_refused():
    source = write_labelled("b.csv", 1, 2)
    config = DataConfig(train="a.csv", label_names=("1", "2", "3"))
    with pytest.raises(DataError, match=r"^b\.csv:2: label 1 may be"):
        load_split(source, config, ("1", "2", "3"))


@pytest.mark.parametrize(("labels_are", "expected"), [("names", [0, 1]), ("indices", [1, 2])])
def test_a_split_by_itself_is_read_as_the_training_data_was(labels_are, expected):
    source = write_labelled("b.csv", 1, 2)
    config = DataConfig(train="a.csv", label_names=("1", "2", "3"))
    split = load_split(source, config, ("1", "2", "3"), labels_are=labels_are)
    assert split.labels.tolist() == expected


def test_an_index_beyond_the_names_is_refused():
    source = write_labelled("b.csv", 1, 3)
    config = DataConfig(train="a.csv", label_names=("1", "2", "3"))
    with pytest.raises(DataError, match=r"^b\.csv:3: label 3 has no name"):
        load_split(source, config, ("1", "2", "3"), labels_are="indices")


def test_an_integer_and_its_digits_are_one_class():
    assert load(write_labelled("a.jsonl", 1, "1", 0)).label_names == ("0", "1")
