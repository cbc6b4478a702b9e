"""Read the cells of Excel files (Office Open XML, ECMA-376) as a spreadsheet shows them.

The XML is parsed piece by piece, without a tree of its elements. So the memory depends on the
longest row and on the shared strings, and not on the unpacked size of the file. openpyxl is used to
find out which number formats are dates.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.errors import DataError
from encoder_cls.system.encodings import LONGEST_LINE, longer_than

if TYPE_CHECKING:
    from zipfile import ZipFile


class ErrorCell(str):
    """A cell that shows an error, such as `#N/A` for a look-up that has found nothing."""

    __slots__ = ()


class NoResult:
    """The value of a formula that was never computed."""


NO_RESULT = NoResult()

# The values of a row. A value is a str, int, float, bool, date, time, duration or None, an
# `ErrorCell`, or `NO_RESULT`.
Cells = list[Any]


# The number of bytes that are read and parsed at once.
READ_BYTES = 1 << 16


class Sheet(NamedTuple):
    """A sheet of a workbook.

    Attributes:
        title: the name of the sheet.
        part: the path of its cells in the archive.
        is_hidden: whether spreadsheets do not show the sheet.
    """

    title: str
    part: str
    is_hidden: bool


class ColumnLayout(NamedTuple):
    """How a spreadsheet shows a column.

    Attributes:
        width: the width in characters; None if the column has the usual width.
        number_format: the code of the format of its numbers and dates, such as `yyyy-mm-dd`; None
            if the first rows of the column are empty.
    """

    width: float | None = None
    number_format: str | None = None


class Workbook:
    """An open Excel file: its sheets, and the rows of each sheet.

    Attributes:
        sheets: the sheets in their order.
    """

    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path = path
        self._archive = archive

        main = next(iter(self._related("", "/officeDocument").values()), "xl/workbook.xml")
        book = _Book()
        self._parse(main, book)
        if book.is_strict:
            hint = "save it as an ordinary .xlsx file in a spreadsheet program"
            raise DataError(path, "a Strict Open XML file", hint)

        parts = self._related(main, "/worksheet")
        self.sheets = [
            Sheet(title, parts[relationship_id], is_hidden)
            for title, relationship_id, is_hidden in book.sheets
            if relationship_id in parts
        ]
        self._counts_from_1904 = book.counts_from_1904
        self._formats = _Formats()
        for part in self._related(main, "/styles").values():
            self._parse(part, self._formats)
        self._strings = _SharedStrings(path)
        for part in self._related(main, "/sharedStrings").values():
            self._parse(part, self._strings)

    def rows(self, sheet: Sheet) -> Iterator[tuple[int, Cells]]:
        """Iterate over the rows of a sheet, each as its number, from 1 on, and its cells."""
        target = _Rows(self._path, self._value)
        for _ in self._steps(sheet.part, target):
            for number, cells in target.finished:
                last_column = max(cells, default=0)
                yield number, [cells.get(column) for column in range(1, last_column + 1)]
            target.finished.clear()

    def layout(self, sheet: Sheet) -> dict[int, ColumnLayout]:
        """Find out how a spreadsheet shows the columns of a sheet, by their numbers from 1 on.

        The format of a column is that of the first cell below the header that is not empty.
        """
        target = _Layout(self._path)
        for _ in self._steps(sheet.part, target):
            if target.num_rows > LAYOUT_ROWS:
                break

        columns = {}
        for column in target.widths.keys() | target.styles.keys():
            number_format = None
            style = target.styles.get(column)
            # A file may have no formats at all.
            if style is not None and self._formats.codes:
                number_format = self._formats.codes[style]
            columns[column] = ColumnLayout(target.widths.get(column), number_format)
        return columns

    def _related(self, part: str, kind: str) -> dict[str, str]:
        """Find the parts of the archive that are related to a part.

        Args:
            part: the path of the part in the archive; empty for the archive itself.
            kind: the end of the type of the relationships, such as `/worksheet`.

        Returns:
            The paths of the related parts, by the ids of the relationships.
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
        """Parse a part of the archive from beginning to end."""
        for _ in self._steps(part, target):
            pass

    def _steps(self, part: str, target: _Part) -> Iterator[None]:
        """Parse a part of the archive, and yield after each block of bytes.

        Args:
            part: the path of the part in the archive.
            target: receives the elements and their text.

        Raises:
            DataError: an element is too long.
        """
        from xml.parsers import expat

        parser = expat.ParserCreate(namespace_separator="}")
        parser.StartElementHandler = target.start
        parser.EndElementHandler = target.end
        parser.CharacterDataHandler = target.data

        num_bytes = 0
        with self._archive.open(part) as source:
            for block in iter(lambda: source.read(READ_BYTES), b""):
                parser.Parse(block)
                yield

                num_bytes += len(block)
                if num_bytes - parser.CurrentByteIndex > LONGEST_LINE:
                    raise DataError(self._path, f"an element of {part} {longer_than(LONGEST_LINE)}")
            parser.Parse(b"", True)
            yield

    def _value(self, kind: str, style: int, written: str) -> Any:
        """Convert what is written in a cell into its value.

        Args:
            kind: the type of the cell (attribute `t`).
            style: the number of its format (attribute `s`).
            written: the text of the cell's element.
        """
        if kind == "s":
            return self._strings.texts[int(written)]
        if kind in {"str", "inlineStr"}:
            return _unescaped(written)
        if kind == "e":
            return ErrorCell(written)
        if kind == "b":
            return written not in {"0", "false"}
        return self._number_or_time(kind, style, written)

    def _number_or_time(self, kind: str, style: int, written: str) -> Any:
        """Convert a number into an int or float, or into a date or time if its format shows one."""
        from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel, from_ISO8601

        if kind == "d":
            return from_ISO8601(written)

        number = _number(written)
        if style not in self._formats.of_times:
            return number

        epoch = MAC_EPOCH if self._counts_from_1904 else WINDOWS_EPOCH
        is_duration = style in self._formats.of_durations
        try:
            return from_excel(number, epoch, timedelta=is_duration)
        except (OverflowError, ValueError):
            # Spreadsheets show this for a number that is before or after all dates.
            return ErrorCell("########")


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
    """Parse a number; a whole number becomes an int even if it is written as 2.0 or as 2E0."""
    try:
        return int(written)
    except ValueError:
        number = float(written)

    if number.is_integer() and abs(number) < MAX_WHOLE:
        return int(number)
    return number


_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")


def _unescaped(text: str) -> str:
    """Turn a text into the form that a spreadsheet shows.

    Escapes become characters. An escape such as `_x000D_` represents a character that XML cannot
    contain (ST_Xstring, ECMA-376 part 1, 22.9.2.19), and `_x005F_` represents the underscore of a
    text that looks like an escape. Line ends become line feeds, because some programs write
    carriage returns, which no spreadsheet shows.
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
    """The receiver of the elements of one part of the archive.

    The XML parser calls it at the start and at the end of each element, and for each piece of text
    inside it.
    """

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Receive the start of an element."""

    def end(self, tag: str) -> None:
        """Receive the end of an element."""

    def data(self, text: str) -> None:
        """Receive a piece of text inside an element."""


def _name(tag: str) -> str:
    """The name of an element without its namespace."""
    return tag.rpartition("}")[2]


class _Relationships(_Part):
    """The relationships of one kind.

    Attributes:
        targets: the target of each relationship, by its id.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.targets: dict[str, str] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if _name(tag) == "Relationship" and attributes.get("Type", "").endswith(self._kind):
            self.targets[attributes["Id"]] = attributes["Target"]


# A piece of the namespaces of Excel's other format with the same ending, Strict Open XML.
_STRICT = "purl.oclc.org"


class _Book(_Part):
    """The part `workbook.xml`, which lists the sheets.

    Attributes:
        sheets: the title of each sheet, the id of its relationship, and whether it is hidden.
        counts_from_1904: whether dates are counted from 1904 instead of 1900.
        is_strict: whether the file is in the format Strict Open XML, which is not supported.
    """

    def __init__(self) -> None:
        self.sheets: list[tuple[str, str, bool]] = []
        self.counts_from_1904 = False
        self.is_strict = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name == "workbook":
            self.is_strict = _STRICT in tag
        elif name == "workbookPr":
            self.counts_from_1904 = attributes.get("date1904") in {"1", "true"}
        elif name == "sheet":
            title = attributes.get("name", "")
            relationship_id = next(value for key, value in attributes.items() if _name(key) == "id")
            is_hidden = attributes.get("state", "visible") != "visible"
            self.sheets.append((title, relationship_id, is_hidden))


class _Formats(_Part):
    """The cell formats that show times.

    Attributes:
        codes: the code of each format, such as `yyyy-mm-dd`, in the order of their numbers.
        of_times: the numbers of the formats that show dates, times of day or durations.
        of_durations: the numbers of the formats that show durations.
    """

    def __init__(self) -> None:
        from openpyxl.styles.numbers import BUILTIN_FORMATS

        self._codes_by_id = dict(BUILTIN_FORMATS)
        self._is_in_cells = False
        self.codes: list[str] = []
        self.of_times: set[int] = set()
        self.of_durations: set[int] = set()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        from openpyxl.styles.numbers import is_date_format, is_timedelta_format

        name = _name(tag)
        if name == "numFmt" and "numFmtId" in attributes:
            self._codes_by_id[int(attributes["numFmtId"])] = attributes.get("formatCode", "")
        elif name == "cellXfs":
            self._is_in_cells = True
        elif name == "xf" and self._is_in_cells:
            number = len(self.codes)
            code = self._codes_by_id.get(int(attributes.get("numFmtId", 0)), "")
            self.codes.append(code)
            if is_date_format(code):
                self.of_times.add(number)
            if is_timedelta_format(code):
                self.of_durations.add(number)

    def end(self, tag: str) -> None:
        if _name(tag) == "cellXfs":
            self._is_in_cells = False


class _Pieces(_Part):
    """The pieces of the text that is being read, up to a limit of their size.

    The text of elements `rPh` is left out, since it only says how the characters before it are
    pronounced.
    """

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
        """Return the text that was read so far, and begin the next text."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text

    def _refuse(self, what: str) -> None:
        """Raise a DataError that says what is too long."""
        raise DataError(self._path, f"{what} {longer_than(LONGEST_LINE)}")


# How many times larger than the file its strings may be when they are unpacked. Distinct strings
# shrink to about a tenth when they are packed well. Apache POI also refuses parts that shrink to
# less than a hundredth.
MAX_UNPACKED = 100


class _SharedStrings(_Pieces):
    """The strings to which cells of type `s` refer by number.

    Attributes:
        texts: the strings in their order.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, ("t",))
        self.texts: list[str] = []
        self._memory = 0
        self._max_memory = LONGEST_LINE + MAX_UNPACKED * path.stat().st_size

    def end(self, tag: str) -> None:
        super().end(tag)
        if _name(tag) != "si":
            return

        text = _unescaped(self._taken())
        self.texts.append(text)
        self._size = 0
        self._memory += sys.getsizeof(text)
        if self._memory > self._max_memory:
            what = f"its texts are more than {MAX_UNPACKED} times as large as the file"
            raise DataError(self._path, what, "save them as CSV")


# The largest number of columns of a sheet in Excel and in LibreOffice.
MAX_COLUMNS = 16_384
# The reference of a cell, such as B7: the letters of its column, and the number of its row.
_REFERENCE = re.compile(r"([A-Za-z]{1,3})[0-9]+")


def _column_of(path: Path, attributes: dict[str, str], *, row: int, last_column: int) -> int:
    """Find the column of a cell, from 1 on.

    Some programs write no references. Then each cell is to the right of the cell before it.

    Args:
        path: the file, for messages.
        attributes: the attributes of the cell's element.
        row: the number of its row, for messages.
        last_column: the column of the cell before it; 0 if there is none.
    """
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


class _Layout(_Part):
    """The widths of the columns of a sheet, and the formats of their first cells.

    Attributes:
        widths: the width of each column that has one, in characters.
        styles: for each column the number of the format of the first cell below the header that is
            not empty.
        num_rows: the number of rows that have begun.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._column = 0
        self._style = 0
        self.widths: dict[int, float] = {}
        self.styles: dict[int, int] = {}
        self.num_rows = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        if name == "col":
            self._add_width(attributes)
        elif name == "row":
            self.num_rows += 1
            self._column = 0
        elif name == "c":
            self._column = _column_of(
                self._path, attributes, row=self.num_rows, last_column=self._column
            )
            self._style = int(attributes.get("s", 0))
        elif name in {"v", "is"} and self.num_rows > 1:
            self.styles.setdefault(self._column, self._style)

    def _add_width(self, attributes: dict[str, str]) -> None:
        """Add the width of neighbouring columns, unless they are hidden."""
        width = float(attributes.get("width", 0))
        first = int(attributes["min"])
        last = min(int(attributes["max"]), MAX_COLUMNS)
        if width > 0 and attributes.get("hidden", "0") not in {"1", "true"}:
            for column in range(first, last + 1):
                self.widths[column] = width


class _Rows(_Pieces):
    """The rows of a sheet.

    Attributes:
        finished: the number of each row that was read to its end, and its values by column, from 1
            on. The reader of the rows removes them from this list.
    """

    def __init__(self, path: Path, value: Any) -> None:
        super().__init__(path, ("v", "t"))
        self.finished: list[tuple[int, dict[int, Any]]] = []
        self._value = value
        self._number = 0
        # The values of the row that is being read, by column.
        self._cells: dict[int, Any] = {}
        self._column = 0
        self._cell: dict[str, str] = {}
        self._has_formula = False
        self._has_value = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        super().start(tag, attributes)

        name = _name(tag)
        if name == "row":
            self._number = int(float(attributes.get("r", self._number + 1)))
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
            self.finished.append((self._number, self._cells))

    def _end_cell(self) -> None:
        """Add the value of the cell that ends to the values of its row."""
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
