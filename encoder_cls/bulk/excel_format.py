"""Predictions as an Excel sheet: columns keep their types and widths."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encoder_cls.bulk.input_texts import ColumnTypes, InputTexts
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_format import Output, RowFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.table_columns import TableColumns, prediction_field
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.excel import SheetLayout
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import counted
from encoder_cls.system.encodings import encodable
from encoder_cls.system.excel_sheet import (
    GENERAL,
    MAX_CELL_UNITS,
    MAX_ROWS,
    MEASURED_ROWS,
    PROBABILITY_FORMAT,
    TITLE,
    Cell,
    column_width,
    kept_cell,
    new_sheet,
)
from encoder_cls.system.files import reporting_os_errors
from encoder_cls.system.xlsx import MAX_COLUMNS, ColumnLayout

# The number of bytes that are copied at once.
COPIED_BYTES = 1 << 20


class ExcelFormat(RowFormat):
    """An Excel file; columns of an Excel input keep their widths and formats."""

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
        """Encode rows as JSON arrays."""
        rows = []
        for predicted in predicted_texts:
            values = [kept_cell(value) for value in self._columns.kept_values(predicted.row)]
            for value in self._columns.prediction_values(predicted):
                values.append(_prediction_cell(value))
            rows.append(json.dumps(values, ensure_ascii=False).encode())
        return rows

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Sequence[bytes]], object]]:
        """Write rows to a sheet, and the whole file at the end of the block.

        Raises:
            DataError: there are more rows than a sheet has.
            EncoderClsError: the folder of temporary files has no room.
        """
        temporary_folder = Path(tempfile.gettempdir())
        with new_sheet(self._layout.title, self._names, self._formats()) as sheet:

            def write(rows: Sequence[bytes]) -> None:
                values_of_rows = [json.loads(row) for row in rows]
                with reporting_os_errors(temporary_folder, "write the sheet"):
                    if not sheet.num_rows:
                        sheet.begin(self._widths(values_of_rows))
                    for values in values_of_rows:
                        sheet.append(values)

                if sheet.num_rows > MAX_ROWS:
                    raise DataError(
                        f"the input has {_more_than_a_sheet()}: save it as a file, which is "
                        "counted before any work, or choose --format csv"
                    )

            yield write

            with reporting_os_errors(temporary_folder, "write the sheet"):
                if not sheet.num_rows:
                    sheet.begin(self._widths([]))
                path = sheet.save()
            with path.open("rb") as file:
                for block in iter(lambda: file.read(COPIED_BYTES), b""):
                    output.write(block)
            self._num_cut = sheet.num_cut

    def warnings(self) -> Iterator[str]:
        """Warn of texts that were cut."""
        if self._num_cut:
            yield (
                f"warning: {counted(self._num_cut, 'cell')} cut, since a cell of Excel has at most "
                f"{MAX_CELL_UNITS:,} characters; the predictions are for the whole texts"
            )

    def _formats(self) -> list[str]:
        formats = []
        for name in self._columns.kept:
            column = self._layout.columns.get(name, ColumnLayout())
            formats.append(column.number_format or GENERAL)
        for usual_name in self._columns.prediction_columns:
            is_probability = usual_name.startswith("probability")
            formats.append(PROBABILITY_FORMAT if is_probability else GENERAL)
        return formats

    def _widths(self, first_rows: Sequence[Sequence[Cell]]) -> list[float]:
        widths: list[float] = []
        for number, name in enumerate(self._names):
            width = self._layout.columns.get(name, ColumnLayout()).width
            if width is None:
                values = [row[number] for row in first_rows[:MEASURED_ROWS]]
                width = column_width(name, values)
            widths.append(width)
        return widths


def _prediction_cell(value: Any) -> Cell:
    if value is None or isinstance(value, bool | int | float):
        return value
    return encodable(prediction_field(value))


def check_rows_fit(texts: InputTexts) -> None:
    """Check, before any work, that the rows of an input fit into a sheet.

    Raises:
        ConfigError: they do not.
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
