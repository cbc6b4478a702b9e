"""Corrected labels (`data.corrections`) reach every row with the text of their key."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from support.data import classes_of, load, refusal, write, write_labelled
from support.excel import write_excel

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_dataset


def fix(*rows: tuple[str, str]) -> str:
    """Write a file of corrections, `fix.csv`: texts and their new labels."""
    with Path("fix.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "label"])
        for text, new_label in rows:
            writer.writerow([key_of_text(text), new_label])
    return "fix.csv"


def labels_by_place(dataset: Dataset) -> dict[str, str]:
    """The label of each row of all splits, by its location."""
    places = {}
    for split in dataset.splits.values():
        places.update(zip(split.where, classes_of(dataset, split), strict=True))
    return places


def test_a_key_is_letters_alone():
    """No spreadsheet makes a number, a date or a formula of it."""
    texts = [f"text {number}" for number in range(1000)]
    keys = {key_of_text(text) for text in texts}

    assert len(keys) == len(texts)
    assert all(re.fullmatch("k[a-z]{12}", key) for key in keys)
    assert key_of_text("good soup") == "kplchxaaqfuvv"


def test_line_ends_do_not_change_a_key():
    assert key_of_text("a\r\nb") == key_of_text("a\nb") == key_of_text("a\rb")
    assert key_of_text("a b") != key_of_text("a\nb")


def test_a_correction_holds_for_every_row_with_its_text():
    """It is also applied to the rows of validation and test, and in each file of a folder."""
    for name in ("data/one.csv", "data/two.csv"):
        write(name, "text,label\ngood soup,sport\nfast ball,sport\nsalt,food\n")
    test = write("scored.csv", "text,label\ngood soup,sport\nfast ball,sport\n")

    config = DataConfig(train="data", validation=test, test=test)
    before = load_dataset(config)
    corrections = fix(("good soup", "food"))
    after = load_dataset(config.model_copy(update={"corrections": corrections}))

    changed = {"data/one.csv:2", "data/two.csv:2", "scored.csv:2"}
    assert set(after.labels_before_corrections) == changed
    assert set(after.labels_before_corrections.values()) == {"sport"}
    labels_before = labels_by_place(before)
    for place, label in labels_by_place(after).items():
        expected = "food" if place in changed else labels_before[place]
        assert label == expected


def test_the_texts_of_several_columns_have_one_key():
    source = write("a.csv", "title,body,label\ngood,soup,sport\nfast,ball,sport\nsalt,pan,food\n")
    corrections = fix(("good soup", "food"))

    dataset = load(source, text_column=("title", "body"), corrections=corrections)

    assert classes_of(dataset, dataset.train) == ["food", "sport", "food"]


def test_a_label_that_is_still_that_of_the_data_corrects_nothing():
    """Of two equal texts with different labels, one may be listed and left as it is."""
    source = write("a.csv", "text,label\nsoup,sport\nsoup,food\nball,sport\n")
    key = key_of_text("soup")
    header = "key,label,label_in_data"
    unchanged = f"{key},food,food"

    write("fix.csv", f"{header}\n{key},sport,sport\n{unchanged}\n")
    assert load(source, corrections="fix.csv").labels_before_corrections == {}

    write("fix.csv", f"{header}\n{key},food ,sport\n{unchanged}\n")
    assert load(source, corrections="fix.csv").labels_before_corrections == {"a.csv:2": "sport"}


def test_corrections_have_the_column_names_of_a_review():
    """If the data has a column `key`, that of the review gets a prefix."""
    source = write("a.csv", "key,label\nsoup,sport\nball,sport\npan,food\n")
    corrections = write("fix.csv", f"review_key,label\n{key_of_text('soup')},food\n")

    dataset = load(source, text_column=("key",), corrections=corrections)
    assert dataset.labels_before_corrections == {"a.csv:2": "sport"}


GOOD = "text,label\nsoup,food\nball,sport\n"
SOUP = key_of_text("soup")
BALL = key_of_text("ball")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text,label,file,line\nsoup,sport,a.csv,2\n",
            "fix.csv: no column 'key', by which corrections find their texts; run encoder-cls "
            "review again, which writes it",
        ),
        (
            "key,file\nk,a.csv\n",
            "fix.csv: no column 'label'; it has 'key', 'file'",
        ),
        (
            "key,label\n,food\n",
            "fix.csv:2: the key is empty; remove the row, or review again",
        ),
        (
            f"key,label\n{SOUP}, \n",
            "fix.csv:2: the label is empty; fill in a label, or remove the row",
        ),
        (
            f"key,label\n{SOUP},sprot\n",
            "fix.csv:2: label 'sprot' occurs nowhere in the data ('food', 'sport')",
        ),
        (
            f"key,label\n{SOUP},sport\n{BALL},food\n{SOUP},food\n",
            "fix.csv:4: the label is 'food', but the same text has 'sport' at fix.csv:2; equal "
            "texts must have equal labels",
        ),
        (
            "key,label\nkaaaaaaaaaaaa,food\n",
            "fix.csv:2: no labelled row of the data has the key 'kaaaaaaaaaaaa'; the data has "
            "changed since the review: remove such rows, or review again",
        ),
        (
            f"key,label\n{SOUP},sport\nka,food\nkb,food\nkc,food\n",
            "fix.csv:3: no labelled row of the data has the key 'ka', nor the keys of 2 further "
            "corrections; the data has changed",
        ),
    ],
)
def test_corrections_that_do_not_fit_are_one_error(content, message):
    write("fix.csv", content)
    assert refusal(write("a.csv", GOOD), corrections="fix.csv").startswith(message)


def test_a_correction_of_a_row_that_has_lost_its_label_is_refused():
    source = write("a.csv", "text,label\nsoup,food\nball,sport\npan,\n")
    values = {"validation": write("v.csv", GOOD), "label_names": ["food", "sport"]}
    assert load(source, **values).label_names == ("food", "sport")

    message = refusal(source, corrections=fix(("pan", "food")), **values)
    assert message.startswith("fix.csv:2: no labelled row of the data has the key")


def test_corrections_may_be_in_windows_1252_with_semicolons():
    """So does Excel save CSV in Germany. A line says how the file was read."""
    source = write("a.csv", "text,label\nsoup,food\nball,größe\npan,food\n")
    table = f"key;label;note\n{SOUP};größe;é\n"
    corrections = write("fix.csv", table.encode("cp1252"))

    dataset = load(source, corrections=corrections)

    assert classes_of(dataset, dataset.train) == ["größe", "größe", "food"]
    assert "fix.csv: read as Windows-1252, since it is not UTF-8" in dataset.notes


def test_corrections_may_be_an_excel_file():
    """Labels that are numbers there have the names of the data."""
    source = write("a.csv", "text,label\nsoup,1\nball,2\npan,1\n")
    write_excel("fix.xlsx", ["key", "label", "label_in_data"], [SOUP, 2, 1], [BALL, 2, 2])

    dataset = load(source, corrections="fix.xlsx")

    assert classes_of(dataset, dataset.train) == ["2", "2", "1"]
    assert dataset.labels_before_corrections == {"a.csv:2": "1"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_corrections_in_another_encoding_are_refused(encoding):
    content = f"key,label\n{SOUP},größe\n".encode(encoding)
    message = refusal(write("a.csv", GOOD), corrections=write("fix.csv", content))
    assert message.startswith("fix.csv:1: not UTF-8 text")
    assert message.endswith("; save it as CSV UTF-8")


def test_corrected_labels_do_not_count_for_the_spelling_of_a_class():
    """So a correction renames no class.

    Of X and x, which are equally frequent, X comes first.
    """
    source = write_labelled("a.jsonl", "b", "X", "x", "x", "X", "b")
    corrections = fix(("a aaa", "x"), ("a bbb", "x"))

    dataset = load(source, fold_labels=True, corrections=corrections)

    assert classes_of(dataset, dataset.train) == ["X", "X", "X", "X", "X", "b"]
    assert dict(dataset.labels_before_corrections) == {"a.jsonl:1": "b"}


@pytest.mark.parametrize("labels", [["No", "YES ", "no", "yes"], [0, 1, 0, 1]])
def test_folded_labels_are_corrected_in_any_spelling(labels):
    """Labels may be the numbers of the names, too."""
    source = write_labelled("a.jsonl", *labels)
    corrections = fix(("a aaa", "Yes"))

    dataset = load(source, fold_labels=True, label_names=["no", "yes"], corrections=corrections)

    assert classes_of(dataset, dataset.train) == ["yes", "yes", "no", "yes"]
    assert dict(dataset.labels_before_corrections) == {"a.jsonl:1": "no"}


def test_corrections_name_numbers_as_the_data_or_as_the_classes():
    """The file of a review repeats the data's 1.0, where the class is 1."""
    source = write("a.csv", "text,label\na,1.0\nb,2.0\nc,2.0\nd,2.0\n")
    dataset = load(source, corrections=fix(("b", "1.0"), ("c", "1")))
    assert classes_of(dataset, dataset.train) == ["1", "1", "1", "2"]


def test_corrections_give_classes_of_any_split_and_may_leave_one_without_a_row():
    train = write_labelled("a.csv", "x", "y", "y", "z")
    test = write_labelled("t.csv", *["x"] * 30, "w")
    corrections = fix(("a ddd", "w"))

    config = DataConfig(train=train, validation=test, test=test, corrections=corrections)
    dataset = load_dataset(config)

    assert dataset.label_names == ("w", "x", "y")
    assert dataset.train.labels.tolist() == [1, 2, 2, 0]


def test_corrections_do_not_change_what_is_held_out():
    source = write_labelled("a.csv", *["x", "y", "z"] * 10)
    before = load_dataset(DataConfig(train=source))

    corrections = fix(("a aaa", "y"), ("a bbb", "z"), ("a ccc", "x"))
    after = load_dataset(DataConfig(train=source, corrections=corrections))

    assert len(after.labels_before_corrections) == 3
    assert list(after.validation.where) == list(before.validation.where)


@pytest.mark.parametrize("content", ["", "key,label\n"])
def test_a_file_of_corrections_without_rows_is_warned_of(content):
    dataset = load(write("a.csv", GOOD), corrections=write("fix.csv", content))

    assert dataset.labels_before_corrections == {}
    assert dataset.notes == [
        "warning: fix.csv: no rows in this file of corrections (data.corrections), so no label is "
        "changed"
    ]


def test_a_file_of_corrections_that_changes_nothing_needs_no_warning():
    """A person has looked at its rows, and found the labels of the data right."""
    content = f"key,label,label_in_data\n{SOUP},food,food\n"
    dataset = load(write("a.csv", GOOD), corrections=write("fix.csv", content))

    assert dataset.labels_before_corrections == {}
    assert dataset.notes == []


SEVERAL = "text,label\ngood soup,sport|food\nfast ball,sport\nsalt,food\nthe of,\n"


def several_labels(dataset: Dataset) -> list[str]:
    """The labels of each training row."""
    names = dataset.label_names
    return [dataset.train.label_text(row, names) for row in range(len(dataset.train))]


def test_a_correction_gives_all_labels_of_a_text():
    """Their order and spaces do not matter, and an empty cell takes all labels away."""
    source = write("a.csv", SEVERAL)
    corrections = fix(("good soup", "food"), ("fast ball", ""), ("the of", " sport |food"))

    dataset = load(source, label_separator="|", corrections=corrections)

    assert several_labels(dataset) == ["food", "", "food", "food, sport"]
    before = dict(dataset.labels_before_corrections)
    assert before == {"a.csv:2": "food|sport", "a.csv:3": "sport", "a.csv:5": ""}


def test_labels_in_another_order_correct_nothing():
    source = write("a.csv", SEVERAL)
    corrections = fix(("good soup", "sport|food"))

    dataset = load(source, label_separator="|", corrections=corrections)

    assert dataset.labels_before_corrections == {}


@pytest.mark.parametrize("cell", ["a|b; c", "c;a|b", "c ; a|b"])
def test_the_separator_of_lists_is_in_no_name(cell):
    """A name with the usual separator stays whole."""
    lines = [
        '{"text": "one", "label": ["a|b"]}',
        '{"text": "two", "label": ["c"]}',
        '{"text": "three", "label": ["a|b", "c"]}',
    ]
    source = write("a.jsonl", "\n".join([*lines, ""]))

    dataset = load(source, corrections=fix(("one", cell), ("two", "a|b")))

    assert several_labels(dataset) == ["a|b, c", "a|b", "a|b, c"]
    assert dict(dataset.labels_before_corrections) == {"a.jsonl:1": "a|b", "a.jsonl:2": "c"}


def test_an_unknown_label_among_several_is_named():
    source = write("a.csv", SEVERAL)
    corrections = fix(("good soup", "food|fodo"))

    refused = refusal(source, label_separator="|", corrections=corrections)

    what = "label 'fodo' occurs nowhere in the data ('food', 'sport')"
    assert refused.startswith(f"fix.csv:2: {what}")


def test_corrections_that_give_a_text_different_sets_are_refused():
    source = write("a.csv", SEVERAL)
    corrections = fix(("good soup", "food|sport"), ("good soup", "food"))
    refused = refusal(source, label_separator="|", corrections=corrections)
    assert "equal texts must have equal labels" in refused


def test_a_correction_of_several_labels_does_not_change_which_rows_are_held_out():
    lines = ["text,label"]
    for number in range(60):
        lines.append(f"{'soup' if number % 2 else 'ball'} w{number} x{number},{'ab'[number % 2]}|c")
    source = write("a.csv", "\n".join([*lines, ""]))
    options = {"validation": None, "label_separator": "|"}

    before = load(source, **options)
    corrected = [(text, "a") for text in before.train.texts[:5]]
    after = load(source, **options, corrections=fix(*corrected))

    assert len(after.labels_before_corrections) == 5
    assert list(after.validation.texts) == list(before.validation.texts)


def test_rows_are_held_out_anew_where_a_correction_would_hold_out_all_rows_of_a_label():
    lines = ["text,label"]
    for number in range(40):
        lines.append(f"w{number} x{number},a|b")
    source = write("a.csv", "\n".join([*lines, ""]))
    options = {"validation": None, "label_separator": "|"}
    held_out = load(source, **options).validation.texts
    corrections = fix(*[(f"w{n} x{n}", "a") for n in range(40) if f"w{n} x{n}" not in held_out])

    dataset = load(source, **options, corrections=corrections)

    assert dataset.label_names == ("a", "b")
    assert dataset.train.class_counts(2).tolist()[1] > 0
