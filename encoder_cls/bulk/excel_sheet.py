"""A new Excel file with one sheet: its cells, their types, the widths of its columns.

Rows are written one after the other to a temporary file, so that memory does not grow with their
number. Excel cannot append to such a file, so it is complete or not there.
"""

from __future__ import annotations

import math
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from encoder_cls.bulk.json_and_csv_formats import encodable
from encoder_cls.system.csv_cells import cell

# The largest number of rows of a sheet in Excel, without the row of the header.
MAX_ROWS = (1 << 20) - 1

# The formats of cells: probabilities, and numbers as they are.
PROBABILITY_FORMAT = "0.000"
GENERAL = "General"
# The format of texts, such as codes that begin with zeros.
TEXT_FORMAT = "@"
DATE_FORMAT = "yyyy-mm-dd"
DATE_AND_TIME_FORMAT = "yyyy-mm-dd hh:mm:ss"
TIME_FORMAT = "hh:mm:ss"
DURATION_FORMAT = "[h]:mm:ss"

Cell = None | bool | int | float | str | list[Any]
"""A value that JSON can hold. A list is a format of numbers and a number: a date or a time."""


class Sheet:
    """A new Excel file with one sheet, to which rows are appended.

    The header is bold and stays in view, and each column has a filter.

    Args:
        title: the name of the sheet.
        names: the names of the columns.
        formats: the format of the numbers of each column.

    Attributes:
        num_rows: the number of rows that have been appended.
    """

    def __init__(self, title: str, names: Sequence[str], formats: Sequence[str]) -> None:
        import openpyxl

        self._book = openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet(sheet_title(title))
        self._sheet.freeze_panes = "A2"
        self._cells = _Cells(self._sheet, names, formats)
        self._num_columns = len(names)
        self.num_rows = 0

    @property
    def num_cut(self) -> int:
        """The number of texts that were cut, because they are longer than a cell."""
        return self._cells.num_cut

    def begin(self, widths: Sequence[float]) -> None:
        """Set the width of each column, in characters, and write the header."""
        from openpyxl.utils import get_column_letter

        for number, width in enumerate(widths, start=1):
            self._sheet.column_dimensions[get_column_letter(number)].width = width
        self._sheet.append(self._cells.header())

    def append(self, values: Sequence[Cell]) -> None:
        """Write a row with these values, which follow the order of the columns."""
        self._sheet.append(self._cells.row(values))
        self.num_rows += 1

    def save(self, file: BinaryIO) -> None:
        """Write the whole Excel file to an open file."""
        from openpyxl.utils import get_column_letter
        from openpyxl.writer.excel import ExcelWriter

        last_column = get_column_letter(max(1, self._num_columns))
        self._sheet.auto_filter.ref = f"A1:{last_column}{self.num_rows + 1}"

        self._book.properties.created = DATE
        self._book.properties.modified = DATE
        # The writer closes the archive.
        ExcelWriter(self._book, _Archive(file, "w")).save()

    def discard(self) -> None:
        """Let openpyxl close its temporary file."""
        with suppress(OSError):
            self._sheet.close()


# --- The file -------------------------------------------------------------------------------------

# The date of all parts of a file, and of its creation, so that equal predictions are equal files.
# It is the first one that a ZIP archive can have.
DATE = datetime(1980, 1, 1)
# The number of bytes that are copied at once.
COPIED_BYTES = 1 << 20


class _Archive(zipfile.ZipFile):
    """A compressed archive, all of whose parts have the same date."""

    def write(self, filename: Any, arcname: Any = None, *_: Any) -> None:
        """Add a file under a name."""
        part = self._part(arcname)
        # The size tells whether the archive needs the form for large parts.
        part.file_size = Path(filename).stat().st_size
        with Path(filename).open("rb") as source, self.open(part, "w") as target:
            shutil.copyfileobj(source, target, COPIED_BYTES)

    def writestr(self, zinfo_or_arcname: Any, data: Any, *_: Any) -> None:
        """Add bytes or a text under a name."""
        super().writestr(self._part(zinfo_or_arcname), data)

    def _part(self, name: str) -> zipfile.ZipInfo:
        part = zipfile.ZipInfo(name, DATE.timetuple()[:6])
        part.compress_type = zipfile.ZIP_DEFLATED
        return part


# --- Cells ----------------------------------------------------------------------------------------

# The beginnings of texts that a spreadsheet, or openpyxl, could take for a formula or an error.
_NOT_PLAIN = ("=", "+", "-", "@", "#")


class _Cells:
    """Makes the cells of a sheet, row by row.

    A plain value needs no object. There is one object for each style, which is used again as soon
    as its cell is written. Objects without a style are not used again: openpyxl would put the next
    plain value into them.

    Args:
        sheet: the sheet of openpyxl.
        names: the names of the columns.
        formats: the format of the numbers of each column.

    Attributes:
        num_cut: the number of texts that were cut.
    """

    def __init__(self, sheet: Any, names: Sequence[str], formats: Sequence[str]) -> None:
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.styles import Font
        from openpyxl.styles.numbers import is_date_format

        self._names = names
        self._formats = formats
        self._are_dates = [is_date_format(number_format) for number_format in formats]

        self._new_cell: Callable[[], Any] = lambda: WriteOnlyCell(sheet)
        self._header_cell = self._new_cell()
        self._header_cell.font = Font(bold=True)
        self._text_cell = self._formatted(TEXT_FORMAT)
        self._marked_cell = self._new_cell()
        # A spreadsheet then keeps the text a text, also when a person edits the cell.
        self._marked_cell.quotePrefix = True
        self._number_cells: dict[str, Any] = {}
        self.num_cut = 0

    def header(self) -> Iterator[Any]:
        """The cells of the header."""
        for name in self._names:
            yield _with_text(self._header_cell, self._shortened(name))

    def row(self, values: Sequence[Cell]) -> Iterator[Any]:
        """The cells of a row. Each must be written before the next one is taken."""
        columns = zip(values, self._formats, self._are_dates, strict=True)
        for value, number_format, has_dates in columns:
            if isinstance(value, str):
                yield self._text(value, number_format)
            elif isinstance(value, list):
                # A date has the format of its column, unless that shows dates as numbers.
                usual_format, number = value
                yield self._number(number, number_format if has_dates else usual_format)
            elif isinstance(value, bool) or has_dates or number_format == GENERAL:
                yield value
            else:
                yield self._number(value, number_format)

    def _text(self, text: str, number_format: str) -> Any:
        short = self._shortened(text)
        if short.startswith(_NOT_PLAIN):
            return _with_text(self._marked_cell, short)
        if number_format == TEXT_FORMAT:
            return _with_text(self._text_cell, short)
        return short

    def _shortened(self, text: str) -> str:
        """A text as a cell holds it; it is counted if it is cut."""
        plain = text.replace("\r\n", "\n").replace("\r", "\n")
        short = _cut(plain)
        if short != plain:
            self.num_cut += 1
        return _escaped(short)

    def _number(self, number: int | float | None, number_format: str) -> Any:
        if number is None:
            return None
        if number_format not in self._number_cells:
            self._number_cells[number_format] = self._formatted(number_format)
        number_cell = self._number_cells[number_format]
        number_cell.value = number
        # openpyxl would take a number in a date format for a date.
        number_cell.data_type = "n"
        return number_cell

    def _formatted(self, number_format: str) -> Any:
        new_cell = self._new_cell()
        new_cell.number_format = number_format
        return new_cell


def _with_text(styled_cell: Any, text: str) -> Any:
    """Put a text into a cell; without the type, openpyxl would make a formula of `=1+1`."""
    styled_cell.value = text
    styled_cell.data_type = "s"
    return styled_cell


# The largest number of UTF-16 code units in a cell of Excel.
MAX_CELL_UNITS = 32_767


def _cut(text: str) -> str:
    """Cut a text to the length of a cell, with an ellipsis at its end."""
    # A character takes at most two UTF-16 code units.
    if 2 * len(text) <= MAX_CELL_UNITS:
        return text
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * MAX_CELL_UNITS:
        return text
    # The cut may be within a character.
    kept = encoded[: 2 * (MAX_CELL_UNITS - 1)].decode("utf-16-le", "ignore")
    return f"{kept}…"


# The characters that XML cannot contain.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# The underscore of a text that looks like an escape.
_LIKE_ESCAPE = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


def _escaped(text: str) -> str:
    """Escape a text as spreadsheets do (ST_Xstring, ECMA-376 part 1, 22.9.2.19)."""
    if "_x" in text:
        text = _LIKE_ESCAPE.sub("_x005F_", text)
    return _NOT_IN_XML.sub(lambda match: f"_x{ord(match[0]):04X}_", text)


# --- Values ---------------------------------------------------------------------------------------

# The number of digits of a number that Excel keeps.
MAX_DIGITS = 15
# The first day that Excel's calendar has right: it has a 29 February 1900.
FIRST_DAY = datetime(1900, 3, 1)


def kept_cell(value: Any) -> Cell:
    """A value of the input as a cell of the same type, or as a text if Excel has no such type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, int | float | Decimal):
        return _number_or_text(value)
    if isinstance(value, date | time | timedelta):
        return _time_or_text(value)
    return encodable(cell(value))


def _number_or_text(value: int | float | Decimal) -> Cell:
    """A number; a text if Excel would round it, as it rounds long account numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)

    written = f"{value:f}" if isinstance(value, Decimal) else str(value)
    digits = written.lstrip("-").replace(".", "").strip("0")
    if len(digits) > MAX_DIGITS:
        return written
    return value if isinstance(value, int) else float(value)


def _time_or_text(value: date | time | timedelta) -> Cell:
    """The number of days that Excel stores for a date or a time, with its format.

    A date that Excel's calendar does not have, and a time with a time zone, are texts.
    """
    from openpyxl.utils.datetime import to_excel

    if isinstance(value, timedelta):
        if value < timedelta():
            return str(value)
        return [DURATION_FORMAT, to_excel(value)]

    if getattr(value, "tzinfo", None) is not None:
        return value.isoformat()
    if isinstance(value, time):
        return [TIME_FORMAT, to_excel(value)]

    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    if moment < FIRST_DAY:
        return value.isoformat()
    has_time = moment.time() != time()
    return [DATE_AND_TIME_FORMAT if has_time else DATE_FORMAT, to_excel(moment)]


# --- Titles and widths ----------------------------------------------------------------------------

# The name of a sheet without a name of its own.
TITLE = "predictions"
# The characters that the name of a sheet cannot have, and the largest number of characters.
_NOT_IN_TITLE = re.compile(r"[\\*?:/\[\]\x00-\x1f]")
MAX_TITLE = 31

# Column widths in characters: of a column of short values, and of a column of texts.
MIN_WIDTH = 8
MAX_WIDTH = 60
# The space beside a value, and for the button of the filter beside the name of a column.
PADDING = 2
FILTER_BUTTON = 3
# The number of first rows by which the widths of columns are chosen.
MEASURED_ROWS = 100


def sheet_title(name: str) -> str:
    """The name of a sheet, without what openpyxl and Excel refuse."""
    return _NOT_IN_TITLE.sub("_", name)[:MAX_TITLE] or TITLE


def column_width(name: str, values: Sequence[Cell]) -> int:
    """Choose the width of a column by its name and its first values."""
    longest = len(name) + FILTER_BUTTON
    for value in values:
        if isinstance(value, list):
            longest = max(longest, len(value[0]))
        elif isinstance(value, str):
            longest = max(longest, *map(len, value.split("\n")))
        elif value is not None and not isinstance(value, float):
            longest = max(longest, len(str(value)))
    return min(MAX_WIDTH, max(MIN_WIDTH, longest + PADDING))
