"""Answer files, one by one, into standard output or a file."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.answers.formats import TableForm, answers, predict_lines
from encoder_cls.answers.inputs import Columns, Input, add_columns, check_inputs, columns_ahead, read_inputs
from encoder_cls.answers.request import Request, Tally
from encoder_cls.answers.tables import new_table
from encoder_cls.errors import DataError
from encoder_cls.inference.encoder.auto import AutoEncoder
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.encodings import ending_of, is_utf8, opened
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from encoder_cls.data.rows import Reading, SourceLocation
    from encoder_cls.inference.classifier import Classifier

BYTES_PER_TOKEN = 6  # of English text, about
SPREADSHEETS = {".csv", ".xlsx"}  # files of which CSV has all columns, unless it is asked for without
ANSWERS_WITH_COLUMNS = ("jsonl", "tsv", "csv", "parquet")  # formats in which an answer can be beside its row's columns


def new_tally(classifier: Classifier, request: Request) -> Tally:
    """One of the answers to such a request."""
    return Tally(max_seq_len=classifier.max_seq_len, threshold=request.threshold, min_precision=request.min_precision)


class AnsweredSource:
    """A source of texts, read chunk by chunk and answered as `request` has it.

    Attributes:
        files: those that are read.
        tell: told, once each, how a file is read where that is not as usual.
        tally: what the answers are like, all those of a run of several sources together.
    """

    def __init__(self, classifier: Classifier, source: str, request: Request, *, tally: Tally | None = None) -> None:
        self.files: list[Path] = []
        if source != "-":
            from encoder_cls.data.sources import files_named

            self.files = files_named(source)
        self._classifier = classifier
        self._source = source
        self._text_columns = request.text_columns or classifier.text_columns
        self.tell: Callable[[str], None] = note
        self.tally = tally or new_tally(classifier, request)
        self._told: set[str] = set()
        self._encoding = request.encoding or classifier.encoding
        self._keep_columns = bool(request.keep_columns)
        if request.keep_columns is None:
            are_of_spreadsheets = bool(self.files) and all(ending_of(it) in SPREADSHEETS for it in self.files)
            self._keep_columns = request.output_format == "csv" and are_of_spreadsheets
        self._request = request._replace(keep_columns=self._keep_columns)
        self._columns: Columns | None = None
        self._reading = self._new_reading()

    def _new_reading(self, *, is_told: bool = True) -> Reading:
        from encoder_cls.data.rows import Reading

        request = self._request
        return Reading(
            delimiter=request.delimiter or self._classifier.delimiter,
            encoding=self._encoding,
            is_sure=request.encoding is not None,
            bad_rows=request.bad_rows,
            tell=self._tell_once if is_told else lambda _: None,
        )

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self.tell(message)

    def check(self, done: Callable[[SourceLocation, int], None]) -> None:
        """Read all of it once, if it can be read again, so that what is wrong is told of before the work.

        Raises:
            DataError: it is missing or malformed.
        """
        self._columns = check_inputs(
            self._source,
            text_columns=self._text_columns,
            keep_columns=self._keep_columns,
            reading=self._new_reading(),
            done=done,
        )

    def look_ahead(self) -> None:
        """Find out which columns there are, where the output has to know it from the start and this can be told."""
        if self._keep_columns or self._request.output_format in {"tsv", "csv"}:
            self._columns = columns_ahead(
                self._source,
                text_columns=self._text_columns,
                keep_columns=self._keep_columns,
                reading=self._new_reading(is_told=False),
            )

    def read(self, done: Callable[[SourceLocation, int], None]) -> Iterator[list[Input]]:
        """The texts, in chunks."""
        self._reading = self._new_reading()
        return read_inputs(
            self._source,
            text_columns=self._text_columns,
            keep_columns=self._keep_columns,
            reading=self._reading,
            done=done,
        )

    def lines(
        self, chunks: Iterator[list[Input]], *, warn: Callable[[str], None], on_terminal: bool = False
    ) -> Iterator[list[str]]:
        """The answers as lines, chunk by chunk."""
        form = self._form_of_table()
        yield from predict_lines(
            self._classifier,
            chunks,
            self._request,
            form=form._replace(byte_order_mark=form.byte_order_mark and not on_terminal),
            on_terminal=on_terminal,
            seen=self.tally.add,
            warn=warn,
        )
        self._tell_of_skipped(warn)

    def _tell_of_skipped(self, warn: Callable[[str], None]) -> None:
        for warning in self._reading.notes.warnings(self._source):
            warn(f"warning: {warning}")

    def _form_of_table(self) -> TableForm:
        """Its columns, what separates the fields of CSV, and whether that begins with a byte order mark.

        As a spreadsheet expects it: as in the first file that is answered, with the mark also where that is not UTF-8.
        """
        form = TableForm(columns=self._columns)
        first = next(iter(self.files), None)
        if not (self._keep_columns and self._request.output_format == "csv" and first and first.is_file()):
            return form
        is_csv = ending_of(first) == ".csv"
        separator, has_mark = ",", ending_of(first) == ".xlsx" or not is_utf8(self._encoding)
        with suppress(OSError, DataError):  # which is told of where it is read
            if is_csv:
                from encoder_cls.data.formats.csv import delimiter_of

                separator = delimiter_of(first, self._text_columns, self._new_reading(is_told=False))
            with opened(first) as file:
                has_mark = has_mark or file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
        return form._replace(separator=separator, byte_order_mark=has_mark)

    def content(self, chunks: Iterator[list[Input]], *, warn: Callable[[str], None]) -> Iterator[bytes]:
        """The answers as the bytes of a file."""
        if self._request.output_format == "parquet":
            yield from self._parquet(chunks, warn)
            self._tell_of_skipped(warn)
            return
        for lines in self.lines(chunks, warn=warn):
            yield "".join(f"{line}\n" for line in lines).encode()

    def _parquet(self, chunks: Iterator[list[Input]], warn: Callable[[str], None]) -> Iterator[bytes]:
        from encoder_cls.answers.parquet import parquet_bytes

        columns = self._columns
        if columns is None:
            first = next(chunks, [])
            add_columns(columns := {}, first)
            chunks = chain([first] if first else [], chunks)
        table = new_table(
            columns,
            self._request,
            num_classes=len(self._classifier.label_names),
            is_multi_label=self._classifier.task is MULTI_LABEL,
        )
        found = answers(self._classifier, chunks, self._request, seen=self.tally.add, warn=warn)
        # What can be read once more beside the answers, row by row.
        is_whole = self._request.bad_rows == "error" and all(file.is_file() for file in self.files)
        files = self.files if is_whole else []
        return parquet_bytes(found, table, columns, files)


def expect_files(classifier: Classifier, files: Sequence[Path]) -> None:
    """Choose the engine by all the text that is to come, where files tell how much that is."""
    if isinstance(classifier.encoder, AutoEncoder) and files and all(file.is_file() for file in files):
        with suppress(OSError):  # of a file that is gone, reading it tells
            classifier.encoder.expect(sum(file.stat().st_size for file in files) // BYTES_PER_TOKEN)
