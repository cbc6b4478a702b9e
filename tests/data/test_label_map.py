"""Labels that become other classes (`data.label_map`), and files of labels of a config."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.data import classes_of, load, refusal, write, write_labelled
from support.tables import write_table

from encoder_cls.config.label_files import with_label_files
from encoder_cls.config.loading import config_of, load_config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_split
from encoder_cls.errors import ConfigError


def train_classes(dataset: Dataset) -> list[str]:
    return classes_of(dataset, dataset.train)


def test_labels_become_the_classes_that_they_are_mapped_to():
    """A class need not be a label; spaces around labels do not count."""
    source = write_labelled("a.csv", "rfund", " rfund", "refund", "late", "early", "early")
    label_map = {"rfund": "refund", "late": "time", "early": "time"}
    dataset = load(source, label_map=label_map)

    assert dataset.label_names == ("refund", "time")
    assert train_classes(dataset) == ["refund", "refund", "refund", "time", "time", "time"]
    assert dataset.notes == []


def test_numbers_are_mapped_however_a_table_writes_them():
    source = write_labelled("a.csv", "1.0", "2.0", "1.0", "2.0")
    for label_map in ({"1": "bad", "2": "good"}, {"1.0": "bad", "2.0": "good"}):
        dataset = load(source, label_map=label_map)
        assert train_classes(dataset) == ["bad", "good", "bad", "good"]
        assert dataset.notes == []


def test_folded_labels_are_mapped_in_any_spelling():
    source = write_labelled("a.csv", "Refund", "REFUND", "RFUND", "rfund ", "late")
    dataset = load(source, label_map={"rfund": "refund"}, fold_labels=True)
    assert train_classes(dataset) == ["Refund"] * 4 + ["late"]


def test_classes_of_a_map_may_be_named_or_numbered():
    source = write_labelled("a.csv", "rfund", "late", "refund", "late")
    names = ["late", "refund"]
    assert train_classes(load(source, label_map={"rfund": "1"}, label_names=names))[0] == "refund"
    assert "label 'money' is not in data.label_names" in refusal(
        source, label_map={"rfund": "money"}, label_names=names
    )


def test_each_of_several_labels_is_mapped():
    source = write_labelled("a.csv", "rfund|late", "refund|rfund", "late", "")
    dataset = load(source, label_separator="|", label_map={"rfund": "refund"})
    assert train_classes(dataset) == ["late, refund", "refund", "late", ""]


def test_a_file_to_score_on_is_mapped_as_train():
    config = config_of(
        {"name": "a", "data.train": "a.csv", "data.label_map": {"rfund": "refund"}}, source="test"
    )
    split = load_split(write_labelled("b.csv", "rfund", "late"), config.data, ("late", "refund"))
    assert split.labels.tolist() == [1, 0]


def test_labels_of_the_map_that_no_row_has_are_named():
    source = write_labelled("a.csv", "x", "y", "x", "y")
    dataset = load(source, label_map={"x": "z", "q": "z"})
    assert dataset.notes == ["warning: labels of data.label_map that no row has: 1 ('q')"]


def test_without_folding_a_label_of_the_map_in_another_case_is_one_that_no_row_has():
    source = write_labelled("a.csv", "Spam", "ham", "Spam", "ham")
    label_map = {"spam": "junk"}

    notes = load(source, label_map=label_map).notes
    assert notes == ["warning: labels of data.label_map that no row has: 1 ('spam')"]
    assert load(source, label_map=label_map, fold_labels=True).notes == []


def test_of_classes_that_differ_in_spaces_alone_the_one_is_meant_that_is_written_so():
    """Else it is the first one, whatever Python's hashes are."""
    source = write_labelled("a.jsonl", " a", "a", "b ", " b", "x", "y")
    dataset = load(source, label_map={"x": "a", "y": "b"})
    assert train_classes(dataset) == [" a", "a", "b ", " b", "a", "b "]


# Files


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_map_may_be_a_table_of_two_columns(separator: str):
    """As a spreadsheet saves it: in Windows-1252, with or without a header."""
    rows = [["Ueberweisung", "Überweisung"], ["01", "1"]]
    expected = {"Ueberweisung": "Überweisung", "01": "1"}
    for name, table in (("a.csv", rows), ("b.csv", [["Label", "new"], *rows])):
        write_table(name, table, separator, encoding="windows-1252")
        values = {"name": "a", "data.train": "t.csv", "data.label_map": name}
        assert config_of(values, source="test").data.label_map == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("names.txt", "late, or lost\nrefund\n\n01\n"),
        ("names.csv", 'label\n"late, or lost"\nrefund\n01\n'),
        ("names.csv", 'number;label\n0;"late, or lost"\n1;refund\n2;01\n'),
    ],
)
def test_names_of_classes_may_be_a_file(name: str, content: str):
    values = {"name": "a", "data.train": "t.csv", "data.label_names": write(name, content)}
    config = config_of(values, source="test")
    assert config.data.label_names == ("late, or lost", "refund", "01")


def test_a_list_of_names_has_no_header():
    """Its first line may be a class that is called as the column of labels is by default."""
    values = {"name": "a", "data.train": "t.csv", "data.label_names": write("a.txt", "label\nx\n")}
    assert config_of(values, source="test").data.label_names == ("label", "x")


def test_files_are_found_beside_the_config_and_become_part_of_it():
    write("data/map.csv", "a,b\n")
    write("data/names.txt", "b\nc\n")
    text = "data:\n  train: t.csv\n  label_map: map.csv\n  label_names: names.txt\n"
    config = load_config(Path(write("data/a.yaml", text)))

    assert config.data.label_map == {"a": "b"}
    assert config.data.label_names == ("b", "c")
    assert load_config(Path(write("b.yaml", config.to_yaml()))) == config


def test_the_command_line_names_a_file_or_has_the_map():
    write("map.csv", "a,b\n")
    for setting in ("map.csv", '{"a": "b"}', "{a: b}"):
        config = load_config(overrides=["data.train=t.csv", f"data.label_map={setting}"])
        assert config.data.label_map == {"a": "b"}


def test_labels_in_a_config_stay_as_they_are_written():
    text = "data:\n  train: t.csv\n  label_map:\n    01: 007\n    true: no\n"
    config = load_config(Path(write("a.yaml", text)))
    assert config.data.label_map == {"01": "007", "true": "no"}


@pytest.mark.parametrize(
    ("key", "name", "content", "message"),
    [
        ("label_map", "a.csv", "a\n", "a.csv:1: data.label_map: two cells are needed"),
        ("label_map", "a.csv", "a,b\nc,\n", "a.csv:2: data.label_map: two cells are needed"),
        ("label_map", "a.csv", "a,b\na,c\n", "a.csv:2: data.label_map: 'a' becomes 'b' above"),
        ("label_map", "a.csv", "", "a.csv: data.label_map: the file has no rows"),
        ("label_map", "b.csv", None, "b.csv: data.label_map: cannot be read: No such file"),
        ("label_names", "a.csv", "1,a\n", "a.csv:1: data.label_names: a name is needed"),
        ("label_names", "a.txt", "\n", "a.txt: data.label_names: the file has no names"),
        ("label_names", "a.txt", "a\na\n", "label_names: 'a' is listed twice"),
        ("label_map", "a.xlsx", b"PK\x03\x04\x00\xff\xfe\x90\x9d", "a.xlsx"),
    ],
)
def test_other_files_are_refused(key, name, content, message):
    if content is not None:
        write(name, content)
    with pytest.raises(ConfigError) as caught:
        config_of({"name": "a", "data.train": "t.csv", f"data.{key}": name}, source="test")
    assert message in str(caught.value)


def test_a_config_without_files_stays_as_it_is():
    values = {"name": "a", "data": {"train": "t.csv", "label_names": ["a", "b"]}}
    assert with_label_files(values) == values
    assert with_label_files({"data": None}) == {"data": None}
