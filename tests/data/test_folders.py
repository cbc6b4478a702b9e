"""Folders and patterns: all their files are read, or each folder in them is a class."""

from __future__ import annotations

import pytest
from support.data import classes_of, load, refusal, write


def read(source: str) -> list[tuple[str, str]]:
    """Texts and class names in the order of the files."""
    dataset = load(source)
    classes = classes_of(dataset, dataset.train)
    return list(zip(dataset.train.texts, classes, strict=True))


def write_files_of_several_formats() -> None:
    write("d/c.jsonl", '{"text": "3", "label": "y"}\n')
    write("d/a.csv", "text,label\n1,x\n")
    write("d/b.txt", "__label__x 2\n")
    write("d/deep/d.TSV", "text\tlabel\n4\tx\n")
    write("d/notes.md", "not data")


@pytest.mark.parametrize("source", ["d", "d/*.[cjt]*"])
def test_a_folder_or_a_pattern_is_all_its_files_in_the_order_of_their_names(source):
    write_files_of_several_formats()
    assert read(source) == [("1", "x"), ("2", "x"), ("3", "y")]


def test_a_pattern_may_reach_into_deeper_folders():
    write_files_of_several_formats()
    assert read("d/**/*.[cjtT][sSx]*") == [("1", "x"), ("2", "x"), ("3", "y"), ("4", "x")]


def test_a_text_file_without_labels_beside_tables_is_left_alone():
    """It is probably a README.txt."""
    write_files_of_several_formats()
    write("d/b.txt", "about this data")
    assert read("d") == [("1", "x"), ("3", "y")]


def test_class_folders_of_text_files_are_classes():
    """Each .txt file is one text, as it is in the file; other files are left alone."""
    write("d/spam/2.txt", "win\r\nnow\n")
    write("d/spam/10.txt", b"\xef\xbb\xbf a")
    write("d/ham/1.txt", "hello")
    write("d/ham/notes.md", "not data")
    write("d/ham/3.TXT", "a suffix in capitals")
    write("d/spam/._2.txt", "what macOS keeps beside a file")
    write("d/.ipynb_checkpoints/1.txt", "what Jupyter keeps in a folder")

    assert read("d") == [
        ("hello", "ham"),
        ("a suffix in capitals", "ham"),
        (" a", "spam"),
        ("win\r\nnow\n", "spam"),
    ]
    assert list(load("d").train.where) == [
        "d/ham/1.txt",
        "d/ham/3.TXT",
        "d/spam/10.txt",
        "d/spam/2.txt",
    ]


def write_class_folders() -> None:
    write("d/spam/1.txt", "win")
    write("d/ham/1.txt", "hello")


def test_labelled_texts_without_columns_have_no_second_text_column():
    write_class_folders()
    for source in ("d", write("a.ft", "__label__x a\n")):
        message = refusal(source, text_column=["title", "body"])
        assert "text files have no columns" in message


@pytest.mark.parametrize("key", ["group_column", "weight_column"])
def test_labelled_texts_without_columns_have_neither_groups_nor_weights(key):
    write_class_folders()
    for source in ("d", write("a.ft", "__label__x a\n")):
        assert refusal(source, **{key: "number"}) == (
            f"{source}: text files have no columns, so none is called 'number'; save the data as a "
            f"table, or set data.{key}=null"
        )


def test_unlabelled_texts_without_columns_are_the_first_text_column():
    """Nothing is added where the second column is missing, and the label is not in the text."""
    write_class_folders()
    write("more.txt", "one line\n")
    train = write("a.csv", "title,body,label\nt1,b1,x\nt2,b2,y\n")

    for columns in (["title", "body"], ["title"]):
        dataset = load(train, text_column=columns, unlabelled="d")
        assert list(dataset.unlabelled.texts) == ["hello", "win"]

    dataset = load(train, text_column=["title", "body"], unlabelled="more.txt")
    assert list(dataset.unlabelled.texts) == ["one line"]
