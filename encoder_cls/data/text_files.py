"""Read text files: CSV and TSV, a text a line, fastText's lines with labels, JSON lines, JSON arrays, class folders."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.rows import Columns, Reading, Record, SourceLocation, repeats_header
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.encodings import (
    LONGEST_LINE,
    MOST_UNPACKED_JSON,
    SKIP,
    ending_of,
    is_gzipped,
    is_utf8,
    longer_than,
    opened,
    text_lines,
)

JSON = ".json"  # an array of objects, or an object a line
FASTTEXT = ".ft"  # a label and a text a line
TEXT = ".txt"  # a text a line; where labels are wanted, fastText's lines
LABEL_PREFIX = "__label__"  # of the labels of fastText's lines
# What separates words for fastText; other blanks, such as U+00A0, are part of a word.
_BLANKS = " \t\v\f\r\n\0"
_LABEL = re.compile(rf"(?:^|(?<=[{_BLANKS}])){LABEL_PREFIX}([^{_BLANKS}]*)")
_LATER_LABEL = re.compile(rf"[{_BLANKS}]+{LABEL_PREFIX}[^{_BLANKS}]*")
_LEADING_LABELS = re.compile(rf"^[{_BLANKS}]*(?:{LABEL_PREFIX}[^{_BLANKS}]*(?:[{_BLANKS}]+|$))+")
LONGEST_FIELD = 2**31 - 1  # characters; the largest C long of every system
USUAL = {".csv": ",", ".tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
MOST_LINES = 10_000  # of a field in quotes
MEMORY_OF_LINE = 64  # bytes beside its characters: a row of empty lines is long, too


# ---------------------------------------------------------------- lines, JSON


def _check_no_columns(where: Path | str, columns: Columns) -> None:
    """Raise a DataError if columns are named, since text files have none."""
    if columns.label and len(columns.text) > 1:
        raise DataError(where, "text files have no columns; name a single one in data.text_column")
    if columns.group:
        what = f"text files have no columns, so none is called {shown(columns.group)}"
        raise DataError(where, what, "save the data as a table, or set data.group_column=null")


def line_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read each line as a text, unchanged but for the labels of fastText's lines.

    As for fastText, each word with the prefix `__label__` is a label, wherever it is in the line. Without labels blank
    lines are texts, too, so that answers keep to their lines.
    """
    if columns.label:
        _check_no_columns(path, columns)
    is_fasttext = columns.label is not None or ending_of(path) == FASTTEXT
    for where, line in _numbered_lines(path, reading):
        text = line.removesuffix("\n").removesuffix("\r")
        labels = list(dict.fromkeys(_LABEL.findall(text))) if is_fasttext else []
        if is_fasttext:
            text = _LATER_LABEL.sub("", _LEADING_LABELS.sub("", text))
        if columns.label is None:
            yield where, {columns.text[0]: text}
        elif labels and not line.lstrip(_BLANKS).startswith(LABEL_PREFIX):
            reading.bad_row(
                DataError(where, "the line has no label at its beginning, where labels are")
            )
        elif line.strip():
            yield (
                where,
                {
                    columns.text[0]: text,
                    columns.label: labels[0] if len(labels) == 1 else labels or (),
                },
            )


def text_records(
    source: Path, files: Iterable[tuple[str, Path]], columns: Columns, reading: Reading
) -> Iterator[Record]:
    """Read each file of the class folders of a source, given with its label, as a text."""
    _check_no_columns(source, columns)
    for label, file in files:
        where = SourceLocation(str(file))
        try:
            text = "".join(reading.lines(file))
        except DataError as error:
            reading.bad_row(error)
            continue
        if reading.is_valid(file, where, text):
            record = {columns.text[0]: text, "id": file.name}
            yield where, record | ({columns.label: label} if columns.label else {})


def jsonl_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the object of each line."""
    for where, line in _numbered_lines(path, reading):
        if line.strip():
            try:
                yield where, _object(where, _parsed(where, line, hint=SKIP), columns)
            except DataError as error:
                reading.bad_row(error)


def json_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the objects of an array, or else the object of each line."""
    most = MOST_UNPACKED_JSON if is_gzipped(path) else -1
    first = next((line for line in reading.lines(path, longest=most) if line.strip()), "")
    if not first.lstrip().startswith("["):
        yield from jsonl_records(path, columns, reading)
        return

    strict = replace(reading, bad_rows="error")  # not to leave out the whole file
    content = _bounded(path, strict.lines(path, longest=most), most)
    for number, item in enumerate(_parsed(str(path), content), start=1):
        where = SourceLocation(str(path), number)
        try:
            yield where, _object(where, item, columns)
        except DataError as error:
            reading.bad_row(error)


def _bounded(path: Path, lines: Iterable[str], most: int) -> str:
    """Some lines as one text; a DataError if they are longer than `most`, unless this is -1."""
    kept: list[str] = []
    length = 0
    for line in lines:
        kept.append(line)
        length += len(line)
        if 0 <= most < length:
            what = f"a packed JSON array that {longer_than(most)}"
            raise DataError(path, what, "save it as JSON lines, which are read one by one")
    return "".join(kept)


def _object(where: SourceLocation, item: Any, columns: Columns) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise DataError(where, f"a JSON object is expected, not {kind(item)}")
    columns.check_present(where, list(item))
    return item


def _parsed(where: str, text: str, *, hint: str = "") -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"not valid JSON: {error}", hint) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _numbered_lines(path: Path, reading: Reading) -> Iterator[tuple[SourceLocation, str]]:
    for number, line in enumerate(reading.lines(path), start=1):
        where = SourceLocation(str(path), number)
        if reading.is_valid(path, where, line):
            yield where, line


# ---------------------------------------------------------------- CSV, TSV

_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n\w])"?\r?\n?', re.IGNORECASE)


class CsvForm(NamedTuple):
    """The form of CSV that a spreadsheet opens like the input; guarded against formulas unless the input was CSV."""

    separator: str = ","
    has_mark: bool = True
    is_guarded: bool = True


Rows = Iterator[tuple[int, list[str]]]  # the first line of each row, and its fields

# A row of TSV as spreadsheets write it: quotes within quotes are doubled, and unquoted fields have none.
_FIELD = r'(?:"(?:[^"]|"")*"|[^"\t\r\n]*)'
_QUOTED_ROW = re.compile(rf"{_FIELD}(?:\t{_FIELD})*\r?\n?")
_NEEDS_QUOTES = re.compile(r'(?:^|\t)"[^"]*(?:""|[\t\r\n])(?:[^"]|"")*"(?=[\t\r\n]|$)')


def csv_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows after the header; each must have as many fields."""
    rows = _rows(path, columns.named, reading)
    first_line, header = next(rows, (1, None))
    if header is None:
        return  # a file of 0 bytes, as some programs write a part without rows
    if not header:
        raise DataError(path, "the first line is empty; it is to name the columns")
    names = columns.checked(path, header, line=f":{first_line}")
    for row, (line, fields) in enumerate(rows, start=2):
        if not fields and len(header) > 1:
            continue  # an empty line
        values, where = fields or [""], SourceLocation(str(path), line, row)
        if len(values) != len(header):
            what = f"{len(values)} fields where the header has {len(header)}"
            reading.bad_row(DataError(where, what, SKIP))
        elif repeats_header(where, values, header):
            reading.notes.repeated_headers.add(where)
        elif not reading.skips or reading.is_valid(path, where, " ".join(values)):
            yield where, dict(zip(names, values, strict=True))


def csv_header(path: Path, columns: Sequence[str], reading: Reading) -> list[str]:
    """The names of the columns, as they are written."""
    return next(_rows(path, columns, reading), (1, []))[1]


def form_of(path: Path, columns: Sequence[str], reading: Reading) -> CsvForm:
    """The form of a file; with a byte order mark also if its encoding is not UTF-8."""
    separator, ending = ",", ending_of(path)
    has_mark = ending == ".xlsx" or not is_utf8(reading.encoding)
    with suppress(OSError, DataError):  # reported where it is read
        if ending == ".csv":
            separator = _opened_table(path, columns, reading)[2]
        with opened(path) as file:
            has_mark = has_mark or file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    return CsvForm(separator, has_mark, ending not in USUAL)


def _rows(path: Path, columns: Sequence[str], reading: Reading) -> Rows:
    lines, number, delimiter = _opened_table(path, columns, reading)
    if ending_of(path) == ".tsv" and delimiter == "\t" and reading.delimiter != "\t":
        if not path.is_file() or not _is_quoted(
            path, reading.encoding
        ):  # a pipe can be read only once
            stripped = (line.removesuffix("\n").removesuffix("\r") for line in lines)
            return (
                (at, line.split("\t") if line else []) for at, line in enumerate(stripped, number)
            )
        reading.note(f"{path}: fields in quotes are read as a spreadsheet writes them")
    return _quoted_rows(path, lines, number, delimiter, reading)


def _opened_table(
    path: Path, columns: Sequence[str], reading: Reading
) -> tuple[Iterator[str], int, str]:
    """The lines from the header on, the number of the first, and the separator, which Excel may name (`sep=;`)."""
    lines = reading.lines(path)
    first, number = next(lines, ""), 1
    named = _SEPARATOR_LINE.fullmatch(first)
    if named:
        first, number = next(lines, ""), 2
    delimiter = named[1] if named else _delimiter(path, first, columns, reading)
    return chain([first] if first else [], lines), number, delimiter


def _delimiter(path: Path, first: str, columns: Sequence[str], reading: Reading) -> str:
    """The named or usual separator, unless the header has these columns, or some of them, with only one other."""
    usual = reading.delimiter or USUAL[ending_of(path)]
    found = {it: set(columns) & set(_fields(first, it)) for it in (usual, *SEPARATORS)}
    fewest = 1 if len(_fields(first, usual)) == 1 else len(set(columns))
    fits = [it for it in found if len(found[it]) >= fewest]
    if usual in fits or len(fits) != 1:
        return usual
    reading.note(
        f"{path}: read with {shown(fits[0])} between its fields, as its header has it (data.delimiter)"
    )
    return fits[0]


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _quoted_rows(
    path: Path, lines: Iterator[str], number: int, delimiter: str, reading: Reading
) -> Rows:
    """Rows with quotes as in RFC 4180; after a malformed one, reading goes on at its second line."""
    csv.field_size_limit(LONGEST_FIELD)
    of_row: list[str] = []

    def kept() -> Iterator[str]:
        length = 0
        for line in lines:
            if not of_row:
                length = 0
            length += len(line) + MEMORY_OF_LINE
            of_row.append(line)
            if length > LONGEST_LINE + MEMORY_OF_LINE:
                raise csv.Error(f"the row {longer_than(LONGEST_LINE)}")
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
            what, hint = (
                ("a carriage return without a line feed", "") if is_return else (str(error), SKIP)
            )
            reading.bad_row(
                DataError(
                    f"{path}:{number}", f"not valid CSV: {what} (is a quote left open?)", hint
                )
            )
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
    is_shown, row, num_lines = False, "", 0
    for number, line in enumerate(text_lines(path, encoding, keep_invalid=True)):
        if not row and '"' not in line:
            continue
        row, num_lines = row + line, num_lines + 1
        if row.count('"') % 2:
            if num_lines > MOST_LINES or len(row) > LONGEST_LINE:
                return False
            continue
        if not _QUOTED_ROW.fullmatch(row):
            return False
        is_shown = is_shown or number + 1 == num_lines or bool(_NEEDS_QUOTES.search(row))
        row, num_lines = "", 0
    return is_shown and not row
