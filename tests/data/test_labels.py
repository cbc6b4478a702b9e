"""What labels are: one answer for all of them, and the same for those of digits and for integers."""

from __future__ import annotations

import json
import shlex

import pytest
from support.data import classes_of, load, refusal, write, write_labelled

from encoder_cls.config import DataConfig
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.labels import names_as_texts
from encoder_cls.data.load import load_dataset, load_split
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
    """At what is no letter or digit, and where small letters end; a number says nothing."""
    assert names_as_texts([name]) == [text]


FOLD = "data.fold_labels=true"
SPELLINGS = ["Late", "late ", "refund", "re\u200bfund", "late", "REFUND", "LATE", "refund"]


def test_labels_that_look_alike_are_one_class_where_they_are_folded():
    """Called by the most frequent spelling in train, without spaces around; another split changes no name."""
    test = write_labelled("t.jsonl", "LATE", "LATE", "LATE", " Refund", "REFUND", "REFUND")
    dataset = load(write_labelled("a.jsonl", *SPELLINGS), fold_labels=True, test=test)
    late, refund = "late", "refund"
    assert classes_of(dataset, dataset.train) == [late, late, refund, refund, late, refund, late, refund]
    assert classes_of(dataset, dataset.test) == [late] * 3 + [refund] * 3
    assert not [it for it in data_warnings(dataset) if "differ only" in it]
    (first, second) = (it for it in data_warnings(load("a.jsonl")) if "differ only" in it)
    assert "'LATE', 'Late', 'late', 'late ' differ only" in first
    assert FOLD in first
    assert FOLD in second


def test_of_equally_frequent_spellings_the_first_names_the_class():
    """Corrected labels do not count, so that a correction renames no class."""
    assert load(write_labelled("a.jsonl", *"bXxxX"), fold_labels=True).label_names == ("X", "b")
    fix = write("fix.csv", "file,line,text,label\na.jsonl,1,a aaa,x\na.jsonl,2,a bbb,x\n")
    dataset = load(write_labelled("a.jsonl", *"bXxxXb"), fold_labels=True, corrections=fix)
    assert classes_of(dataset, dataset.train) == ["X", "X", "X", "X", "X", "b"]
    assert dict(dataset.corrected) == {"a.jsonl:1": "b"}


@pytest.mark.parametrize("labels", [["No", "YES ", "no", "yes"], [0, 1, 0, 1]])
def test_names_of_the_config_are_those_of_folded_labels(labels):
    """Where labels are their numbers as well; corrections name them in any spelling."""
    fix = write("fix.csv", "file,line,text,label\na.jsonl,1,a aaa,Yes\n")
    source = write_labelled("a.jsonl", *labels)
    dataset = load(source, fold_labels=True, label_names=["no", "yes"], corrections=fix)
    assert classes_of(dataset, dataset.train) == ["yes", "yes", "no", "yes"]
    assert dict(dataset.corrected) == {"a.jsonl:1": "no"}


def test_corrections_give_classes_of_any_split_and_may_leave_one_without_a_row():
    train, test = write_labelled("a.csv", *"xyyz"), write_labelled("t.csv", *["x"] * 30, "w")
    fix = write("fix.csv", "file,line,text,label\na.csv,5,a ddd,w\n")
    dataset = load_dataset(DataConfig(train=train, validation=test, test=test, corrections=fix))
    assert dataset.label_names == ("w", "x", "y")
    assert dataset.train.labels.tolist() == [1, 2, 2, 0]
    write_labelled("a.csv", *"xy", "", "y")
    with pytest.raises(DataError, match=r"^fix\.csv:2: a\.csv:4 has no label to correct"):
        load("a.csv", label_names=["x", "y"], corrections=write("fix.csv", "file,line,text,label\na.csv,4,a ccc,x\n"))


def test_one_of_two_names_that_folded_labels_have_is_refused():
    with pytest.raises(ConfigError, match=r"one class of 'a' and 'A', which are two in data\.label_names"):
        load(write_labelled("a.jsonl", "a", "b"), fold_labels=True, label_names=["a", "A", "b"])


def test_labels_of_other_data_are_folded_to_the_classes_of_a_run():
    config = DataConfig(train=write_labelled("a.jsonl", "LATE", "late", "late"), fold_labels=True)
    assert load_split("a.jsonl", config, ("LATE", "other")).labels.tolist() == [0, 0, 0]
    assert load_dataset(config, known=("Late", "x")).label_names == ("Late", "x")
    with pytest.raises(ConfigError, match="which are two in the run"):
        load_split("a.jsonl", config, ("LATE", "Late"))


def test_several_labels_of_a_text_are_folded_too():
    dataset = load(
        write_labelled("a.jsonl", ["Late", "late"], ["refund", "late"], ["REFUND"], ["refund"], []), fold_labels=True
    )
    assert dataset.label_names == ("late", "refund")
    assert dataset.train.labels.tolist() == [[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]]


def test_empty_labels_are_counted_and_their_use_can_be_pasted():
    """Names are those of all splits, once where only spaces around them differ, whatever is in them."""
    source = write_labelled("a.jsonl", "late", "", "late ", None, 'it\'s "lost"', "late", " ")
    validation = write_labelled("v.jsonl", *["late"] * 24, "paid")
    message = refusal(source, validation=validation)
    assert message.startswith("a.jsonl:2: the label is empty, as in 3 of 7 rows; to use")
    _, override = shlex.split(message.partition("add ")[2].partition("; data.bad_rows=skip leaves")[0])
    assert override == 'data.label_names=["it\'s \\"lost\\"", "late", "paid"]'
    dataset = load(source, validation=validation, label_names=json.loads(override.partition("=")[2]))
    assert classes_of(dataset, dataset.train) == ["late", "late", 'it\'s "lost"', "late"]
    assert [*dataset.unlabelled.where] == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:7"]
    assert len(load(source, validation=validation, bad_rows="skip").train) == 4


def test_of_several_labels_an_empty_one_is_written_as_an_empty_list():
    """With `data.label_names` it would say that the text has none of them."""
    source = write_labelled("a.jsonl", None, ["x", "y"], ["x"])
    message = refusal(source, validation=write_labelled("v.jsonl", ["x"]))
    assert message.startswith("a.jsonl:1: the label is empty; write [] where")
