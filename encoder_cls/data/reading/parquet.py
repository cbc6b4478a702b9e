"""Read Parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encoder_cls.data.reading.arrow import batch_records, class_names_in
from encoder_cls.data.reading.class_labels import with_class_names
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError
from encoder_cls.system.content_errors import content_errors
from encoder_cls.system.encodings import SKIP
from encoder_cls.system.libraries import check_installed


def parquet_header(path: Path, _columns: Sequence[str], _reading: Reading) -> list[str]:
    """The names of the columns."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


def parquet_records(path: Path, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Integer labels of `datasets` become class names."""
    with _open_parquet(path) as file:
        import pyarrow

        schema = file.schema_arrow
        columns.checked(path, schema.names)
        class_names = class_names_in(schema)

        wanted = columns.to_read(schema.names)
        batch_size = rows_at_once(file.metadata)

        first_number = 1
        for batch in file.iter_batches(batch_size=batch_size, columns=wanted):
            rows = [row for row in range(batch.num_rows) if not reading.leaves_out_row()]
            chosen = batch
            if len(rows) < batch.num_rows:
                chosen = batch.take(pyarrow.array(rows, pyarrow.int64()))

            for row, record in zip(rows, batch_records(chosen), strict=True):
                where = SourceLocation(str(path), first_number + row)
                if isinstance(record, str):
                    reading.bad_row(DataError(where, record, SKIP))
                    continue
                try:
                    named_record = with_class_names(record, class_names, where)
                except DataError as error:
                    reading.bad_row(error)
                    continue
                yield where, named_record
            first_number += batch.num_rows


def count_parquet_rows(path: Path) -> int:
    """The number of rows in a file's metadata."""
    import pyarrow.parquet

    num_rows: int = pyarrow.parquet.read_metadata(path).num_rows
    return num_rows


# The largest number of rows that are read at once.
MAX_ROWS = 4096
# The number of bytes that the rows read at once should have on average, since rows may be long.
BATCH_BYTES = 1 << 26


def rows_at_once(metadata: Any) -> int:
    """How many rows to read at once, by their uncompressed size."""
    num_rows: int = metadata.num_rows
    num_bytes = 0
    for number in range(metadata.num_row_groups):
        num_bytes += metadata.row_group(number).total_byte_size

    affordable_rows = BATCH_BYTES * num_rows // max(1, num_bytes)
    return max(1, min(MAX_ROWS, affordable_rows))


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    check_installed("pyarrow", needed_by=str(path))
    import pyarrow.parquet

    with content_errors(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
        yield file


PARQUET = Format(
    ending=".parquet",
    records=parquet_records,
    header=parquet_header,
    count_rows=count_parquet_rows,
    has_fixed_columns=True,
)
