"""What is asked of texts, and the texts in; the bytes of a file of answers out, while they come."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.cli.columns import new_table
from encoder_cls.cli.output_formats import Format, answers, predict_lines
from encoder_cls.cli.text_inputs import Columns, Input, add_columns, check_inputs, columns_ahead, read_inputs
from encoder_cls.inference.auto_engine import AutoEncoder

if TYPE_CHECKING:
    from encoder_cls.data.records import SourceLocation
    from encoder_cls.inference.classifier import Classifier

BYTES_PER_TOKEN = 6  # of English text, about
ANSWERS_WITH_COLUMNS = ("jsonl", "tsv", "csv", "parquet")  # formats in which an answer can be beside its row's columns


class Request(NamedTuple):
    """What `predict` is asked for; arguments as in `predict_lines`.

    Attributes:
        text_columns: the columns with the texts; none: those of the training.
        keep_columns: whether answers come beside the columns of their rows; none: in CSV of CSV files.
    """

    output_format: Format = "text"
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None
    top_k: int = 1
    threshold: float = 0.0
    batch_tokens: int | None = None
    explained: bool = False


class AnsweredSource:
    """A source of texts, read chunk by chunk and answered as `request` has it."""

    def __init__(self, classifier: Classifier, source: str, request: Request) -> None:
        self.files: list[Path] = []
        if source != "-":
            from encoder_cls.data.named_files import files_named

            self.files = files_named(source)
        self._classifier = classifier
        self._source = source
        self._request = request
        self._text_columns = request.text_columns or classifier.text_columns
        are_csv = bool(self.files) and all(it.suffix.lower() == ".csv" for it in self.files)
        self._keep_columns = request.keep_columns
        if request.keep_columns is None:
            self._keep_columns = request.output_format == "csv" and are_csv
        self._has_mark = bool(self._keep_columns) and request.output_format == "csv" and _has_mark(self.files)
        self._columns: Columns | None = None

    def check(self, done: Callable[[SourceLocation, int], None]) -> None:
        """Read all of it once, if it can be read again, so that what is wrong is told of before the work.

        Raises:
            DataError: it is missing or malformed.
        """
        self._columns = check_inputs(
            self._source, text_columns=self._text_columns, keep_columns=bool(self._keep_columns), done=done
        )

    def look_ahead(self) -> None:
        """Find out which columns there are, where the output has to know it from the start and this can be told."""
        if self._keep_columns or self._request.output_format in {"tsv", "csv"}:
            self._columns = columns_ahead(
                self._source, text_columns=self._text_columns, keep_columns=bool(self._keep_columns)
            )

    def read(self, done: Callable[[SourceLocation, int], None]) -> Iterator[list[Input]]:
        """The texts, in chunks."""
        return read_inputs(
            self._source, text_columns=self._text_columns, keep_columns=bool(self._keep_columns), done=done
        )

    def lines(
        self, chunks: Iterator[list[Input]], *, warn: Callable[[str], None], on_terminal: bool = False
    ) -> Iterator[list[str]]:
        """The answers as lines, chunk by chunk."""
        request = self._request
        return predict_lines(
            self._classifier,
            chunks,
            output_format=request.output_format,
            top_k=request.top_k,
            threshold=request.threshold,
            batch_tokens=request.batch_tokens,
            explained=request.explained,
            on_terminal=on_terminal,
            keep_columns=bool(self._keep_columns),
            columns=self._columns,
            byte_order_mark=self._has_mark and not on_terminal,
            warn=warn,
        )

    def content(self, chunks: Iterator[list[Input]], *, warn: Callable[[str], None]) -> Iterator[bytes]:
        """The answers as the bytes of a file."""
        if self._request.output_format == "parquet":
            yield from self._parquet(chunks, warn)
            return
        for lines in self.lines(chunks, warn=warn):
            yield "".join(f"{line}\n" for line in lines).encode()

    def _parquet(self, chunks: Iterator[list[Input]], warn: Callable[[str], None]) -> Iterator[bytes]:
        from encoder_cls.cli.parquet_output import parquet_bytes

        request, columns = self._request, self._columns
        if columns is None:
            first = next(chunks, [])
            add_columns(columns := {}, first)
            chunks = chain([first] if first else [], chunks)
        table = new_table(
            columns,
            keep_columns=bool(self._keep_columns),
            top_k=request.top_k,
            num_classes=len(self._classifier.label_names),
            explained=request.explained,
        )
        found = answers(
            self._classifier,
            chunks,
            threshold=request.threshold,
            batch_tokens=request.batch_tokens,
            explained=request.explained,
            warn=warn,
        )
        files = self.files if all(file.is_file() for file in self.files) else []  # what can be read once more
        return parquet_bytes(found, table, columns, files)


def expect_files(classifier: Classifier, files: Sequence[Path]) -> None:
    """Choose the engine by all the text that is to come, where files tell how much that is."""
    if isinstance(classifier.encoder, AutoEncoder) and files and all(file.is_file() for file in files):
        with suppress(OSError):  # of a file that is gone, reading it tells
            classifier.encoder.expect(sum(file.stat().st_size for file in files) // BYTES_PER_TOKEN)


def _has_mark(files: Sequence[Path]) -> bool:
    """Whether the first file begins with the mark by which spreadsheets know UTF-8."""
    if not (files and files[0].is_file()):
        return False
    try:
        with files[0].open("rb") as file:
            return file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    except OSError:  # which is told of where it is read
        return False
