"""Data: each text arrives as it stands in the file, or the error names file and line; and the bundled example."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import load, refusal, write, write_labelled

from encoder_cls.config import DataConfig
from encoder_cls.data import holdout
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.holdout import hold_out
from encoder_cls.data.load import load_dataset, load_split
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError
from encoder_cls.system import disk_arrays as columns

packed = partial(gzip.compress, mtime=0)  # equal in all workers
GOOD = "text,label\none,x\ntwo,y\n"
OBJECTS = '{"text": "one", "label": "x"}\n{"text": "two", "label": "y"}\n'


def rows(source: str, **values: object) -> list[tuple[str, str]]:
    """Texts and class names in the order of the file."""
    dataset = load(source, **values)
    names = [dataset.label_names[label] for label in dataset.train.labels]
    return list(zip(dataset.train.texts, names, strict=True))


def write_parquet(name: str, features: object = None, **columns: object) -> str:
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()} if features else None
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), name)
    return name


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", GOOD, [("one", "x"), ("two", "y")]),
        ("a.csv", GOOD.replace("\n", "\r\n"), [("one", "x"), ("two", "y")]),
        ("a.csv", b"\xef\xbb\xbf" + GOOD.encode(), [("one", "x"), ("two", "y")]),
        ("a.csv", GOOD.rstrip("\n"), [("one", "x"), ("two", "y")]),
        ("a.csv", GOOD + "\n\n", [("one", "x"), ("two", "y")]),
        ("a.CSV.gz", packed(GOOD.encode("utf-8-sig")), [("one", "x"), ("two", "y")]),
        ("a.tsv.gz", packed(b'"text"\t"label"\n"o""ne"\tx\ntwo\ty\n'), [('o"ne', "x"), ("two", "y")]),
        ("a.jsonl.gz", packed(OBJECTS.encode()), [("one", "x"), ("two", "y")]),
        ("a.json", "\ufeff\n[\n" + OBJECTS.strip().replace("\n", ",\n") + "\n]\n", [("one", "x"), ("two", "y")]),
        ("a.json.gz", packed(OBJECTS.encode()), [("one", "x"), ("two", "y")]),
        ("a.csv", "label,id,text\nx,1,one\ny,2,two\n", [("one", "x"), ("two", "y")]),
        ("a.csv", 'text,label\n"a ""b"", c",x\n"l\n1\r\n\n2",y\n', [('a "b", c', "x"), ("l\n1\r\n\n2", "y")]),
        ("a.csv", "text,label\nNA,null\nnan,None\n007,1e3\n", [("NA", "null"), ("nan", "None"), ("007", "1e3")]),
        ("a.csv", "text,label\n  a\t ,x \n\u00a0é\u2028b\x85,y\n", [("  a\t ", "x "), ("\u00a0é\u2028b\x85", "y")]),
        ("a.csv", "text,label\na\0\x0b\x1b,x\nb,y\n", [("a\0\x0b\x1b", "x"), ("b", "y")]),
        ("a.csv", f"text,label\n{'w ' * 100_000},x\nb,y\n", [("w " * 100_000, "x"), ("b", "y")]),
        ("a.tsv", 'text\tlabel\n"a\tx\nb" "c\ty\r\n"\tx\n', [('"a', "x"), ('b" "c', "y"), ('"', "x")]),
        ("a.tsv", b"\xef\xbb\xbftext\tlabel\n a, b \tx\nNA\ty", [(" a, b ", "x"), ("NA", "y")]),
        ("a.jsonl", '{"text": "a\\nb", "label": 1}\n\n{"label": 0, "text": "é"}', [("a\nb", "1"), ("é", "0")]),
        (
            "a.jsonl",
            b'\xef\xbb\xbf{"text": " 007", "label": "x"}\r\n{"text": "b", "label": 1}',
            [(" 007", "x"), ("b", "1")],
        ),
    ],
)
def test_a_text_file_is_read_exactly(name, content, expected):
    """Quotes, line ends, marks and blanks are read by the rules of the format, and nothing is coerced."""
    assert rows(write(name, content)) == expected


@pytest.mark.parametrize(
    ("columns", "features", "expected"),
    [
        ({"text": ["NA", " 007"], "label": ["x", "y"]}, None, [("NA", "x"), (" 007", "y")]),
        ({"text": ["a", "b"], "label": [10, 9]}, None, [("a", "10"), ("b", "9")]),
        (
            {"text": pa.array(["a"] * 2, "large_string"), "label": pa.array([1, 0], "int8")},
            None,
            [("a", "1"), ("a", "0")],
        ),
        ({"text": ["a", "b"], "label": pa.array(["x", "y"]).dictionary_encode()}, None, [("a", "x"), ("b", "y")]),
        (
            {"text": ["a", "b"], "label": [1, 0]},
            {"text": {"dtype": "string"}, "label": {"names": ["neg", "pos"], "_type": "ClassLabel"}},
            [("a", "pos"), ("b", "neg")],
        ),
    ],
)
def test_a_parquet_file_is_read_exactly(columns, features, expected):
    """Strings and integers of any width; integers with the names that `datasets` keeps in the metadata."""
    assert rows(write_parquet("a.parquet", features, **columns)) == expected


def test_a_folder_or_a_glob_is_all_its_files_in_the_order_of_their_names():
    write("d/b.jsonl", '{"text": "2", "label": "y"}\n')
    write("d/a.csv", "text,label\n1,x\n")
    write("d/deep/c.TSV", "text\tlabel\n3\tx\n")
    write("d/notes.md", "not data")
    assert rows("d") == [("1", "x"), ("2", "y")]
    assert rows("d/**/*.[cjtT][sS]*") == [("1", "x"), ("2", "y"), ("3", "x")]


def test_class_folders_of_text_files_are_classes():
    """Each folder is a class and each .txt file one text, as it stands in the file; other formats are left alone."""
    write("d/spam/2.txt", "win\r\nnow\n")
    write("d/spam/10.txt", b"\xef\xbb\xbf a")
    write("d/ham/1.txt", "hello")
    write("d/ham/notes.md", "not data")
    write("d/ham/3.TXT", "a suffix in capitals")
    write("d/spam/._2.txt", "what macOS keeps beside a file")
    write("d/.ipynb_checkpoints/1.txt", "what Jupyter keeps in a folder")
    dataset = load("d")
    assert rows("d") == [("hello", "ham"), ("a suffix in capitals", "ham"), (" a", "spam"), ("win\r\nnow\n", "spam")]
    assert list(dataset.train.where) == ["d/ham/1.txt", "d/ham/3.TXT", "d/spam/10.txt", "d/spam/2.txt"]


def test_texts_without_columns_have_no_second_text_column():
    """Labelled they are refused; the label never gets into the text, and nothing is added where a column is missing."""
    labelled = write("a.csv", "title,body,label\nt1,b1,x\nt2,b2,y\n")
    write("d/spam/1.txt", "win")
    write("d/ham/1.txt", "hello")
    for source in ("d", write("a.ft", "__label__x a\n")):
        assert "text files have no columns" in refusal(source, text_column=["title", "body"])
    more = write("more.txt", "one line\n")
    for source, texts in (("d", ["hello", "win"]), (more, ["one line"])):
        assert list(load(labelled, text_column=["title", "body"], unlabelled=source).unlabelled.texts) == texts
    assert list(load(labelled, text_column=["title"], unlabelled="d").unlabelled.texts) == ["hello", "win"]


def test_several_text_columns_are_joined_with_a_space():
    source = write("a.csv", "label,body,title\nx,b1,t1\ny,,t2\n")
    assert rows(source, text_column=["title", "body"]) == [("t1 b1", "x"), ("t2 ", "y")]


csv_texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n \ufeff\0'), max_size=12)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    written=st.lists(st.tuples(csv_texts, csv_texts, csv_texts), max_size=5),
    dialect=st.sampled_from(["excel", "unix"]),
    bom=st.booleans(),
)
def test_what_csv_writer_writes_is_read_back(written, dialect, bom):
    """Any characters, in any quoting, with or without a mark at the beginning."""
    file = io.StringIO(newline="")
    csv.writer(file, dialect).writerows([["text", "other", "label"], *written])
    source = write("a.csv", b"\xef\xbb\xbf" * bom + file.getvalue().encode())
    found = read_rows(source, role="train", text_columns=["text"], label_column="label")
    assert [(row.text, row.label) for row in found] == [(text, label) for text, _, label in written]


def damaged_parquet() -> list[bytes]:
    """A file that was cut, and one whose index is damaged."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), buffer)
    content = buffer.getvalue()
    return [content[: len(content) // 2], content[:-9] + b"PAR1"]


DAMAGED_PARQUET = damaged_parquet()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\none,x\na,b,c\n", r"a\.csv:3: 3 fields where the header has 2"),
        ("a.csv", "text,label\none\n", r"a\.csv:2: 1 fields where the header has 2"),
        ("a.csv", 'text,label\n"1\n2",x\none\n', r"a\.csv:4: 1 fields"),
        ("a.csv", b"text,label\none,x\ncaf\xe9,y\n", r"a\.csv:3: not UTF-8 text \(byte 3 of the line\)"),
        ("a.csv", GOOD.encode("utf-16"), r"a\.csv:1: not UTF-8"),
        ("a.tsv", b"text\tlabel\n\xff\tx\n", r"a\.tsv:2: not UTF-8"),
        ("a.jsonl", b'{"text": "\xff", "label": 1}\n', r"a\.jsonl:1: not UTF-8"),
        ("d/x/1.txt", b"a\n\xff", r"d/x/1\.txt:2: not UTF-8"),
        ("a.csv", 'text,label\none,x\n"two,y\nthree,x\n', r"a\.csv:3: not valid CSV: .*quote"),
        ("a.csv", "text,label\rone,x\r", r"a\.csv:1: not valid CSV"),
        ("a.csv", "sentence,class\none,x\n", r"a\.csv: no column 'text'; it has 'sentence', 'class' .*text_column"),
        ("a.csv", "text,class\none,x\n", r"a\.csv: no column 'label'; it has 'text', 'class' .*label_column"),
        ("a.csv", "texts;class\none;x\n", r"a\.csv: no column 'text'; it has 'texts;class' \(.*separated by ';'"),
        ("a.csv", "Text ,label\none,x\n", r"a\.csv: no column 'text'; it has 'Text ', .*did you mean 'Text '\?"),
        ("a.csv", "text,label,text\na,b,c\n", r"a\.csv:1: two columns are called 'text'"),
        ("a.tsv", "id\ttext\tlabel\tid\n1\ta\tx\t2\n", r"a\.tsv:1: two columns are called 'id'"),
        ("a.txt", "__label__x one\nno label\nnone\n", r"a\.txt:2: the line has no label, as 2 in all.*label_names="),
        ("a.ft", "one __label__x\n", r"a\.ft:1: the line has no label"),
        ("a.ft", "__label__x one\n__label__ two\n", r"a\.ft:2: the label is empty"),
        ("a.ft", "__label__x one\n__label__y\n__label__y \n", r"a\.ft:2: the text is empty"),
        ("a.ft", b"__label__x one\n__label__y \xff\n", r"a\.ft:2: not UTF-8"),
        ("a.csv", "", r"a\.csv: no rows"),
        ("a.csv", "\ntext,label\n", r"a\.csv: the first line is empty"),
        ("a.csv", packed(GOOD.encode()), r"a\.csv: is a gzip file; name it a\.csv\.gz, or unpack it"),
        ("a.csv.gz", GOOD, r"a\.csv\.gz: not a readable gzip file: Not a gzipped file"),
        ("a.csv.gz", packed(GOOD.encode())[:-9], r"a\.csv\.gz: not a readable gzip file: "),
        ("a.csv.gz", packed(GOOD.encode() * 9)[:20] + b"xxxxxxxx", r"a\.csv\.gz: not a readable gzip file: "),
        ("a.json", '[{"text": "a", "label": 1}, 7]', r"a\.json:2: a JSON object is expected, not int '7'"),
        ("a.json", '[{"text": "a"}]', r"a\.json:1: no column 'label'"),
        ("a.json", '[{"text": "a"}', r"a\.json: not valid JSON: .* line 1"),
        ("a.json", b'[{"text": "\xff", "label": 1}]', r"a\.json:1: not UTF-8"),
        ("a.csv", "text,label\n", r"a\.csv: no rows"),
        (
            "a.csv",
            'text,label\none,x\n" ",y\n\u3000,y\n',
            r"a\.csv:3: .* 2 of 3 rows \(a\.csv:3, a\.csv:4\); .*texts=drop",
        ),
        ("a.csv", "text,label\none,x\ntwo, \n", r"a\.csv:3: the label is empty"),
        ("a.jsonl", '{"text": "a", "label": true}', r"a\.jsonl:1: the label is bool 'True'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "a", "label": 2.0}', r"a\.jsonl:2: the label is float '2\.0'"),
        ("a.jsonl", '{"text": "a", "label": null}', r"a\.jsonl:1: the label is empty"),
        ("a.jsonl", '{"text": 7, "label": "x"}', r"a\.jsonl:1: column 'text' holds int '7'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "a"\n', r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", '["a", 1]\n', r"a\.jsonl:1: a JSON object is expected, not list"),
        ("a.jsonl", '{"text": "a", "label": 1, "text": "b"}', r"a\.jsonl:1: not valid JSON: a key occurs twice"),
        ("a.jsonl", '{"text": "a", "class": 1}', r"a\.jsonl:1: no column 'label'; it has 'text', 'class'"),
        ("a.jsonl", '{"text": "ab\\ud800", "label": 1}', r"a\.jsonl:1: the text holds half of a surrogate pair .*2"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a", "label": "\\ud800"}',
            r"a\.jsonl:2: the label holds half of a surrogate pair",
        ),
        ("a.csv", "text,label\none,x\ntwo,x\n", r"a\.csv: every row has the label 'x'; at least two classes"),
        ("a.parquet", b"", r"a\.parquet: not a readable Parquet file"),
        ("a.parquet", b"PAR1" + b"\0" * 50 + b"PAR1", r"a\.parquet: "),
        *(("a.parquet", damaged, r"a\.parquet: not a readable Parquet file") for damaged in DAMAGED_PARQUET),
        ("a.xls", b"PK", r"a\.xls: cannot tell the format from the name; known: \.csv, .* \.parquet, \.xlsx, "),
        ("a.xlsx", b"PK", r"a\.xlsx: not a readable Excel file: File is not a zip file"),
        ("d/notes.md", "", r"d: no \.csv, \.tsv, \.jsonl, \.json, .* \.ft, \.txt file and no class folders"),
    ],
)
def test_a_bad_source_is_refused_with_its_place(name, content, message):
    write(name, content)
    assert re.match(message, refusal("d" if name.startswith("d/") else name))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"], "class": ["x"]}, "no column 'label'; it has 'text', 'class'"),
        ({"text": ["a", None], "label": ["x", "y"]}, "column 'text' holds nothing"),
        ({"text": [b"a"], "label": ["x"]}, "column 'text' holds bytes"),
        ({"text": ["a"], "label": [1.0]}, "the label is float"),
        ({"text": ["a", "b"], "label": [1, None]}, "the label is empty"),
        ({"text": pa.array([], pa.string()), "label": pa.array([], pa.int64())}, "no rows"),
        ({"text": pa.array([b"a\xff"]).view(pa.utf8()), "label": ["x"]}, ""),  # UnicodeDecodeError
        ({"text": ["a"], "label": pa.array([2**30], pa.date32())}, ""),  # OverflowError
    ],
)
def test_a_bad_parquet_column_is_refused(columns, message):
    assert re.match(rf"a\.parquet(:\d)?: .*{message}", refusal(write_parquet("a.parquet", **columns)))


@pytest.mark.parametrize("source", ["nowhere.csv", "nowhere/*.csv", "example:nowhere", "x" * 5000])
def test_a_missing_source_is_named(source):
    assert re.match(r"(.*nowhere.*: no such file or folder)|x{5000}: ", refusal(source))


def left_out(dataset: Dataset) -> dict[str, int]:
    """How many rows of each source had no text."""
    return {name: notes.empty.count for name, notes in dataset.sources if notes.empty.count}


def test_empty_texts_can_be_dropped():
    """With `empty_texts: drop` the rows are left out, whatever their label; a file of nothing else is refused."""
    source = write("a.csv", 'text,label\none,x\n" ",\n\ntwo,y\n')
    assert rows(source, empty_texts="drop") == [("one", "x"), ("two", "y")]
    assert left_out(load(source, empty_texts="drop")) == {"train": 1, "validation": 1}
    held_out = load(
        write("c.csv", "text,label\n ,x\none,x\ntwo,y\nthree,x\nfour,y\n"), empty_texts="drop", validation=None
    )
    assert left_out(held_out) == {"train": 1}
    assert "no rows with a text" in refusal(write("b.csv", "text,label\n ,x\n"), empty_texts="drop")


@pytest.mark.parametrize(("rows", "empty"), [(2, 1), (100, 1), (101, 2), (450, 5)])
def test_few_empty_texts_are_left_out(rows, empty):
    """By itself up to 1% of a split, rounded up; one more is refused, with how many there are and where."""

    def source(count: int) -> str:
        lines = [f"{' ' if i < count else f't{i}'},{i % 2}\n" for i in range(rows)]
        return write("a.csv", "text,label\n" + "".join(lines))

    dataset = load(write("b.csv", "text,label\none,0\ntwo,1\n"), test=source(empty))
    assert (len(dataset.test), left_out(dataset)) == (rows - empty, {"test": empty})
    assert dict(dataset.sources)["test"].empty.first == ["a.csv:2", "a.csv:3", "a.csv:4"][:empty]
    with pytest.raises(DataError, match=rf"^a\.csv:2: the text is empty, as in {empty + 1} of {rows} rows .*=drop"):
        load("b.csv", test=source(empty + 1))
    with pytest.raises(DataError, match=r"^a\.csv:2: the text is empty; correct the file"):
        load("b.csv", test=source(1), empty_texts="error")


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
    return write("b.csv", "text,label\n" + seen + "".join(f"u{i},{label}\n" for i, label in enumerate(unseen)))


def test_few_labels_that_train_does_not_have_are_numbered_behind_the_classes():
    """Each split by itself, in the order of classes; only the known rows of validation choose the weights."""
    dataset = load(write("a.csv", GOOD), validation=others("zawza"), test=write("c.csv", GOOD))
    validation = dataset.validation
    assert (dataset.label_names, validation.unseen_names) == (("x", "y"), ("a", "w", "z"))
    assert validation.labels[-5:].tolist() == [4, 2, 3, 4, 2]
    assert (len(validation), len(dataset.selection), dataset.selection.unseen_names) == (100, 95, ())
    assert list(dataset.selection.texts) == validation.texts[:95]
    assert load_split("b.csv", DataConfig(train="a.csv"), ("x", "y")).fingerprint == validation.fingerprint
    assert load("a.csv", validation=others("zbwzb")).validation.fingerprint != validation.fingerprint


@pytest.mark.parametrize("split", ["validation", "test"])
def test_many_labels_that_train_does_not_have_are_refused(split):
    """More than 5% of the rows: another data set was meant; the error names them, the first line, and what is known."""
    message = r"b\.csv:96: label 'z' never occurs in train \('x', 'y'\); 6 of 100 rows .* \('a', 'w', 'z'\)"
    assert re.match(message, refusal(write("a.csv", GOOD), **{split: others("zawzaa")}))
    with pytest.raises(DataError, match=message):
        load_split("b.csv", DataConfig(train="a.csv"), ("x", "y"))
    assert re.match(r"b\.csv:4: label 'z'", refusal("a.csv", **{split: write("b.csv", GOOD + "three,z\n")}))


def test_a_name_that_train_does_not_have_is_such_a_label():
    """One in `data.label_names`, in their order; one that is not in them is refused."""
    names = ["x", "w", "y", "a"]
    dataset = load(write("a.csv", GOOD), test=others("aw"), label_names=names)
    assert (dataset.label_names, dataset.test.unseen_names) == (("x", "y"), ("w", "a"))
    assert dataset.test.labels[-2:].tolist() == [3, 2]
    assert "b.csv:101: label 'q' is not in data.label_names" in refusal("a.csv", test=others("q"), label_names=names)


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
def test_names_of_digits_are_decided_on_once_for_a_data_set(train, split, labels, of_other, names, are):
    """All labels of all splits are names, or all are indices, typed or of digits; so five classes stay five."""
    other = {split: write_labelled("b.csv", *of_other)}
    dataset = load(write_labelled(train, *labels), label_names=STARS, **other)
    assert (dataset.label_names, dataset.labels_are) == (tuple(names), are)
    assert dataset.train.labels.tolist() == [label - min(labels) for label in labels]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([1, 2], STARS, "a.csv:2: label 1 may be the name '1' or the number of '2' in data.label_names; if labels are"),
        (["high", 1], ["low", "mid", "high"], "a.csv:3: label '1' is not in data.label_names; labels are either all"),
        ([1, "high"], ["low", "mid", "high"], "a.csv:3: label 'high' is a name where others are numbers; labels are"),
        ([0, 7], ["a", "b", "c"], "a.csv:3: label 7 has no name; data.label_names holds 3 names"),
        ([1, 6], STARS, "a.csv:3: label '6' is not in data.label_names"),
        ([1, -1], ["neg", "pos"], "a.csv:3: label '-1' is not in data.label_names"),
        (["9" * 5000], ["a", "b"], "a.csv:2: label '999"),
        (["a", "q"], ["a", "b"], "a.csv:3: label 'q' is not in data.label_names"),
    ],
)
def test_labels_that_are_both_or_neither_are_refused_with_the_first_such_row(labels, names, message):
    """A mixture is refused, too: which row is wrong depends on the others."""
    assert refusal(write_labelled("a.csv", *labels), label_names=names).startswith(message)


def test_a_split_by_itself_is_read_as_the_training_data_was():
    """The file alone may be ambiguous; then it is refused, unless the data set has decided."""
    source = write_labelled("b.csv", 1, 2)
    config = DataConfig(train="a.csv", label_names=("1", "2", "3"))
    with pytest.raises(DataError, match=r"^b\.csv:2: label 1 may be"):
        load_split(source, config, ("1", "2", "3"))
    assert load_split(source, config, ("1", "2", "3"), labels_are="names").labels.tolist() == [0, 1]
    assert load_split(source, config, ("1", "2", "3"), labels_are="indices").labels.tolist() == [1, 2]
    with pytest.raises(DataError, match=r"^b\.csv:3: label 3 has no name"):
        load_split(write_labelled("b.csv", 1, 3), config, ("1", "2", "3"), labels_are="indices")


def test_an_integer_and_its_digits_are_one_class():
    assert load(write_labelled("a.jsonl", 1, "1", 0), test=write_labelled("b.jsonl", "0", "1")).label_names == (
        "0",
        "1",
    )


def numbered(counts: Sequence[int]) -> Split:
    """So many examples of each class, mixed."""
    labels = np.random.default_rng(7).permutation(np.repeat(np.arange(len(counts)), counts))
    texts = [f"{label} {i}" for i, label in enumerate(labels)]
    return Split(texts=texts, labels=labels, where=[f"a.csv:{i + 2}" for i in range(len(texts))])


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_held_out_part_is_stratified(fraction):
    """Every class is on both sides, in its proportion, and each text on one of them, in the order of the file."""
    split, counts = numbered([2, 3, 10, 200]), np.array([2, 3, 10, 200])
    train, validation = hold_out(split, fraction=fraction, seed=0)
    held_out = np.bincount(validation.labels, minlength=4)
    assert np.all(held_out >= 1)
    assert np.all(counts - held_out >= 1)
    assert np.all(np.abs(held_out - fraction * counts) <= 1)
    assert sorted([*train.texts, *validation.texts]) == sorted(split.texts)
    for part in (train, validation):
        assert [split.where[split.texts.index(text)] for text in part.texts] == part.where
        assert [int(text.split()[0]) for text in part.texts] == part.labels.tolist()
        assert part.where == sorted(part.where, key=split.where.index)


def test_of_many_texts_a_limited_number_is_held_out(monkeypatch):
    """However many there are, and of each class its part of that number."""
    monkeypatch.setattr(holdout, "MOST_HELD_OUT", 20)
    train, validation = hold_out(numbered([100, 300]), fraction=0.2, seed=0)
    assert len(train) == 380
    assert np.bincount(validation.labels).tolist() == [5, 15]


def test_the_seed_decides_what_is_held_out():
    config = DataConfig(train=write("a.csv", "text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(40))))
    dataset, same = (load_dataset(config) for _ in range(2))
    another = load_dataset(config.model_copy(update={"split_seed": 1}))
    assert (len(dataset.train), len(dataset.validation)) == (36, 4)
    assert list(dataset.validation.texts) == list(same.validation.texts) != list(another.validation.texts)
    assert dataset.test is None


def test_equal_texts_are_on_one_side():
    """Also where they differ in case, spaces and marks, whatever their labels: no validated text was trained on."""
    words = ["".join("abcdefghij"[int(digit)] for digit in f"{number:02}") for number in range(60)]
    pairs = [(f"Text  {word}", f"text {word} !! 4") for word in words]
    rows = [f"{text},{(i + other) % 2}" for i, pair in enumerate(pairs) for other, text in enumerate(pair)]
    for seed in range(3):
        dataset = load(write("a.csv", "\n".join(["text,label", *rows])), validation=None, split_seed=seed)
        sides = [{text.casefold().split()[1] for text in split.texts} for split in (dataset.train, dataset.validation)]
        assert not sides[0] & sides[1]
        assert len(dataset.validation) == 2 * len(sides[1]) == 12


def test_a_class_of_one_example_stays_in_train():
    """It can be learned, if not validated; where no class has two, the error says what to do."""
    dataset = load(write("a.csv", "text,label\n1,x\n2,rare\n3,x\n"), validation=None)
    assert sorted(dataset.train.labels) == [0, 1]
    assert dataset.validation.labels.tolist() == [1]
    message = refusal(write("a.csv", "text,label\n1,x\n2,y\n"), validation=None)
    assert re.match(r"a\.csv:2: each class has only one text, .* data\.validation", message)


def fingerprint(*texts: str, labels: Sequence[int] = (0, 0), where: str = "a") -> str:
    return Split(texts=texts, labels=np.array(labels), where=[where] * len(texts)).fingerprint


def test_the_fingerprint_is_that_of_texts_and_labels():
    """It changes with a text, a label, the order and the boundaries of texts, and with nothing else."""
    others = [
        fingerprint("some text", "Another"),
        fingerprint("some text", "another "),
        fingerprint("some text", "another", labels=[0, 1]),
        fingerprint("another", "some text"),
        fingerprint("some", " textanother"),
    ]
    assert fingerprint("some text", "another") == fingerprint("some text", "another", where="b")
    assert len({fingerprint("some text", "another"), *others}) == 1 + len(others)
    assert fingerprint("a", "b\0c") != fingerprint("a\0b", "c")


@pytest.mark.parametrize("most_pending", [1 << 20, 1], ids=["memory", "files"])
def test_rows_keep_their_class_and_their_place(monkeypatch, most_pending):
    """Read a few at a time, of several files, in memory and not, and also of the part that is held out."""
    monkeypatch.setattr(columns, "CHUNK", 3)
    monkeypatch.setattr(columns, "MOST_IN_MEMORY", most_pending)
    write("d/a.csv", "text,label\n" + "".join(f"a{i},{i % 3}\n" for i in range(20)))
    write("d/b.jsonl", "".join(f'\n{{"text": "b{i}", "label": {i % 3}}}\n' for i in range(20)))
    write("d/c.csv", "text,label\nc,2\n")
    expected = [(f"a{i}", i % 3, f"d/a.csv:{i + 2}") for i in range(20)]
    expected += [(f"b{i}", i % 3, f"d/b.jsonl:{2 * i + 2}") for i in range(20)] + [("c", 2, "d/c.csv:2")]
    texts, labels, where = map(list, zip(*expected, strict=True))
    whole = load("d").train
    assert list(zip(whole.texts, whole.labels.tolist(), whole.where, strict=True)) == expected
    assert whole.fingerprint == Split(texts=texts, labels=np.array(labels), where=where).fingerprint
    dataset = load("d", validation=None, validation_fraction=0.5)
    parts = [
        row
        for split in (dataset.train, dataset.validation)
        for row in zip(split.texts, split.labels.tolist(), split.where, strict=True)
    ]
    assert sorted(parts) == sorted(expected)
    assert parts != expected


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\r", "\n", "\x9b", "\u202e", "\u2028", "\ud800", "\0"])
def test_no_control_character_gets_into_a_message(character):
    content = json.dumps({"text": "a", f"b{character}": "c", "label": 1})
    assert refusal(write("a.jsonl", content), text_column="body").isprintable()
    bad_label = json.dumps({"text": "a", "label": {f"{character}x": 1}})
    assert refusal(write("a.jsonl", bad_label)).isprintable()


@pytest.fixture(scope="module")
def bundled() -> Dataset:
    """The data that `encoder-cls train` takes where no config is given."""
    config = DataConfig(train="example:train", validation="example:validation", test="example:test")
    return load_dataset(config)


def test_the_bundled_example_is_large_enough_and_has_no_text_twice(bundled):
    """At least 8 classes, each in each split, and 1,500 texts, all different in more than case and punctuation."""
    splits = [bundled.train, bundled.validation, bundled.test]
    assert len(bundled.label_names) >= 8
    assert all(len(np.unique(split.labels)) == len(bundled.label_names) for split in splits)
    texts = Counter(re.sub(r"[\W_]+", "", text.lower()) for split in splits for text in split.texts)
    assert texts.total() >= 1500
    assert [text for text, count in texts.items() if count > 1] == []


@pytest.mark.parametrize("name", ["a.txt", "a.ft", "a.FT"])
def test_a_labelled_file_of_lines_is_read_as_fasttext_writes_it(name):
    """Each line's label is taken off, the text behind it stays as it is, and blank lines are none."""
    content = "__label__x One,  two \n\n \n__label__y\tthree\r\n__label__x four __label five"
    expected = [("One,  two ", "x"), ("three", "y"), ("four __label five", "x")]
    assert rows(write(name, content)) == expected
    assert list(load(name).train.where) == [f"{name}:1", f"{name}:4", f"{name}:5"]


def test_fasttext_files_in_a_folder_or_a_glob_are_one_split():
    """With tables, too; a .txt file without labels beside tables, such as a README.txt, is left alone."""
    write("d/a.txt", "__label__x one\n")
    write("d/b.ft", "__label__y two\n")
    write("d/c.csv", "text,label\nthree,x\n")
    assert rows("d") == rows("d/*.*") == [("one", "x"), ("two", "y"), ("three", "x")]
    Path("d/a.txt").write_text("about this data")
    assert rows("d") == [("two", "y"), ("three", "x")]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("more.txt", "one text\n\n  two,texts \r\nlast", ["one text", "  two,texts ", "last"]),
        ("more.TXT", "__label__x one\n", ["__label__x one"]),
        ("more.ft", "__label__x one text\n\n__label__y\nno label\n", ["one text", "no label"]),
        ("more.csv", "id,text\n1,one text\n2,\n3,last\n", ["one text", "last"]),
        ("more.jsonl", '{"text": "one"}\n{"text": "two", "label": 3}\n', ["one", "two"]),
    ],
    ids=["a text a line", "as it stands", "after labels", "a column", "labels do not matter"],
)
def test_unlabelled_texts_are_read_without_labels_and_without_what_is_empty(name, content, texts):
    """Of any format, `.txt` too; each text with its place."""
    unlabelled = load(write("train.csv", GOOD), unlabelled=write(name, content)).unlabelled
    assert list(unlabelled.texts) == texts
    lines = content.splitlines()
    for text, where in zip(unlabelled.texts, unlabelled.where, strict=True):
        assert text in lines[int(str(where).rpartition(":")[2]) - 1]
