"""Text encodings and field separators, by name or guessed."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown

UTF8 = "utf-8"
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}  # by name
# Codecs that Python counts as encodings, and that no text file is written in.
_NO_ENCODINGS = {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"}
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}  # before those that they begin with
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_SHOWN_NAMES = {"utf-16": "UTF-16", "utf-32": "UTF-32", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}
WINDOWS = "windows-1252"
HEAD_BYTES = 1024
JUDGED_BYTES = 1 << 24  # of a file that is not as it should be
READ_BYTES = 1 << 16
SKIP = "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"
GZIPPED = (".csv", ".tsv", ".jsonl", ".json")  # text files that may be packed, with .gz at the end of their names
GZIP_MARK = b"\x1f\x8b"


def is_gzipped(path: Path) -> bool:
    """Whether the name of a file says that it is a packed table of text."""
    return path.suffix.lower() == ".gz" and Path(path.stem).suffix.lower() in GZIPPED


def ending_of(path: Path) -> str:
    """The ending of a name by which its format is known, in small letters: `.csv` of `a.CSV.gz`, too."""
    return Path(path.stem if is_gzipped(path) else path).suffix.lower()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The bytes of a text file, unpacked where its name ends with .gz.

    Raises:
        DataError: it is no gzip file, or a damaged one.
        OSError: it cannot be read.
    """
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
    """The name of an encoding, as it is written.

    Raises:
        ValueError: there is no such encoding of texts.
    """
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        found = None
    if found is None or not found._is_text_encoding or found.name.replace("-", "_") in _NO_ENCODINGS:
        raise ValueError(f"{name!r} is no encoding; there are utf-8, utf-16, windows-1252, shift_jis and more")
    return name


def delimiter_named(name: str) -> str:
    """The character that separates fields: itself, or by its name (comma, semicolon, tab, pipe).

    Raises:
        ValueError: no file can be separated by it.
    """
    delimiter = DELIMITERS.get(name, name)
    if len(delimiter) != 1 or delimiter in '\r\n"' or delimiter.isalnum() or "\ud7ff" < delimiter < "\ue000":
        raise ValueError(f"{name!r} separates no fields; expected is one character, or {', '.join(DELIMITERS)}")
    return delimiter


def is_utf8(encoding: str) -> bool:
    """Whether an encoding is UTF-8, with or without a byte order mark."""
    return codecs.lookup(encoding).name in {"utf-8", "utf-8-sig"}


def text_lines(path: Path, encoding: str = UTF8, *, keep_invalid: bool = False) -> Iterator[str]:
    """The lines of a text file, their ends kept, without the byte order mark that spreadsheets put first.

    A file that begins with the mark of UTF-8 is read as that, whatever is named.

    Args:
        path: of the file.
        encoding: which it is written in.
        keep_invalid: whether a byte that is not valid stands in its line as a half surrogate, as Python's
            `surrogateescape` has it, in place of an error.

    Raises:
        DataError: the file is not written in this encoding; the message has the line, and what it seems to be.
        OSError: it cannot be read.
    """
    with opened(path) as file:
        head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        if head.startswith(GZIP_MARK):
            raise DataError(f"{path}: is a gzip file; name it {path.name}.gz, or unpack it")
        if head.startswith(codecs.BOM_UTF8):
            encoding = UTF8
        if not _has_ascii_lines(encoding):
            _check_wide(path, head, encoding)
            yield from _decoded_lines(path, file, encoding)
            return
        wide = _wide_encoding(head)
        if wide:
            raise EncodingError(
                f"{path}:1",
                f"not {_shown(encoding)} text",
                f"the file seems to be {_SHOWN_NAMES[wide]}: {_setting(wide)} reads it",
            )
        errors = "surrogateescape" if keep_invalid else "strict"
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode(encoding, errors)
            except UnicodeDecodeError as error:
                raise EncodingError(f"{path}:{number}", *undecodable(path, line, error.start, encoding)) from None
            yield text.removeprefix("\ufeff") if number == 1 and is_utf8(encoding) else text


def invalid_line(text: str) -> bytes | None:
    """The bytes of what `text_lines` has read of UTF-8 where some are not valid; none where all are."""
    if text.isascii() or not any("\udc80" <= character <= "\udcff" for character in text):
        return None
    return text.encode("utf-8", "surrogateescape")


def undecodable(path: Path, line: bytes, start: int, encoding: str) -> tuple[str, str]:
    """What is wrong with a line that cannot be decoded from this byte on, and a hint how to read it."""
    wrong = f"not {_shown(encoding)} text (byte {start} of the line)"
    if not is_utf8(encoding):
        return wrong, "data.encoding names the encoding of the file"
    text = _as_windows(line)
    if text is None:
        return wrong, "save the file as UTF-8, or name its encoding in data.encoding"
    if _is_mostly_utf8(path):
        return f"{wrong}, as other lines are; Windows-1252 would have it as {text}: mend the line", SKIP
    return wrong, f"the file seems to be Windows-1252, which has this line as {text}: {_setting(WINDOWS)} reads it so"


def seems_utf8(path: Path) -> bool:
    """Whether a file without a byte order mark has letters beyond ASCII, and all that is looked at is valid UTF-8."""
    if not path.is_file():  # what can be read but once is not looked at
        return False
    with opened(path) as file:
        content = file.read(READ_BYTES)
    if len(content) == READ_BYTES:
        content = content[: content.rfind(b"\n") + 1]
    try:
        return not (content.isascii() or content.startswith(codecs.BOM_UTF8)) and bool(content.decode(UTF8))
    except UnicodeDecodeError:
        return False


def _setting(encoding: str) -> str:
    return f"--set data.encoding={encoding}"


def _shown(encoding: str) -> str:
    return "UTF-8" if is_utf8(encoding) else encoding


def _has_ascii_lines(encoding: str) -> bool:
    """Whether ASCII characters, line ends among them, are the bytes that they are in ASCII."""
    every = bytes(range(128))
    try:
        return every.decode(encoding) == every.decode("ascii")
    except UnicodeDecodeError:
        return False


def _wide_encoding(head: bytes) -> str | None:
    """The encoding of two or four bytes a character in which a file seems to be, by its first bytes."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if marked or len(head) < 8:
        return marked
    even, odd = head[::2].count(0), head[1::2].count(0)  # letters of ASCII have one byte that is 0
    if 4 * max(even, odd) < len(head) or min(even, odd) * 8 > len(head):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _check_wide(path: Path, head: bytes, encoding: str) -> None:
    """Make sure that a file which is to be UTF-16 or UTF-32 is no other one.

    Raises:
        DataError: it is.
    """
    if codecs.lookup(encoding).name[:6] in {"utf-16", "utf-32"} and head and b"\0" not in head:
        if any(head.startswith(mark) for mark in _MARKS) or not head.isascii():
            return  # a text without a letter of ASCII
        raise EncodingError(
            f"{path}:1", f"not {encoding} text", f"the file seems to be UTF-8: {_setting(UTF8)} reads it"
        )


def _decoded_lines(path: Path, file: IO[bytes], encoding: str) -> Iterator[str]:
    """The lines of a file in which line ends are no single bytes."""
    decoder = codecs.getincrementaldecoder(encoding)()
    begun, number = "", 1
    while True:
        block = file.read(READ_BYTES)
        try:
            begun += decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(encoding, "replace").count("\n")
            line = number + begun.count("\n") + before
            raise EncodingError(
                f"{path}:{line}", f"not {encoding} text", "data.encoding names the encoding of the file"
            ) from None
        *lines, begun = begun.split("\n")
        for line_text in lines:
            yield (line_text.removeprefix("\ufeff") if number == 1 else line_text) + "\n"
            number += 1
        if not block:
            break
    if begun:
        yield begun.removeprefix("\ufeff") if number == 1 else begun


def _as_windows(line: bytes) -> str | None:
    """A line as Windows-1252 has it, for a message; none where that is hardly what it is: few letters are of ASCII."""
    try:
        text = line.decode(WINDOWS)
    except UnicodeDecodeError:
        return None
    letters = [character for character in text if character.isalpha()]
    beyond = sum(not letter.isascii() for letter in letters)
    return None if beyond > max(2, len(letters) / 3) else shown(text.rstrip("\r\n"))


def _is_mostly_utf8(path: Path) -> bool:
    """Whether more lines with letters beyond ASCII are valid UTF-8 than are not."""
    if not path.is_file():
        return False
    valid = invalid = seen = 0
    with opened(path) as file:
        for line in file:
            seen += len(line)
            if seen > JUDGED_BYTES:
                break
            if not line.isascii():
                try:
                    line.decode(UTF8)
                    valid += 1
                except UnicodeDecodeError:
                    invalid += 1
    return valid > invalid
