"""Predictions as an Excel sheet: columns keep their types and widths, the header stays in view.

Rows are written one after the other to a temporary file, so that memory does not grow with their
number. Excel cannot append to such a file, so it is complete or not there.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from encoder_cls.bulk.input_texts import ColumnTypes, InputTexts
from encoder_cls.bulk.json_and_csv_formats import (
    Output,
    RowFormat,
    TableColumns,
    encodable,
    prediction_field,
)
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.excel import SheetLayout
from encoder_cls.data.reading.xlsx import MAX_COLUMNS, ColumnLayout
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.csv_cells import cell
from encoder_cls.system.display import counted
from encoder_cls.system.files import reporting_os_errors

# The largest number of rows of a sheet in Excel, without the row of the header.
MAX_ROWS = (1 << 20) - 1
# The largest number of UTF-16 code units in a cell of Excel.
MAX_CELL_UNITS = 32_767
# The number of digits of a number that Excel keeps.
MAX_DIGITS = 15
# The first day that Excel's calendar has right: it has a 29 February 1900.
FIRST_DAY = datetime(1900, 3, 1)

PROBABILITY_FORMAT = "0.000"
DATE_FORMAT = "yyyy-mm-dd"
DATE_AND_TIME_FORMAT = "yyyy-mm-dd hh:mm:ss"
TIME_FORMAT = "hh:mm:ss"
DURATION_FORMAT = "[h]:mm:ss"
# The format by which Excel shows a number as it is.
GENERAL = "General"
# The format of texts, such as codes that begin with zeros.
TEXT_FORMAT = "@"

# Column widths in characters: of a column of short values, and of a column of texts.
MIN_WIDTH = 8
MAX_WIDTH = 60
# The space beside a value, and for the button of the filter beside the name of a column.
PADDING = 2
FILTER_BUTTON = 3
# The number of first rows by which the widths of columns are chosen.
MEASURED_ROWS = 100

# Sheets of inputs without a sheet have this name.
TITLE = "predictions"
# The number of bytes of the file that are copied to the output at once.
COPIED_BYTES = 1 << 20

Cell = None | bool | int | float | str | list[Any]
"""A value that JSON can hold. A list is a format of numbers and a number: a date or a time."""


class ExcelFormat(RowFormat):
    """An Excel file with a sheet: the kept columns, then the prediction.

    The header is bold and stays in view, and each column has a filter. If the input is an Excel
    file, its columns keep their widths and the formats of their numbers and dates.

    Args:
        options: what the predictions contain.
        classifier: the classifier that makes the predictions.
        texts: the input.
        columns: the columns of the input to keep.
    """

    def __init__(
        self,
        options: PredictionOptions,
        classifier: Classifier,
        texts: InputTexts,
        columns: ColumnTypes,
    ) -> None:
        self._columns = TableColumns(options, classifier, columns, keeps_all=texts.keeps_columns)
        self._names = [*self._columns.kept, *self._columns.prediction_columns.values()]
        if len(self._names) > MAX_COLUMNS:
            raise DataError(
                f"the predictions have {len(self._names):,} columns, and a sheet of Excel has at "
                f"most {MAX_COLUMNS:,}: choose --no-keep-columns, or another --format"
            )

        self._layout = texts.sheet_layout() or SheetLayout(TITLE, {})
        # The number of texts that are longer than a cell.
        self._num_cut = 0

    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """The rows of the predictions for a chunk, each as a JSON array of the values."""
        rows = []
        for predicted in predicted_texts:
            values = [kept_cell(value) for value in self._columns.kept_values(predicted.row)]
            for value in self._columns.prediction_values(predicted):
                values.append(_prediction_cell(value))
            rows.append(json.dumps(values, ensure_ascii=False).encode())
        return rows

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Sequence[bytes]], object]]:
        """Write the rows of chunks to a sheet, and the whole file at the end of the block.

        Raises:
            DataError: there are more rows than a sheet has.
            EncoderClsError: the folder of temporary files has no room.
        """
        import openpyxl
        from openpyxl.utils import get_column_letter

        temporary_folder = Path(tempfile.gettempdir())
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet(sheet_title(self._layout.title))
        sheet.freeze_panes = "A2"
        cells = SheetCells(sheet, self._names, self._formats())
        num_rows = 0

        def write(rows: Sequence[bytes]) -> None:
            nonlocal num_rows
            values_of_rows = [json.loads(row) for row in rows]
            with reporting_os_errors(temporary_folder, "write the sheet"):
                if num_rows == 0:
                    self._begin(sheet, cells, values_of_rows)
                for values in values_of_rows:
                    sheet.append(cells.row(values))

            num_rows += len(rows)
            if num_rows > MAX_ROWS:
                raise DataError(
                    f"the input has {_more_than_a_sheet()}: save it as a file, which is counted "
                    "before any work, or choose --format csv"
                )

        try:
            yield write
        except BaseException:
            # Let openpyxl close its temporary file.
            with suppress(OSError):
                sheet.close()
            raise

        with reporting_os_errors(temporary_folder, "write the sheet"):
            if num_rows == 0:
                self._begin(sheet, cells, [])
            last_column = get_column_letter(max(1, len(self._names)))
            sheet.auto_filter.ref = f"A1:{last_column}{num_rows + 1}"
            file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the next block
        with file:
            with reporting_os_errors(temporary_folder, "write the sheet"):
                save_workbook(book, file)
            file.seek(0)
            for block in iter(lambda: file.read(COPIED_BYTES), b""):
                output.write(block)
        self._num_cut = cells.num_cut

    def warnings(self) -> Iterator[str]:
        """A warning if texts were cut."""
        if self._num_cut:
            yield (
                f"warning: {counted(self._num_cut, 'cell')} cut, since a cell of Excel has at most "
                f"{MAX_CELL_UNITS:,} characters; the predictions are for the whole texts"
            )

    def _formats(self) -> list[str]:
        """The format of the numbers of each column."""
        formats = []
        for name in self._columns.kept:
            column = self._layout.columns.get(name, ColumnLayout())
            formats.append(column.number_format or GENERAL)
        for usual_name in self._columns.prediction_columns:
            is_probability = usual_name.startswith("probability")
            formats.append(PROBABILITY_FORMAT if is_probability else GENERAL)
        return formats

    def _begin(self, sheet: Any, cells: SheetCells, first_rows: Sequence[Sequence[Cell]]) -> None:
        """Set the widths of the columns, and write the header."""
        from openpyxl.utils import get_column_letter

        for number, name in enumerate(self._names, start=1):
            column = self._layout.columns.get(name, ColumnLayout())
            width = column.width
            if width is None:
                values = [row[number - 1] for row in first_rows[:MEASURED_ROWS]]
                width = column_width(name, values)
            sheet.column_dimensions[get_column_letter(number)].width = width
        sheet.append(cells.header())


# The beginnings of texts that a spreadsheet, or openpyxl, could take for a formula or an error.
_NOT_PLAIN = ("=", "+", "-", "@", "#")


# The date of all parts of a file, and of its creation, so that equal predictions are equal files.
# It is the first one that a ZIP archive can have.
DATE = datetime(1980, 1, 1)


def save_workbook(book: Any, file: BinaryIO) -> None:
    """Write a workbook to an open file."""
    from openpyxl.writer.excel import ExcelWriter

    book.properties.created = DATE
    book.properties.modified = DATE
    # The writer closes the archive.
    ExcelWriter(book, _Archive(file, "w")).save()


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


class SheetCells:
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


def check_rows_fit(texts: InputTexts) -> None:
    """Check, before any work, that the rows of an input fit into a sheet.

    Raises:
        ConfigError: there are more rows than a sheet has.
        DataError: a file is malformed.
    """
    with Progress(texts.files, doing="counted") as progress:
        is_too_long = texts.has_more_rows_than(MAX_ROWS, progress)
    if is_too_long:
        raise ConfigError(
            f"--format xlsx: {texts.source} has {_more_than_a_sheet()}; choose --format csv or "
            "parquet, or split the input and name a folder as --output"
        )


def _more_than_a_sheet() -> str:
    return f"more than {MAX_ROWS:,} rows, which is all that a sheet of Excel holds"


# Values as cells


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


def _prediction_cell(value: Any) -> Cell:
    """A value of a prediction as a cell: numbers and truth values as they are, all else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return encodable(prediction_field(value))


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


# The characters that the name of a sheet cannot have, and the largest number of characters.
_NOT_IN_TITLE = re.compile(r"[\\*?:/\[\]\x00-\x1f]")
MAX_TITLE = 31


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
