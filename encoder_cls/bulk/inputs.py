"""Read the texts to classify in chunks of rows, and show the progress."""

from __future__ import annotations

import codecs
import json
import os
import select
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from encoder_cls.bulk.request import STANDARD_INPUT, Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.delimited import USUAL, CsvForm, form_of
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.reading.text_lines import LABEL_PREFIX
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.encoder.engines import AutomaticEncoder
from encoder_cls.errors import DataError
from encoder_cls.system.columns import in_chunks
from encoder_cls.system.display import counted, duration
from encoder_cls.system.encodings import ending_of, is_gzipped
from encoder_cls.system.terminal import note

LABELS_ARE_TEXT = (
    "the labels of fastText's lines are read as text; only in files named .ft are they taken off"
)
CHUNK = 4096  # texts classified at once: the encoder's batches are of similar length, and full
READ_BYTES = 1 << 20
BYTES_PER_TOKEN = 6  # of English text, about
EXPLAINED_WORDS = 20  # of a text, about; it is read once for each
TEXTUAL = {".csv", ".tsv", ".txt", ".ft"}  # endings of files whose values are all texts
HEADED = {*TEXTUAL, ".xlsx", ".parquet"}  # of files in which all rows have the columns of the first
SPREADSHEETS = {".csv", ".xlsx"}  # files whose columns answers in CSV keep by default
SECONDS_BEFORE_BAR = 1.0
SECONDS_BETWEEN_LINES = 30.0

# The columns of the input that outputs keep, in order, with the types of their values; of a large integer, `object`.
ColumnTypes = dict[str, set[type]]


class Source:
    """The texts of a request, from files, standard input or arguments; by default, files are read as in training.

    Standard input is passed on as it arrives, and bytes that are not UTF-8 are replaced in it; in a file they are an
    error.

    Attributes:
        files: the files to read; empty for standard input and given texts.
        given: the given texts, for a request without a source.
        keep_columns: whether rows come with all their columns.
        columns: the columns that outputs keep, `id` alone or all; None until they are known.
        progress: shows how far reading is, and notes on how files are read.
    """

    def __init__(self, request: Request, classifier: Classifier) -> None:
        self._request = request
        self.files = (
            [] if request.source in {None, STANDARD_INPUT} else files_named(str(request.source))
        )
        # A locale of ASCII alone leaves bytes of the command line as surrogates.
        texts = (
            text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            for text in request.texts
        )
        self.given = [*map(Row, texts)]
        self.keep_columns = bool(request.keep_columns)
        if request.keep_columns is None and request.output_format == "csv" and self.files:
            self.keep_columns = all(ending_of(file) in SPREADSHEETS for file in self.files)
        self.columns: ColumnTypes | None = None
        self.progress: Progress | None = None
        self._text_columns = request.text_columns or classifier.text_format.columns
        self._new_reading = partial(
            Reading,
            delimiter=request.delimiter or classifier.text_format.delimiter,
            encoding=request.encoding or classifier.text_format.encoding,
            is_sure=request.encoding is not None,
            bad_rows=request.bad_rows,
        )
        self._reading = self._new_reading()

    def read(self) -> Iterator[list[Row]]:
        """Yield chunks, each counted as done when the next is requested; a `DataError` if a file is malformed."""
        if self._request.source is None:
            yield self.given
        elif self._request.source == STANDARD_INPUT:
            yield from self._lines_of_standard_input()
        else:
            self._reading = self._new_reading(notify=self.progress.note if self.progress else note)
            for chunk in self._chunks(self._reading):
                if chunk[0].text.startswith(LABEL_PREFIX):
                    self._reading.note(f"warning: {chunk[0].where.file}: {LABELS_ARE_TEXT}")
                yield chunk
                self._count(chunk)

    def _lines_of_standard_input(self) -> Iterator[list[Row]]:
        """The lines as they come, with a warning where the first one looks like the start of a table."""
        is_first = True
        for chunk in _as_they_come(sys.stdin.fileno()):
            ending = (
                table_started_by(chunk[0].text, self._text_columns) if is_first and chunk else ""
            )
            if ending:
                warn = self.progress.note if self.progress else note
                warn(
                    "warning: each line of standard input is read as a text, and the first one looks like the start of "
                    f"a table; --input -{ending} reads its rows"
                )
            is_first = False
            yield chunk

    def look_ahead(self) -> None:
        """Read the columns ahead, and their types for Parquet, as far as the format of the answers needs them.

        A malformed file raises a `DataError`, unless answers are printed: then those before it come first.
        """
        output_format, columns = self._request.output_format, ColumnTypes()
        needs_columns = output_format in {"csv", "tsv", "parquet"} or (
            output_format == "jsonl" and self.keep_columns
        )
        if (
            not needs_columns
            or not self.files
            or not all(file.is_file() or file.is_dir() for file in self.files)
        ):
            return
        self.columns, reading = columns, self._new_reading()
        with suppress(DataError) if self._request.output is None else nullcontext():
            if self.keep_columns:  # also those of files without rows
                for file in filter(Path.is_file, self.files):
                    names = column_names(file, self._text_columns, reading)
                    columns.update({name: set() for name in names})
            for chunk in self._chunks(reading):
                add_columns(columns, chunk)
                if self._are_known(columns, with_types=output_format == "parquet"):
                    break
                self._count(chunk)

    def skipped(self) -> Iterator[str]:
        """A warning about the rows that were left out, if any."""
        return (f"warning: {it}" for it in self._reading.notes.warnings(str(self._request.source)))

    def csv_form(self) -> CsvForm:
        """The form of the first file, so that a spreadsheet opens the answers as it opens the input."""
        form = CsvForm(has_mark=False)
        if self.keep_columns and self.files and self.files[0].is_file():
            form = form_of(self.files[0], self._text_columns, self._new_reading())
        return form._replace(is_guarded=any(ending_of(file) not in USUAL for file in self.files))

    def _are_known(self, columns: ColumnTypes, *, with_types: bool) -> bool:
        """Whether rows after the first chunk cannot add to the columns."""
        endings = set(map(ending_of, self.files))
        if with_types and not endings <= TEXTUAL:
            return endings == {".parquet"} and all(
                seen != {type(None)} and seen for seen in columns.values()
            )
        is_headed = endings <= HEADED and (self.keep_columns or len(self.files) == 1)
        return is_headed or bool(columns and not self.keep_columns)

    def _chunks(self, reading: Reading) -> Iterator[list[Row]]:
        columns = Columns(self._text_columns, every=self.keep_columns)
        return in_chunks(read_rows(str(self._request.source), columns, reading), CHUNK)

    def _count(self, chunk: Sequence[Row]) -> None:
        if self.progress:
            self.progress.done(chunk[-1].where, len(chunk))


def table_started_by(line: str, text_columns: Sequence[str]) -> str:
    """The ending of the format of a table that starts with a line, such as `.csv`; empty if it is no such line."""
    if line.startswith("{"):
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            return ".jsonl" if isinstance(row, dict) and set(text_columns) <= row.keys() else ""

    for separator, ending in (("\t", ".tsv"), (",", ".csv"), (";", ".csv")):
        names = [name.strip().strip('"') for name in line.split(separator)]
        if len(names) > 1 and set(text_columns) <= set(names):
            return ending
    return ""


def choose_engine(classifier: Classifier, num_bytes: int, *, explained: bool = False) -> None:
    """Let the classifier choose its engine for a whole source, by its size; of unknown size, 0, it is NumPy."""
    if not isinstance(classifier.encoder, AutomaticEncoder):
        return
    num_tokens = num_bytes // BYTES_PER_TOKEN
    if explained:
        num_tokens *= EXPLAINED_WORDS
    classifier.encoder.choose_engine(num_tokens)


def size_of(files: Sequence[Path]) -> int:
    """The size of files in bytes; 0 if one is a pipe or a device, whose size is unknown."""
    if not all(file.is_file() for file in files):
        return 0
    return sum(file.stat().st_size for file in files)


def size_of_standard_input() -> int:
    """The size of the file that is standard input; 0 if that is a pipe, a device or a terminal."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


class Progress:
    """Shows how many texts are done, the rate and the time left: as a bar on a terminal, else as a line now and then.

    With `bar=False` a terminal shows nothing, because the results appear there.
    """

    def __init__(self, files: Sequence[Path], *, doing: str, bar: bool = True) -> None:
        self._files, self._doing = files, doing
        self._on_terminal = sys.stderr.isatty()
        self._is_shown = bar or not self._on_terminal
        self._bar: Any = None
        # The lines of each file, counted when there is first something to show.
        self._lines: dict[str, int] | None = None
        self._reached: dict[str, int] = {}  # the line up to which a file is done
        self.passed_over: set[str] = set()  # files done earlier, which do not count for the rate
        self._texts = 0
        self._start = time.monotonic()
        self._next = self._start + (
            SECONDS_BEFORE_BAR if self._on_terminal else SECONDS_BETWEEN_LINES
        )

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

    def note(self, message: str) -> None:
        """Write a line to standard error, above the bar if there is one."""
        note(message, above=self._bar)

    def _show(self) -> None:
        if self._lines is None:
            self._lines = count_lines(self._files)
        lines, seconds = self._lines, time.monotonic() - self._start
        done_here = sum(min(line, lines.get(file, 0)) for file, line in self._reached.items())
        done = done_here + sum(lines.get(file, 0) for file in self.passed_over)
        total = sum(lines.values())
        left = (
            f", {duration(seconds * (total - done) / done_here)} left"
            if done_here and total
            else ""
        )
        state = f"{self._texts / seconds:,.0f} texts/s{left}"
        texts = counted(self._texts, "text")
        if self._on_terminal and self._bar is None:
            try:
                from tqdm import tqdm
            except ImportError:  # the runtime does not require it
                self._on_terminal = False
            else:
                shape = self._doing + (" {percentage:3.0f}%|{bar}| {desc}" if total else " {desc}")
                self._bar = tqdm(
                    total=total or None, bar_format=shape, dynamic_ncols=True, file=sys.stderr
                )
        if self._bar is not None:
            self._bar.set_description_str(f"{texts}, {state}", refresh=False)
            self._bar.update(done - self._bar.n)
            return
        share = f", {done / total:.0%}" if total else ""
        note(f"{self._doing} {texts}{share}, {state}")
        self._next = time.monotonic() + SECONDS_BETWEEN_LINES


def count_lines(files: Iterable[Path]) -> dict[str, int]:
    """Count the lines, or the rows, of each file; empty if those of one cannot be counted quickly."""
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


def add_columns(columns: ColumnTypes, chunk: Sequence[Row]) -> None:
    """Add the columns of some rows: all that were read, or `id` if a row has one."""
    for item in chunk:
        record = {} if item.id is None else {"id": item.id}
        for name, value in (record if item.record is None else item.record).items():
            is_large = type(value) is int and not -(1 << 63) <= value < 1 << 63
            columns.setdefault(name, set()).add(object if is_large else type(value))


def _as_they_come(descriptor: int) -> Iterator[list[Row]]:
    """Yield the complete lines of a stream as they arrive."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    held: list[str] = []  # parts of an incomplete line
    while block := _next_block(descriptor):
        *lines, rest = decoder.decode(block).split("\n")
        if lines:
            lines[0], held = "".join([*held, lines[0]]), []
            yield from in_chunks((Row(line.removesuffix("\r")) for line in lines), CHUNK)
        held.append(rest)
    if last := "".join([*held, decoder.decode(b"", final=True)]):
        yield [Row(last.removesuffix("\r"))]


def _next_block(descriptor: int) -> bytes:
    """Wait for bytes and return them; empty at the end."""
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # another program has made the shared stream non-blocking
            select.select([descriptor], [], [])
        except OSError as error:
            raise DataError(f"standard input: cannot be read: {error.strerror or error}") from None
