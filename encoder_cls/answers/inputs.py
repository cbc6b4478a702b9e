"""Read the texts to classify, in chunks of rows."""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.answers.request import STANDARD_INPUT, Request
from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import in_chunks
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_cls.answers.progress import Progress
    from encoder_cls.data.rows import Reading, SourceLocation
    from encoder_cls.inference.classifier import Classifier

LABELS_ARE_TEXT = "the labels of fastText's lines are read as text; only in files named .ft are they taken off"
CHUNK = 4096  # texts classified at once: the encoder's batches are of similar length, and full
READ_BYTES = 1 << 20
TEXTUAL = {".csv", ".tsv", ".txt", ".ft"}  # endings of files whose values are all texts
HEADED = {*TEXTUAL, ".xlsx", ".parquet"}  # of files whose first row has all columns
SPREADSHEETS = {".csv", ".xlsx"}  # files of which CSV has all columns, unless it is asked for without

# The columns that outputs take over, in order, with the types of their values; of a large integer, `object`.
Columns = dict[str, set[type]]


class Input(NamedTuple):
    """A text with the id of its row and, if wanted, all its columns."""

    text: str
    id: str | int | None = None
    record: dict[str, Any] | None = None
    where: SourceLocation | None = None


class Source:
    """The texts of files or of standard input (`-`), or texts that are given.

    Standard input is passed on as it arrives, so that a pipe answers line by line, and bytes that are not UTF-8 are
    replaced in it; a file with such bytes is refused.

    Args:
        named: the files, or `-`; none: the texts are given.
        text_columns: the columns whose texts, joined by a space, are the text.
        keep_columns: whether texts come with all columns of their rows.
        reading: how files are read, see `Reading`.

    Attributes:
        columns: the columns that outputs take over, `id` alone or all; none until they are known.
        role: the split that is read of a Hub data set that is named without one.
        progress: shows how far reading is, and each note on how a file is read, once.
    """

    def __init__(
        self,
        named: str | None = None,
        *,
        given: Sequence[Input] = (),
        text_columns: Sequence[str] = ("text",),
        keep_columns: bool = False,
        **reading: Any,
    ) -> None:
        self.files: list[Path] = []
        if named not in {None, STANDARD_INPUT}:
            from encoder_cls.data.sources import files_named

            self.files = files_named(str(named))
        self.named = named
        self.keep_columns = keep_columns
        self.columns: Columns | None = None
        self.role = "test"
        self.progress: Progress | None = None
        self.skips_rows = reading.get("bad_rows") == "skip"
        self._given = given
        self._text_columns = text_columns
        self._options = reading
        self._noted: set[str] = set()
        self._reading: Reading | None = None

    @classmethod
    def asked_for(cls, request: Request, classifier: Classifier) -> Source:
        """The source of a request, read as the model's training data was where nothing else is asked for."""
        source = cls(
            request.source,
            given=[Input(_as_utf8(text)) for text in request.texts],
            text_columns=request.text_columns or classifier.text_columns,
            keep_columns=bool(request.keep_columns),
            delimiter=request.delimiter or classifier.delimiter,
            encoding=request.encoding or classifier.encoding,
            is_sure=request.encoding is not None,
            bad_rows=request.bad_rows,
        )
        if request.keep_columns is None and request.output_format == "csv" and source.files:
            source.keep_columns = all(ending_of(file) in SPREADSHEETS for file in source.files)
        return source

    def read(self) -> Iterator[list[Input]]:
        """The texts, in chunks; in the progress, one counts as done once the next is asked for.

        Raises:
            DataError: a file is missing or malformed.
        """
        if self.named is None:
            yield list(self._given)
        elif self.named == STANDARD_INPUT:
            yield from _as_they_come(sys.stdin.fileno())
        else:
            from encoder_cls.data.sources import LABEL_PREFIX

            self._reading = self._new_reading(self._note_once)
            for chunk in self._chunks(self._reading):
                if chunk[0].text.startswith(LABEL_PREFIX) and chunk[0].where:
                    self._note_once(f"warning: {chunk[0].where.file}: {LABELS_ARE_TEXT}")
                yield chunk
                if self.progress and (where := chunk[-1].where):
                    self.progress.done(where, len(chunk))

    def look_ahead(self, request: Request) -> None:
        """Read the columns ahead, and their types for Parquet, as far as the format of the answers needs them.

        Raises:
            DataError: a file is malformed as far as it was read; where answers are printed, those before come first.
        """
        names = {"jsonl", "csv", "tsv", "parquet"} if self.keep_columns else {"csv", "tsv", "parquet"}
        if request.output_format not in names or not self._can_read_again():
            return
        self.columns = columns = {}
        reading = self._new_reading()
        with suppress(DataError) if request.output is None else nullcontext():
            columns.update(self._columns_of_files(reading))
            for chunk in self._chunks(reading):
                add_columns(columns, chunk)
                if self._are_known(columns, with_types=request.output_format == "parquet"):
                    break
                if self.progress and (where := chunk[-1].where):
                    self.progress.done(where, len(chunk))

    def _are_known(self, columns: Columns, *, with_types: bool) -> bool:
        """Whether further rows cannot add to columns after the first chunk of texts."""
        endings = set(map(ending_of, self.files))
        if with_types and not endings <= TEXTUAL:
            return endings == {".parquet"} and all(seen != {type(None)} and seen for seen in columns.values())
        is_headed = endings <= HEADED and (self.keep_columns or len(self.files) == 1)
        return is_headed or bool(columns and not self.keep_columns)

    def skipped(self) -> Iterator[str]:
        """A warning about the rows that were left out, if any."""
        if self._reading:
            yield from (f"warning: {it}" for it in self._reading.notes.warnings(str(self.named)))

    def csv_form(self) -> tuple[str, bool]:
        """The separator of the first file, and whether a byte order mark comes first, also where it is not UTF-8.

        So a spreadsheet opens the answers as it opens the input.
        """
        first = next(iter(self.files), None)
        if not (self.keep_columns and first and first.is_file()):
            return ",", False
        from encoder_cls.data.formats.csv import form_of

        form = form_of(first, self._text_columns, self._new_reading())
        return form.separator, form.has_mark

    def _chunks(self, reading: Reading) -> Iterator[list[Input]]:
        from encoder_cls.data.readers import read_rows, read_rows_and_columns

        source, columns = str(self.named), self._text_columns
        if self.keep_columns:
            rows = read_rows_and_columns(source, text_columns=columns, reading=reading)
            return in_chunks((Input(row.text, row.id, record, row.where) for row, record in rows), CHUNK)
        texts = read_rows(source, role=self.role, text_columns=columns, label_column=None, reading=reading)
        return in_chunks((Input(row.text, row.id, None, row.where) for row in texts), CHUNK)

    def _columns_of_files(self, reading: Reading) -> Columns:
        """The columns that files have whatever their rows hold, if all are kept."""
        if not self.keep_columns:
            return {}
        from encoder_cls.data.readers import column_names

        files = [file for file in self.files if file.is_file()]
        named = (column_names(it, text_columns=self._text_columns, reading=reading) for it in files)
        return {name: set() for names in named for name in names}

    def _can_read_again(self) -> bool:
        return bool(self.files) and all(file.is_file() or file.is_dir() for file in self.files)

    def _new_reading(self, notify: Callable[[str], None] = lambda _: None) -> Reading:
        from encoder_cls.data.rows import Reading

        return Reading(notify=notify, **self._options)

    def _note_once(self, message: str) -> None:
        if message not in self._noted:
            self._noted.add(message)
            (self.progress.note if self.progress else note)(message)


def add_columns(columns: Columns, chunk: Sequence[Input]) -> None:
    """Add the columns of some texts: all where they come with them, else `id` where one has an id."""
    for item in chunk:
        record = {} if item.id is None else {"id": item.id}
        for name, value in (record if item.record is None else item.record).items():
            is_large = type(value) is int and not -(1 << 63) <= value < 1 << 63
            columns.setdefault(name, set()).add(object if is_large else type(value))


def _as_utf8(text: str) -> str:
    """A text of the command line, also where the environment says that it could only be ASCII."""
    if all(character < "\udc80" or character > "\udcff" for character in text):
        return text
    return os.fsencode(text).decode("utf-8", "replace")


def _as_they_come(descriptor: int) -> Iterator[list[Input]]:
    """The whole lines of a stream, as many at once as have arrived."""
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
    """The bytes that have arrived, once there are some; none at the end."""
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # another program that shares the stream has asked not to wait
            select.select([descriptor], [], [])
        except OSError as error:
            raise DataError(f"standard input: cannot be read: {error.strerror or error}") from None


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
