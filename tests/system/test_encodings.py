"""Text files in any encoding: their lines, and hints where the setting names another one."""

from __future__ import annotations

import codecs
import io
import re
from pathlib import Path

import pytest

from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.encodings import (
    delimiter_named,
    encoding_named,
    guessed_encoding,
    joins_utf8,
    text_lines,
)

TEXT = "text,label\r\nün caf\u00e9,x\ny\u2028z,y\n\nlast"
LINES = ["text,label\r\n", "ün café,x\n", "y\u2028z,y\n", "\n", "last"]
FILE = Path("a.csv")


def lines(content: bytes, encoding: str = "utf-8", **options) -> list[str]:
    FILE.write_bytes(content)
    return list(text_lines(FILE, encoding, **options))


def refusal(content: bytes, encoding: str = "utf-8") -> str:
    with pytest.raises(DataError) as error:
        lines(content, encoding)
    assert str(error.value).isprintable()
    return str(error.value)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030"]
)
def test_lines_are_those_of_the_text(encoding):
    """Line ends and what only looks like one stay as they are."""
    assert lines(TEXT.encode(encoding), encoding) == LINES

    # A byte order mark is not part of the first line.
    if encoding.startswith("utf"):
        with_mark = f"\ufeff{TEXT}".encode(encoding.removesuffix("-sig"))
        assert lines(with_mark, encoding) == LINES

    # Lines may be longer than a block that is read.
    long_line = "é" * 70_000 + "\n"
    assert lines((long_line * 3).encode(encoding), encoding) == [long_line] * 3


@pytest.mark.parametrize(
    ("encoding", "text"), [("windows-1252", "café\n"), ("shift_jis", "表\n"), ("1251", "да\n")]
)
def test_legacy_encodings_are_read_by_their_names(encoding, text):
    """The mark of UTF-8 overrides them."""
    assert lines(text.encode(encoding), encoding) == [text]
    assert lines(codecs.BOM_UTF8 + text.encode(), encoding) == [text]


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (
            TEXT.encode("utf-16"),
            "utf-8",
            r"a\.csv:1: not UTF-8 text; the file seems to be UTF-16: --set data\.encoding=utf-16 ",
        ),
        (
            TEXT.encode("utf-16-le"),
            "utf-8",
            r"a\.csv:1: .* UTF-16: --set data\.encoding=utf-16-le ",
        ),
        (
            TEXT.encode("utf-16-be"),
            "windows-1252",
            r"a\.csv:1: not windows-1252 text; .* data\.encoding=utf-16-be ",
        ),
        (
            b"a\ncaf\xe9,\x93q\x94\r\n",
            "utf-8",
            r"a\.csv:2: not UTF-8 text \(byte 3 of the line\); the file seems to be "
            r"Windows-1252, which has this line as 'café,“q”': "
            r"--set data\.encoding=windows-1252 reads it so",
        ),
        (
            "é\nü\n".encode() + b"caf\xe9\n",
            "utf-8",
            r"a\.csv:3: .*, as other lines are; in Windows-1252 it would be 'café'",
        ),
        (
            "é\n".encode() + b"caf\xe9\n" * 3,
            "utf-8",
            r"a\.csv:2: .* 'café'; the file seems to join parts in UTF-8 and in Windows-1252: save",
        ),
        (
            "привет мир\n".encode("cp1251"),
            "utf-8",
            r"a\.csv:1: .*; save the file as UTF-8, or name its encoding",
        ),
        (
            b"a\n\x81\n",
            "windows-1252",
            r"a\.csv:2: not windows-1252 text \(byte 0 of the line\); data\.encoding names",
        ),
        (
            b"text,label\na,b\n",
            "utf-16",
            r"a\.csv:1: not utf-16 text; the file seems to be UTF-8: --set data\.enc",
        ),
        (
            "a\nb\n".encode("utf-16-le") + b"\x00\xd8\n\0",
            "utf-16-le",
            r"a\.csv:3: not utf-16-le text",
        ),
    ],
)
def test_another_encoding_is_named_as_what_it_seems_to_be(content, encoding, message):
    assert re.match(message, refusal(content, encoding))


def test_what_is_not_valid_can_be_kept_for_the_row_to_be_left_out():
    assert lines(b"a\xe9\nb\n", keep_invalid=True) == ["a\udce9\n", "b\n"]


@pytest.mark.parametrize("text", ["a\0bcdefgh,\0\n", "a\0\0\0" * 8])
def test_zeros_in_ascii_are_no_utf16(text):
    """They are few, or in both halves of the pairs of bytes."""
    assert lines(text.encode() + b"xyz") == list(io.StringIO(text + "xyz"))


@pytest.mark.parametrize("name", ["rot13", "hex", "unicode_escape", "idna", "no-such", "a\0b", ""])
def test_no_encoding(name):
    with pytest.raises(ValueError, match="is not an encoding"):
        encoding_named(name)


def test_delimiters_have_names():
    """A tab is hard to type, and a comma has a meaning in YAML."""
    assert delimiter_named("comma") == ","
    assert delimiter_named("semicolon") == ";"
    assert delimiter_named("tab") == "\t"
    assert delimiter_named("\\t") == "\t"
    assert delimiter_named("pipe") == "|"
    assert delimiter_named("^") == "^"


def test_what_cannot_separate_fields_is_refused():
    for name in ("", ";;", '"', "\n", "a", "\ud800"):
        with pytest.raises(ValueError, match="is not a field separator"):
            delimiter_named(name)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("plain", "utf-8"),
        ("grün", "utf-8"),
        ("größere Menge, schöne Grüße", "windows-1252"),
        ("grün und blau", "utf-16"),
        ("grün und blau", "utf-16-le"),
    ],
)
def test_an_encoding_is_guessed_by_the_whole_file(tmp_path: Path, content: str, encoding: str):
    path = tmp_path / "a.txt"
    path.write_bytes(f"{content}\n".encode(encoding))
    assert guessed_encoding(path) == encoding


def test_a_few_wrong_lines_do_not_change_the_guess(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes("grün\n".encode() * 3 + b"gr\xfcn\n")
    assert guessed_encoding(path) == "utf-8"


def test_no_encoding_is_guessed_of_parts_in_two_encodings(tmp_path: Path):
    """In the encoding of one part, a class of the other would have other letters."""
    path = tmp_path / "a.txt"
    path.write_bytes("grün\n".encode() + b"gr\xfcn\n" * 3)
    with pytest.raises(EncodingError, match="join parts in UTF-8 and in Windows-1252"):
        guessed_encoding(path)
    assert joins_utf8(path, "latin-1")
    assert not joins_utf8(path, "shift_jis")


def test_no_encoding_is_guessed_of_another_alphabet(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes("\u0441\u043e\u0432\u0441\u0435\u043c\n".encode("windows-1251"))
    assert guessed_encoding(path) is None
