"""Read Parquet files with pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encoder_cls.data.reading.class_labels import class_names_of, with_class_names
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.content_errors import content_errors
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError
from encoder_cls.system.libraries import check_installed

PARQUET = ".parquet"
# Rows that are read at once, at most.
MOST_ROWS = 4096
# The bytes that rows read at once have on average: rows may be long.
BATCH_BYTES = 1 << 26


def parquet_header(path: Path) -> list[str]:
    """The names of the columns."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


def parquet_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows; integer labels become the class names of the `datasets` library."""
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        columns.checked(path, schema.names)
        class_names = _class_names(schema)

        wanted = None
        if not columns.every:
            wanted = columns.named
            if "id" in schema.names and "id" not in wanted:
                wanted = [*wanted, "id"]

        number = 0
        for batch in file.iter_batches(batch_size=rows_at_once(file.metadata), columns=wanted):
            for record in _without_nanoseconds(batch).to_pylist():
                number += 1
                where = SourceLocation(str(path), number)
                try:
                    named_record = with_class_names(record, class_names, where)
                except DataError as error:
                    reading.bad_row(error)
                    continue
                yield where, named_record


def rows_at_once(metadata: Any) -> int:
    """How many rows of a file to read at once, by their mean size without compression."""
    num_rows: int = metadata.num_rows
    num_bytes = 0
    for number in range(metadata.num_row_groups):
        num_bytes += metadata.row_group(number).total_byte_size

    affordable_rows = BATCH_BYTES * num_rows // max(1, num_bytes)
    return max(1, min(MOST_ROWS, affordable_rows))


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    check_installed("pyarrow", needed_by=str(path))
    import pyarrow.parquet

    with content_errors(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
        yield file


def _class_names(schema: Any) -> dict[str, list[str]]:
    """The class names of columns of integers, which only `datasets` writes."""
    try:
        return class_names_of(json.loads(schema.metadata[b"huggingface"])["info"]["features"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _without_nanoseconds(batch: Any) -> Any:
    """A batch with times in microseconds, which Python has; as text where that would lose digits.

    pyarrow converts nanoseconds to types of pandas, which may not be installed.
    """
    import pyarrow

    columns = []
    for column in batch.columns:
        has_nanoseconds = getattr(column.type, "unit", "") == "ns"
        if has_nanoseconds:
            columns.append(_in_microseconds(column))
        else:
            columns.append(column)
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _in_microseconds(column: Any) -> Any:
    import pyarrow

    kind = column.type
    is_duration = pyarrow.types.is_duration(kind)
    if pyarrow.types.is_timestamp(kind):
        shorter = pyarrow.timestamp("us", tz=kind.tz)
    elif is_duration:
        shorter = pyarrow.duration("us")
    else:
        shorter = pyarrow.time64("us")

    try:
        return column.cast(shorter)
    except pyarrow.ArrowInvalid:
        pass

    if is_duration:
        # It has no text of its own, so it becomes its number of nanoseconds.
        return column.cast(pyarrow.int64())
    return column.cast(pyarrow.string())
