"""Formats of text: each text is read exactly as it is in its file."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import load, refusal, write, write_labelled
from support.excel import write_excel

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.load_dataset import load_split
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.system.row_text import readable


def read(source: str, **values: object) -> list[tuple[str, str]]:
    """Texts and class names in the order of the file."""
    dataset = load(source, **values)
    names = [dataset.label_names[label] for label in dataset.train.labels]
    return list(zip(map(readable, dataset.train.texts), names, strict=True))


def packed(content: str | bytes) -> bytes:
    """Content as gzip writes it, without a time, so that tests have equal names in all workers."""
    if isinstance(content, str):
        content = content.encode()
    return gzip.compress(content, mtime=0)


CSV = "text,label\none,x\ntwo,y\n"
JSON_LINES = '{"text": "one", "label": "x"}\n{"text": "two", "label": "y"}\n'
JSON_ARRAY = '[\n{"text": "one", "label": "x"},\n{"text": "two", "label": "y"}\n]\n'
MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.rstrip("\n")),
        ("a.csv", CSV + "\n\n"),
        ("a.csv", MARK + CSV.encode()),
        ("a.csv", "label,id,text\nx,1,one\ny,2,two\n"),
        ("a.CSV.gz", packed(MARK + CSV.encode())),
        ("a.jsonl.gz", packed(JSON_LINES)),
        ("a.json", "\ufeff\n" + JSON_ARRAY),
        ("a.json.gz", packed(JSON_LINES)),
    ],
)
def test_line_ends_marks_and_packing_do_not_change_the_rows(name, content):
    assert read(write(name, content)) == [("one", "x"), ("two", "y")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # Quotes, and line ends within them.
        (
            'text,label\n"a ""b"", c",x\n"l\n1\r\n\n2",y\n',
            [('a "b", c', "x"), ("l\n1\r\n\n2", "y")],
        ),
        # Nothing is taken for a number or for a missing value.
        (
            "text,label\nNA,null\nnan,None\n007,1e3\n",
            [("NA", "null"), ("nan", "None"), ("007", "1e3")],
        ),
        # White space, and characters that other programs take for line ends.
        (
            "text,label\n  a\t ,x \n\u00a0é\u2028b\x85,y\n",
            [("  a\t ", "x "), ("\u00a0é\u2028b\x85", "y")],
        ),
        (
            "text,label\na\0\x0b\x1b,x\nb,y\n",
            [("a\0\x0b\x1b", "x"), ("b", "y")],
        ),
        (
            f"text,label\n{'w ' * 100_000},x\nb,y\n",
            [("w " * 100_000, "x"), ("b", "y")],
        ),
    ],
    ids=["quotes", "words", "spaces", "control characters", "long"],
)
def test_a_csv_file_is_read_exactly(content, expected):
    assert read(write("a.csv", content)) == expected


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.tsv",
            'text\tlabel\n"a\tx\nb" "c\ty\r\n"\tx\n',
            [('"a', "x"), ('b" "c', "y"), ('"', "x")],
        ),
        (
            "a.tsv",
            MARK + b"text\tlabel\n a, b \tx\nNA\ty",
            [(" a, b ", "x"), ("NA", "y")],
        ),
        (
            "a.tsv.gz",
            packed('"text"\t"label"\n"o""ne"\tx\ntwo\ty\n'),
            [('o"ne', "x"), ("two", "y")],
        ),
    ],
)
def test_a_tsv_file_is_read_exactly(name, content, expected):
    assert read(write(name, content)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            '{"text": "a\\nb", "label": 1}\n\n{"label": 0, "text": "é"}',
            [("a\nb", "1"), ("é", "0")],
        ),
        (
            MARK + b'{"text": " 007", "label": "x"}\r\n{"text": "b", "label": 1}',
            [(" 007", "x"), ("b", "1")],
        ),
    ],
)
def test_json_lines_are_read_exactly(content, expected):
    assert read(write("a.jsonl", content)) == expected


@pytest.mark.parametrize("name", ["a.ft", "a.TXT"])
def test_fasttext_lines_are_read_exactly(name):
    """A space or a tab ends the label; what comes after it is the text."""
    content = "__label__x One,  two \n\n \n__label__y\tthree\r\n__label__x four __label five"
    assert read(write(name, content)) == [
        ("One,  two ", "x"),
        ("three", "y"),
        ("four __label five", "x"),
    ]


TEXTS = ["a", "b", "c"]


def write_csv(labels: Sequence[str]) -> str:
    """Write a text for each label."""
    lines = [f"{text},{label}" for text, label in zip(TEXTS, labels, strict=False)]
    return write("a.csv", "\n".join(["text,label", *lines]))


def write_jsonl(labels: Sequence[str]) -> str:
    """Write a text for each label; the labels are JSON."""
    lines = []
    for text, label in zip(TEXTS, labels, strict=True):
        lines.append(f'{{"text": "{text}", "label": {label}}}')
    return write("a.jsonl", "\n".join(lines))


def write_parquet(labels: Sequence[float]) -> str:
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "label": labels}), "a.parquet")
    return "a.parquet"


def write_workbook(labels: Sequence[float]) -> str:
    return write_excel("a.xlsx", ["text", "label"], *zip(TEXTS, labels, strict=True))


@pytest.mark.parametrize("numbers", [["1", "2", "1"], ["1.0", "2.0", "1.0"], ["1", "2.00", "1"]])
def test_labels_that_are_whole_numbers_have_one_name_in_all_formats(numbers):
    """A table has floats where cells of the column are empty."""
    floats = [float(number) for number in numbers]
    sources = [
        write_csv(numbers),
        write_jsonl(numbers),
        write_parquet(floats),
        write_workbook(floats),
    ]
    for source in sources:
        assert read(source) == [("a", "1"), ("b", "2"), ("c", "1")]


@pytest.mark.parametrize("numbers", [["1", "2", "1"], ["1.0", "2.0", "1.0"], ["1", "2.00", "1"]])
def test_labels_that_are_whole_numbers_are_known_classes(numbers):
    """One odd label beside them does not change what they are."""
    source = write_labelled("a.csv", *numbers * 8, "unsure")
    split = load_split(source, DataConfig(train=source), ("2", "1"))
    assert split.labels.tolist() == [1, 0, 1] * 8 + [2]
    assert split.unseen_names == ("unsure",)


def test_groups_that_are_whole_numbers_have_one_name_in_all_formats():
    lines = [{"text": "a", "label": 1, "g": 1.0}, {"text": "b", "label": 2, "g": "1.10"}]
    rows = [
        *read_rows(
            write("a.csv", "text,label,g\na,1,1.0\nb,2,1.10\n"),
            Columns(("text",), group="g"),
            Reading(),
        ),
        *read_rows(
            write("b.jsonl", "\n".join(map(json.dumps, lines))),
            Columns(("text",), group="g"),
            Reading(),
        ),
    ]
    assert [row.group for row in rows] == ["1", "1.10", "1", "1.10"]


@pytest.mark.parametrize("labels", [["1.0", "1.5"], ["01.0", "2.0"], ["1.0", "x"]])
def test_other_numbers_are_names_as_they_are_written(labels):
    """They may be versions, or numbers with zeros before them."""
    assert [label for _, label in read(write_csv(labels))] == labels


def test_numbers_that_label_names_lists_are_names_as_they_are_written():
    labels = ["1.0", "2.0"]
    assert [label for _, label in read(write_csv(labels), label_names=labels)] == labels


def test_decimal_numbers_and_truth_values_are_labels():
    numbers = [1.5, 2.5, 3.5]
    for source in (write_jsonl(numbers), write_parquet(numbers), write_workbook(numbers)):
        assert read(source) == [("a", "1.5"), ("b", "2.5"), ("c", "3.5")]

    assert read(write_jsonl(["true", "false", "true"])) == [
        ("a", "True"),
        ("b", "False"),
        ("c", "True"),
    ]


def test_columns_may_be_fields_inside_objects():
    """A field whose own name has a dot comes first."""
    lines = [
        {"payload": {"body": "one", "tags": {"kind": "x"}}},
        {"payload": {"body": "two", "tags": {"kind": "y"}}, "payload.body": "2"},
    ]
    columns = {"text_column": "payload.body", "label_column": "payload.tags.kind"}
    expected = [("one", "x"), ("2", "y")]

    lines_source = write("a.jsonl", "\n".join(map(json.dumps, lines)))
    array_source = write("a.json", json.dumps(lines))

    assert read(lines_source, **columns) == expected
    assert read(array_source, **columns) == expected


@pytest.mark.parametrize(
    ("payload", "fields"),
    [({"text": "one"}, "'payload.text'"), ("one", "'payload'"), ({}, "'payload'")],
)
def test_a_field_that_is_missing_inside_an_object_is_named(payload: object, fields: str):
    source = write("a.jsonl", json.dumps({"payload": payload, "label": "x"}))
    message = refusal(source, text_column="payload.body")
    assert message.startswith(f"a.jsonl:1: no column 'payload.body'; it has {fields}, 'label'")


def test_a_text_inside_null_is_as_empty_as_null():
    for row in ({"payload": None}, {"payload": {"body": None}}):
        source = write("a.jsonl", json.dumps(row | {"label": "x"}))
        message = refusal(source, text_column="payload.body", empty_texts="error")
        assert message.startswith("a.jsonl:1: the text is empty")


def test_several_text_columns_are_joined_with_a_space():
    source = write("a.csv", "label,body,title\nx,b1,t1\ny,,t2\n")
    assert read(source, text_column=["title", "body"]) == [("t1 b1", "x"), ("t2 ", "y")]


CSV_TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n \ufeff\0'), max_size=12
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    written=st.lists(st.tuples(CSV_TEXTS, CSV_TEXTS, CSV_TEXTS), max_size=5),
    dialect=st.sampled_from(["excel", "unix"]),
    mark=st.sampled_from([b"", MARK]),
)
def test_what_csv_writer_writes_is_read_back(written, dialect, mark):
    """Characters, quoting and byte order mark may be any."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, dialect)
    writer.writerow(["text", "other", "label"])
    writer.writerows(written)
    source = write("a.csv", mark + table.getvalue().encode())

    rows = read_rows(source, Columns(["text"], "label"), Reading())

    assert [(row.text, row.label) for row in rows] == [(text, label) for text, _, label in written]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        (
            "more.txt",
            "one text\n\n  two,texts \r\nlast",
            ["one text", "  two,texts ", "last"],
        ),
        (
            "more.TXT",
            "__label__x one\n",
            ["__label__x one"],
        ),
        (
            "more.ft",
            "__label__x one text\n\n__label__y\nno label\n",
            ["one text", "no label"],
        ),
        (
            "more.csv",
            "id,text\n1,one text\n2,\n3,last\n",
            ["one text", "last"],
        ),
        (
            "more.jsonl",
            json.dumps({"text": "six"}) + "\n" + json.dumps({"text": "ten", "label": 3}) + "\n",
            ["six", "ten"],
        ),
    ],
)
def test_unlabelled_texts_are_read_without_labels_and_without_what_is_empty(name, content, texts):
    """In .txt each line is a text; in .ft alone a label at its beginning is taken off."""
    unlabelled = load(write("train.csv", CSV), unlabelled=write(name, content)).unlabelled

    assert list(unlabelled.texts) == texts
    lines = content.splitlines()
    for text, where in zip(unlabelled.texts, unlabelled.where, strict=True):
        assert where.file == name
        assert text in lines[where.line - 1]
