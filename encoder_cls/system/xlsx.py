"""Read the cells of Excel files (Office Open XML, ECMA-376) as a spreadsheet shows them.

The XML is parsed piece by piece, so memory depends on the longest row and the shared strings. Other
parts are refused if they unpack to far more than the file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.errors import DataError
from encoder_cls.system.encodings import LONGEST_LINE, longer_than
from encoder_cls.system.number_formats import (
    BUILT_IN_CODES,
    NumberFormat,
    number_format_of,
)

if TYPE_CHECKING:
    from zipfile import ZipFile


class ErrorCell(str):
    """A cell that shows an error, such as `#N/A` for a look-up that has found nothing."""

    __slots__ = ()


class NoResult:
    """The value of a formula that was never computed."""


NO_RESULT = NoResult()

# The values of a row by column, from 1 on, without the empty cells. A value is a str, int, float,
# bool, date, datetime, time or timedelta, an `ErrorCell`, or `NO_RESULT`.
Cells = dict[int, Any]


# The number of bytes that are read and parsed at once.
READ_BYTES = 1 << 16
# How many times larger than the file a part without rows may be when it is unpacked, besides the
# bytes that each part may have. Distinct strings shrink to about a tenth when they are packed well.
# Apache POI also refuses parts that shrink to less than a hundredth.
MAX_UNPACKED = 100
SMALL_PART = 1 << 22


class Sheet(NamedTuple):
    """A sheet; `part` is the path of its cells in the archive."""

    title: str
    part: str
    is_hidden: bool


class SheetRow(NamedTuple):
    """A row of a sheet, counted from 1 on; a filter, for one, may hide it."""

    number: int
    cells: Cells
    is_hidden: bool


class ColumnLayout(NamedTuple):
    """How a spreadsheet shows a column.

    Attributes:
        width: in characters; None if it is the usual one.
        number_format: such as `yyyy-mm-dd`; None if the first rows are empty.
    """

    width: float | None = None
    number_format: str | None = None


class Workbook:
    """An open Excel file."""

    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._most_unpacked = SMALL_PART + MAX_UNPACKED * path.stat().st_size

        main = next(iter(self._related("", "/officeDocument").values()), "xl/workbook.xml")
        book = _Book()
        self._parse(main, book)

        parts = self._related(main, "/worksheet")
        sheets: dict[str, Sheet] = {}
        for title, relationship_id, is_hidden in book.sheets:
            if relationship_id in parts:
                part = parts[relationship_id]
                # No two sheets of a sound file have the same cells.
                sheets.setdefault(part, Sheet(title, part, is_hidden))
        self.sheets = list(sheets.values())

        self._counts_from_1904 = book.counts_from_1904
        self._formats = _Formats()
        for part in self._related(main, "/styles").values():
            self._parse(part, self._formats)
        self._strings = _SharedStrings(path)
        for part in self._related(main, "/sharedStrings").values():
            self._parse(part, self._strings)

    def rows(self, sheet: Sheet) -> Iterator[SheetRow]:
        """The rows of a sheet."""
        target = _Rows(self._path, self._value)
        for _ in self._steps(sheet.part, target):
            yield from target.finished
            target.finished.clear()

    def layout(self, sheet: Sheet, *, header_row: int) -> dict[int, ColumnLayout]:
        """How a spreadsheet shows the columns, by number from 1 on.

        The format of a column is that of the first cell below the header that is not empty.
        """
        target = _Layout(self._path, header_row)
        for _ in self._steps(sheet.part, target):
            if target.row > header_row + LAYOUT_ROWS:
                break

        columns = {}
        for column in target.widths.keys() | target.styles.keys():
            number_format = None
            if column in target.styles:
                number_format = self._formats.of(target.styles[column]).code
            columns[column] = ColumnLayout(target.widths.get(column), number_format)
        return columns

    def _related(self, part: str, kind: str) -> dict[str, str]:
        """The paths of related parts, by the ids of relationships.

        An empty part is the archive itself; `kind` is the end of a type, such as `/worksheet`.
        """
        folder, name = posixpath.split(part)
        relationships = _Relationships(kind)
        source = posixpath.join(folder, "_rels", f"{name}.rels")
        if source in self._archive.namelist():
            self._parse(source, relationships)

        parts = {}
        for relationship_id, target in relationships.targets.items():
            # A target that begins with a slash starts at the top of the archive.
            path = posixpath.join("/", folder, target)
            parts[relationship_id] = posixpath.normpath(path).lstrip("/")
        return parts

    def _parse(self, part: str, target: _Part) -> None:
        num_bytes = 0
        for num_new in self._steps(part, target):
            num_bytes += num_new
            if num_bytes > self._most_unpacked:
                what = f"{part} unpacks to more than {MAX_UNPACKED} times the size of the file"
                raise DataError(self._path, what, "save the sheet as CSV")

    def _steps(self, part: str, target: _Part) -> Iterator[int]:
        """Parse a part, and yield the size of each block of bytes after it."""
        from xml.parsers import expat

        parser = expat.ParserCreate(namespace_separator="}")
        parser.StartElementHandler = target.start
        parser.EndElementHandler = target.end
        parser.CharacterDataHandler = target.data

        num_bytes = 0
        with self._archive.open(part) as source:
            for block in iter(lambda: source.read(READ_BYTES), b""):
                parser.Parse(block)
                yield len(block)

                num_bytes += len(block)
                if num_bytes - parser.CurrentByteIndex > LONGEST_LINE:
                    raise DataError(self._path, f"an element of {part} {longer_than(LONGEST_LINE)}")
            parser.Parse(b"", True)
            yield 0

    def _value(self, kind: str, style: int, written: str) -> Any:
        """What is written in a cell, by its type (attribute `t`) and style (`s`)."""
        if kind == "s":
            return self._strings.text(int(written))
        if kind in {"str", "inlineStr"}:
            return _unescaped(written)
        if kind == "e":
            return ErrorCell(written)
        if kind == "b":
            return written not in {"0", "false"}

        number_format = self._formats.of(style)
        if kind == "d":
            return _from_iso_8601(written, number_format)
        return self._number_or_time(_number(written), number_format)

    def _number_or_time(self, number: int | float, number_format: NumberFormat) -> Any:
        if number_format.is_time:
            try:
                return _time(number, number_format, counts_from_1904=self._counts_from_1904)
            except (OverflowError, ValueError):
                # Spreadsheets show this for a number that is before or after all dates.
                return ErrorCell("########")
        is_whole = isinstance(number, int) and number >= 0
        if is_whole and len(str(number)) < number_format.num_digits:
            return str(number).zfill(number_format.num_digits)
        return number


@contextmanager
def opened_workbook(path: Path) -> Iterator[Workbook]:
    """Open an Excel file.

    If its content is wrong, a `DataError` or an error of `zipfile` or `expat` is raised.
    """
    # Imported here, because most commands read no Excel file.
    from zipfile import ZipFile

    with path.open("rb") as file, ZipFile(file) as archive:
        yield Workbook(path, archive)


# Whole numbers below this limit are exact, since a spreadsheet keeps 15 digits.
MAX_WHOLE = 10**15


def _number(written: str) -> int | float:
    """Whole numbers become int, even if written as 2.0 or 2E0."""
    try:
        return int(written)
    except ValueError:
        number = float(written)

    if number.is_integer() and abs(number) < MAX_WHOLE:
        return int(number)
    return number


# The days from which Excel counts, and that on which it counts one that has never been.
FIRST_DAY = datetime(1899, 12, 30)
FIRST_DAY_OF_1904 = datetime(1904, 1, 1)
LEAP_DAY_OF_1900 = 60
MILLISECONDS_OF_DAY = 24 * 60 * 60 * 1000


def _time(
    days: float, number_format: NumberFormat, *, counts_from_1904: bool
) -> date | time | timedelta:
    """Convert days to a date, a time of day or a duration, to the millisecond."""
    if number_format.is_duration:
        return timedelta(milliseconds=round(days * MILLISECONDS_OF_DAY))

    day, fraction = divmod(days, 1)
    clock = timedelta(milliseconds=round(fraction * MILLISECONDS_OF_DAY))
    if day == 0 and clock < timedelta(days=1):
        return (datetime.min + clock).time()
    if not counts_from_1904 and 0 < day < LEAP_DAY_OF_1900:
        day += 1
    first_day = FIRST_DAY_OF_1904 if counts_from_1904 else FIRST_DAY
    return _without_midnight(first_day + timedelta(days=day) + clock, number_format)


def _without_midnight(moment: datetime, number_format: NumberFormat) -> date:
    """The date alone, if the time is a midnight that the format does not show."""
    if moment.time() == time() and not number_format.has_clock:
        return moment.date()
    return moment


def _from_iso_8601(written: str, number_format: NumberFormat) -> date | time | str:
    with suppress(ValueError):
        return _without_midnight(datetime.fromisoformat(written), number_format)
    with suppress(ValueError):
        return time.fromisoformat(written)
    return written


_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")


def _unescaped(text: str) -> str:
    """Turn a text into the form that a spreadsheet shows.

    `_x000D_` stands for a character that XML cannot contain (ST_Xstring, ECMA-376 part 1,
    22.9.2.19). No spreadsheet shows carriage returns.
    """
    plain = text
    if "_x" in text:
        plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)

        # Join two escapes that are the halves of a surrogate pair, as for an emoji. A half alone is
        # not a character, and is replaced.
        plain = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return plain.replace("\r\n", "\n").rstrip("\r").replace("\r", "\n")


# Parts of a file


class _Part:
    """What the parser calls for the elements and the text of one part."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Receive the start of an element."""

    def end(self, tag: str) -> None:
        """Receive the end of an element."""

    def data(self, text: str) -> None:
        """Receive a piece of text inside an element."""


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _is_true(value: str | None) -> bool:
    return value in {"1", "true"}


class _Relationships(_Part):
    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.targets: dict[str, str] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if _name(tag) == "Relationship" and attributes.get("Type", "").endswith(self._kind):
            self.targets[attributes["Id"]] = attributes["Target"]


class _Book(_Part):
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str, bool]] = []
        self.counts_from_1904 = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name == "workbookPr":
            self.counts_from_1904 = _is_true(attributes.get("date1904"))
        elif name == "sheet":
            title = attributes.get("name", "")
            ids = [value for key, value in attributes.items() if _name(key) == "id"]
            relationship_id = ids[0] if ids else ""
            is_hidden = attributes.get("state", "visible") != "visible"
            self.sheets.append((title, relationship_id, is_hidden))


GENERAL = number_format_of("General")


class _Formats(_Part):
    def __init__(self) -> None:
        self._codes = dict(BUILT_IN_CODES)
        self._by_code: dict[str, NumberFormat] = {}
        self._of_styles: list[NumberFormat] = []
        self._is_in_cells = False

    def of(self, style: int) -> NumberFormat:
        # A file may have no formats at all.
        if 0 <= style < len(self._of_styles):
            return self._of_styles[style]
        return GENERAL

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name == "numFmt" and "numFmtId" in attributes:
            self._codes[int(attributes["numFmtId"])] = attributes.get("formatCode", "")
        elif name == "cellXfs":
            self._is_in_cells = True
        elif name == "xf" and self._is_in_cells:
            code = self._codes.get(int(attributes.get("numFmtId", 0)), GENERAL.code)
            if code not in self._by_code:
                self._by_code[code] = number_format_of(code)
            self._of_styles.append(self._by_code[code])

    def end(self, tag: str) -> None:
        if _name(tag) == "cellXfs":
            self._is_in_cells = False


class _Pieces(_Part):
    """A text's pieces up to a limit, without `rPh`, its pronunciation."""

    def __init__(self, path: Path, text_tags: Sequence[str]) -> None:
        self._path = path
        self._text_tags = text_tags
        self._pieces: list[str] = []
        self._size = 0
        self._is_in_text = False
        self._is_in_phonetics = False

    def start(self, tag: str, _: dict[str, str]) -> None:
        name = _name(tag)
        if name == "rPh":
            self._is_in_phonetics = True
        self._is_in_text = name in self._text_tags and not self._is_in_phonetics

    def end(self, tag: str) -> None:
        if _name(tag) == "rPh":
            self._is_in_phonetics = False
        self._is_in_text = False

    def data(self, text: str) -> None:
        if self._is_in_text:
            self._pieces.append(text)
            self._size += len(text)
            if self._size > LONGEST_LINE:
                self._refuse("a row")

    def _taken(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        return text

    def _refuse(self, what: str) -> None:
        raise DataError(self._path, f"{what} {longer_than(LONGEST_LINE)}")


class _SharedStrings(_Pieces):
    """The strings to which cells of type `s` refer by number."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ("t",))
        self._texts: list[str] = []

    def text(self, number: int) -> str:
        if not 0 <= number < len(self._texts):
            raise ValueError(f"a cell names text {number}, which is not there")
        return self._texts[number]

    def end(self, tag: str) -> None:
        super().end(tag)
        if _name(tag) == "si":
            self._texts.append(_unescaped(self._taken()))
            self._size = 0


def _number_of_row(attributes: dict[str, str], last_row: int) -> int:
    """The number of a row; some programs write none, and then it follows the last one."""
    return int(float(attributes.get("r", last_row + 1)))


# The largest number of columns of a sheet in Excel and in LibreOffice.
MAX_COLUMNS = 16_384
# The reference of a cell, such as B7: the letters of its column, and the number of its row.
_REFERENCE = re.compile(r"([A-Za-z]{1,3})[0-9]+")


def _column_of(path: Path, attributes: dict[str, str], *, row: int, last_column: int) -> int:
    """The column of a cell, from 1 on; it follows the last one where there is no reference."""
    reference = attributes.get("r")
    if reference is None:
        column = last_column + 1
    else:
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise ValueError(f"{reference!r} is not the reference of a cell")
        column = 0
        for letter in match[1].upper():
            column = column * 26 + ord(letter) - ord("A") + 1
    if column > MAX_COLUMNS:
        raise DataError(path, f"row {row} has more than {MAX_COLUMNS:,} columns")
    return column


# The number of first rows by which the formats of columns are found.
LAYOUT_ROWS = 100
# The largest width of a column in Excel, in characters.
MAX_WIDTH = 255


class _Layout(_Part):
    """The widths of the columns of a sheet, and the formats of their first cells.

    Attributes:
        styles: by column, the number of the format of its first cell below the header.
        row: the last row that has begun.
    """

    def __init__(self, path: Path, header_row: int) -> None:
        self._path = path
        self._header_row = header_row
        self._column = 0
        self._style = 0
        # The column after those whose widths are known. Widths come from left to right.
        self._next_column = 1
        self.widths: dict[int, float] = {}
        self.styles: dict[int, int] = {}
        self.row = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name == "col":
            self._add_width(attributes)
        elif name == "row":
            self.row = _number_of_row(attributes, self.row)
            self._column = 0
        elif name == "c":
            self._column = _column_of(
                self._path, attributes, row=self.row, last_column=self._column
            )
            self._style = int(attributes.get("s", 0))
        elif name in {"v", "is"} and self.row > self._header_row:
            self.styles.setdefault(self._column, self._style)

    def _add_width(self, attributes: dict[str, str]) -> None:
        width = float(attributes.get("width", 0))
        columns = range(
            max(int(attributes["min"]), self._next_column),
            min(int(attributes["max"]), MAX_COLUMNS) + 1,
        )
        self._next_column = max(self._next_column, columns.stop)
        if 0 < width <= MAX_WIDTH and not _is_true(attributes.get("hidden")):
            self.widths.update(dict.fromkeys(columns, width))


class _Rows(_Pieces):
    """The rows of a sheet; their reader removes them from `finished`."""

    def __init__(self, path: Path, value: Any) -> None:
        super().__init__(path, ("v", "t"))
        self.finished: list[SheetRow] = []
        self._value = value
        # The row that is being read.
        self._number = 0
        self._is_hidden = False
        self._cells: Cells = {}
        self._column = 0
        self._cell: dict[str, str] = {}
        self._has_formula = False
        self._has_value = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        super().start(tag, attributes)

        name = _name(tag)
        if name == "row":
            self._number = _number_of_row(attributes, self._number)
            self._is_hidden = _is_true(attributes.get("hidden"))
            self._cells = {}
            self._column = 0
            self._size = 0
        elif name == "c":
            self._cell = attributes
            self._column = _column_of(
                self._path, attributes, row=self._number, last_column=self._column
            )
            self._has_formula = False
            self._has_value = False
        elif name == "f":
            self._has_formula = True
        elif name in {"v", "is"}:
            self._has_value = True

    def end(self, tag: str) -> None:
        super().end(tag)
        name = _name(tag)
        if name == "c":
            self._end_cell()
        elif name == "row":
            self.finished.append(SheetRow(self._number, self._cells, self._is_hidden))

    def _end_cell(self) -> None:
        kind = self._cell.get("t", "n")
        style = int(self._cell.get("s", 0))
        written = self._taken()

        value = None
        if kind == "inlineStr" or written:
            if self._has_value:
                value = self._value(kind, style, written)
        elif self._has_formula and kind != "str":
            # A formula of type `str` without a value has a result: an empty text.
            value = NO_RESULT

        if value is not None:
            self._cells[self._column] = value
