"""Files, folders, patterns and standard input in; the texts that are to be classified out, in chunks."""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import in_chunks

CHUNK = 2048  # texts classified at once; sorted by length within a chunk
READ_BYTES = 1 << 20
HEADED = {".csv", ".tsv", ".txt"}  # endings of files whose first row tells whether rows have ids


class Input(NamedTuple):
    """A text and, where its row has one, the row's id."""

    text: str
    id: str | int | None = None


def read_inputs(source: str, *, text_columns: Sequence[str]) -> Iterator[list[Input]]:
    """The texts of files or of standard input (`-`), in chunks.

    Lines of standard input are passed on as soon as they are there, so that a pipe answers line by line; what is no
    UTF-8 in them is replaced, while a file with such bytes is refused.

    Raises:
        DataError: the file is missing or malformed.
    """
    if source == "-":
        yield from _as_they_come(sys.stdin.fileno())
    else:
        from encoder_cls.data.readers import read_rows

        rows = read_rows(source, role="test", text_columns=text_columns, label_column=None)
        yield from in_chunks((Input(row.text, row.id) for row in rows), CHUNK)


def check_inputs(source: str, *, text_columns: Sequence[str]) -> bool | None:
    """Read all texts of files once, so that a malformed row is told of before the work and not at the end of it.

    Returns:
        Whether a row has an id; none where the source can be read but once, such as a pipe, and is left alone.

    Raises:
        DataError: as `read_inputs`.
    """
    if not _files_to_read_again(source):
        return None
    found = False
    for chunk in read_inputs(source, text_columns=text_columns):
        found = found or _has_id(chunk)
    return found


def has_ids(source: str, *, text_columns: Sequence[str]) -> bool | None:
    """Whether a row of the source has an id; none where it can be read but once, so that its rows alone tell.

    A table is read as far as its first rows, whose header tells; of other files an id may come late.
    """
    files = _files_to_read_again(source)
    if not files:
        return None
    is_table = len(files) == 1 and files[0].suffix.lower() in HEADED
    with suppress(DataError):  # which is told of where the rows are classified; what comes after it is not
        for chunk in read_inputs(source, text_columns=text_columns):
            found = _has_id(chunk)
            if found or is_table:
                return found
    return False


def _files_to_read_again(source: str) -> list[Path]:
    """The files that a source names, if all of them can be read more than once; else none."""
    from encoder_cls.data.named_files import files_named

    files = [] if source == "-" else files_named(source)
    return files if all(file.is_file() or file.is_dir() for file in files) else []


def _has_id(chunk: Sequence[Input]) -> bool:
    return any(item.id is not None for item in chunk)


def _as_they_come(descriptor: int) -> Iterator[list[Input]]:
    """Whole lines of a stream: as many as have arrived, at once."""
    begun: list[bytes] = []  # the parts of a line whose end has not come yet
    is_first = True
    while block := _next_block(descriptor):
        *lines, rest = block.split(b"\n")
        if lines:
            lines[0] = b"".join([*begun, lines[0]])
            begun = []
            if is_first:
                lines[0], is_first = lines[0].removeprefix(codecs.BOM_UTF8), False
        begun.append(rest)
        yield from in_chunks((Input(_decode(line)) for line in lines), CHUNK)
    last = b"".join(begun)
    if last:
        yield [Input(_decode(last.removeprefix(codecs.BOM_UTF8) if is_first else last))]


def _next_block(descriptor: int) -> bytes:
    """What has arrived, once there is something; nothing at the end.

    Raises:
        DataError: it cannot be read, such as a folder.
    """
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # whoever shares the stream has asked not to wait
            select.select([descriptor], [], [])
        except OSError as error:
            raise DataError(f"standard input: cannot be read: {error.strerror or error}") from None


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
