"""Tables as they come: other separators, quotes of spreadsheets in TSV, and rows that are left out."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import tracemalloc
from pathlib import Path
from threading import Thread

import pytest
from support.data import refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.labelled_rows import read_labelled
from encoder_cls.data.load_dataset import reading_of
from encoder_cls.data.reading import json_files
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import LONGEST_LINE

COLUMNS = Columns(["text"], "label")


def rows(name: str, content: str | bytes, **options) -> tuple[list[tuple[str, object]], Reading]:
    """What is read of a file, and how."""
    reading = Reading(**options)
    found = read_rows(write(name, content), COLUMNS, reading)
    return [(row.text, row.label) for row in found], reading


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ";"), ("a.csv", "\t"), ("a.csv", "|"), ("a.tsv", ";")]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_header_that_leaves_no_doubt_shows_the_separator(name, separator, mark):
    """With a note; fields may hold commas, quotes and line breaks."""
    table = io.StringIO()
    csv.writer(table, delimiter=separator).writerows(
        [["text", "label"], ['a, "b"\nc', "x"], [f"d{separator}e", "y"]]
    )
    found, reading = rows(name, mark + table.getvalue())
    assert found == [('a, "b"\nc', "x"), (f"d{separator}e", "y")]
    assert reading.notes.messages == [
        f"{name}: read with {separator!r} between its fields, as its header has it (data.delimiter)"
    ]
    assert column_names(Path(name), ["text"], Reading()) == ["text", "label"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text;class\na;b\n",
            "no column 'label'; it has 'text', 'class'",
        ),  # by no separator there are both
        ('"text;x",label;text\n', "no column 'text'; it has 'text;x', 'label;text'"),
    ],
)
def test_where_there_is_doubt_the_usual_separator_stays(content, message):
    with pytest.raises(DataError, match=re.escape(message)):
        rows("a.csv", content)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("separator", [";", "\t", ","])
@pytest.mark.parametrize(
    "options", [{}, {"delimiter": ";"}, {"delimiter": "|", "bad_rows": "skip"}]
)
def test_the_line_that_excel_writes_first_names_the_separator(name, separator, options):
    """Whatever is set; lines are counted from it on."""
    content = f"\ufeffsep={separator}\r\ntext{separator}label\r\na{separator}x\r\n"
    assert rows(name, content, **options)[0] == [("a", "x")]
    assert column_names(Path(name), ["text"], Reading()) == ["text", "label"]
    with pytest.raises(DataError, match=rf"{name}:4: 1 fields where the header has 2"):
        rows(name, f"{content}b\r\n")


def test_a_part_of_no_bytes_has_no_rows():
    write("d/a.csv", "")
    write("d/b.csv", "text,label\na,x\n")
    found = read_rows("d", COLUMNS, Reading())
    assert [row.text for row in found] == ["a"]
    assert column_names(Path("d/a.csv"), ["text"], Reading()) == []


def test_a_separator_that_is_usual_or_named_is_not_noted():
    """But a named one gives way to a header without doubt: a model that was trained on semicolons reads commas."""
    assert rows("a.csv", "text,label\na,x\n")[1].notes.messages == []
    assert rows("a.csv", "text^label\na^x\n", delimiter="^")[0] == [("a", "x")]
    assert rows("a.csv", "text;label\na;x\n", delimiter=";")[1].notes.messages == []
    found, reading = rows("a.csv", "text,label\na,x\n", delimiter=";")
    assert found == [("a", "x")]
    assert "read with ','" in reading.notes.messages[0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('text\tlabel\n"say ""hi"""\tx\nplain\ty\n', [('say "hi"', "x"), ("plain", "y")]),
        ('text\tlabel\r\n"two\nlines"\tx\r\n"a, b"\ty\r\n', [("two\nlines", "x"), ("a, b", "y")]),
        ('text\tlabel\n"a\tb"\tx\n', [("a\tb", "x")]),
        ('"text"\t"label"\n"a"\t"x"\n', [("a", "x")]),  # all in quotes, the names, too
    ],
)
def test_quotes_of_a_spreadsheet_in_tsv(content, expected):
    """Where all rows can be read so, and one shows it."""
    found, reading = rows("a.tsv", content)
    assert found == expected
    assert reading.notes.messages == [
        "a.tsv: fields in quotes are read as a spreadsheet writes them"
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            'text\tlabel\n"hello"\tx\nb\ty\n',
            [('"hello"', "x"), ("b", "y")],
        ),  # nothing that needs quotes
        ('text\tlabel\n"say ""hi"""\tx\nb" c\ty\n', [('"say ""hi"""', "x"), ('b" c', "y")]),
        ('text\tlabel\n"say ""hi"""\tx\n"b\ty\n', [('"say ""hi"""', "x"), ('"b', "y")]),
    ],
)
def test_other_quotes_in_tsv_are_characters(content, expected):
    """One row that no spreadsheet would write shows that none has written the file."""
    found, reading = rows("a.tsv", content)
    assert (found, reading.notes.messages) == (expected, [])
    # Asked for.
    assert rows("a.tsv", 'text\tlabel\n"hello"\tx\n', delimiter="\t")[0] == [("hello", "x")]


def test_what_can_be_read_only_once_is_read_once():
    """The separator of a pipe is detected, too; its quotes in TSV are characters."""
    for name, content, expected in (
        ("p.csv", "text;label\na;x\n", ("a", "x")),
        ("p.tsv", 'text\tlabel\n"a ""b"""\tx\n', ('"a ""b"""', "x")),
    ):
        os.mkfifo(name)
        writer = Thread(target=Path(name).write_text, args=[content])
        writer.start()
        found = read_rows(name, COLUMNS, Reading())
        assert [(row.text, row.label) for row in found] == [expected]
        writer.join()


BAD = {
    "a.csv": (
        b'text,label\na,x\nb,y,z\ncaf\xe9,x\n"open,y\nc,x\n"d"e,x\nf,y\ng, \n\xc3\xa9,x\n',
        "acf\u00e9",
        [3, 4, 5],
    ),
    "a.tsv": (b"text\tlabel\na\tx\nb\ncaf\xe9\tx\nc\ty\n", "ac", [3, 4]),
    "a.jsonl": (
        b'{"text": "a", "label": 1}\n{"text": 1, "label": 1}\n{"te\n[]\n{"text": "\xe9", "label": 1}\n'
        b'{"text": "b"}\n{"text": "c", "label": true}\n{"text": "d\\ud800", "label": 1}\n{"text": "z", "label": 2}\n',
        "az",
        [2, 3, 4],
    ),
    "a.txt": (
        b"__label__x a\nno __label__y\n__label__x \xe9\n__label__ b\n__label__y c\n",
        "ac",
        [2, 3, 4],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_left_out_where_that_is_asked_for(name):
    """All others are read unchanged; the first locations are kept, with the fault of the first."""
    content, texts, first = BAD[name]
    config = DataConfig(train=write(name, content), bad_rows="skip")
    reading = reading_of(config)
    found = read_labelled(name, "train", config, reading)
    assert "".join(found.texts) == texts
    skipped = reading.notes.skipped
    assert skipped.first == [f"{name}:{line}" for line in first][:3]
    what = "rows of train that cannot be read, which are left out"
    assert next(reading.notes.warnings("train")).startswith(
        f"{what}: {skipped.count} ({name}:{first[0]}, "
    )
    with pytest.raises(DataError, match=f"^{re.escape(name)}:{first[0]}: "):
        read_labelled(name, "train", DataConfig(train=name), Reading())


def test_nothing_but_bad_rows_is_an_error():
    """A file in another encoding than named is not left out row by row without a word."""
    message = refusal(write("a.csv", "text,label\na\nb\n"), bad_rows="skip")
    assert message.startswith("a.csv: no rows with a text (2 are left out; a.csv:2: 1 fields where")


JOINED = "text,label\na,x\n"


@pytest.mark.parametrize(
    "again",
    [
        "text,label\n",
        "\ufefftext,label\n",
        '\ufeff"text",label\n',
        '"text","label"\r\n',
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_the_header_of_a_joined_file_is_left_out(name, again):
    """With a warning, and with the byte order mark of the file that it began."""
    content = f"{JOINED}{again}b,y\n".replace(",", "," if name == "a.csv" else "\t")
    if name == "a.tsv" and again.startswith('"'):
        content = content.replace("\na\t", '\n"a\t"\t')  # which shows quotes of a spreadsheet
    found, reading = rows(name, content)
    assert [label for _, label in found] == ["x", "y"]
    assert list(reading.notes.warnings("train")) == [
        f"rows of train that repeat the header, which are left out: 1 ({name}:3)"
    ]


def test_a_joined_file_with_its_columns_in_another_order_is_refused():
    with pytest.raises(
        DataError, match=r"^a\.csv:3: a second header, with its columns in another order"
    ):
        rows("a.csv", f"{JOINED}label,text\ny,b\n", bad_rows="skip")


def test_a_text_may_be_the_word_that_names_the_only_column():
    """Answers keep to their lines; only a byte order mark shows that a file began there."""
    write("a.csv", "text\ntext\n\ufefftext\nb\n")
    found = read_rows("a.csv", Columns(["text"]), Reading())
    assert [row.text for row in found] == ["text", "b"]


def test_thousands_of_columns_without_names_are_numbered_at_once():
    """A spreadsheet may write them; the names must not be compared pair by pair."""
    num_columns = 50_000
    commas = "," * num_columns
    write("a.csv", f"{commas}text,.1\n{commas}a,b\n")
    (found,) = read_rows("a.csv", Columns(["text"], every=True), Reading())
    assert len(found.record) == num_columns + 2
    assert list(found.record)[:3] == ["", ".2", ".3"]
    assert found.record[".1"] == "b"


MEBIBYTES = 64  # four times the longest line
BOMBS = {
    "a.csv.gz": (b"text,label\n", b"a", b",x\n", "a.csv.gz:2: the line is longer than 16 MiB"),
    "a.tsv.gz": (b"text\tlabel\n", b"a", b"\tx\n", "a.tsv.gz:2: the line is longer than 16 MiB"),
    "b.csv.gz": (
        b'text,label\n"',
        b"a\n",
        b'",x\n',
        "b.csv.gz:2: not valid CSV: the row is longer",
    ),
    "a.jsonl.gz": (b'{"label": 1, "text": "', b"a", b'"}\n', "a.jsonl.gz:1: the line is longer"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_unpacks_to_a_giant_row_is_refused_in_little_memory(name):
    """The error names the file and the line."""
    start, piece, end, message = BOMBS[name]
    block = piece * ((1 << 20) // len(piece))
    with gzip.open(name, "wb", 1) as file:
        file.write(start)
        for _ in range(MEBIBYTES):
            file.write(block)
        file.write(end)

    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=f"^{re.escape(message)}"):
            list(read_rows(name, COLUMNS, Reading()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * LONGEST_LINE  # a field takes four bytes a character while it is read


def test_a_packed_array_of_json_is_read_as_a_whole_up_to_a_limit(monkeypatch):
    """Lines have no such limit, and no array that is as large on the disk."""
    items = [{"text": f"text {number}", "label": 1} for number in range(30)]
    monkeypatch.setattr(json_files, "MOST_UNPACKED_JSON", 500)
    for separator in (",", ",\n"):
        content = f"[{separator.join(map(json.dumps, items))}]"
        write("a.json.gz", gzip.compress(content.encode()))
        with pytest.raises(DataError, match=r"^a\.json\.gz.* longer than"):
            list(read_rows("a.json.gz", COLUMNS, Reading()))
        write("a.json", content)
        assert len(list(read_rows("a.json", COLUMNS, Reading()))) == 30
    write("b.json.gz", gzip.compress("\n".join(map(json.dumps, items)).encode()))
    assert len(list(read_rows("b.json.gz", COLUMNS, Reading()))) == 30
