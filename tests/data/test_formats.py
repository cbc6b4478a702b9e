"""Formats: each text is read exactly as it is in its file, or the error names file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import load, refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.load_dataset import load_split
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.sources import read_rows

packed = partial(gzip.compress, mtime=0)  # equal in all workers
GOOD = "text,label\none,x\ntwo,y\n"
OBJECTS = '{"text": "one", "label": "x"}\n{"text": "two", "label": "y"}\n'
FASTTEXT = "__label__x One,  two \n\n \n__label__y\tthree\r\n__label__x four __label five"


def rows(source: str, **values: object) -> list[tuple[str, str]]:
    """Texts and class names in the order of the file."""
    dataset = load(source, **values)
    names = [dataset.label_names[label] for label in dataset.train.labels]
    return list(zip(dataset.train.texts, names, strict=True))


def write_parquet(name: str, features: object = None, **columns: object) -> str:
    metadata = (
        {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
        if features
        else None
    )
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
        (
            "a.tsv.gz",
            packed(b'"text"\t"label"\n"o""ne"\tx\ntwo\ty\n'),
            [('o"ne', "x"), ("two", "y")],
        ),
        ("a.jsonl.gz", packed(OBJECTS.encode()), [("one", "x"), ("two", "y")]),
        (
            "a.json",
            "\ufeff\n[\n" + OBJECTS.strip().replace("\n", ",\n") + "\n]\n",
            [("one", "x"), ("two", "y")],
        ),
        ("a.json.gz", packed(OBJECTS.encode()), [("one", "x"), ("two", "y")]),
        ("a.csv", "label,id,text\nx,1,one\ny,2,two\n", [("one", "x"), ("two", "y")]),
        (
            "a.csv",
            'text,label\n"a ""b"", c",x\n"l\n1\r\n\n2",y\n',
            [('a "b", c', "x"), ("l\n1\r\n\n2", "y")],
        ),
        (
            "a.csv",
            "text,label\nNA,null\nnan,None\n007,1e3\n",
            [("NA", "null"), ("nan", "None"), ("007", "1e3")],
        ),
        (
            "a.csv",
            "text,label\n  a\t ,x \n\u00a0é\u2028b\x85,y\n",
            [("  a\t ", "x "), ("\u00a0é\u2028b\x85", "y")],
        ),
        ("a.csv", "text,label\na\0\x0b\x1b,x\nb,y\n", [("a\0\x0b\x1b", "x"), ("b", "y")]),
        ("a.csv", f"text,label\n{'w ' * 100_000},x\nb,y\n", [("w " * 100_000, "x"), ("b", "y")]),
        (
            "a.tsv",
            'text\tlabel\n"a\tx\nb" "c\ty\r\n"\tx\n',
            [('"a', "x"), ('b" "c', "y"), ('"', "x")],
        ),
        ("a.tsv", b"\xef\xbb\xbftext\tlabel\n a, b \tx\nNA\ty", [(" a, b ", "x"), ("NA", "y")]),
        (
            "a.jsonl",
            '{"text": "a\\nb", "label": 1}\n\n{"label": 0, "text": "é"}',
            [("a\nb", "1"), ("é", "0")],
        ),
        (
            "a.jsonl",
            b'\xef\xbb\xbf{"text": " 007", "label": "x"}\r\n{"text": "b", "label": 1}',
            [(" 007", "x"), ("b", "1")],
        ),
        *(
            (name, FASTTEXT, [("One,  two ", "x"), ("three", "y"), ("four __label five", "x")])
            for name in ("a.ft", "a.TXT")
        ),
    ],
)
def test_a_text_file_is_read_exactly(name, content, expected):
    """Quotes, line ends, marks and blanks are read by the rules of the format, and nothing is coerced."""
    assert rows(write(name, content)) == expected


@pytest.mark.parametrize("numbers", [["1", "2", "1"], ["1.0", "2.0", "1.0"], ["1", "2.00", "1"]])
def test_labels_that_are_whole_numbers_have_one_name_in_all_formats(numbers):
    """Also where a table has floats, because cells of the column are empty."""
    floats = [*map(float, numbers)]
    texts = ["a", "b", "c"]
    tables = [
        write("a.csv", "text,label\n" + "".join(map("{},{}\n".format, texts, numbers))),
        write("a.jsonl", "".join(map('{{"text": "{}", "label": {}}}\n'.format, texts, numbers))),
        write_parquet("a.parquet", text=texts, label=floats),
    ]
    book = pytest.importorskip("openpyxl").Workbook()
    for row in zip(["text", *texts], ["label", *floats], strict=True):
        book.active.append(row)
    book.save("a.xlsx")
    for table in [*tables, "a.xlsx"]:
        assert rows(table) == [("a", "1"), ("b", "2"), ("c", "1")]
    known = load_split("a.csv", DataConfig(train="a.csv"), ("2", "1"))
    assert known.labels.tolist() == [1, 0, 1]


def test_other_numbers_are_names_as_they_are_written():
    """Versions, numbers with zeros before them, and what `data.label_names` lists."""
    for labels in (["1.0", "1.5"], ["01.0", "2.0"], ["1.0", "x"]):
        table = write("a.csv", "text,label\n" + "".join(map("{},{}\n".format, "ab", labels)))
        assert [label for _, label in rows(table)] == labels
    table = write("a.csv", "text,label\na,1.0\nb,2.0\n")
    assert [label for _, label in rows(table, label_names=["1.0", "2.0"])] == ["1.0", "2.0"]


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
        (
            {"text": ["a", "b"], "label": pa.array(["x", "y"]).dictionary_encode()},
            None,
            [("a", "x"), ("b", "y")],
        ),
        (
            {"text": ["a", "b"], "label": [1, 0]},
            {
                "text": {"dtype": "string"},
                "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
            },
            [("a", "pos"), ("b", "neg")],
        ),
    ],
)
def test_a_parquet_file_is_read_exactly(columns, features, expected):
    """Strings and integers of any width; integers with the names that `datasets` keeps in the metadata."""
    assert rows(write_parquet("a.parquet", features, **columns)) == expected


def test_a_folder_or_a_glob_is_all_its_files_in_the_order_of_their_names():
    """Of any format; a .txt file without labels beside tables, such as a README.txt, is left alone."""
    write("d/c.jsonl", '{"text": "3", "label": "y"}\n')
    write("d/a.csv", "text,label\n1,x\n")
    write("d/b.txt", "__label__x 2\n")
    write("d/deep/d.TSV", "text\tlabel\n4\tx\n")
    write("d/notes.md", "not data")
    assert rows("d") == rows("d/*.[cjt]*") == [("1", "x"), ("2", "x"), ("3", "y")]
    assert rows("d/**/*.[cjtT][sSx]*") == [("1", "x"), ("2", "x"), ("3", "y"), ("4", "x")]
    write("d/b.txt", "about this data")
    assert rows("d") == [("1", "x"), ("3", "y")]


def test_class_folders_of_text_files_are_classes():
    """Each folder is a class and each .txt file one text, as it is in the file; other formats are left alone."""
    write("d/spam/2.txt", "win\r\nnow\n")
    write("d/spam/10.txt", b"\xef\xbb\xbf a")
    write("d/ham/1.txt", "hello")
    write("d/ham/notes.md", "not data")
    write("d/ham/3.TXT", "a suffix in capitals")
    write("d/spam/._2.txt", "what macOS keeps beside a file")
    write("d/.ipynb_checkpoints/1.txt", "what Jupyter keeps in a folder")
    dataset = load("d")
    assert rows("d") == [
        ("hello", "ham"),
        ("a suffix in capitals", "ham"),
        (" a", "spam"),
        ("win\r\nnow\n", "spam"),
    ]
    assert list(dataset.train.where) == [
        "d/ham/1.txt",
        "d/ham/3.TXT",
        "d/spam/10.txt",
        "d/spam/2.txt",
    ]


def test_texts_without_columns_have_no_second_text_column():
    """Labelled they are refused; the label never gets into the text, and nothing is added where a column is missing."""
    labelled = write("a.csv", "title,body,label\nt1,b1,x\nt2,b2,y\n")
    write("d/spam/1.txt", "win")
    write("d/ham/1.txt", "hello")
    for source in ("d", write("a.ft", "__label__x a\n")):
        assert "text files have no columns" in refusal(source, text_column=["title", "body"])
    more = write("more.txt", "one line\n")
    for source, texts in (("d", ["hello", "win"]), (more, ["one line"])):
        assert (
            list(load(labelled, text_column=["title", "body"], unlabelled=source).unlabelled.texts)
            == texts
        )
    assert list(load(labelled, text_column=["title"], unlabelled="d").unlabelled.texts) == [
        "hello",
        "win",
    ]


def test_several_text_columns_are_joined_with_a_space():
    source = write("a.csv", "label,body,title\nx,b1,t1\ny,,t2\n")
    assert rows(source, text_column=["title", "body"]) == [("t1 b1", "x"), ("t2 ", "y")]


csv_texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n \ufeff\0'), max_size=12
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    written=st.lists(st.tuples(csv_texts, csv_texts, csv_texts), max_size=5),
    dialect=st.sampled_from(["excel", "unix"]),
    bom=st.booleans(),
)
def test_what_csv_writer_writes_is_read_back(written, dialect, bom):
    """Any characters, in any quoting, with or without a byte order mark."""
    file = io.StringIO(newline="")
    csv.writer(file, dialect).writerows([["text", "other", "label"], *written])
    source = write("a.csv", b"\xef\xbb\xbf" * bom + file.getvalue().encode())
    found = read_rows(source, Columns(["text"], "label"), Reading())
    assert [(row.text, row.label) for row in found] == [(text, label) for text, _, label in written]


def damaged_parquet() -> list[bytes]:
    """A file that was cut, and one whose index is damaged."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), buffer)
    content = buffer.getvalue()
    return [content[: len(content) // 2], content[:-9] + b"PAR1"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\none,x\na,b,c\n", r"a\.csv:3: 3 fields where the header has 2"),
        ("a.csv", "text,label\none\n", r"a\.csv:2: 1 fields where the header has 2"),
        ("a.csv", 'text,label\n"1\n2",x\none\n', r"a\.csv:4: 1 fields"),
        (
            "a.csv",
            b"text,label\none,x\ncaf\xe9,y\n",
            r"a\.csv:3: not UTF-8 text \(byte 3 of the line\)",
        ),
        ("a.csv", GOOD.encode("utf-16"), r"a\.csv:1: not UTF-8"),
        ("a.tsv", b"text\tlabel\n\xff\tx\n", r"a\.tsv:2: not UTF-8"),
        ("a.jsonl", b'{"text": "\xff", "label": 1}\n', r"a\.jsonl:1: not UTF-8"),
        ("d/x/1.txt", b"a\n\xff", r"d/x/1\.txt:2: not UTF-8"),
        ("a.csv", 'text,label\none,x\n"two,y\nthree,x\n', r"a\.csv:3: not valid CSV: .*quote"),
        ("a.csv", "text,label\rone,x\r", r"a\.csv:1: not valid CSV"),
        (
            "a.csv",
            "sentence,class\none,x\n",
            r"a\.csv: no column 'text'; it has 'sentence', 'class' .*text_column",
        ),
        (
            "a.csv",
            "text,class\none,x\n",
            r"a\.csv: no column 'label'; it has 'text', 'class' .*label_column",
        ),
        (
            "a.csv",
            "texts;class\none;x\n",
            r"a\.csv: no column 'text'; it has 'texts;class' \(.*separated by ';'",
        ),
        (
            "a.csv",
            "Text ,label\none,x\n",
            r"a\.csv: no column 'text'; it has 'Text ', .*did you mean 'Text '\?",
        ),
        ("a.csv", "text,label,text\na,b,c\n", r"a\.csv:1: two columns are called 'text'"),
        ("a.tsv", "id\ttext\tlabel\tid\n1\ta\tx\t2\n", r"a\.tsv:1: two columns are called 'id'"),
        (
            "a.txt",
            "__label__x one\nno label\nnone\n",
            r"a\.txt:2: the line has no label, as 2 in all.*label_names=",
        ),
        ("a.ft", "one __label__x\n", r"a\.ft:1: the line has no label"),
        ("a.ft", "__label__x one\n__label__ two\n", r"a\.ft:2: the label is empty"),
        ("a.ft", "__label__x one\n__label__y\n__label__y \n", r"a\.ft:2: the text is empty"),
        ("a.ft", b"__label__x one\n__label__y \xff\n", r"a\.ft:2: not UTF-8"),
        ("a.csv", "", r"a\.csv: no rows"),
        ("a.csv", "\ntext,label\n", r"a\.csv: the first line is empty"),
        (
            "a.csv",
            packed(GOOD.encode()),
            r"a\.csv: is a gzip file; name it a\.csv\.gz, or unpack it",
        ),
        ("a.csv.gz", GOOD, r"a\.csv\.gz: not a readable gzip file: Not a gzipped file"),
        ("a.csv.gz", packed(GOOD.encode())[:-9], r"a\.csv\.gz: not a readable gzip file: "),
        (
            "a.csv.gz",
            packed(GOOD.encode() * 9)[:20] + b"xxxxxxxx",
            r"a\.csv\.gz: not a readable gzip file: ",
        ),
        (
            "a.json",
            '[{"text": "a", "label": 1}, 7]',
            r"a\.json:2: a JSON object is expected, not int '7'",
        ),
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
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a", "label": 2.5}',
            r"a\.jsonl:2: the label is float '2\.5'",
        ),
        ("a.jsonl", '{"text": "a", "label": null}', r"a\.jsonl:1: the label is empty"),
        ("a.jsonl", '{"text": 7, "label": "x"}', r"a\.jsonl:1: column 'text' holds int '7'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "a"\n', r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", '["a", 1]\n', r"a\.jsonl:1: a JSON object is expected, not list"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1, "text": "b"}',
            r"a\.jsonl:1: not valid JSON: a key occurs twice",
        ),
        (
            "a.jsonl",
            '{"text": "a", "class": 1}',
            r"a\.jsonl:1: no column 'label'; it has 'text', 'class'",
        ),
        (
            "a.jsonl",
            '{"text": "ab\\ud800", "label": 1}',
            r"a\.jsonl:1: the text holds half of a surrogate pair .*2",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a", "label": "\\ud800"}',
            r"a\.jsonl:2: the label holds half of a surrogate pair",
        ),
        (
            "a.csv",
            "text,label\none,x\ntwo,x\n",
            r"a\.csv: every row has the label 'x'; at least two classes",
        ),
        ("a.parquet", b"", r"a\.parquet: not a readable Parquet file"),
        ("a.parquet", b"PAR1" + b"\0" * 50 + b"PAR1", r"a\.parquet: "),
        *(
            ("a.parquet", damaged, r"a\.parquet: not a readable Parquet file")
            for damaged in damaged_parquet()
        ),
        ("a.xls", b"PK", r"a\.xls: unknown format; known: \.csv, .* \.parquet, \.xlsx, "),
        ("a.xlsx", b"PK", r"a\.xlsx: not a readable Excel file: File is not a zip file"),
        (
            "d/notes.md",
            "",
            r"d: no \.csv, \.tsv, \.jsonl, \.json, .* \.ft, \.txt file and no class folders",
        ),
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
        ({"text": ["a"], "label": [1.5]}, "the label is float"),
        ({"text": ["a", "b"], "label": [1, None]}, "the label is empty"),
        ({"text": pa.array([], pa.string()), "label": pa.array([], pa.int64())}, "no rows"),
        ({"text": pa.array([b"a\xff"]).view(pa.utf8()), "label": ["x"]}, ""),  # UnicodeDecodeError
        ({"text": ["a"], "label": pa.array([2**30], pa.date32())}, ""),  # OverflowError
    ],
)
def test_a_bad_parquet_column_is_refused(columns, message):
    assert re.match(
        rf"a\.parquet(:\d)?: .*{message}", refusal(write_parquet("a.parquet", **columns))
    )


@pytest.mark.parametrize("source", ["nowhere.csv", "nowhere/*.csv", "example:nowhere", "x" * 5000])
def test_a_missing_source_is_named(source):
    assert re.match(r"(.*nowhere.*: no such file or folder)|x{5000}: ", refusal(source))


@pytest.mark.parametrize(
    "character", ["\x1b", "\x07", "\r", "\n", "\x9b", "\u202e", "\u2028", "\ud800", "\0"]
)
def test_no_control_character_gets_into_a_message(character):
    content = json.dumps({"text": "a", f"b{character}": "c", "label": 1})
    assert refusal(write("a.jsonl", content), text_column="body").isprintable()
    bad_label = json.dumps({"text": "a", "label": {f"{character}x": 1}})
    assert refusal(write("a.jsonl", bad_label)).isprintable()


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("more.txt", "one text\n\n  two,texts \r\nlast", ["one text", "  two,texts ", "last"]),
        ("more.TXT", "__label__x one\n", ["__label__x one"]),
        ("more.ft", "__label__x one text\n\n__label__y\nno label\n", ["one text", "no label"]),
        ("more.csv", "id,text\n1,one text\n2,\n3,last\n", ["one text", "last"]),
        ("more.jsonl", '{"text": "six"}\n{"text": "ten", "label": 3}\n', ["six", "ten"]),
    ],
)
def test_unlabelled_texts_are_read_without_labels_and_without_what_is_empty(name, content, texts):
    """Of any format, each text with its place: a text a line in .txt, fastText's labels taken off in .ft alone."""
    unlabelled = load(write("train.csv", GOOD), unlabelled=write(name, content)).unlabelled
    assert list(unlabelled.texts) == texts
    lines = content.splitlines()
    for text, where in zip(unlabelled.texts, unlabelled.where, strict=True):
        assert text in lines[int(str(where).rpartition(":")[2]) - 1]


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (1711850400123456000, datetime(2024, 3, 31, 2, 0, 0, 123456)),
        (1711850400123456789, "2024-03-31 02:00:00.123456789"),
    ],
)
def test_times_in_nanoseconds_need_no_pandas(tmp_path, monkeypatch, nanoseconds, expected):
    """Where microseconds would lose digits, they are text."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    times = pa.array([nanoseconds]).cast(pa.timestamp("ns"))
    table = pa.table({"text": ["rain"], "at": times})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = Columns(("text",), every=True)
    (row,) = read_rows(str(tmp_path / "a.parquet"), columns, Reading())
    assert row.record["at"] == expected


@pytest.mark.parametrize("source", ["a\0.csv", "\0", "no*\0.csv"])
def test_a_name_with_a_null_byte_is_no_file(source):
    """A config in YAML can have one."""
    assert "no such file or folder" in refusal(source)
