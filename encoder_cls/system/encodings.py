"""Read the lines of text files in any encoding, and suggest an encoding if it is wrong."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from encoder_cls.errors import DataError, EncodingError
from encoder_cls.system.display import shown

UTF8 = "utf-8"
WINDOWS = "windows-1252"
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}

# Codecs that Python counts as text encodings, although no text file is written in them.
_NO_ENCODINGS = {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"}
# Encodings by their byte order marks. UTF-32 comes first, because its marks begin with the marks
# of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# The number of bytes to read to decide whether a file has two or four bytes per character.
HEAD_BYTES = 1024
# The number of bytes to read to decide whether a file is UTF-8.
READ_BYTES = 1 << 16
# The number of bytes to read to decide whether most lines of a file are UTF-8.
JUDGED_BYTES = 1 << 24
# The shares of UTF-8 among the lines that are not ASCII from which on a file counts as UTF-8, and
# as one with parts in it.
MOSTLY = 0.5
HARDLY = 0.02
TWO_ENCODINGS = (
    "the file seems to join parts in UTF-8 and in Windows-1252: save both as UTF-8 before they are "
    "joined"
)
# The number of lines that are not UTF-8 by which another encoding is guessed.
MAX_GUESSED_LINES = 1000
# The number of bytes to read at once to count lines.
COUNTED_BYTES = 1 << 20
# The maximum number of bytes of a line, a row or a text. They are about three million words.
LONGEST_LINE = 1 << 24
# The maximum number of bytes of a line of a JSON array in a gzip file: many arrays are one line.
MAX_UNPACKED_JSON = 1 << 28

SKIP = "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"
# The first bytes of files that are no text, and what they are.
_NO_TEXTS = {
    b"\x1f\x8b": "is a gzip file; name it {name}.gz, or unpack it",
    b"PK\x03\x04": "is a ZIP archive; unpack it",
    b"\xd0\xcf\x11\xe0": "is an Excel file of an old form (.xls); save it as .xlsx or CSV",
    b"PAR1": "is a Parquet file; name it {stem}.parquet",
}
# What the head of an Excel file has: the first names in its archive.
_EXCEL_NAMES = re.compile(rb"\[Content_Types\]\.xml|xl/|_rels/|docProps/")
# The half surrogates by which `text_lines` keeps invalid bytes.
INVALID = re.compile("[\udc80-\udcff]")


def is_gzipped(path: Path) -> bool:
    """Whether a file's name ends with `.gz`."""
    return path.suffix.lower() == ".gz"


def ending_of(path: Path) -> str:
    """The ending of a file name, without `.gz` and in lower case: `.csv` of `a.CSV.gz`."""
    if is_gzipped(path):
        path = Path(path.stem)
    return path.suffix.lower()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a text file as bytes, unpacked if its name ends with `.gz`.

    Raises:
        DataError: a gzip file is damaged.
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
    """The name of an encoding of texts, else a `ValueError`."""
    is_known = False
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(name)
        is_known = codec._is_text_encoding and codec.name.replace("-", "_") not in _NO_ENCODINGS

    if not is_known:
        raise ValueError(
            f"{name!r} is not an encoding; examples are utf-8, utf-16, windows-1252 and shift_jis"
        )
    return name


def delimiter_named(name: str) -> str:
    """The field separator, a character or a name such as "tab"; else a `ValueError`."""
    delimiter = DELIMITERS.get(name, name)
    is_surrogate = "\ud800" <= delimiter <= "\udfff"
    is_character = len(delimiter) == 1 and not is_surrogate
    if not is_character or delimiter in '\r\n"' or delimiter.isalnum():
        raise ValueError(
            f"{name!r} is not a field separator; give one character, or {', '.join(DELIMITERS)}"
        )
    return delimiter


def is_utf8(encoding: str) -> bool:
    """Whether it is UTF-8, with or without a byte order mark."""
    return codecs.lookup(encoding).name in {"utf-8", "utf-8-sig"}


def longer_than(limit: int) -> str:
    """The end of a message about what exceeds a limit."""
    return f"is longer than {limit / (1 << 20):,.0f} MiB, the limit"


def byte_lines(file: Any, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of an open file, each cut to `longest` bytes and one more; -1 sets no limit.

    The additional byte shows that a line is too long. Without a limit, a small gzip file could
    unpack to one line that fills all memory.
    """
    read_line = partial(file.readline, _readline_limit(longest))
    return iter(read_line, b"")


def _readline_limit(longest: int) -> int:
    return longest + 1 if longest >= 0 else -1


def text_lines(
    path: Path,
    encoding: str = UTF8,
    *,
    keep_invalid: bool = False,
    longest: int = LONGEST_LINE,
) -> Iterator[str]:
    """The lines of a text file with their ends, without a byte order mark.

    The byte order mark of UTF-8 is heeded in any case. Invalid bytes become half surrogates with
    `keep_invalid`. A line has at most `longest` bytes; -1 sets no limit.

    Raises:
        DataError: a line is too long.
        EncodingError: a line cannot be decoded; it suggests another encoding if possible.
    """
    with opened(path) as file:
        head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        _check_is_text(path, head)
        if head.startswith(codecs.BOM_UTF8):
            encoding = UTF8

        if not _contains_ascii(encoding):
            _check_is_not_utf8(path, head, encoding)
            yield from _decoded_lines(path, file, encoding, longest)
            return

        wide = _wide_encoding(head)
        if wide:
            hint = f"the file seems to be {wide[:6].upper()}: {_setting(wide)} reads it"
            raise EncodingError(f"{path}:1", f"not {_shown(encoding)} text", hint)

        errors = "strict"
        if keep_invalid:
            errors = "surrogateescape"

        for number, line in enumerate(byte_lines(file, longest), start=1):
            _check_length(path, number, line, longest)
            try:
                text = line.decode(encoding, errors)
            except UnicodeDecodeError as error:
                what, hint = undecodable(path, line, error.start, encoding)
                raise EncodingError(f"{path}:{number}", what, hint) from None

            if number == 1 and is_utf8(encoding):
                text = text.removeprefix("\ufeff")
            yield text


def _check_is_text(path: Path, head: bytes) -> None:
    for mark, what in _NO_TEXTS.items():
        if not head.startswith(mark):
            continue
        if mark == b"PK\x03\x04" and _EXCEL_NAMES.search(head):
            what = "is an Excel file; name it {stem}.xlsx"  # noqa: PLW2901
        raise DataError(f"{path}: {what.format(name=path.name, stem=path.stem)}")


def count_lines(path: Path) -> int:
    """Count line feeds, and a last line without one."""
    num_ends = 0
    last_byte = b"\n"
    with path.open("rb", buffering=0) as file:
        for block in iter(partial(file.read, COUNTED_BYTES), b""):
            num_ends += block.count(b"\n")
            last_byte = block[-1:]

    if last_byte == b"\n":
        return num_ends
    return num_ends + 1


def _contains_ascii(encoding: str) -> bool:
    """Whether ASCII characters have the same bytes, unlike in UTF-16 and UTF-32."""
    ascii_bytes = bytes(range(128))
    return ascii_bytes.decode(encoding, "replace") == ascii_bytes.decode("ascii")


def _check_is_not_utf8(path: Path, head: bytes, encoding: str) -> None:
    """Raise an `EncodingError` if a file should be UTF-16 or UTF-32 but seems to be ASCII."""
    is_wide = codecs.lookup(encoding).name[:6] in {"utf-16", "utf-32"}
    if is_wide and head and b"\0" not in head and head.isascii():
        hint = f"the file seems to be UTF-8: {_setting(UTF8)} reads it"
        raise EncodingError(f"{path}:1", f"not {encoding} text", hint)


def _check_length(path: Path, number: int, line: str | bytes, longest: int) -> None:
    if 0 <= longest < len(line):
        hint = "is the file damaged?"
        raise DataError(f"{path}:{number}", f"the line {longer_than(longest)}", hint)


def _decoded_lines(path: Path, file: IO[bytes], encoding: str, longest: int) -> Iterator[str]:
    """Decode an encoding such as UTF-16, whose line ends are not single bytes."""
    number = 0
    try:
        with io.TextIOWrapper(file, encoding, newline="\n") as lines:
            read_line = partial(lines.readline, _readline_limit(longest))
            for number, line in enumerate(iter(read_line, ""), start=1):
                _check_length(path, number, line, longest)

                # The first line begins with the byte order mark, if there is one.
                if number == 1:
                    line = line.removeprefix("\ufeff")  # noqa: PLW2901
                yield line

    except UnicodeDecodeError as error:
        # The decoder reads in blocks. Add the lines of this block before the invalid bytes to find
        # the number of the invalid line.
        valid_part = error.object[: error.start].decode(encoding, "replace")
        number += 1 + valid_part.count("\n")
        hint = "data.encoding names the encoding of the file"
        raise EncodingError(f"{path}:{number}", f"not {encoding} text", hint) from None


def undecodable(path: Path, line: bytes, start: int, encoding: str) -> tuple[str, str]:
    """Why a line cannot be decoded, from its byte `start` on, and a hint."""
    wrong = f"not {_shown(encoding)} text (byte {start} of the line)"
    if not is_utf8(encoding):
        return wrong, "data.encoding names the encoding of the file"

    text = _as_windows(line)
    if text is None:
        return wrong, "save the file as UTF-8, or name its encoding in data.encoding"

    share = _utf8_share(path)
    if share > MOSTLY:
        what = f"{wrong}, as other lines are; in Windows-1252 it would be {text}: correct the line"
        return what, SKIP
    if share > HARDLY:
        return f"{wrong}, as other lines are; in Windows-1252 it would be {text}", TWO_ENCODINGS

    hint = (
        f"the file seems to be Windows-1252, which has this line as {text}: {_setting(WINDOWS)} "
        "reads it so"
    )
    return wrong, hint


def seems_utf8(path: Path) -> bool:
    """Whether the beginning of a file has non-ASCII letters in UTF-8, and no byte order mark."""
    # Do not read from a pipe, which can be read only once.
    if not path.is_file():
        return False

    with opened(path) as file:
        content = file.read(READ_BYTES)
    # The last line may be cut within a character.
    if len(content) == READ_BYTES:
        content = content[: content.rfind(b"\n") + 1]

    if content.isascii() or content.startswith(codecs.BOM_UTF8):
        return False
    return _is_valid(content)


def joins_utf8(path: Path, encoding: str) -> bool:
    """Whether a file in a Western encoding of one byte has parts in UTF-8."""
    is_western = codecs.lookup(encoding).name in {"cp1252", "iso8859-1", "iso8859-15"}
    return is_western and _utf8_share(path) > HARDLY


def guessed_encoding(path: Path) -> str | None:
    """Guess the encoding of a text file by its whole content.

    It is UTF-8, even if a few lines are not; UTF-16; Windows-1252; or None.

    Raises:
        DataError: the file is not text, or joins parts in UTF-8 and in Windows-1252.
    """
    with opened(path) as file:
        head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        _check_is_text(path, head)
        wide = _wide_encoding(head)
        if wide:
            return wide

        invalid_lines = (line for line in byte_lines(file) if not _is_valid(line))
        invalid = list(islice(invalid_lines, MAX_GUESSED_LINES))
    share = _utf8_share(path) if invalid else 1.0
    if share > MOSTLY:
        return UTF8

    are_windows = [_as_windows(line) is not None for line in invalid]
    if 2 * sum(are_windows) <= len(are_windows):
        return None
    if share > HARDLY:
        raise EncodingError(path, "some of its lines are UTF-8, and others are not", TWO_ENCODINGS)
    return WINDOWS


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
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    if len(head) < 8:
        return None

    # In UTF-16, one of the two bytes of an ASCII letter is 0: the first one (big-endian) or the
    # second one (little-endian).
    even_zeros = head[::2].count(0)
    odd_zeros = head[1::2].count(0)
    are_few = 4 * max(even_zeros, odd_zeros) < len(head)
    are_in_both = 8 * min(even_zeros, odd_zeros) > len(head)
    if are_few or are_in_both:
        return None
    return "utf-16-le" if odd_zeros > even_zeros else "utf-16-be"


def _as_windows(line: bytes) -> str | None:
    """Decode a line for a message; None if it is hardly in Windows-1252."""
    if not _is_valid(line, WINDOWS):
        return None

    text = line.decode(WINDOWS)
    letters = [character for character in text if character.isalpha()]
    num_others = sum(not letter.isascii() for letter in letters)
    if num_others > max(2, len(letters) / 3):
        return None
    return shown(text.rstrip("\r\n"))


def _utf8_share(path: Path) -> float:
    """The share of UTF-8 among lines that are not ASCII; 0 for a pipe."""
    if not path.is_file():
        return 0.0

    num_lines = 0
    num_valid = 0
    with opened(path) as file:
        for line in byte_lines(file):
            if file.tell() > JUDGED_BYTES:
                break
            if not line.isascii():
                num_lines += 1
                num_valid += _is_valid(line)
    return num_valid / max(1, num_lines)


def encodable(text: str) -> str:
    """Escape half surrogate pairs, which JSON can contain but UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
