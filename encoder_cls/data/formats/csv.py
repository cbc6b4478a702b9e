"""Read CSV and TSV files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from encoder_cls.data.rows import SKIP, Reading, Record, SourceLocation, check_columns, check_undoubled, numbered
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import ending_of, opened

LONGEST_FIELD = 2**31 - 1  # of a CSV file; the most that a C long holds on every system
USUAL = {".csv": ",", ".tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n\w])"?\r?\n?', re.IGNORECASE)
MOST_LINES = 10_000  # of a field in quotes, as far as it is looked for

Rows = Iterator[tuple[int, list[str]]]  # of each the line on which it begins, and its fields

# A row of TSV as spreadsheets write it: what is in quotes has its own doubled, and what is not has none.
_FIELD = r'(?:"(?:[^"]|"")*"|[^"\t\r\n]*)'
_QUOTED_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*\r?\n?")
_NEEDS_QUOTES = re.compile(r'(?:^|\t)"[^"]*(?:""|[\t\r\n])(?:[^"]|"")*"(?=[\t\r\n]|$)')


def delimited_records(path: Path, columns: Sequence[str], reading: Reading, *, all_columns: bool) -> Iterator[Record]:
    """Rows of strings, the first being the header, as records; each must have as many fields.

    Raises:
        DataError: a column is missing, or a row cannot be read.
    """
    rows = _rows(path, columns, reading)
    first_line, header = next(rows, (1, None))
    if header is None:
        return  # a file of 0 bytes, as some programs write a part without rows
    if not header:
        raise DataError(f"{path}: the first line is empty; it is to name the columns")
    check_columns(path, header, columns)
    check_undoubled(f"{path}:{first_line}", header, [*columns, "id"])
    names = numbered(header) if all_columns else header
    name = str(path)
    for line, fields in rows:
        if not fields and len(header) > 1:
            continue  # an empty line
        values, where = fields or [""], SourceLocation(name, line)
        if len(values) != len(header):
            reading.bad_row(
                where, DataError(f"{where}: {len(values)} fields where the header has {len(header)}; {SKIP}")
            )
            continue
        if reading.skips:
            try:
                reading.check_valid(path, where, " ".join(values))
            except DataError as error:
                reading.bad_row(where, error)
                continue
        yield where, dict(zip(names, values, strict=True))


def header_of(path: Path, columns: Sequence[str], reading: Reading) -> list[str]:
    """The names of the columns, as they are written.

    Raises:
        DataError: the file is malformed.
    """
    _, header = next(_rows(path, columns, reading), (1, []))
    return header


def delimiter_of(path: Path, columns: Sequence[str], reading: Reading) -> str:
    """What separates the fields of a file in which these columns are looked for.

    Raises:
        DataError: the file cannot be decoded.
    """
    return _begin(path, columns, reading)[2]


def _rows(path: Path, columns: Sequence[str], reading: Reading) -> Rows:
    lines, number, delimiter = _begin(path, columns, reading)
    if ending_of(path) == ".tsv" and delimiter == "\t" and reading.delimiter != "\t":
        if not _is_quoted(path, reading):
            return _unquoted_rows(lines, number)
        reading.tell(f"{path}: fields in quotes are read as a spreadsheet writes them")
    return _quoted_rows(path, lines, number, delimiter, reading)


def _begin(path: Path, columns: Sequence[str], reading: Reading) -> tuple[Iterator[str], int, str]:
    """The lines from the header on, the number of the first, and what separates the fields.

    Excel's `sep=;` before the header names the separator, and goes before all else.
    """
    lines = reading.lines(path)
    first, number = next(lines, ""), 1
    named = _SEPARATOR_LINE.fullmatch(first)
    if named:
        first, number = next(lines, ""), 2
    delimiter = named[1] if named else _delimiter(path, first, columns, reading)
    return chain([first] if first else [], lines), number, delimiter


def _delimiter(path: Path, first: str, columns: Sequence[str], reading: Reading) -> str:
    """What is asked for or usual, unless the columns are there by one other separator alone."""
    usual = reading.delimiter or USUAL[ending_of(path)]
    fits = [it for it in dict.fromkeys((usual, *SEPARATORS)) if set(columns) <= set(_fields(first, it))]
    if usual in fits or len(fits) != 1:
        return usual
    reading.tell(f"{path}: read with {shown(fits[0])} between its fields, as its header has it (data.delimiter)")
    return fits[0]


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _quoted_rows(path: Path, lines: Iterator[str], number: int, delimiter: str, reading: Reading) -> Rows:
    """Rows with quotes as RFC 4180 has them, whatever separates the fields."""
    csv.field_size_limit(LONGEST_FIELD)
    source = _Lines(lines, number, keeps=reading.skips)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        first_line = source.begin_row()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = SourceLocation(str(path), first_line)
            reading.bad_row(where, DataError(f"{where}: {_not_csv(error)}"))
            source.go_back()
            reader = csv.reader(source, delimiter=delimiter, strict=True)
            continue
        yield first_line, fields


def _not_csv(error: csv.Error) -> str:
    if "new-line" in str(error):
        return "not valid CSV: a carriage return without a line feed (is a quote left open?)"
    return f"not valid CSV: {error} (is a quote left open?); {SKIP}"


class _Lines(Iterator[str]):
    """Lines, of which those of the row that is read can be gone back to: where a quote is left open, to the second."""

    def __init__(self, lines: Iterator[str], first_number: int, *, keeps: bool) -> None:
        self._lines = lines
        self._keeps = keeps
        self._of_row: list[str] = []
        self._number = first_number - 1

    def __next__(self) -> str:
        line = next(self._lines)
        self._number += 1
        if self._keeps:
            self._of_row.append(line)
        return line

    def begin_row(self) -> int:
        """The number of the next line."""
        self._of_row = []
        return self._number + 1

    def go_back(self) -> None:
        """Read the lines of this row once more, the first left out."""
        again = self._of_row[1:]
        self._number -= len(again)
        self._lines = chain(again, self._lines)


def _unquoted_rows(lines: Iterator[str], number: int) -> Rows:
    """Tab-separated values as most programs write them: a quote is a character like any other."""
    stripped = (line.removesuffix("\n").removesuffix("\r") for line in lines)
    yield from ((number, line.split("\t") if line else []) for number, line in enumerate(stripped, number))


def _is_quoted(path: Path, reading: Reading) -> bool:
    """Whether a TSV file has quotes as spreadsheets write them.

    That is so if all its rows can be read that way, and in one of them it is seen: a column's name is in quotes, or
    what is in quotes has a tab, a line break or a doubled quote. A file that can be read but once is not looked at.
    """
    if not path.is_file():
        return False
    with opened(path) as file:
        if not any(b'"' in block for block in iter(lambda: file.read(1 << 20), b"")):
            return False
    is_seen, begun, num_lines = False, "", 0
    quiet = Reading(encoding=reading.encoding, bad_rows="skip")
    for number, line in enumerate(quiet.lines(path)):
        if not begun and '"' not in line:
            continue
        begun, num_lines = begun + line, num_lines + 1
        if begun.count('"') % 2:
            if num_lines > MOST_LINES:
                return False
            continue
        if not _QUOTED_ROW.fullmatch(begun):
            return False
        is_seen = is_seen or number + 1 == num_lines or bool(_NEEDS_QUOTES.search(begun))
        begun, num_lines = "", 0
    return is_seen and not begun
