"""Read CSV and TSV files."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from encoder_cls.data.rows import Columns, Reading, Record, SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import SKIP, ending_of, is_utf8, opened, text_lines

LONGEST_FIELD = 2**31 - 1  # characters; the largest C long of every system
USUAL = {".csv": ",", ".tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
MOST_LINES = 10_000  # of a field in quotes
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n\w])"?\r?\n?', re.IGNORECASE)


class CsvForm(NamedTuple):
    """How CSV is written that a spreadsheet opens like the input; guarded against formulas where that was no CSV."""

    separator: str = ","
    has_mark: bool = True
    is_guarded: bool = True


Rows = Iterator[tuple[int, list[str]]]  # the first line of each row, and its fields

# A row of TSV as spreadsheets write it: quotes within quotes are doubled, and unquoted fields have none.
_FIELD = r'(?:"(?:[^"]|"")*"|[^"\t\r\n]*)'
_QUOTED_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*\r?\n?")
_NEEDS_QUOTES = re.compile(r'(?:^|\t)"[^"]*(?:""|[\t\r\n])(?:[^"]|"")*"(?=[\t\r\n]|$)')


def csv_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """The rows after the header; each must have as many fields."""
    rows = _rows(path, columns.named, reading)
    first_line, header = next(rows, (1, None))
    if header is None:
        return  # a file of 0 bytes, as some programs write a part without rows
    if not header:
        raise DataError(path, "the first line is empty; it is to name the columns")
    names = columns.checked(path, header, line=f":{first_line}")
    name = str(path)
    for row, (line, fields) in enumerate(rows, start=2):
        if not fields and len(header) > 1:
            continue  # an empty line
        values, where = fields or [""], SourceLocation(name, line, row)
        if len(values) != len(header):
            what = f"{len(values)} fields where the header has {len(header)}"
            reading.bad_row(DataError(where, what, SKIP))
        elif not reading.skips or reading.is_valid(path, where, " ".join(values)):
            yield where, dict(zip(names, values, strict=True))


def csv_header(path: Path, columns: Sequence[str], reading: Reading) -> list[str]:
    """The names of the columns, as they are written."""
    return next(_rows(path, columns, reading), (1, []))[1]


def form_of(path: Path, columns: Sequence[str], reading: Reading) -> CsvForm:
    """The form of a file; a byte order mark comes first, too, where its encoding is not UTF-8."""
    separator, ending = ",", ending_of(path)
    has_mark = ending == ".xlsx" or not is_utf8(reading.encoding)
    with suppress(OSError, DataError):  # reported where it is read
        if ending == ".csv":
            separator = _begin(path, columns, reading)[2]
        with opened(path) as file:
            has_mark = has_mark or file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    return CsvForm(separator, has_mark, ending not in USUAL)


def _rows(path: Path, columns: Sequence[str], reading: Reading) -> Rows:
    lines, number, delimiter = _begin(path, columns, reading)
    if ending_of(path) == ".tsv" and delimiter == "\t" and reading.delimiter != "\t":
        if not path.is_file() or not _is_quoted(path, reading.encoding):  # what can be read only once is not looked at
            stripped = (line.removesuffix("\n").removesuffix("\r") for line in lines)
            return ((at, line.split("\t") if line else []) for at, line in enumerate(stripped, number))
        reading.note(f"{path}: fields in quotes are read as a spreadsheet writes them")
    return _quoted_rows(path, lines, number, delimiter, reading)


def _begin(path: Path, columns: Sequence[str], reading: Reading) -> tuple[Iterator[str], int, str]:
    """The lines from the header on, the number of the first, and the separator, which Excel's `sep=;` names."""
    lines = reading.lines(path)
    first, number = next(lines, ""), 1
    named = _SEPARATOR_LINE.fullmatch(first)
    if named:
        first, number = next(lines, ""), 2
    delimiter = named[1] if named else _delimiter(path, first, columns, reading)
    return chain([first] if first else [], lines), number, delimiter


def _delimiter(path: Path, first: str, columns: Sequence[str], reading: Reading) -> str:
    """The named or usual separator, unless only one other gives the header these columns, or divides it into some."""
    usual = reading.delimiter or USUAL[ending_of(path)]
    found = {it: set(columns) & set(_fields(first, it)) for it in (usual, *SEPARATORS)}
    fewest = 1 if len(_fields(first, usual)) == 1 else len(set(columns))
    fits = [it for it in found if len(found[it]) >= fewest]
    if usual in fits or len(fits) != 1:
        return usual
    reading.note(f"{path}: read with {shown(fits[0])} between its fields, as its header has it (data.delimiter)")
    return fits[0]


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _quoted_rows(path: Path, lines: Iterator[str], number: int, delimiter: str, reading: Reading) -> Rows:
    """Rows with quotes as RFC 4180 has them; after one that is malformed, reading goes on at its second line."""
    csv.field_size_limit(LONGEST_FIELD)
    of_row: list[str] = []

    def kept() -> Iterator[str]:
        for line in lines:
            of_row.append(line)
            yield line

    while True:
        reader = csv.reader(kept(), delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                yield number, fields
                number += len(of_row)
                of_row.clear()
            break
        except csv.Error as error:
            is_return = "new-line" in str(error)
            what, hint = ("a carriage return without a line feed", "") if is_return else (str(error), SKIP)
            reading.bad_row(DataError(f"{path}:{number}", f"not valid CSV: {what} (is a quote left open?)", hint))
            lines = chain(of_row[1:], lines)
            number += 1
            of_row.clear()


def _is_quoted(path: Path, encoding: str) -> bool:
    """Whether a TSV file has quotes as spreadsheets write them.

    All its rows can be read that way, and one shows it: a column's name is in quotes, or a field in quotes has a tab,
    a line break or a doubled quote.
    """
    with opened(path) as file:
        if not any(b'"' in block for block in iter(lambda: file.read(1 << 20), b"")):
            return False
    is_shown, begun, num_lines = False, "", 0
    for number, line in enumerate(text_lines(path, encoding, keep_invalid=True)):
        if not begun and '"' not in line:
            continue
        begun, num_lines = begun + line, num_lines + 1
        if begun.count('"') % 2:
            if num_lines > MOST_LINES:
                return False
            continue
        if not _QUOTED_ROW.fullmatch(begun):
            return False
        is_shown = is_shown or number + 1 == num_lines or bool(_NEEDS_QUOTES.search(begun))
        begun, num_lines = "", 0
    return is_shown and not begun
