"""Read the texts to classify, in chunks of rows, and show how far that is."""

from __future__ import annotations

import codecs
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self

from encoder_cls.answers.request import STANDARD_INPUT, Request
from encoder_cls.data.rows import Reading, Row, SourceLocation
from encoder_cls.data.sources import column_names, files_named, read_rows
from encoder_cls.data.text_files import LABEL_PREFIX, USUAL, CsvForm, form_of
from encoder_cls.errors import DataError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.system.disk_arrays import in_chunks
from encoder_cls.system.display import counted, duration
from encoder_cls.system.encodings import ending_of, is_gzipped
from encoder_cls.system.terminal import note, note_above

LABELS_ARE_TEXT = "the labels of fastText's lines are read as text; only in files named .ft are they taken off"
CHUNK = 4096  # texts classified at once: the encoder's batches are of similar length, and full
READ_BYTES = 1 << 20
TEXTUAL = {".csv", ".tsv", ".txt", ".ft"}  # endings of files whose values are all texts
HEADED = {*TEXTUAL, ".xlsx", ".parquet"}  # of files whose first row has all columns
SPREADSHEETS = {".csv", ".xlsx"}  # files of which CSV has all columns, unless it is asked for without
SECONDS_BEFORE_BAR = 1.0  # what is done by then needs none
SECONDS_BETWEEN_LINES = 30.0

# The columns that outputs take over, in order, with the types of their values; of a large integer, `object`.
Columns = dict[str, set[type]]


class Source:
    """The texts of files or of standard input (`-`), or texts that are given.

    Standard input is passed on as it arrives, so that a pipe answers line by line, and bytes that are not UTF-8 are
    replaced in it; a file with such bytes is refused. `keep_columns` brings all columns of a row with its text.

    Attributes:
        columns: the columns that outputs take over, `id` alone or all; none until they are known.
        progress: shows how far reading is, and each note on how a file is read, once.
    """

    def __init__(
        self,
        named: str | None = None,
        *,
        given: Sequence[Row] = (),
        text_columns: Sequence[str] = ("text",),
        keep_columns: bool = False,
        **reading: Any,
    ) -> None:
        self.files = [] if named in {None, STANDARD_INPUT} else files_named(str(named))
        self.named = named
        self.keep_columns = keep_columns
        self.columns: Columns | None = None
        self.progress: Progress | None = None
        self._given, self._text_columns, self._options = given, text_columns, reading
        self._reading: Reading | None = None

    @classmethod
    def asked_for(cls, request: Request, classifier: Classifier) -> Source:
        """The source of a request, read as the model's training data was where nothing else is asked for."""
        # Of the command line, also where the environment says that it could only be ASCII.
        texts = (text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in request.texts)
        source = cls(
            request.source,
            given=[*map(Row, texts)],
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

    def read(self) -> Iterator[list[Row]]:
        """The texts in chunks, each of them done once the next is asked for; a `DataError` of a faulty file."""
        if self.named is None:
            yield list(self._given)
        elif self.named == STANDARD_INPUT:
            yield from _as_they_come(sys.stdin.fileno())
        else:
            self._reading = self._new_reading(self.progress.note if self.progress else note)
            for chunk in self._chunks(self._reading):
                if chunk[0].text.startswith(LABEL_PREFIX) and chunk[0].where:
                    self._reading.note(f"warning: {chunk[0].where.file}: {LABELS_ARE_TEXT}")
                yield chunk
                self._count(chunk)

    def look_ahead(self, request: Request) -> None:
        """Read the columns ahead, and their types for Parquet, as far as the format of the answers needs them.

        A malformed file raises a `DataError`; where answers are printed, those before come first.
        """
        formats = {"jsonl", "csv", "tsv", "parquet"} if self.keep_columns else {"csv", "tsv", "parquet"}
        can_read_again = bool(self.files) and all(file.is_file() or file.is_dir() for file in self.files)
        if request.output_format not in formats or not can_read_again:
            return
        columns: Columns = {}
        self.columns, reading = columns, self._new_reading()
        with suppress(DataError) if request.output is None else nullcontext():
            if self.keep_columns:  # also those of files without rows
                for file in filter(Path.is_file, self.files):
                    named = column_names(file, text_columns=self._text_columns, reading=reading)
                    columns.update({name: set() for name in named})
            for chunk in self._chunks(reading):
                add_columns(columns, chunk)
                if self._are_known(columns, with_types=request.output_format == "parquet"):
                    break
                self._count(chunk)

    def skipped(self) -> Iterator[str]:
        """A warning about the rows that were left out, if any."""
        if self._reading:
            yield from (f"warning: {it}" for it in self._reading.notes.warnings(str(self.named)))

    def csv_form(self) -> CsvForm:
        """The form of the first file, so that a spreadsheet opens the answers as it opens the input."""
        form = CsvForm(has_mark=False)
        if self.keep_columns and self.files and self.files[0].is_file():
            form = form_of(self.files[0], self._text_columns, self._new_reading())
        return form._replace(is_guarded=any(ending_of(file) not in USUAL for file in self.files))

    def _are_known(self, columns: Columns, *, with_types: bool) -> bool:
        """Whether further rows cannot add to columns after the first chunk of texts."""
        endings = set(map(ending_of, self.files))
        if with_types and not endings <= TEXTUAL:
            return endings == {".parquet"} and all(seen != {type(None)} and seen for seen in columns.values())
        is_headed = endings <= HEADED and (self.keep_columns or len(self.files) == 1)
        return is_headed or bool(columns and not self.keep_columns)

    def _chunks(self, reading: Reading) -> Iterator[list[Row]]:
        options: Any = {"text_columns": self._text_columns, "every": self.keep_columns, "reading": reading}
        return in_chunks(read_rows(str(self.named), **options), CHUNK)

    def _new_reading(self, notify: Callable[[str], None] = lambda _: None) -> Reading:
        return Reading(notify=notify, **self._options)

    def _count(self, chunk: Sequence[Row]) -> None:
        if self.progress and (where := chunk[-1].where):
            self.progress.done(where, len(chunk))


class Progress:
    """Shows how many texts are done, how many a second, and how long the rest takes: as a bar, or lines now and then.

    The lines of the files are counted when there is first something to show. No bar where a terminal shows the results.
    """

    def __init__(self, files: Sequence[Path], *, doing: str, bar: bool = True) -> None:
        self._files, self._doing = files, doing
        self._on_terminal = sys.stderr.isatty()
        self._is_shown = bar or not self._on_terminal
        self._bar: Any = None
        self._lines: dict[str, int] | None = None  # of each file, once they are counted
        self._reached: dict[str, int] = {}  # the line up to which a file is done
        self._passed_over: set[str] = set()
        self._texts = 0
        self._began = time.monotonic()
        self._next = self._began + (SECONDS_BEFORE_BAR if self._on_terminal else SECONDS_BETWEEN_LINES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def done(self, where: SourceLocation, texts: int) -> None:
        """Count texts as done, the last of them at this location."""
        self._reached[where.file] = where.line
        self._texts += texts
        if self._is_shown and time.monotonic() >= self._next:
            self._show()

    def pass_over(self, file: Path) -> None:
        """Count a file as done before."""
        self._passed_over.add(str(file))

    def note(self, message: str) -> None:
        """Write a line to standard error, above the bar where there is one."""
        if self._bar is not None:
            note_above(self._bar, message)
        else:
            note(message)

    def _show(self) -> None:
        if self._lines is None:
            self._lines = count_lines(self._files)
        seconds = time.monotonic() - self._began
        rate = f"{self._texts / seconds:,.0f} texts/s"
        own = sum(min(line, self._lines.get(file, 0)) for file, line in self._reached.items())
        before = sum(self._lines.get(file, 0) for file in self._passed_over - self._reached.keys())
        total = sum(self._lines.values())
        left = f", {duration(seconds * (total - own - before) / own)} left" if own and total else ""
        if self._on_terminal and self._bar is None:
            try:
                from tqdm import tqdm
            except ImportError:  # not needed to predict
                self._on_terminal = False
            else:
                shape = self._doing + (" {percentage:3.0f}%|{bar}| {desc}" if total else " {desc}")
                self._bar = tqdm(total=total or None, bar_format=shape, dynamic_ncols=True, file=sys.stderr)
        if self._bar is not None:
            self._bar.set_description_str(f"{counted(self._texts, 'text')}, {rate}{left}", refresh=False)
            self._bar.update(own + before - self._bar.n)
            return
        share = f", {(own + before) / total:.0%}" if total else ""
        note(f"{self._doing} {counted(self._texts, 'text')}{share}, {rate}{left}")
        self._next = time.monotonic() + SECONDS_BETWEEN_LINES


def count_lines(files: Iterable[Path]) -> dict[str, int]:
    """The lines, or the rows, of each file; nothing where those of one cannot be counted quickly."""
    counted: dict[str, int] = {}
    for path in files:
        if not path.is_file() or is_gzipped(path) or ending_of(path) in {".xlsx", ".json"}:
            return {}
        if ending_of(path) == ".parquet":
            import pyarrow.parquet

            counted[str(path)] = pyarrow.parquet.read_metadata(path).num_rows
            continue
        lines, last = 0, b"\n"
        with path.open("rb", buffering=0) as file:
            while block := file.read(READ_BYTES):
                lines, last = lines + block.count(b"\n"), block[-1:]
        counted[str(path)] = lines + (last != b"\n")
    return counted


def add_columns(columns: Columns, chunk: Sequence[Row]) -> None:
    """Add the columns of some texts: all where they come with them, else `id` where one has an id."""
    for item in chunk:
        record = {} if item.id is None else {"id": item.id}
        for name, value in (record if item.record is None else item.record).items():
            is_large = type(value) is int and not -(1 << 63) <= value < 1 << 63
            columns.setdefault(name, set()).add(object if is_large else type(value))


def _as_they_come(descriptor: int) -> Iterator[list[Row]]:
    """The whole lines of a stream, as many at once as have arrived."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    held: list[str] = []  # of a line that is not whole
    while block := _next_block(descriptor):
        *lines, rest = decoder.decode(block).split("\n")
        if lines:
            lines[0], held = "".join([*held, lines[0]]), []
            yield from in_chunks((Row(line.removesuffix("\r")) for line in lines), CHUNK)
        held.append(rest)
    if last := "".join([*held, decoder.decode(b"", final=True)]):
        yield [Row(last.removesuffix("\r"))]


def _next_block(descriptor: int) -> bytes:
    """The bytes that have arrived, once there are some; none at the end."""
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # another program that shares the stream has asked not to wait
            select.select([descriptor], [], [])
        except OSError as error:
            raise DataError(f"standard input: cannot be read: {error.strerror or error}") from None
