"""The table of labels: a CSV file to which a label is appended before the next text is shown.

The table is an ordinary CSV file that `train` reads. A row has the columns of the pool, then the
label, when and how it was given, what the model had guessed, and the key of the text.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from encoder_cls.data.corrections import LABEL_IN_DATA
from encoder_cls.data.key_of_text import KEY, key_of_text
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.csv_form import CsvForm
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation.label_tables import csv_table
from encoder_cls.system.csv_cells import LINE_END, cell, csv_row, unguarded
from encoder_cls.system.files import read_file, reporting_os_errors, write_file

LABEL = "label"
LABELLED_AT = "labelled_at"
HOW = "how"
GUESS = "guess"
# The columns after those of the pool. The key comes last: a line that ends with a key is complete.
ADDED_COLUMNS = (LABEL, LABELLED_AT, HOW, GUESS, KEY)
# The columns after those of the data in a table of `data.corrections`.
REVIEW_COLUMNS = (LABEL, LABEL_IN_DATA, LABELLED_AT, HOW, GUESS, KEY)

# A key, or none in a row that a person has added.
_KEY = re.compile("(k[a-z]{12})?")
# The end of a complete line.
_END_OF_LINE = re.compile(rb"[,;|\t]k[a-z]{12}\r\n")
# The largest size of a torn line: a longer rest without the end of a line is no line of this
# program, and must not be removed.
MAX_TORN_BYTES = 1 << 24


class LabelledText(NamedTuple):
    """A row of the table.

    Attributes:
        key: the key of the text.
        text: the text.
        label: the label as it is written; several labels are joined by a separator.
        labelled_at: the time at which the label was given, in ISO 8601; empty if unknown.
        how: how the text was chosen: `random`, `suggested`, `review`; empty if unknown.
        guess: what the model had predicted, without or with showing it; empty if nothing.
        label_in_data: the label in the data of a run that is reviewed, else empty.
        cells: the values of the columns of the pool, by name.
    """

    key: str
    text: str
    label: str
    labelled_at: str = ""
    how: str = ""
    guess: str = ""
    label_in_data: str = ""
    cells: Mapping[str, str] = {}


class LabelTable:
    """A table of labels on the disk, which only this process may change.

    Attributes:
        path: the CSV file.
        rows: the rows, in the order of the file.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        form: CsvForm,
        *,
        added: Sequence[str] = ADDED_COLUMNS,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a table without rows; `read` reads those of the file.

        Args:
            path: the CSV file.
            columns: the names of the columns of the pool, in order.
            form: the form of the pool, such as its separator, which the table keeps.
            added: the columns after those of the pool.
            names: the names of these columns in the file, where they differ.
        """
        self._name_of = {name: name for name in added} | dict(names or {})
        self.path = path
        self.rows: list[LabelledText] = []
        self._columns = [name for name in columns if name not in self._name_of.values()]
        self._added = added
        self._form = form
        # The size of the file in bytes as this process has left it; None if there is no file.
        self._size: int | None = None
        # Whether a line that was written in part may still be at the end of the file.
        self._has_torn_end = False

    def read(self, text_columns: Sequence[str], encoding: str) -> list[str]:
        """Read the rows of the file, if it exists, and repair what a power cut has left.

        A file that was sorted, edited or saved by a spreadsheet keeps its rows and columns, and is
        written again in the form of this table. Rows whose label was emptied stay in `rows`; the
        caller decides what they mean.

        Args:
            text_columns: the columns with the text.
            encoding: the encoding of the pool, for a file that is not UTF-8.

        Returns:
            Notes for the user.

        Raises:
            DataError: the file is not a table of labels, or is malformed.
            EncoderClsError: the file cannot be read or written.
        """
        if not self.path.exists():
            return []

        notes = []
        content = read_file(self.path)
        num_torn = _size_of_torn_line(content, self._form.separator)
        if num_torn:
            notes.append(
                f"{self.path}: its last line was not complete, as after a power cut, and is "
                "removed; its text is asked again"
            )
            write_file(self.path, content[: len(content) - num_torn])
            content = content[: len(content) - num_torn]

        if content.strip():
            self.rows = self._read_rows(text_columns, encoding)
        new_content = self._content(self.rows)
        if content != new_content:
            if content.strip():
                notes.append(f"{self.path}: is continued; columns of `label` are added as needed")
            write_file(self.path, new_content)
        self._size = len(new_content)
        return notes

    def create(self) -> None:
        """Write the header, unless the file exists."""
        if self._size is None:
            self.replace([])

    def append(self, row: LabelledText) -> None:
        """Add a row, which is on the disk when this method returns.

        Raises:
            EncoderClsError: the row cannot be written, or another program has changed the file. The
                file and `rows` are as before.
        """
        if self._size is None:
            self.replace([row])
            return

        line = (self._line(row) + LINE_END).encode("utf-8", "backslashreplace")
        with self._opened() as file:
            self._append_line(file, line)
        self._size += len(line)
        self.rows.append(row)

    def replace(self, rows: Sequence[LabelledText]) -> None:
        """Replace all rows, durably and atomically.

        Raises:
            EncoderClsError: the rows cannot be written, or another program has changed the file.
                The file and `rows` are as before.
        """
        # What another program has written in the meantime must not be lost.
        if self._size is not None:
            with self._opened():
                pass

        content = self._content(rows)
        write_file(self.path, content)
        self._size = len(content)
        self.rows = list(rows)

    def _append_line(self, file: BinaryIO, line: bytes) -> None:
        """Write a line at the end of the file, and wait until it is on the disk.

        If the disk is full, the part of the line that was written is removed.
        """
        assert self._size is not None
        try:
            file.seek(self._size)
            num_written = 0
            while num_written < len(line):
                num_written += file.write(line[num_written:])
            os.fsync(file.fileno())
        except OSError:
            self._has_torn_end = True
            with suppress(OSError):
                file.truncate(self._size)
                self._has_torn_end = False
            raise

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the file to write, without the part of a line that could not be removed before.

        Raises:
            EncoderClsError: the file cannot be written, or another program has changed it since
                this process wrote it.
        """
        with reporting_os_errors(self.path), self.path.open("r+b", buffering=0) as file:
            if self._has_torn_end:
                file.truncate(self._size)
                self._has_torn_end = False

            if os.fstat(file.fileno()).st_size != self._size:
                raise EncoderClsError(
                    f"{self.path}: another program has changed it; close that program, and start "
                    "this command again"
                )
            yield file

    def _read_rows(self, text_columns: Sequence[str], encoding: str) -> list[LabelledText]:
        """Read the rows of the file, and add its columns to those of the table."""
        columns = Columns(text_columns, self._name_of[LABEL], every=True)
        added_names = set(self._name_of.values())
        reading = Reading(encoding=encoding, is_sure=False)
        rows = []
        for row in read_rows(str(self.path), columns, reading):
            cells = {name: cell(value) for name, value in (row.record or {}).items()}
            if self._form.is_guarded:
                cells = {name: unguarded(value) for name, value in cells.items()}
            for name in cells:
                if name not in self._columns and name not in added_names:
                    self._columns.append(name)

            text = row.text
            if self._form.is_guarded:
                text = " ".join(cells.get(name, "") for name in text_columns)
            # Rows that a person has added by hand have no key.
            added = {name: cells.get(self._name_of[name], "") for name in self._added}
            added[KEY] = added[KEY].strip() or key_of_text(text)
            added[LABEL] = added[LABEL].strip()
            own_cells = {name: cells[name] for name in cells if name not in added_names}
            rows.append(LabelledText(text=text, cells=own_cells, **added))
        return rows

    def _content(self, rows: Sequence[LabelledText]) -> bytes:
        """Write the whole table."""
        names = [*self._columns, *(self._name_of[name] for name in self._added)]
        return b"".join(csv_table(names, map(self._fields, rows), self._form))

    def _line(self, row: LabelledText) -> str:
        return csv_row(
            self._fields(row), separator=self._form.separator, is_guarded=self._form.is_guarded
        )

    def _fields(self, row: LabelledText) -> list[str]:
        fields = row._asdict()
        cells = [row.cells.get(name, "") for name in self._columns]
        return cells + [fields[name] for name in self._added]


def _size_of_torn_line(content: bytes, separator: str) -> int:
    """The size of a last line that was written only in part; 0 if the last line is complete."""
    # Find the end of the last complete line. The first line has the names of the columns.
    header, _, _ = content.partition(b"\n")
    end = len(header) + 1
    if not header.rstrip().endswith(KEY.encode()):
        return 0

    for match in _END_OF_LINE.finditer(content):
        end = match.end()

    rest = content[end:]
    if not rest.strip() or len(rest) > MAX_TORN_BYTES:
        return 0

    # Other programs write complete lines that end otherwise, for example without a line end.
    lines = (header + b"\n" + rest).decode("utf-8", "replace")
    try:
        rows = list(csv.reader(io.StringIO(lines, newline=""), delimiter=separator, strict=True))
    except csv.Error:
        return len(rest)
    if rest.endswith(b"\n"):
        return 0
    has_all_fields = len(rows[-1]) == len(rows[0])
    has_key = has_all_fields and _KEY.fullmatch(rows[-1][-1])
    return 0 if has_key else len(rest)
