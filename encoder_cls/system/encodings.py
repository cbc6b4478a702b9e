"""Text files: encodings and field separators by name, lines, and hints for files in another encoding."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown

UTF8, WINDOWS = "utf-8", "windows-1252"
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}  # by name
# Codecs that Python counts as text encodings, but that no text file is written in.
_NO_ENCODINGS = {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"}
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}  # before their prefixes
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
HEAD_BYTES = 1024
READ_BYTES = 1 << 16
SKIP = "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"
JUDGED_BYTES = 1 << 24  # read to judge a file with an invalid line
LONGEST_LINE = 1 << 24  # bytes of a line, a row or a text: three million words
MOST_UNPACKED_JSON = 1 << 28  # bytes of a JSON array in a gzip file, which is read as a whole
# Tables that may be gzip files, with .gz at the end of their names.
GZIPPED = (
    ".csv",
    ".tsv",
    ".jsonl",
    ".json",
)
GZIP_MARK = b"\x1f\x8b"
INVALID = re.compile("[\udc80-\udcff]")  # an invalid byte, as kept by `text_lines`


def is_gzipped(path: Path) -> bool:
    """Whether a file is a gzip-compressed table, by its name."""
    return path.suffix.lower() == ".gz" and Path(path.stem).suffix.lower() in GZIPPED


def ending_of(path: Path) -> str:
    """The ending of a name that determines its format, in lower case: `.csv` of `a.CSV.gz`, too."""
    return Path(path.stem if is_gzipped(path) else path).suffix.lower()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The bytes of a text file, unpacked if its name ends with .gz; a damaged gzip file raises `DataError`."""
    if not is_gzipped(path):
        with path.open("rb") as file:
            yield file
        return
    import gzip
    import zlib

    try:
        with gzip.open(path) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a readable gzip file: {error}") from None


def encoding_named(name: str) -> str:
    """Check the name of an encoding of texts; `ValueError` if it is unknown."""
    codec = None
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(name)
    if (
        codec is None
        or not codec._is_text_encoding
        or codec.name.replace("-", "_") in _NO_ENCODINGS
    ):
        raise ValueError(
            f"{name!r} is not an encoding; examples are utf-8, utf-16, windows-1252 and shift_jis"
        )
    return name


def delimiter_named(name: str) -> str:
    """The field separator, given itself or by name; `ValueError` if no file can have it."""
    delimiter = DELIMITERS.get(name, name)
    if (
        len(delimiter) != 1
        or delimiter in '\r\n"'
        or delimiter.isalnum()
        or "\ud7ff" < delimiter < "\ue000"
    ):
        raise ValueError(
            f"{name!r} is not a field separator; give one character, or {', '.join(DELIMITERS)}"
        )
    return delimiter


def is_utf8(encoding: str) -> bool:
    """Whether an encoding is UTF-8, with or without a byte order mark."""
    return codecs.lookup(encoding).name in {"utf-8", "utf-8-sig"}


def longer_than(limit: int) -> str:
    """The end of a sentence about something of more bytes than a limit."""
    return f"is longer than {limit / (1 << 20):,.0f} MiB, the limit"


def byte_lines(file: Any, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of an open file, each up to a byte more than the longest that is allowed, -1 for none.

    A packed file of a few kilobytes can be a line that fills all memory.
    """
    return iter(partial(file.readline, longest + 1 if longest >= 0 else -1), b"")


def text_lines(
    path: Path,
    encoding: str = UTF8,
    *,
    keep_invalid: bool = False,
    longest: int = LONGEST_LINE,
) -> Iterator[str]:
    """The lines of a text file with their ends, without a byte order mark; that of UTF-8 overrides the encoding.

    Invalid bytes are kept as half surrogates, or raise a `DataError` with the line and the encoding that it may have.
    So does a line of more bytes than the `longest`; -1 means no limit.
    """
    with opened(path) as file:
        head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        if head.startswith(GZIP_MARK):
            raise DataError(f"{path}: is a gzip file; name it {path.name}.gz, or unpack it")
        if head.startswith(codecs.BOM_UTF8):
            encoding = UTF8
        every = bytes(range(128))
        if every.decode(encoding, "replace") != every.decode(
            "ascii"
        ):  # so line ends may differ, too
            is_wide = codecs.lookup(encoding).name[:6] in {"utf-16", "utf-32"}
            if is_wide and head and b"\0" not in head and head.isascii():
                hint = f"the file seems to be UTF-8: {_setting(UTF8)} reads it"
                raise EncodingError(f"{path}:1", f"not {encoding} text", hint)
            yield from _decoded_lines(path, file, encoding, longest)
            return
        if wide := _wide_encoding(head):
            hint = f"the file seems to be {wide[:6].upper()}: {_setting(wide)} reads it"
            raise EncodingError(f"{path}:1", f"not {_shown(encoding)} text", hint)
        errors = "surrogateescape" if keep_invalid else "strict"
        for number, line in enumerate(byte_lines(file, longest), start=1):
            _check_length(path, number, line, longest)
            try:
                text = line.decode(encoding, errors)
            except UnicodeDecodeError as error:
                raise EncodingError(
                    f"{path}:{number}", *undecodable(path, line, error.start, encoding)
                ) from None
            yield text.removeprefix("\ufeff") if number == 1 and is_utf8(encoding) else text


def _check_length(path: Path, number: int, line: str | bytes, longest: int) -> None:
    if 0 <= longest < len(line):
        hint = "is the file damaged?"
        raise DataError(f"{path}:{number}", f"the line {longer_than(longest)}", hint)


def _decoded_lines(path: Path, file: IO[bytes], encoding: str, longest: int) -> Iterator[str]:
    """The lines of a file in an encoding whose line ends are not single bytes."""
    number = 0
    try:
        with io.TextIOWrapper(file, encoding, newline="\n") as lines:
            limit = longest + 1 if longest >= 0 else -1
            for number, line in enumerate(iter(partial(lines.readline, limit), ""), start=1):
                _check_length(path, number, line, longest)
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeDecodeError as error:
        number += 1 + error.object[: error.start].decode(encoding, "replace").count("\n")
        hint = "data.encoding names the encoding of the file"
        raise EncodingError(f"{path}:{number}", f"not {encoding} text", hint) from None


def undecodable(path: Path, line: bytes, start: int, encoding: str) -> tuple[str, str]:
    """Why a line cannot be decoded from this byte on, and a hint how to read it."""
    wrong = f"not {_shown(encoding)} text (byte {start} of the line)"
    if not is_utf8(encoding):
        return wrong, "data.encoding names the encoding of the file"
    text = _as_windows(line)
    if text is None:
        return wrong, "save the file as UTF-8, or name its encoding in data.encoding"
    if _is_mostly_utf8(path):
        return (
            f"{wrong}, as other lines are; in Windows-1252 it would be {text}: correct the line",
            SKIP,
        )
    return (
        wrong,
        f"the file seems to be Windows-1252, which has this line as {text}: {_setting(WINDOWS)} reads it so",
    )


def seems_utf8(path: Path) -> bool:
    """Whether a file without a byte order mark has non-ASCII letters, and its first bytes are valid UTF-8."""
    if not path.is_file():  # a pipe can be read but once
        return False
    with opened(path) as file:
        content = file.read(READ_BYTES)
    if len(content) == READ_BYTES:
        content = content[: content.rfind(b"\n") + 1]
    return not (content.isascii() or content.startswith(codecs.BOM_UTF8)) and _is_valid(content)


def _is_valid(content: bytes, encoding: str = UTF8) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _setting(encoding: str) -> str:
    return f"--set data.encoding={encoding}"


def _shown(encoding: str) -> str:
    return "UTF-8" if is_utf8(encoding) else encoding


def _wide_encoding(head: bytes) -> str | None:
    """The encoding with two or four bytes a character that a file seems to have, by its first bytes."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if marked or len(head) < 8:
        return marked
    even, odd = head[::2].count(0), head[1::2].count(0)  # letters of ASCII have one byte that is 0
    if 4 * max(even, odd) < len(head) or min(even, odd) * 8 > len(head):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _as_windows(line: bytes) -> str | None:
    """A line as Windows-1252, for a message; None where few letters are ASCII, so that it is hardly that."""
    if not _is_valid(line, WINDOWS):
        return None
    text = line.decode(WINDOWS)
    letters = [character for character in text if character.isalpha()]
    beyond = sum(not letter.isascii() for letter in letters)
    return None if beyond > max(2, len(letters) / 3) else shown(text.rstrip("\r\n"))


def _is_mostly_utf8(path: Path) -> bool:
    """Whether more lines with non-ASCII letters are valid UTF-8 than not."""
    if not path.is_file():
        return False
    with opened(path) as file:
        lines = takewhile(lambda _: file.tell() <= JUDGED_BYTES, byte_lines(file))
        valid = [_is_valid(line) for line in lines if not line.isascii()]
    return sum(valid) > len(valid) / 2
