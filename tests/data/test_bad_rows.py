"""Rows that cannot be read, in every format of text: an error, or left out and counted."""

from __future__ import annotations

import re

import pytest
from support.data import refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.labelled_rows import read_labelled
from encoder_cls.data.reading.reading import Reading
from encoder_cls.errors import DataError

# The lines of a file of each format.
LINES = {
    "a.csv": [
        b"text,label",
        b"a,x",
        b"b,y,z",
        b"caf\xe9,x",
        b'"open,y',
        b"c,x",
        b'"d"e,x',
        b"f,y",
        b"g, ",
        b"\xc3\xa9,x",
    ],
    "a.tsv": [
        b"text\tlabel",
        b"a\tx",
        b"b",
        b"caf\xe9\tx",
        b"c\ty",
    ],
    "a.jsonl": [
        b'{"text": "a", "label": 1}',
        b'{"text": 1, "label": 1}',
        b'{"te',
        b"[]",
        b'{"text": "\xe9", "label": 1}',
        b'{"text": "b"}',
        b'{"text": "c", "label": {}}',
        b'{"text": "d\\ud800", "label": 1}',
        b'{"text": "z", "label": 2}',
    ],
    "a.txt": [
        b"__label__x a",
        b"no __label__y",
        b"__label__x \xe9",
        b"__label__ b",
        b"__label__y c",
    ],
}


@pytest.mark.parametrize(
    ("name", "texts", "lines", "first_lines"),
    [
        ("a.csv", ["a", "c", "f", "é"], [2, 6, 8, 10], [3, 4, 5]),
        ("a.tsv", ["a", "c"], [2, 5], [3, 4]),
        ("a.jsonl", ["a", "z"], [1, 9], [2, 3, 4]),
        ("a.txt", ["a", "c"], [1, 5], [2, 3, 4]),
    ],
)
def test_bad_rows_are_left_out_where_that_is_asked_for(name, texts, lines, first_lines):
    """All others keep text and place; the warning counts the bad rows, and has the first places."""
    write(name, b"\n".join(LINES[name]) + b"\n")
    config = DataConfig(train=name, bad_rows="skip")
    reading = Reading(config.reading_options)

    rows = read_labelled(name, "train", config, reading)

    assert list(rows.texts) == texts
    assert list(rows.where) == [f"{name}:{line}" for line in lines]
    skipped = reading.notes.skipped
    assert skipped.first == [f"{name}:{line}" for line in first_lines]
    assert next(reading.notes.warnings("train")).startswith(
        f"rows of train that cannot be read, which are left out: {skipped.count} "
        f"({name}:{first_lines[0]}, "
    )


@pytest.mark.parametrize(
    ("name", "first_line"), [("a.csv", 3), ("a.tsv", 3), ("a.jsonl", 2), ("a.txt", 2)]
)
def test_the_first_bad_row_is_an_error_by_default(name, first_line):
    write(name, b"\n".join(LINES[name]) + b"\n")
    with pytest.raises(DataError, match=f"^{re.escape(name)}:{first_line}: "):
        read_labelled(name, "train", DataConfig(train=name), Reading())


def test_nothing_but_bad_rows_is_an_error():
    """A file in another encoding than named is not left out row by row without a word."""
    message = refusal(write("a.csv", "text,label\na\nb\n"), bad_rows="skip")
    assert message.startswith("a.csv: no rows with a text (2 rows left out; a.csv:2: 1 field where")
