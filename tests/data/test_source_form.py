"""Sources of unknown form: the splits among their files, and how these are written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.data import write
from support.excel import write_sheets
from support.tables import write_table

from encoder_cls.data.source_files import files_named
from encoder_cls.data.source_form import source_form
from encoder_cls.errors import DataError

ROWS = [["text", "label"], ["good", "a"], ["bad", "b"]]


def test_files_of_a_folder_are_splits_by_their_names():
    for name in ("train-00.csv", "train-01.csv", "test.csv", "dev.csv", "more.csv"):
        write_table(f"data/{name}", ROWS)
    form = source_form("data")
    assert form.splits == {
        "train": "data/train-0*.csv",
        "validation": "data/dev.csv",
        "test": "data/test.csv",
    }
    assert [file.name for file in form.files] == ["train-00.csv", "train-01.csv"]
    assert [file.name for file in form.others] == ["more.csv"]


@pytest.mark.parametrize(
    ("first", "second", "pattern"),
    [
        ("train-1.csv", "train-11.csv", "train-1*.csv"),
        ("train [a].csv", "train [b].csv", "train [[]*].csv"),
    ],
)
def test_several_files_of_a_split_are_a_pattern_that_they_fit(first, second, pattern):
    for name in (first, second, "test.csv"):
        write_table(f"data/{name}", ROWS)
    assert source_form("data").splits["train"] == f"data/{pattern}"
    assert [path.name for path in files_named(f"data/{pattern}")] == sorted([first, second])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a/test.csv"], "a: no file or folder is named as training data"),
        (["a/x.pdf"], "a: no .csv"),
        ([], "a: no such file or folder"),
    ],
)
def test_a_folder_without_training_data_is_refused(files: Sequence[str], message: str):
    for file in files:
        write(file, "text,label\n")
    with pytest.raises(DataError) as caught:
        source_form("a")
    assert str(caught.value).startswith(message)


def test_a_table_is_read_with_the_options_that_are_found():
    source = write_table("a.csv", [["text", "label"], ["gr\xfcn; rot", "a"]], ";", "windows-1252")
    form = source_form(source)
    assert form.has_columns
    assert form.reading.delimiter == ";"
    assert form.reading.encoding == "windows-1252"
    assert not form.is_usual_delimiter
    assert source_form(source, encoding="latin-1").reading.encoding == "latin-1"


def test_lines_of_text_have_no_columns_and_workbooks_have_sheets():
    assert not source_form(write("a.txt", "__label__a good\n")).has_columns

    write_sheets("a.xlsx", {"May": ROWS, "June": ROWS})
    assert source_form("a.xlsx").sheets == ("May", "June")
