"""Read the texts to classify, in chunks."""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import in_chunks
from encoder_cls.system.encodings import ending_of

if TYPE_CHECKING:
    from encoder_cls.data.rows import Reading, Row, SourceLocation

CHUNK = 2048  # texts classified at once; sorted by length within a chunk
READ_BYTES = 1 << 20
HEADED = {".csv", ".tsv", ".xlsx", ".txt"}  # endings of files whose first row tells which columns there are


# Of columns that outputs take over, their names in order, and the types of their values; of a large integer, `object`.
Columns = dict[str, set[type]]


class Input(NamedTuple):
    """A text and, where its row has one, the row's id; all its columns, where they are wanted."""

    text: str
    id: str | int | None = None
    record: dict[str, Any] | None = None


def read_inputs(
    source: str,
    *,
    text_columns: Sequence[str],
    keep_columns: bool = False,
    reading: Reading | None = None,
    done: Callable[[SourceLocation, int], None] = lambda _, __: None,
) -> Iterator[list[Input]]:
    """The texts of files or of standard input (`-`), in chunks.

    Lines of standard input are passed on as soon as they are there, so that a pipe answers line by line; what is no
    UTF-8 in them is replaced, while a file with such bytes is refused.

    Args:
        source: what is read.
        text_columns: the columns with the texts.
        keep_columns: whether texts come with all the columns of their rows.
        reading: how files are read, and where is kept what comes up; none: as is usual.
        done: told, whenever the next chunk is asked for, how far the last one went and how many texts it had.

    Raises:
        DataError: the file is missing or malformed.
    """
    if source == "-":
        yield from _as_they_come(sys.stdin.fileno())
        return
    from encoder_cls.data.readers import read_rows, read_rows_and_columns

    found: Iterator[tuple[Row, dict[str, Any] | None]]
    if keep_columns:
        found = read_rows_and_columns(source, text_columns=text_columns, reading=reading)
    else:
        rows = read_rows(source, role="test", text_columns=text_columns, label_column=None, reading=reading)
        found = ((row, None) for row in rows)
    where = None

    def inputs() -> Iterator[Input]:
        nonlocal where
        for row, record in found:
            where = row.where
            yield Input(row.text, row.id, record)

    for chunk in in_chunks(inputs(), CHUNK):
        yield chunk
        if where:
            done(where, len(chunk))


def check_inputs(
    source: str,
    *,
    text_columns: Sequence[str],
    keep_columns: bool = False,
    reading: Reading | None = None,
    done: Callable[[SourceLocation, int], None] = lambda _, __: None,
) -> Columns | None:
    """Read all texts of files once, so that a malformed row is told of before the work and not at the end of it.

    Returns:
        The columns that an output takes over, `id` alone or all; none where the source can be read but once, such as a
        pipe, and is left alone.

    Raises:
        DataError: as `read_inputs`.
    """
    files = _files_to_read_again(source)
    if not files:
        return None
    columns = _columns_of(files, text_columns, reading) if keep_columns else {}
    for chunk in read_inputs(source, text_columns=text_columns, keep_columns=keep_columns, reading=reading, done=done):
        add_columns(columns, chunk)
    return columns


def columns_ahead(
    source: str, *, text_columns: Sequence[str], keep_columns: bool = False, reading: Reading | None = None
) -> Columns | None:
    """The columns that an output takes over, `id` alone or all; none where the rows alone tell, which come but once.

    A table is read as far as its first rows, whose header tells; of other files an id, or a column, may come late.
    """
    files = _files_to_read_again(source)
    if not files:
        return None
    columns: Columns = {}
    is_table = len(files) == 1 and ending_of(files[0]) in HEADED
    with suppress(DataError):  # which is told of where the rows are classified; what comes after it is not
        columns = _columns_of(files, text_columns, reading) if keep_columns else {}
        for chunk in read_inputs(source, text_columns=text_columns, keep_columns=keep_columns, reading=reading):
            add_columns(columns, chunk)
            if is_table or (columns and not keep_columns):
                break
    return columns


def add_columns(columns: Columns, chunk: Sequence[Input]) -> None:
    """Add the columns of some texts: all where they have come with them, else `id` where one has an id."""
    for item in chunk:
        if item.record is not None:
            for name, value in item.record.items():
                columns.setdefault(name, set()).add(_type_of(value))
        elif item.id is not None:
            columns.setdefault("id", set()).add(_type_of(item.id))


def _type_of(value: Any) -> type:
    is_large = type(value) is int and not -(1 << 63) <= value < 1 << 63
    return object if is_large else type(value)


def _columns_of(files: Sequence[Path], text_columns: Sequence[str], reading: Reading | None) -> Columns:
    """Those that files have though no row may tell."""
    from encoder_cls.data.readers import column_names

    named = (column_names(it, text_columns=text_columns, reading=reading) for it in files if it.is_file())
    return {name: set() for names in named for name in names}


def _files_to_read_again(source: str) -> list[Path]:
    """The files that a source names, if all of them can be read more than once; else none."""
    from encoder_cls.data.sources import files_named

    files = [] if source == "-" else files_named(source)
    return files if all(file.is_file() or file.is_dir() for file in files) else []


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
