"""Sources that cannot be read: the error names the file and the line, and says how to mend it."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile

import pyarrow
import pyarrow.parquet
import pytest
from support.data import refusal, write

from encoder_cls.data.reading.formats import FORMATS

CSV = "text,label\none,x\ntwo,y\n"


def zipped(name: str) -> bytes:
    """A ZIP archive with an empty file of this name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, "")
    return archive.getvalue()


def packed(content: str) -> bytes:
    """Content as gzip writes it, without a time, so that tests have equal names in all workers."""
    return gzip.compress(content.encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,label\none,x\na,b,c\n",
            r"a\.csv:3: 3 fields where the header has 2",
        ),
        (
            "a.csv",
            "text,label\none\n",
            r"a\.csv:2: 1 field where the header has 2",
        ),
        (
            "a.csv",
            'text,label\n"1\n2",x\none\n',
            r"a\.csv:4: 1 field where",
        ),
        (
            "a.csv",
            'text,label\none,x\n"two,y\nthree,x\n',
            r"a\.csv:3: not valid CSV: .*quote",
        ),
        (
            "a.csv",
            "text,label\rone,x\r",
            r"a\.csv:1: not valid CSV",
        ),
        (
            "a.csv",
            "",
            r"a\.csv: no rows",
        ),
        (
            "a.csv",
            "text,label\n",
            r"a\.csv: no rows",
        ),
    ],
)
def test_a_table_that_is_malformed_is_refused(name, content, message):
    assert re.match(message, refusal(write(name, content)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
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
        (
            "a.csv",
            "text,label,text\na,b,c\n",
            r"a\.csv:1: two columns are called 'text'",
        ),
        (
            "a.tsv",
            "id\ttext\tlabel\tid\n1\ta\tx\t2\n",
            r"a\.tsv:1: two columns are called 'id'",
        ),
        (
            "a.csv",
            "\n\n",
            r"a\.csv: the first line is empty",
        ),
        (
            "a.jsonl",
            '{"text": "a", "class": 1}',
            r"a\.jsonl:1: no column 'label'; it has 'text', 'class'",
        ),
        (
            "a.json",
            '[{"text": "a"}]',
            r"a\.json:1: no column 'label'",
        ),
    ],
)
def test_columns_that_are_missing_or_doubled_are_named(name, content, message):
    assert re.match(message, refusal(write(name, content)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"text,label\none,x\ncaf\xe9,y\n",
            r"a\.csv:3: not UTF-8 text \(byte 3 of the line\)",
        ),
        ("a.csv", CSV.encode("utf-16"), r"a\.csv:1: not UTF-8"),
        ("a.tsv", b"text\tlabel\n\xff\tx\n", r"a\.tsv:2: not UTF-8"),
        ("a.jsonl", b'{"text": "\xff", "label": 1}\n', r"a\.jsonl:1: not UTF-8"),
        ("a.json", b'[{"text": "\xff", "label": 1}]', r"a\.json:1: not UTF-8"),
        ("a.ft", b"__label__x one\n__label__y \xff\n", r"a\.ft:2: not UTF-8"),
        ("d/x/1.txt", b"a\n\xff", r"d/x/1\.txt:2: not UTF-8"),
    ],
)
def test_text_that_is_not_utf_8_is_refused_with_its_place(name, content, message):
    write(name, content)
    source = "d" if name.startswith("d/") else name
    assert re.match(message, refusal(source))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.txt",
            "__label__x one\nno label\nnone\n",
            r"a\.txt:2: the line has no label \(2 lines have none\).*label_names=",
        ),
        (
            "a.ft",
            "one __label__x\n",
            r"a\.ft:1: the line has labels, but none at its beginning",
        ),
        (
            "a.ft",
            "__label__x one\n__label__ two\n",
            r"a\.ft:2: the label is empty",
        ),
        (
            "a.ft",
            "__label__x one\n__label__y\n__label__y \n",
            r"a\.ft:2: the text is empty",
        ),
    ],
)
def test_a_fasttext_line_without_label_or_text_is_refused(name, content, message):
    assert re.match(message, refusal(write(name, content)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            packed(CSV),
            r"a\.csv: is a gzip file; name it a\.csv\.gz, or unpack it",
        ),
        ("a.csv", zipped("a.txt"), r"a\.csv: is a ZIP archive; unpack it"),
        ("a.csv", zipped("[Content_Types].xml"), r"a\.csv: is an Excel file; name it a\.xlsx"),
        ("a.csv", b"PAR1\x15\x04", r"a\.csv: is a Parquet file; name it a\.parquet"),
        (
            "a.csv.gz",
            CSV,
            r"a\.csv\.gz: not a readable gzip file: Not a gzipped file",
        ),
        (
            "a.csv.gz",
            packed(CSV)[:-9],
            r"a\.csv\.gz: not a readable gzip file: ",
        ),
        (
            "a.csv.gz",
            packed(CSV * 9)[:20] + b"xxxxxxxx",
            r"a\.csv\.gz: not a readable gzip file: ",
        ),
    ],
    ids=["no sign", "archive", "Excel", "Parquet", "not packed", "cut", "damaged"],
)
def test_a_packed_file_that_is_damaged_or_misnamed_is_refused(name, content, message):
    assert re.match(message, refusal(write(name, content)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            '[{"text": "a", "label": 1}, 7]',
            r"a\.json:2: a JSON object is expected, not int '7'",
        ),
        (
            "a.json",
            '[{"text": "a", "label": 1}',
            r"a\.json:1: not valid JSON",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a"\n',
            r"a\.jsonl:2: not valid JSON",
        ),
        (
            "a.jsonl",
            "[" * 100_000,
            r"a\.jsonl:1: not valid JSON",
        ),
        (
            "a.jsonl",
            '["a", 1]\n',
            r"a\.jsonl:1: a JSON object is expected, not list",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": 1, "text": "b"}',
            r"a\.jsonl:1: not valid JSON: a key occurs twice",
        ),
    ],
    ids=["number", "cut array", "cut line", "deep", "list", "key twice"],
)
def test_json_that_is_malformed_is_refused(name, content, message):
    assert re.match(message, refusal(write(name, content)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            'text,label\none,x\n" ",y\n\u3000,y\n',
            r"a\.csv:3: .* 2 of 3 rows \(a\.csv:3, a\.csv:4\); .*texts=drop",
        ),
        (
            "a.csv",
            "text,label\none,x\ntwo, \n",
            r"a\.csv:3: the label is empty",
        ),
        (
            "a.csv",
            "text,label\none,x\ntwo,x\n",
            r"a\.csv: every row has the label 'x'; at least two classes",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": {"name": "x"}}',
            r"a\.jsonl:1: the label is dict .*; a name or a number is expected",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a", "label": Infinity}',
            r"a\.jsonl:2: the label is float 'inf'",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": null}',
            r"a\.jsonl:1: the label is empty",
        ),
        (
            "a.jsonl",
            '{"text": 7, "label": "x"}',
            r"a\.jsonl:1: column 'text' holds int '7'",
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
    ],
)
def test_values_that_are_no_text_or_no_label_are_refused(name, content, message):
    assert re.match(message, refusal(write(name, content)))


def parquet_file() -> bytes:
    buffer = io.BytesIO()
    table = pyarrow.table({"text": ["a", "b"], "label": [0, 1]})
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


SOUND_PARQUET = parquet_file()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.parquet: not a readable Parquet file"),
        (b"PAR1" + b"\0" * 50 + b"PAR1", r"a\.parquet: "),
        (SOUND_PARQUET[: len(SOUND_PARQUET) // 2], r"a\.parquet: not a readable Parquet file"),
        (SOUND_PARQUET[:-9] + b"PAR1", r"a\.parquet: not a readable Parquet file"),
    ],
    ids=["empty", "zeros", "cut", "damaged index"],
)
def test_a_damaged_parquet_file_is_refused(content, message):
    assert re.match(message, refusal(write("a.parquet", content)))


def test_a_damaged_excel_file_is_refused():
    message = refusal(write("a.xlsx", b"PK"))
    assert message.startswith("a.xlsx: not a readable Excel file: File is not a zip file")


def test_an_unknown_format_is_refused_with_the_known_ones():
    endings = ", ".join(file_format.ending for file_format in FORMATS)
    assert refusal(write("a.xls", b"PK")) == f"a.xls: unknown format; known: {endings}"


def test_a_folder_without_data_is_refused():
    write("d/notes.md", "")
    endings = ", ".join(file_format.ending for file_format in FORMATS)
    assert refusal("d").startswith(f"d: no {endings} file and no class folders")


@pytest.mark.parametrize("source", ["nowhere.csv", "nowhere/*.csv", "example:nowhere"])
def test_a_missing_source_is_named(source):
    assert re.match(r".*nowhere.*: no such file or folder", refusal(source))


def test_a_name_too_long_for_a_file_is_refused():
    assert re.match(r"x{5000}: ", refusal("x" * 5000))


@pytest.mark.parametrize("source", ["a\0.csv", "\0", "no*\0.csv"])
def test_a_name_with_a_null_byte_is_no_file(source):
    """A config in YAML can have one."""
    assert "no such file or folder" in refusal(source)


@pytest.mark.parametrize(
    "character", ["\x1b", "\x07", "\r", "\n", "\x9b", "\u202e", "\u2028", "\ud800", "\0"]
)
def test_no_control_character_gets_into_a_message(character):
    bad_column = json.dumps({"text": "a", f"b{character}": "c", "label": 1})
    assert refusal(write("a.jsonl", bad_column), text_column="body").isprintable()

    bad_label = json.dumps({"text": "a", "label": {f"{character}x": 1}})
    assert refusal(write("a.jsonl", bad_label)).isprintable()
