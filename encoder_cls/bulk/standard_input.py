"""Standard input: a text per line, as lines arrive, or a table, which is saved as a file first."""

from __future__ import annotations

import codecs
import json
import os
import re
import select
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from encoder_cls.data.reading.delimited import CSV, TSV
from encoder_cls.data.reading.json_files import JSON_LINES
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.encodings import LONGEST_LINE, longer_than
from encoder_cls.system.files import reporting_os_errors

STANDARD_INPUT = "-"
# The name of standard input with the ending of its format.
_STREAM_WITH_FORMAT = re.compile(r"-(\.[a-z]+)+")
READ_BYTES = 1 << 20


@contextmanager
def stream_as_file(source: str | None) -> Iterator[str | None]:
    """Save a standard input that has a format, such as `-.csv`, as a file while the block runs.

    A table is read several times: its separator, its columns, its rows. Yields the source to read,
    which is the given one if it is no such stream.

    Raises:
        ConfigError: the source is another stream, whose name does not tell its format.
        EncoderClsError: the disk has no room for it.
    """
    if _is_nameless_stream(source or ""):
        raise ConfigError(
            f"--input {source}: its name does not tell the format of this stream; as standard "
            f"input it can have one, as in: encoder-cls predict --input -.csv < {source}"
        )
    if source is None or not _STREAM_WITH_FORMAT.fullmatch(source):
        yield source
        return

    if sys.stdin is None:
        raise ConfigError("standard input is closed; give texts, or --input FILE")
    with tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder:
        path = Path(folder) / f"stdin{source.removeprefix(STANDARD_INPUT)}"
        with reporting_os_errors(path), path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)


def _is_nameless_stream(source: str) -> bool:
    """Whether a source is a pipe or a device without an ending.

    Such are /dev/stdin, a FIFO, and a shell's <(...).
    """
    path = Path(source)
    if source in {"", STANDARD_INPUT} or path.suffix:
        return False
    return path.is_fifo() or path.is_char_device()


def size_of_standard_input() -> int:
    """The bytes of the file that is standard input; 0 if that is a pipe, a device or a terminal."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def lines_as_they_come(descriptor: int) -> Iterator[list[str]]:
    """Yield the complete lines of a stream as they arrive, without their ends.

    Bytes that are not UTF-8 are replaced, and a byte order mark is left out.

    Raises:
        DataError: the stream cannot be read, or a line is longer than one of a file may be.
    """
    num_lines = 0
    # Of the line that is not complete yet.
    pieces: list[bytes] = []
    num_bytes = 0

    for block in iter(partial(_next_block, descriptor), b""):
        *complete, rest = block.split(b"\n")
        if complete:
            complete[0] = b"".join([*pieces, complete[0]])
            _check_length(len(complete[0]), num_lines + 1)
            yield _decoded(complete, is_first=num_lines == 0)

            num_lines += len(complete)
            pieces = []
            num_bytes = 0

        pieces.append(rest)
        num_bytes += len(rest)
        _check_length(num_bytes, num_lines + 1)

    # A byte order mark alone is no text.
    last = b"".join(pieces)
    if num_lines == 0:
        last = last.removeprefix(codecs.BOM_UTF8)
    if last:
        yield _decoded([last], is_first=False)


def _check_length(num_bytes: int, number: int) -> None:
    if num_bytes > LONGEST_LINE:
        raise DataError(
            f"standard input:{number}",
            f"the line {longer_than(LONGEST_LINE)}",
            "does each text end with a line feed?",
        )


def _decoded(lines: Sequence[bytes], *, is_first: bool) -> list[str]:
    texts = [line.decode("utf-8", "replace").removesuffix("\r") for line in lines]
    if is_first:
        texts[0] = texts[0].removeprefix("\ufeff")
    return texts


def _next_block(descriptor: int) -> bytes:
    """Wait for bytes and return them; empty at the end."""
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # another program has made the shared stream non-blocking
            select.select([descriptor], [], [])
        except OSError as error:
            raise DataError(f"standard input: cannot be read: {error.strerror or error}") from None


def ending_of_table(line: str, text_columns: Sequence[str]) -> str | None:
    """The ending of the format of a table that starts with a line, such as `.csv`.

    None if the line is not the start of a table with these columns.
    """
    wanted = set(text_columns)
    if line.startswith("{"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            pass
        else:
            if isinstance(row, dict) and wanted <= row.keys():
                return JSON_LINES.ending
            return None

    for separator, file_format in (("\t", TSV), (",", CSV), (";", CSV)):
        names = [name.strip().strip('"') for name in line.split(separator)]
        if len(names) > 1 and wanted <= set(names):
            return file_format.ending
    return None
