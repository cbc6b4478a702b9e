"""Packed files: a small one that unpacks to much is refused in little memory."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc

import pytest
from support.data import write

from encoder_cls.data.reading import json_files
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import LONGEST_LINE

# Four times the longest line.
MEBIBYTES = 64
# Bytes of memory for each byte of a line: a field takes four while it is read.
MEMORY_OF_BYTE = 8


def read(source: str) -> list[Row]:
    return list(read_rows(source, Columns(["text"], "label"), Reading()))


def write_bomb(name: str, start: bytes, piece: bytes, end: bytes) -> None:
    """Write a packed file of one long row, whose text repeats a piece."""
    block = piece * ((1 << 20) // len(piece))
    with gzip.open(name, "wb", 1) as file:
        file.write(start)
        for _ in range(MEBIBYTES):
            file.write(block)
        file.write(end)


@pytest.mark.parametrize(
    ("name", "start", "piece", "end", "message"),
    [
        (
            "a.csv.gz",
            b"text,label\n",
            b"a",
            b",x\n",
            "a.csv.gz:2: the line is longer than 16 MiB",
        ),
        (
            "a.tsv.gz",
            b"text\tlabel\n",
            b"a",
            b"\tx\n",
            "a.tsv.gz:2: the line is longer than 16 MiB",
        ),
        (
            "b.csv.gz",
            b'text,label\n"',
            b"a" * 1000 + b"\n",
            b'",x\n',
            "b.csv.gz:2: not valid CSV: the row is longer",
        ),
        (
            "a.jsonl.gz",
            b'{"label": 1, "text": "',
            b"a",
            b'"}\n',
            "a.jsonl.gz:1: the line is longer",
        ),
    ],
    ids=["CSV", "TSV", "CSV row of many lines", "JSON Lines"],
)
def test_a_small_file_that_unpacks_to_a_giant_row_is_refused_in_little_memory(
    name, start, piece, end, message
):
    """The error names the file and the line."""
    write_bomb(name, start, piece, end)

    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=f"^{re.escape(message)}"):
            read(name)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_OF_BYTE * LONGEST_LINE


def test_an_object_of_a_packed_array_has_the_length_of_a_row(monkeypatch):
    """An object of many fields takes more than twenty times the memory of its text."""
    monkeypatch.setattr(json_files, "LONGEST_LINE", 1 << 18)
    content = b'[{"label": 1, "text": ""' + b',"b":0\n' * (1 << 19) + b"}]"
    write("a.json.gz", gzip.compress(content))

    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"^a\.json\.gz:1: the object is longer than 0 MiB"):
            read("a.json.gz")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(content)


ITEMS = [json.dumps({"text": f"text {number}", "label": 1}) for number in range(30)]


@pytest.mark.parametrize("separator", [",", ",\n"])
def test_an_array_of_json_is_read_block_by_block(monkeypatch, separator):
    """A block may end anywhere, and an object may be longer than a block."""
    content = f" [{separator.join(ITEMS)}] "
    for characters in (1, 7, 100):
        monkeypatch.setattr(json_files, "BLOCK_CHARACTERS", characters)
        rows = read(write("a.json", content))
        assert [row.text for row in rows] == [f"text {number}" for number in range(30)]
        assert rows[-1].where == "a.json:30"


def test_a_packed_array_of_json_has_a_limit_for_its_line(monkeypatch):
    """A line that is as large on the disk has no such limit."""
    monkeypatch.setattr(json_files, "MAX_UNPACKED_JSON", 500)
    content = f"[{','.join(ITEMS)}]"

    write("a.json.gz", gzip.compress(content.encode()))
    with pytest.raises(DataError, match=r"^a\.json\.gz.* longer than"):
        read("a.json.gz")

    assert len(read(write("a.json", content))) == 30


def test_packed_lines_of_json_have_no_such_limit(monkeypatch):
    monkeypatch.setattr(json_files, "MAX_UNPACKED_JSON", 500)
    write("b.json.gz", gzip.compress("\n".join(ITEMS).encode()))
    assert len(read("b.json.gz")) == 30
