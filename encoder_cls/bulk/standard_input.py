"""Standard input: one text per line, read as lines arrive, or a table, which is first saved."""

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
from encoder_cls.system.files import STANDARD_INPUT, reporting_os_errors

# The name of a standard input with a format, such as `-.csv` or `-.jsonl.gz`.
_STREAM_WITH_FORMAT = re.compile(r"-(\.[a-z]+)+")
READ_BYTES = 1 << 20


@contextmanager
def stream_as_file(source: str | None) -> Iterator[str | None]:
    """Save standard input as a temporary file if the source names a format, such as `-.csv`.

    A table is read several times: for its separator, its columns and its rows.

    Raises:
        ConfigError: a pipe or a device does not tell its format.
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
    """Whether a source is a pipe or a device without an ending: /dev/stdin, or a shell's <(...)."""
    path = Path(source)
    if source in {"", STANDARD_INPUT} or path.suffix:
        return False
    return path.is_fifo() or path.is_char_device()


def size_of_standard_input() -> int:
    """The size in bytes; 0 for a pipe, a device or a terminal."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def lines_as_they_come(descriptor: int) -> Iterator[list[str]]:
    """Yield lines as they arrive, without line ends and byte order mark.

    Bytes that are not UTF-8 become U+FFFD.

    Raises:
        DataError: the stream cannot be read, or a line is longer than `LONGEST_LINE`.
    """
    num_lines = 0
    # The bytes of the last line, which is not complete yet.
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

    # The last line may have no line end. A byte order mark alone is not a line.
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
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        # Another program that shares the stream has made it non-blocking.
        except BlockingIOError:
            select.select([descriptor], [], [])
        except OSError as error:
            raise DataError(f"standard input: cannot be read: {error.strerror or error}") from None


def ending_of_table(line: str, text_columns: Sequence[str]) -> str | None:
    """Guess from its first line the ending of a table with these columns, such as `.csv`."""
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
