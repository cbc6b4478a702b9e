"""The table of labels: a CSV file to which a label is appended before the next text is shown.

It is an ordinary CSV file that `train` reads: the columns of the pool, the label, when and how it
was given, what the model had guessed, and the key of the text. Where the pool has such a column,
that of the table begins with `label_`.

The file may be edited between two sessions, not during one: unless it is byte for byte as this
process has left it, it is not written.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from encoder_cls import Columns, Reading, ReadingOptions, column_names, key_of_text, read_rows
from encoder_cls.errors import DataError, EncoderClsError
from encoder_cls.extras.label.pool import PoolText
from encoder_cls.extras.label.session_memory import torn_file
from encoder_cls.system.added_columns import added_name, is_like, numbered
from encoder_cls.system.csv_cells import LINE_END, CsvForm, cell, csv_row, csv_table
from encoder_cls.system.files import read_file, reporting_os_errors, write_file
from encoder_cls.system.row_text import columns_of_row

LABEL = "label"
LABEL_IN_DATA = "label_in_data"
LABELLED_AT = "labelled_at"
HOW = "how"
GUESS = "guess"
KEY = "key"
# What stands before the name of an added column that the pool has, too.
PREFIX = "label_"
# The columns after those of the pool.
ADDED_COLUMNS = (LABEL, LABELLED_AT, HOW, GUESS, KEY)
# The columns after those of the data in a table of `data.corrections`.
REVIEW_COLUMNS = (LABEL, LABEL_IN_DATA, LABELLED_AT, HOW, GUESS, KEY)


class LabelledText(NamedTuple):
    """A row of the table.

    Attributes:
        label: several are joined by a separator.
        labelled_at: in ISO 8601; empty if unknown.
        how: `random`, `suggested`, `review`; empty if unknown.
        guess: of the model, shown or not.
        label_in_data: in a review.
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

    `rows` are those that count, in order; `blank_rows`, without a label, stay in the file until
    their text is labelled. A row that cannot be written, or a file that was changed, is an
    `EncoderClsError`, and leaves both as before.
    """

    def __init__(
        self,
        path: Path,
        columns: Iterable[str],
        form: CsvForm,
        *,
        text_columns: Sequence[str] = ("text",),
        features: Sequence[str] = (),
        needs_label: bool = False,
        added: Sequence[str] = ADDED_COLUMNS,
        fixed_names: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a table without rows.

        `added` columns follow those of the pool; `fixed_names` are of those that other programs
        look for. With `needs_label`, only rows with a label count.
        """
        self.path = path
        self.rows: list[LabelledText] = []
        self.blank_rows: dict[str, LabelledText] = {}
        self._text_columns = text_columns
        self._features = features
        self._form = form
        self._needs_label = needs_label
        self._added = added
        self._fixed_names = fixed_names or {}
        # The columns of the pool with their names in the file. Fields inside objects are columns,
        # too.
        self._columns = _names_in_file([*columns, *text_columns, *features])
        self._own_names = self._free_names()
        # The hash of the file as this process has left it; None if there is no file.
        self._written: hashlib._Hash | None = None
        # The size of the file and the line that was appended, if the part of it that was written
        # could not be removed.
        self._torn: tuple[int, bytes] | None = None

    @property
    def label_column(self) -> str:
        """The column of labels in the file."""
        return self._own_names[LABEL]

    def read(self, encoding: str, texts: Sequence[PoolText] = ()) -> list[str]:
        """Read the rows, mend what a power cut has left, and return notes.

        A file that was sorted, edited or saved by a spreadsheet keeps its rows and columns, and is
        written in the form of this table. One that is not UTF-8 has the encoding of the pool. A
        torn last line goes to another file.

        Raises:
            DataError: the file is not a table of labels, or is malformed.
            EncoderClsError: the file cannot be read or written.
        """
        if not self.path.exists():
            return []

        notes = []
        content = read_file(self.path)
        if content.strip():
            options = ReadingOptions(
                delimiter=self._form.separator, encoding=encoding, is_encoding_sure=False
            )
            reading = Reading(options)
            header = column_names(self.path, self._text_columns, reading)
            torn = self._torn_line(content, header, texts)
            if torn:
                notes.append(self._move_torn_line(content, torn))
                content = content.removesuffix(torn)
            self._read_rows(header, reading)

        new_content = self._content(self.rows)
        if content != new_content:
            if content.strip():
                notes.append(f"{self.path}: is continued; columns of `label` are added as needed")
            write_file(self.path, new_content)
        self._written = hashlib.sha256(new_content)
        return notes

    def create(self) -> None:
        """Write the header, unless the file exists."""
        if self._written is None:
            self.replace([])

    def append(self, row: LabelledText) -> None:
        """Add a row, which is then on the disk."""
        if self._written is None or row.key in self.blank_rows:
            self.replace([*self.rows, row])
            return

        line = self._line(row)
        with self._opened() as file:
            self._append_line(file, line)
        self._written.update(line)
        self.rows.append(row)

    def replace(self, rows: Sequence[LabelledText]) -> None:
        """Replace all rows that count, durably and atomically."""
        self.check_unchanged()
        content = self._content(rows)
        write_file(self.path, content)
        self._written = hashlib.sha256(content)
        self.rows = list(rows)

    def check_unchanged(self) -> None:
        """Raise an `EncoderClsError` if another program has changed the file."""
        if self._written is not None:
            with self._opened():
                return
        if os.path.lexists(self.path):
            raise self._changed()

    def _append_line(self, file: BinaryIO, line: bytes) -> None:
        """Append a line durably; if the disk is full, remove the part that was written."""
        size = file.seek(0, os.SEEK_END)
        try:
            num_written = 0
            while num_written < len(line):
                num_written += file.write(line[num_written:])
            os.fsync(file.fileno())
        except OSError:
            self._torn = (size, line)
            with suppress(OSError):
                file.truncate(size)
                self._torn = None
            raise

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the file, without the part of a line that could not be removed before."""
        with reporting_os_errors(self.path), self.path.open("r+b", buffering=0) as file:
            content = file.readall()
            if self._torn:
                size, line = self._torn
                if line.startswith(content[size:]):
                    content = content[:size]

            assert self._written is not None
            if hashlib.sha256(content).digest() != self._written.digest():
                raise self._changed()
            if self._torn:
                file.truncate(len(content))
                self._torn = None
            yield file

    def _changed(self) -> EncoderClsError:
        return EncoderClsError(
            f"{self.path}: another program has changed it; close that program, and start this "
            "command again"
        )

    # Reading

    def _read_rows(self, header: Sequence[str], reading: Reading) -> None:
        names = self._own_names_in(header)
        columns = self._columns_by_name()
        for name in header:
            if name not in columns and name not in names.values():
                columns[name] = name
        self._columns = {column: name for name, column in columns.items()}
        self._own_names = self._free_names()

        try:
            wanted = Columns(self._text_columns, names[LABEL], every=True, features=self._features)
            for row in read_rows(str(self.path), wanted, reading):
                values = {name: cell(value) for name, value in (row.record or {}).items()}
                added = {name: values.pop(names[name], "") for name in self._added}
                cells = {column: values.get(name, "") for name, column in columns.items()}
                # Rows that a person has added by hand have no key.
                added[KEY] = added[KEY].strip() or key_of_text(row.text)
                added[LABEL] = added[LABEL].strip()
                self._add(LabelledText(text=row.text, cells=cells, **added))
        except DataError as error:
            hint = "correct it in a text editor, or name another --output"
            raise DataError(error.where, error.what, hint) from None

    def _add(self, row: LabelledText) -> None:
        if row.label or not self._needs_label:
            self.rows.append(row)
        else:
            self.blank_rows.setdefault(row.key, row)

    def _own_names_in(self, header: Sequence[str]) -> dict[str, str]:
        last = header[-len(self._added) :]
        if len(last) == len(self._added):
            names = dict(zip(self._added, last, strict=True))
            if all(self._is_own(name, in_file) for name, in_file in names.items()):
                return names
        return self._own_names

    def _columns_by_name(self) -> dict[str, str]:
        return {name: column for column, name in self._columns.items()}

    def _is_own(self, name: str, in_file: str) -> bool:
        if name in self._fixed_names:
            return in_file == self._fixed_names[name]
        return is_like(name, in_file, PREFIX)

    def _torn_line(self, content: bytes, header: Sequence[str], texts: Sequence[PoolText]) -> bytes:
        """The last line, if a power cut has left only a part of it.

        It begins the line of one of the texts; anything else was written by a person or another
        program.
        """
        names = self._own_names_in(header)
        if list(header[-len(self._added) :]) != list(names.values()):
            return b""

        columns = self._columns_by_name()
        order = [columns.get(name, name) for name in header[: -len(self._added)]]
        last_line = _last_line(content)
        # Some file systems leave zeros.
        rest = last_line.rstrip(b"\0")
        if not rest:
            return last_line

        for text in texts:
            row = LabelledText(text.key, text.text, "", cells=text.cells)
            cells = csv_row([*self._cells(row, order), ""], separator=self._form.separator)
            start = _encoded(cells)
            if start.startswith(rest):
                return last_line
            if rest.startswith(start):
                is_torn = self._is_torn(rest.removeprefix(start), text.key)
                return last_line if is_torn else b""
        return b""

    def _is_torn(self, added: bytes, key: str) -> bool:
        line = added.decode("utf-8", "replace").rstrip("\r")
        try:
            fields = next(csv.reader([line], delimiter=self._form.separator), [])
        except csv.Error:
            return False
        by_name = dict(zip(self._added, fields, strict=False))
        is_time = re.fullmatch("[0-9T:.+-]*", by_name.get(LABELLED_AT, "")) is not None
        return len(fields) <= len(self._added) and is_time and by_name.get(KEY) != key

    def _move_torn_line(self, content: bytes, torn: bytes) -> str:
        moved = torn_file(self.path)
        with reporting_os_errors(moved), moved.open("ab") as file:
            file.write(torn + LINE_END.encode())
            file.flush()
            os.fsync(file.fileno())
        write_file(self.path, content.removesuffix(torn))
        return (
            f"{self.path}: its last line was not complete, as after a power cut, and is moved to "
            f"{moved}; its text is asked again"
        )

    # Writing

    def _free_names(self) -> dict[str, str]:
        """The names of added columns; a column `label` of the pool is continued."""
        taken = {*self._columns.values(), *self._fixed_names.values()}
        if LABEL not in self._text_columns:
            taken.discard(LABEL)

        names = {}
        for name in self._added:
            own_name = self._fixed_names.get(name) or added_name(name, taken, PREFIX)
            names[name] = own_name
            taken.add(own_name)
        return names

    def _content(self, rows: Sequence[LabelledText]) -> bytes:
        keys = {row.key for row in rows}
        blank_rows = [row for key, row in self.blank_rows.items() if key not in keys]
        header = [self._columns[column] for column in self._written_columns()]
        fields = map(self._fields, [*blank_rows, *rows])
        return b"".join(csv_table([*header, *self._own_names.values()], fields, self._form))

    def _line(self, row: LabelledText) -> bytes:
        line = csv_row(self._fields(row), separator=self._form.separator)
        return _encoded(line + LINE_END)

    def _fields(self, row: LabelledText) -> list[str]:
        fields = row._asdict()
        return self._cells(row, self._written_columns()) + [fields[name] for name in self._added]

    def _written_columns(self) -> list[str]:
        own_names = self._own_names.values()
        return [column for column, name in self._columns.items() if name not in own_names]

    def _cells(self, row: LabelledText, columns: Sequence[str]) -> list[str]:
        # A field inside an object has no column of its own, so its text or value is written.
        cells = {**columns_of_row(row.text, self._text_columns), **row.cells}
        # A person may have written more beside a text before it was labelled.
        blank_row = self.blank_rows.get(row.key)
        values = []
        for column in columns:
            value = cells.get(column, "")
            if not value and blank_row:
                value = blank_row.cells.get(column, "")
            values.append(value)
        return values


def is_own_table(path: Path) -> bool:
    """Whether a file has the columns that `label` adds."""
    try:
        with path.open("rb") as file:
            header = file.readline().decode("utf-8", "replace").rstrip()
    except OSError:
        return False
    names = re.split("[^a-z_]+", header)
    return all(name in names for name in (LABELLED_AT, HOW, GUESS, KEY))


def _names_in_file(columns: Iterable[str]) -> dict[str, str]:
    different = list(dict.fromkeys(columns))
    names = numbered([_encoded(column).decode() for column in different])
    return dict(zip(different, names, strict=True))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _last_line(content: bytes) -> bytes:
    rest: list[bytes] = []
    is_quoted = False
    for line in content.split(LINE_END.encode()):
        if not is_quoted:
            rest = []
        rest.append(line)
        if line.count(b'"') % 2:
            is_quoted = not is_quoted
    return LINE_END.encode().join(rest)
