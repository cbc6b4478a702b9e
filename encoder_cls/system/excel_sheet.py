"""A new Excel file with one sheet.

Rows go to a temporary file, so that memory does not grow; Excel cannot append, so the file is
complete or not there.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from encoder_cls.system.csv_cells import cell
from encoder_cls.system.encodings import encodable
from encoder_cls.system.number_formats import (
    NumberFormat,
    is_padded_number,
    number_format_of,
)

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

# The date of all parts of a file, and of its creation, so that equal predictions are equal files.
DATE = datetime(1980, 1, 1)
# The beginnings of texts that a spreadsheet could take for a formula or an error.
_NOT_PLAIN = ("=", "+", "-", "@", "#")


@contextmanager
def new_sheet(title: str, names: Sequence[str], formats: Sequence[str]) -> Iterator[Sheet]:
    """Begin a file in a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder:
        sheet = Sheet(Path(folder), title, names, formats)
        try:
            yield sheet
        finally:
            sheet.close()


class Sheet:
    """A new Excel file with one sheet, to which rows are appended.

    The header is bold and stays in view, and each column has a filter. `formats` are of numbers by
    column; `num_cut` counts texts cut to the length of a cell.
    """

    def __init__(
        self, folder: Path, title: str, names: Sequence[str], formats: Sequence[str]
    ) -> None:
        from xlsxwriter import Workbook

        self._path = folder / "sheet.xlsx"
        options = {"constant_memory": True, "tmpdir": str(folder), "use_zip64": True}
        self._book = Workbook(str(self._path), options)
        self._book.set_properties({"created": DATE})
        self._sheet = self._book.add_worksheet(sheet_title(title))
        self._names = names
        self._formats = [number_format_of(code) for code in formats]
        self._styles: dict[str, Any] = {}
        self._marked = self._book.add_format({"quote_prefix": True})
        self.num_rows = 0
        self.num_cut = 0

    def begin(self, widths: Sequence[float]) -> None:
        """Set the widths of columns, in characters, and write the header."""
        bold = self._book.add_format({"bold": True})
        self._sheet.freeze_panes(1, 0)
        for column, (name, width) in enumerate(zip(self._names, widths, strict=True)):
            self._sheet.set_column_pixels(column, column, round(width * PIXELS_OF_DIGIT))
            self._sheet.write_string(0, column, self._shortened(name), bold)

    def append(self, values: Sequence[Cell]) -> None:
        """Write a row."""
        self.num_rows += 1
        for column, (value, number_format) in enumerate(zip(values, self._formats, strict=True)):
            self._write(column, value, number_format)

    def save(self) -> Path:
        """Complete the file; an `OSError` if there is no room for it."""
        from xlsxwriter.exceptions import FileCreateError

        self._sheet.autofilter(0, 0, self.num_rows, max(0, len(self._names) - 1))
        try:
            self._book.close()
        except FileCreateError as error:
            # It wraps the error of the system.
            raise error.args[0] from None
        return self._path

    def close(self) -> None:
        """Close the file of the rows, which XlsxWriter leaves open if the work ends early."""
        # Where there is no room for the last rows, writing them has failed already.
        with suppress(OSError):
            self._sheet._opt_close()

    def _write(self, column: int, value: Cell, number_format: NumberFormat) -> None:
        if value is None:
            return
        if isinstance(value, str):
            self._write_text(column, value, number_format)
        elif isinstance(value, bool):
            self._sheet.write_boolean(self.num_rows, column, value)
        elif isinstance(value, list):
            # A date has the format of its column, unless that shows dates as numbers.
            usual_code, number = value
            code = number_format.code if number_format.is_time else usual_code
            self._write_number(column, number, code)
        else:
            code = GENERAL if number_format.is_time else number_format.code
            self._write_number(column, value, code)

    def _write_number(self, column: int, number: float, code: str) -> None:
        self._sheet.write_number(self.num_rows, column, number, self._style(code))

    def _write_text(self, column: int, text: str, number_format: NumberFormat) -> None:
        short = self._shortened(text)
        if is_padded_number(short, number_format):
            # Reading has filled it up by zeros, as the sheet shows it.
            self._write_number(column, int(short), number_format.code)
        elif short.startswith(_NOT_PLAIN):
            # A spreadsheet then keeps the text a text, also when a person edits the cell.
            self._sheet.write_string(self.num_rows, column, short, self._marked)
        elif short:
            code = TEXT_FORMAT if number_format.code == TEXT_FORMAT else GENERAL
            self._sheet.write_string(self.num_rows, column, short, self._style(code))

    def _style(self, code: str) -> Any:
        if code == GENERAL:
            return None
        if code not in self._styles:
            self._styles[code] = self._book.add_format({"num_format": code})
        return self._styles[code]

    def _shortened(self, text: str) -> str:
        plain = text.replace("\r\n", "\n").replace("\r", "\n")
        short = _cut(plain)
        if short != plain:
            self.num_cut += 1
        return short if short.isascii() else _NOT_IN_XML.sub("\ufffd", short)


# The characters that XML cannot contain, without the control characters, which have escapes.
_NOT_IN_XML = re.compile("[\ufffe\uffff]")
# The largest number of UTF-16 code units in a cell of Excel.
MAX_CELL_UNITS = 32_767


def _cut(text: str) -> str:
    # A character takes at most two UTF-16 code units.
    if 2 * len(text) <= MAX_CELL_UNITS:
        return text
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * MAX_CELL_UNITS:
        return text
    # The cut may be within a character.
    kept = encoded[: 2 * (MAX_CELL_UNITS - 1)].decode("utf-16-le", "ignore")
    return f"{kept}…"


# --- Values ---------------------------------------------------------------------------------------

# The number of digits of a number that Excel keeps.
MAX_DIGITS = 15
# The first day that Excel's calendar has right: it has a 29 February 1900.
FIRST_DAY = datetime(1900, 3, 1)
# The day that has the number 0 if those from then on are counted.
DAY_0 = datetime(1899, 12, 30)
DAY = timedelta(days=1)


def kept_cell(value: Any) -> Cell:
    """A cell of the same type, or a text if Excel has no such type."""
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
    """A number; a text if Excel would round it, as long account numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)

    written = f"{value:f}" if isinstance(value, Decimal) else str(value)
    digits = written.lstrip("-").replace(".", "").strip("0")
    is_too_large = not -sys.float_info.max <= value <= sys.float_info.max
    if len(digits) > MAX_DIGITS or is_too_large:
        return written
    return value if isinstance(value, int) else float(value)


def _time_or_text(value: date | time | timedelta) -> Cell:
    """Excel's number of days for a date or a time, with a format.

    A date outside Excel's calendar, and a time with a time zone, are texts.
    """
    if isinstance(value, timedelta):
        if value < timedelta():
            return str(value)
        return [DURATION_FORMAT, value / DAY]

    if getattr(value, "tzinfo", None) is not None:
        return value.isoformat()
    if isinstance(value, time):
        return [TIME_FORMAT, (datetime.combine(FIRST_DAY, value) - FIRST_DAY) / DAY]

    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    if moment < FIRST_DAY:
        return value.isoformat()
    has_time = moment.time() != time()
    return [DATE_AND_TIME_FORMAT if has_time else DATE_FORMAT, (moment - DAY_0) / DAY]


# --- Titles and widths ----------------------------------------------------------------------------

# The name of a sheet without a name of its own.
TITLE = "predictions"
# The characters that the name of a sheet cannot have, and the largest number of UTF-16 code units.
_NOT_IN_TITLE = re.compile(r"[\\*?:/\[\]\x00-\x1f]")
MAX_TITLE = 31

# Column widths in characters: of a column of short values, and of a column of texts.
MIN_WIDTH = 8
MAX_WIDTH = 60
# The pixels of a character of that width in the usual font.
PIXELS_OF_DIGIT = 7
# The space beside a value, and for the button of the filter beside the name of a column.
PADDING = 2
FILTER_BUTTON = 3
# The number of first rows by which the widths of columns are chosen.
MEASURED_ROWS = 100


def sheet_title(name: str) -> str:
    """A name without what Excel refuses."""
    plain = _NOT_IN_TITLE.sub("_", name).encode("utf-16-le", "replace")
    return plain[: 2 * MAX_TITLE].decode("utf-16-le", "ignore").strip("'") or TITLE


def column_width(name: str, values: Sequence[Cell]) -> int:
    """The width for a name and the first values."""
    longest = len(name) + FILTER_BUTTON
    for value in values:
        if isinstance(value, list):
            longest = max(longest, len(value[0]))
        elif isinstance(value, str):
            longest = max(longest, *map(len, value.split("\n")))
        elif value is not None and not isinstance(value, float):
            longest = max(longest, len(str(value)))
    return min(MAX_WIDTH, max(MIN_WIDTH, longest + PADDING))
