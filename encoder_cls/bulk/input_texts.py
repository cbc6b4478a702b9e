"""The texts to classify, from files, standard input or arguments, in chunks of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import Request
from encoder_cls.bulk.standard_input import (
    ending_of_table,
    lines_as_they_come,
)
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.csv_form import csv_form
from encoder_cls.data.reading.excel import EXCEL, SheetLayout, sheet_layout
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.formats import count_rows, format_of
from encoder_cls.data.reading.parquet import PARQUET
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.reading.text_lines import LABEL_PREFIX
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.errors import DataError
from encoder_cls.system.csv_cells import CsvForm
from encoder_cls.system.display import listed
from encoder_cls.system.files import STANDARD_INPUT
from encoder_cls.system.lazy_sequences import in_chunks
from encoder_cls.system.terminal import note

Chunk = Sequence[Row]

# The texts that are classified at once: the encoder's batches are of similar length, and full. More
# texts share more words, each of which is looked up once, and take more memory.
CHUNK = 6144

LABELS_ARE_TEXT = (
    "the labels of fastText's lines are read as text; only in files named .ft are they taken off"
)

ColumnTypes = dict[str, set[type]]
"""The columns of the input that outputs keep, in order, with the types of their values.

The type of a large integer is `object`.
"""


class InputTexts:
    """The texts of a request; files are read as in training by default.

    Bytes that are not UTF-8 are an error in a file, and replaced in standard input.

    Attributes:
        files: empty for standard input and given texts.
        columns: those that outputs keep, `id` alone or all, if known.
    """

    def __init__(self, request: Request, classifier: Classifier) -> None:
        self.source = request.source
        self._texts = request.texts or ()
        self._text_columns = request.text_columns or classifier.text_format.columns
        self._classifier = classifier
        self._output_format = request.output_format
        self._reading_options = classifier.text_format.reading.overridden(
            **request.reading_overrides, bad_rows=request.bad_rows
        )
        self._reading = Reading(self._reading_options)

        self.files = files_named(str(request.source)) if request.has_files else []
        self.columns: ColumnTypes | None = None
        if request.fill is not None:
            self.keeps_columns = True
        elif request.keep_columns is not None:
            self.keeps_columns = request.keep_columns
        else:
            self.keeps_columns = self._keeps_columns_by_default()

    def _keeps_columns_by_default(self) -> bool:
        if self._output_format == "xlsx":
            return True
        are_spreadsheets = self._all_files_have(lambda known: known.is_spreadsheet)
        return self._output_format == "csv" and bool(self.files) and are_spreadsheets

    def _all_files_have(self, trait: Callable[[Format], bool]) -> bool:
        for file in self.files:
            file_format = format_of(file)
            if file_format is None or not trait(file_format):
                return False
        return True

    def chunks(self, notify: Callable[[str], None] = note) -> Iterator[Chunk]:
        """Read the rows; those of standard input are passed on as they arrive.

        Raises:
            DataError: a file is missing or malformed.
        """
        if self.source is None:
            self._note_missing_features(notify)
            yield [self._row_of_text(_as_unicode(text)) for text in self._texts]
        elif self.source == STANDARD_INPUT:
            self._note_missing_features(notify)
            yield from self._chunks_of_standard_input(notify)
        else:
            self._reading = Reading(self._reading_options, notify=notify)
            for chunk in self._chunks_of_files(self._reading):
                if chunk[0].text.startswith(LABEL_PREFIX):
                    self._reading.note(f"warning: {chunk[0].where.file}: {LABELS_ARE_TEXT}")
                yield chunk

    def _chunks_of_standard_input(self, notify: Callable[[str], None]) -> Iterator[Chunk]:
        """Warn if the first line looks like that of a table."""
        is_first = True
        for lines in lines_as_they_come(sys.stdin.fileno()):
            if is_first:
                ending = ending_of_table(lines[0], self._text_columns)
                if ending:
                    notify(
                        "warning: each line of standard input is read as a text, and the first "
                        f"one looks like the start of a table; --input -{ending} reads its rows"
                    )
            is_first = False

            yield from in_chunks((self._row_of_text(line) for line in lines), CHUNK)

    def _note_missing_features(self, notify: Callable[[str], None]) -> None:
        features = self._classifier.features
        if features:
            notify(
                f"the model also reads {listed(features)}, which these texts lack; files have them "
                "as columns"
            )

    def _row_of_text(self, text: str) -> Row:
        (row,) = self._classifier.rows([text], "predict")
        if self.keeps_columns:
            return Row(row, record={self._text_columns[0]: text})
        return Row(row)

    def _chunks_of_files(self, reading: Reading) -> Iterator[list[Row]]:
        columns = Columns(
            self._text_columns, every=self.keeps_columns, features=self._classifier.features
        )
        return in_chunks(read_rows(str(self.source), columns, reading), CHUNK)

    def first_texts(self, limit: int) -> list[str]:
        """At most `limit` first texts; none if they cannot be read twice, or are malformed."""
        if not self.files or not all(file.is_file() for file in self.files):
            return []

        # An error is reported when the texts are classified.
        with suppress(DataError):
            for chunk in self._chunks_of_files(Reading(self._reading_options)):
                return [row.text for row in chunk[:limit]]
        return []

    def look_ahead(self, progress: Progress | None = None, *, reports_errors: bool = True) -> None:
        """Read the columns ahead, as far as the format of the predictions needs them.

        A malformed file raises a `DataError` only if `reports_errors`: where predictions are
        printed, those for the rows before it come first.
        """
        needs_columns = self._output_format in {"csv", "tsv", "xlsx", "parquet"}
        if self._output_format == "jsonl":
            needs_columns = self.keeps_columns
        can_read_twice = all(file.is_file() or file.is_dir() for file in self.files)
        if not needs_columns or not self.files or not can_read_twice:
            return

        columns: ColumnTypes = {}
        self.columns = columns
        with nullcontext() if reports_errors else suppress(DataError):
            self._find_columns(columns, progress)

    def _find_columns(self, columns: ColumnTypes, progress: Progress | None) -> None:
        reading = Reading(self._reading_options)
        if self.keeps_columns:
            # Files without rows have columns, too.
            for name in self._names_in_headers(reading):
                columns[name] = set()
        elif self._have_no_id(reading):
            # Outputs keep nothing, so no row has to be read.
            return

        depend_on_all_rows = self._output_format == "parquet" and not self._types_are_known()
        for chunk in self._chunks_of_files(reading):
            add_columns(columns, chunk)
            if not depend_on_all_rows and self._names_are_known(columns):
                return
            if progress:
                progress.done(chunk[-1].where, len(chunk))

    def _names_in_headers(self, reading: Reading) -> Iterator[str]:
        for file in self.files:
            if file.is_file():
                yield from column_names(file, self._text_columns, reading)

    def _have_no_id(self, reading: Reading) -> bool:
        have_headers = self._all_files_have(lambda known: known.header is not None)
        return have_headers and "id" not in self._names_in_headers(reading)

    def _types_are_known(self) -> bool:
        """Whether the types of kept columns in Parquet are known before all rows are read.

        If not, values decide: another file may have another type, and a later integer may be too
        large for the type of the first ones.
        """
        have_only_texts = self._all_files_have(lambda known: known.has_only_texts)
        are_copied = bool(self.files_to_read_again())
        return have_only_texts or are_copied

    def _names_are_known(self, columns: ColumnTypes) -> bool:
        """Whether later rows cannot add to these columns."""
        have_fixed_columns = self._all_files_have(lambda known: known.has_fixed_columns)
        if self.keeps_columns:
            return have_fixed_columns

        # Outputs keep `id` alone.
        is_single_table = have_fixed_columns and len(self.files) == 1
        return is_single_table or bool(columns)

    def skipped_rows(self) -> Iterator[str]:
        """Warn of rows that were left out."""
        for warning in self._reading.notes.warnings(str(self.source)):
            yield f"warning: {warning}"

    def csv_form(self) -> CsvForm:
        """The form of the first file, so that a spreadsheet opens the predictions, too."""
        if self.keeps_columns and self.files:
            return csv_form(str(self.source), self._text_columns, Reading(self._reading_options))
        are_delimited = self._all_files_have(lambda known: known.is_delimited)
        return CsvForm(has_mark=False, is_guarded=not are_delimited)

    def sheet_layout(self) -> SheetLayout | None:
        """How the first file, if it is an Excel file, shows its sheet."""
        if not self.has_workbook() or not self.files[0].is_file():
            return None
        # Ignore errors here: the same errors are reported when the rows are read.
        with suppress(OSError, DataError):
            return sheet_layout(self.files[0], self._text_columns, Reading(self._reading_options))
        return None

    def has_workbook(self) -> bool:
        """Whether the first file is an Excel file."""
        return bool(self.files) and format_of(self.files[0]) is EXCEL

    def has_more_rows_than(self, limit: int, progress: Progress) -> bool:
        """Whether files have more rows than a limit; False if they can be read only once.

        The limit is at least the rows of an Excel sheet.
        """
        can_read_twice = bool(self.files) and all(file.is_file() for file in self.files)
        is_one_sheet = len(self.files) == 1 and self.has_workbook()
        if not can_read_twice or is_one_sheet:
            return False

        # A row takes at least one line, and most files have few lines: then no row is read.
        num_lines = count_rows(self.files)
        if num_lines and sum(num_lines.values()) <= limit:
            return False

        num_rows = 0
        for chunk in self._chunks_of_files(Reading(self._reading_options)):
            num_rows += len(chunk)
            if num_rows > limit:
                return True
            progress.done(chunk[-1].where, len(chunk))
        return False

    def files_to_read_again(self) -> list[Path]:
        """The files whose columns can be copied into Parquet beside the predictions.

        There are none unless all are Parquet, and each row has a prediction.
        """
        are_parquet = all(file.is_file() and format_of(file) is PARQUET for file in self.files)
        skips_rows = self._reading_options.skips_bad_rows
        if self.keeps_columns and are_parquet and not skips_rows:
            return self.files
        return []


def size_of(files: Sequence[Path]) -> int:
    """The bytes of files; 0 if one is a pipe or a device."""
    if not all(file.is_file() for file in files):
        return 0
    return sum(file.stat().st_size for file in files)


def add_columns(columns: ColumnTypes, chunk: Chunk) -> None:
    """Add the columns of some rows: all that were read, or `id` if a row has one."""
    for row in chunk:
        record = row.record
        if record is None:
            record = {}
            if row.id is not None:
                record["id"] = row.id

        for name, value in record.items():
            columns.setdefault(name, set()).add(column_type(value))


def column_type(value: object) -> type:
    """The type of a value in `ColumnTypes`; `object` for an integer of more than 64 bits."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        return object
    return type(value)


def _as_unicode(text: str) -> str:
    """Decode bytes of the command line, which a locale of ASCII alone leaves as surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
