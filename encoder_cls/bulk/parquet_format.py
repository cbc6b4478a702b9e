"""Predictions as a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from encoder_cls.bulk.input_texts import ColumnTypes, InputTexts, column_type
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_format import Output, PredictionFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.table_columns import TableColumns
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import Explanation
from encoder_cls.errors import DataError
from encoder_cls.system.csv_cells import cell
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import encodable

# The maximum numbers of rows and bytes of a row group, which is held in memory until it is
# written. Files with few large groups are fast to read.
MAX_ROWS = 1 << 16
MAX_BYTES = 1 << 25
# The number of rows that are read at once from a file whose columns are copied.
BATCH_ROWS = 2048

TEXT = pyarrow.string()
NUMBER = pyarrow.float64()
WORD = pyarrow.struct([("word", TEXT), ("weight", NUMBER)])
# The Arrow types of the columns of predictions by their usual names.
TYPES = {
    "label": TEXT,
    "name": TEXT,
    "level": TEXT,
    "probability": NUMBER,
    "labels": pyarrow.list_(TEXT),
    "probabilities": pyarrow.list_(NUMBER),
    "withheld": pyarrow.bool_(),
    "withheld_labels": pyarrow.list_(TEXT),
    "truncated": pyarrow.bool_(),
    "unknown_words": pyarrow.int64(),
    "unfamiliar": pyarrow.bool_(),
    "reason": TEXT,
    "set": pyarrow.list_(TEXT),
    "answered_by": TEXT,
    "explanation": pyarrow.list_(WORD),
}


class ParquetFormat(PredictionFormat):
    """A Parquet file; columns of Parquet files are copied, so that they keep their types."""

    def __init__(
        self,
        options: PredictionOptions,
        classifier: Classifier,
        texts: InputTexts,
        columns: ColumnTypes,
    ) -> None:
        self._columns = TableColumns(options, classifier, columns, keeps_all=texts.keeps_columns)
        self._copied_files = texts.files_to_read_again()

        kept_fields = []
        if not self._copied_files:
            for name, types in columns.items():
                kept_fields.append((encodable(name), _arrow_type(types)))
        self._kept_schema = pyarrow.schema(kept_fields)

        prediction_fields = []
        for usual_name, name in self._columns.prediction_columns.items():
            prediction_fields.append((encodable(name), type_of_column(usual_name)))
        self._prediction_schema = pyarrow.schema(prediction_fields)

    def encode(self, predicted_texts: Sequence[PredictedText]) -> Any:
        """Make a table, with kept columns unless they are copied from files.

        Raises:
            DataError: a kept column cannot hold a value.
        """
        rows = []
        for predicted in predicted_texts:
            row = self._columns.prediction_values(predicted)
            if not self._copied_files:
                row = [*self._columns.kept_values(predicted.row), *row]
            rows.append(row)

        schema = pyarrow.schema([*self._kept_schema, *self._prediction_schema])
        columns = list(zip(*rows, strict=True))
        # The kept columns come first, so `zip` ends before the columns of the prediction.
        for field, values in zip(self._kept_schema, columns, strict=False):
            _check_types(field, values)

        arrays = []
        for field, values in zip(schema, columns, strict=True):
            convert = _as_text if field.type == TEXT else _as_stored
            arrays.append(pyarrow.array(map(convert, values), type=field.type))
        return pyarrow.table(arrays, schema=schema)

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Any], object]]:
        """Write the tables of chunks in large row groups.

        Raises:
            DataError: the columns to copy do not fit together.
        """
        copied = None
        kept_schema = self._kept_schema
        if self._copied_files:
            copied = _CopiedColumns(self._copied_files)
            kept_schema = copied.schema
        schema = pyarrow.schema([*kept_schema, *self._prediction_schema])

        buffer = _Buffer()
        waiting: list[Any] = []
        with pyarrow.parquet.ParquetWriter(
            pyarrow.PythonFile(buffer, mode="w"), schema, compression="zstd"
        ) as writer:

            def write_waiting() -> None:
                writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MAX_ROWS)
                waiting.clear()

            def write(table: Any) -> None:
                kept = copied.take(table.num_rows) if copied else []
                waiting.append(pyarrow.table([*kept, *table.columns], schema=schema))
                num_rows = sum(part.num_rows for part in waiting)
                num_bytes = sum(part.nbytes for part in waiting)
                if num_rows >= MAX_ROWS or num_bytes >= MAX_BYTES:
                    write_waiting()
                output.write(buffer.drain())

            yield write

            if waiting:
                write_waiting()
        output.write(buffer.drain())


class _Buffer(io.BytesIO):
    """A file in memory that is emptied after each write; pyarrow counts its position itself."""

    def close(self) -> None:
        """Keep the bytes that pyarrow writes last, which are drained after it closes."""

    def drain(self) -> bytes:
        content = self.getvalue()
        self.seek(0)
        self.truncate()
        return content


class _CopiedColumns:
    """The columns of Parquet files, read again; null where a file lacks one."""

    def __init__(self, files: Sequence[Path]) -> None:
        schemas = [pyarrow.parquet.read_schema(file).remove_metadata() for file in files]
        try:
            self.schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise DataError(
                f"{files[0].parent}: the columns of these files do not fit together: {error}"
            ) from None
        self._batches = _batches(files)
        self._waiting: pyarrow.Table = self.schema.empty_table()

    def take(self, num_rows: int) -> list[Any]:
        while self._waiting.num_rows < num_rows:
            self._waiting = pyarrow.concat_tables(
                [self._waiting, next(self._batches)], promote_options="permissive"
            )
        taken = self._waiting.slice(0, num_rows)
        self._waiting = self._waiting.slice(num_rows)
        return list(taken.columns)


def _batches(files: Sequence[Path]) -> Iterator[Any]:
    for file in files:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=BATCH_ROWS):
            yield pyarrow.Table.from_batches([batch])


def _check_types(field: Any, values: Sequence[Any]) -> None:
    """Raise a `DataError` for values that pyarrow would change: 1.5 to 1 in whole numbers."""
    types = {column_type(value) for value in values} - {type(None)}
    are_numbers = field.type == NUMBER and types <= {int, float}
    if not types or field.type == TEXT or are_numbers or _arrow_type(types) == field.type:
        return

    raise DataError(
        f"column {shown(field.name)} has values of other types than in the first rows, and the "
        "input can be read only once: save it as a file, or choose --format jsonl"
    )


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return encodable(cell(value))


def _as_stored(value: Any) -> Any:
    if isinstance(value, Explanation):
        return [{"word": encodable(word.word), "weight": word.weight} for word in value]
    if isinstance(value, list):
        return [_as_stored(part) for part in value]
    if isinstance(value, str):
        return encodable(value)
    return value


def type_of_column(usual_name: str) -> Any:
    """The Arrow type of a column of predictions; `label_2` has that of `label`."""
    if usual_name in TYPES:
        return TYPES[usual_name]
    name_without_rank, _, _ = usual_name.rpartition("_")
    return TYPES[name_without_rank]


def _arrow_type(types: set[type]) -> Any:
    """The type for values of these types; text if no other can hold all."""
    types = types - {type(None)}
    if types == {bool}:
        return pyarrow.bool_()
    if types == {int}:
        return pyarrow.int64()
    if types in ({float}, {int, float}):
        return NUMBER
    return TEXT
