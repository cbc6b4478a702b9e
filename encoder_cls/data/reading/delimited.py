"""Read CSV and TSV files strictly, so that no cell changes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from encoder_cls.data.reading.columns import Columns, repeats_header
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError
from encoder_cls.system.added_columns import numbered
from encoder_cls.system.display import counted, shown
from encoder_cls.system.encodings import (
    LONGEST_LINE,
    SKIP,
    count_lines,
    ending_of,
    longer_than,
    opened,
    text_lines,
)
from encoder_cls.system.header import (
    FIRST_ROWS,
    likely_header,
    note_on_rows_above,
    row_with,
)

NumberedFields = Iterator[tuple[int, list[str]]]
"""For each row, the number of its first line, from 1 on, and its fields."""


def csv_header(path: Path, columns: Sequence[str], reading: Reading) -> list[str]:
    """List the names of all columns, the repeated ones numbered."""
    table = _open_table(path, columns, reading)
    for _, header in _rows(path, table, reading):
        return numbered(header)
    return []


def csv_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows, each of which must have as many fields as the header."""
    table = _open_table(path, columns.named, reading)
    rows = _rows(path, table, reading)
    first_line, header = next(rows, (1, None))
    if header is None:
        # The file has 0 bytes, as some programs write a part without rows.
        return
    if not header:
        raise DataError(path, "the first line is empty; it must contain the column names")

    names = columns.checked(path, header, line=f":{first_line}")
    if table.header_row > 1:
        reading.note(note_on_rows_above(path, first_line, unit="line"))
    file = str(path)
    skips_bad_rows = reading.options.skips_bad_rows
    for row, (line, fields) in enumerate(rows, start=table.header_row + 1):
        if not fields and len(header) > 1:
            # Skip an empty line. In a table of one column it is a row with an empty cell.
            continue

        if reading.leaves_out_row():
            continue

        values = fields or [""]
        where = SourceLocation(file, line, row)
        if len(values) != len(header):
            what = f"{counted(len(values), 'field')} where the header has {len(header)}"
            reading.bad_row(DataError(where, what, SKIP))
        elif repeats_header(where, values, header):
            reading.notes.repeated_headers.add(where)
        elif not skips_bad_rows or reading.is_valid(path, where, " ".join(values)):
            yield where, dict(zip(names, values, strict=True))


def separator_of(path: Path, columns: Sequence[str], reading: Reading) -> str:
    """The separator of a table whose header must have these columns."""
    return _open_table(path, columns, reading).separator


# The number of lines by which a separator or a header is guessed, and the least share of their rows
# that must have as many fields as the header.
GUESSED_LINES = 200
MIN_FITTING = 0.9


def guessed_separator(path: Path, reading: Reading) -> str:
    """Guess the separator of a table of unknown columns.

    If the options name none, it is the one that cuts nearly all of the first rows into the same
    number of fields, and into the most.
    """
    first_lines = _first_lines(path, reading)
    separators = _separators(path, reading)
    best = separators[0]
    if reading.options.delimiter is not None or not first_lines:
        return best
    named = _SEPARATOR_LINE.fullmatch(first_lines[0])
    if named:
        return named[1]

    most_fields = 1
    for separator in separators:
        rows = _first_rows(first_lines, separator)
        header = _likely_header(rows)
        if _share_that_fits(rows, header) >= MIN_FITTING and len(rows[header][1]) > most_fields:
            best = separator
            most_fields = len(rows[header][1])
    return best


# The lines of a table and their separator


class _OpenTable(NamedTuple):
    """The lines of a table from its header on."""

    lines: Iterator[str]
    first_line: int
    header_row: int
    separator: str


def _rows(path: Path, table: _OpenTable, reading: Reading) -> NumberedFields:
    is_plain_tsv = _is_tsv(path) and table.separator == "\t" and reading.options.delimiter != "\t"
    if is_plain_tsv:
        # Do not look for quotes in a pipe, since it can be read only once.
        if not path.is_file() or not _has_spreadsheet_quotes(path, reading.options.encoding):
            return _unquoted_rows(table)
        reading.note(f"{path}: fields in quotes are read as a spreadsheet writes them")
    return _quoted_rows(path, table, reading)


# A first line with which Excel names the separator, such as sep=;
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n\w])"?\r?\n?', re.IGNORECASE)


def _open_table(path: Path, columns: Sequence[str], reading: Reading) -> _OpenTable:
    """Find the header and the separator, which Excel may name before it (`sep=;`)."""
    lines = reading.lines(path)
    first = next(lines, "")
    named = _SEPARATOR_LINE.fullmatch(first)
    if named:
        separators = [named[1]]
        first = next(lines, "")
    else:
        separators = _separators(path, reading)

    header = _Header(0, 0)
    is_usual = columns and set(columns) <= set(_fields(first, separators[0]))
    # A pipe can be read only once.
    if not is_usual and path.is_file():
        first_lines = _first_lines(path, reading)
        header = _header_among(first_lines[1 if named else 0 :], columns, separators)
        for _ in range(header.line):
            first = next(lines)

    return _OpenTable(
        lines=chain([first], lines) if first else lines,
        first_line=header.line + (2 if named else 1),
        header_row=header.row + 1,
        separator=_separator_of(path, first, columns, separators, reading),
    )


class _Header(NamedTuple):
    """The place of a header among the first lines and among their rows, from 0 on."""

    line: int
    row: int


def _header_among(
    lines: Sequence[str], columns: Sequence[str], separators: Sequence[str]
) -> _Header:
    found = []
    for separator in separators:
        rows = _first_rows(lines, separator)[:FIRST_ROWS]
        number = row_with([fields for _, fields in rows], columns)
        if number is not None:
            found.append(_Header(rows[number][0], number))
    if found:
        return min(found)

    rows = _first_rows(lines, separators[0])
    number = _likely_header(rows)
    if number and _share_that_fits(rows, number) >= MIN_FITTING:
        return _Header(rows[number][0], number)
    return _Header(0, 0)


def _first_lines(path: Path, reading: Reading) -> list[str]:
    """Read the first lines, up to a malformed one, but no more than memory should hold."""
    first_lines = []
    num_characters = 0
    with suppress(DataError):
        for line in islice(reading.lines(path), GUESSED_LINES):
            first_lines.append(line)
            num_characters += len(line)
            if num_characters > LONGEST_LINE:
                break
    return first_lines


def _first_rows(lines: Sequence[str], separator: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=separator)
    rows = []
    first_line = 0
    with suppress(csv.Error):
        for fields in reader:
            rows.append((first_line, fields))
            first_line = reader.line_num
    return rows


def _likely_header(rows: Sequence[tuple[int, list[str]]]) -> int:
    return likely_header([fields for _, fields in rows[:FIRST_ROWS]])


def _share_that_fits(rows: Sequence[tuple[int, list[str]]], header: int) -> float:
    num_fields = [len(fields) for _, fields in rows[header:] if fields]
    if not num_fields:
        return 0.0
    return num_fields.count(num_fields[0]) / len(num_fields)


# The separators that are tried if the header does not fit the usual separator.
SEPARATORS = (",", ";", "\t", "|")


def _separators(path: Path, reading: Reading) -> list[str]:
    """List the possible separators, the usual one first."""
    usual = reading.options.delimiter
    if usual is None:
        usual = "\t" if _is_tsv(path) else ","
    return [usual, *(separator for separator in SEPARATORS if separator != usual)]


def _separator_of(
    path: Path, header: str, columns: Sequence[str], separators: Sequence[str], reading: Reading
) -> str:
    """Find the separator of a table by its header.

    It is the usual one, unless exactly one other gives the header all columns, or one of them if
    the usual one leaves it in one piece.
    """
    usual = separators[0]
    min_found = len(set(columns))
    if len(_fields(header, usual)) == 1:
        min_found = 1

    fitting = []
    for separator in separators:
        found = set(columns) & set(_fields(header, separator))
        if len(found) >= min_found:
            fitting.append(separator)
    if usual in fitting or len(fitting) != 1:
        return usual

    reading.note(
        f"{path}: read with {shown(fitting[0])} between its fields, as its header has it "
        "(data.delimiter)"
    )
    return fitting[0]


def _is_tsv(path: Path) -> bool:
    return ending_of(path) == TSV.ending


def _fields(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []


# Rows


def _unquoted_rows(table: _OpenTable) -> NumberedFields:
    for number, line in enumerate(table.lines, start=table.first_line):
        text = line.removesuffix("\n").removesuffix("\r")
        if text:
            yield number, text.split("\t")
        else:
            yield number, []


# The largest number of characters of a field: the largest C long that every system has.
LONGEST_FIELD = 2**31 - 1
# The bytes of memory that a line takes besides its characters. They count towards the length of a
# row, since a row may have many empty lines.
MEMORY_OF_LINE = 64


def _quoted_rows(path: Path, table: _OpenTable, reading: Reading) -> NumberedFields:
    """Read rows as in RFC 4180; after a malformed one, reading continues at its second line."""
    csv.field_size_limit(LONGEST_FIELD)
    lines = table.lines
    number = table.first_line
    # The lines of the row that is being read, to read them again if the row is malformed.
    row_lines: list[str] = []

    def kept_lines() -> Iterator[str]:
        num_bytes = 0
        for line in lines:
            if not row_lines:
                num_bytes = 0
            num_bytes += len(line) + MEMORY_OF_LINE
            row_lines.append(line)
            if num_bytes > LONGEST_LINE + MEMORY_OF_LINE:
                raise csv.Error(f"the row {longer_than(LONGEST_LINE)}")
            yield line

    while True:
        reader = csv.reader(kept_lines(), delimiter=table.separator, strict=True)
        try:
            for fields in reader:
                yield number, fields
                number += len(row_lines)
                row_lines.clear()
            break
        except csv.Error as error:
            reading.bad_row(_malformed_row(f"{path}:{number}", error, row_lines[0]))
            lines = chain(row_lines[1:], lines)
            number += 1
            row_lines.clear()


def _malformed_row(where: str, error: csv.Error, line: str) -> DataError:
    reason = str(error)
    hint = SKIP
    if '\\"' in line:
        what = "not valid CSV: a backslash before a quote, as MySQL and Spark write quotes"
        hint = "write each quote inside a field as two quotes (in Spark: escape='\"')"
        return DataError(where, what, hint)
    if "new-line" in reason:
        reason = "a carriage return without a line feed"
        hint = ""
    return DataError(where, f"not valid CSV: {reason} (is a quote left open?)", hint)


# A row of a TSV file as spreadsheets write it: a field is either in quotes, with each quote inside
# doubled, or has no quotes at all.
_FIELD = r'(?:"(?:[^"]|"")*"|[^"\t\r\n]*)'
_QUOTED_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*\r?\n?")
# A field that a spreadsheet must put in quotes, since it has a tab, a line break or a quote inside.
_NEEDS_QUOTES = re.compile(r'(?:^|\t)"[^"]*(?:""|[\t\r\n])(?:[^"]|"")*"(?=[\t\r\n]|$)')
# The number of lines after which a field in quotes is no longer looked at.
MAX_LINES = 10_000


def _has_spreadsheet_quotes(path: Path, encoding: str) -> bool:
    """Whether a TSV file has quotes as spreadsheets write them.

    All rows can be read so, and one has a quoted name, tab, line break or doubled quote.
    """
    if not _has_quotes(path):
        return False

    is_shown = False
    row = ""
    num_lines = 0
    for number, line in enumerate(text_lines(path, encoding, keep_invalid=True), start=1):
        if not row and '"' not in line:
            continue

        row += line
        num_lines += 1
        if row.count('"') % 2:
            # A quote is open, so the row continues on the next line.
            if num_lines > MAX_LINES or len(row) > LONGEST_LINE:
                return False
            continue

        if not _QUOTED_ROW.fullmatch(row):
            return False
        is_header = number == num_lines
        if is_header or _NEEDS_QUOTES.search(row):
            is_shown = True
        row = ""
        num_lines = 0
    return is_shown and not row


# The number of bytes of a file that are searched at once.
BLOCK_BYTES = 1 << 20


def _has_quotes(path: Path) -> bool:
    with opened(path) as file:
        while True:
            block = file.read(BLOCK_BYTES)
            if b'"' in block:
                return True
            if not block:
                return False


CSV = Format(
    ending=".csv",
    records=csv_records,
    header=csv_header,
    count_rows=count_lines,
    may_be_gzipped=True,
    has_fixed_columns=True,
    has_only_texts=True,
    needs_label_separator=True,
    is_delimited=True,
    is_spreadsheet=True,
)
TSV = replace(CSV, ending=".tsv", is_spreadsheet=False)
