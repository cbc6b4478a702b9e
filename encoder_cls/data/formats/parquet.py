"""Read Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encoder_cls.data.rows import Columns, Reading, Record, SourceLocation, class_names_in, with_class_names
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import shown

ROWS_AT_ONCE = 4096


def parquet_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """The rows, with their numbers; integer labels become the class names of the `datasets` library."""
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        columns.checked(path, schema.names)
        wanted = [*columns.named, *({"id"} & set(schema.names) - set(columns.named))]
        names = class_names_in(schema.metadata)
        number, name = 0, str(path)
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=None if columns.every else wanted):
            for record in batch.to_pylist():
                number += 1
                where = SourceLocation(name, number)
                try:
                    named = with_class_names(record, names, where)
                except DataError as error:
                    reading.bad_row(error)
                    continue
                yield where, named


def parquet_header(path: Path) -> list[str]:
    """The names of the columns."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file; whatever Arrow raises about its content becomes a DataError."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f"{path}: Parquet files need pyarrow: pip install pyarrow") from None

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # the disk's; all others are about the content, the middle two about values Python cannot hold
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(path, f"not a readable Parquet file: {shown(reason, limit=200)[1:-1]}") from None
