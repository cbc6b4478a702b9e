"""Write answers as Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from encoder_cls.answers.classify import Answer
from encoder_cls.answers.formats import Table, Writer, encodable
from encoder_cls.answers.inputs import Columns
from encoder_cls.errors import DataError
from encoder_cls.inference.explain import Explanation
from encoder_cls.system.display import cell

# A group of rows is written once it has so many rows or bytes: few large groups are quick to read, and all of one is in
# memory.
MOST_ROWS, MOST_BYTES = 1 << 16, 1 << 25
BATCH_ROWS = 2048  # read at once of a file whose columns are kept

TEXT, NUMBER = pyarrow.string(), pyarrow.float64()
WORD = pyarrow.struct([("word", TEXT), ("weight", NUMBER)])
TYPES = {
    **{"label": TEXT, "probability": NUMBER, "labels": pyarrow.list_(TEXT), "probabilities": pyarrow.list_(NUMBER)},
    **{"truncated": pyarrow.bool_(), "unknown_words": pyarrow.int64(), "unfamiliar": pyarrow.bool_(), "reason": TEXT},
    **{"set": pyarrow.list_(TEXT), "answered_by": TEXT, "explanation": pyarrow.list_(WORD)},
}


class ParquetWriter(Writer):
    """A row for each answer, behind the columns taken over; those of Parquet `files` keep their types."""

    def __init__(self, table: Table, columns: Columns, files: Sequence[Path]) -> None:
        self._table = table
        is_parquet = table.keep_columns and files and all(file.suffix.lower() == ".parquet" for file in files)
        self._files = files if is_parquet else []
        taken_over = () if is_parquet else table.taken_over
        self._kept = pyarrow.schema([(encodable(name), _arrow_type(columns[name])) for name in taken_over])
        names = table.answer_names  # `label_2` is a label
        types = [TYPES[own if own in TYPES else own.rpartition("_")[0]] for own in names]
        self._of_answers = pyarrow.schema(zip(map(encodable, names.values()), types, strict=True))

    def encode(self, answers: Sequence[Answer]) -> Any:
        """All columns but those of `files`."""
        schema, table = pyarrow.schema([*self._kept, *self._of_answers]), self._table
        kept = ([] if self._files else table.values_taken_over(answer.item) for answer in answers)
        rows = [[*before, *table.values_of_answer(answer)] for before, answer in zip(kept, answers, strict=True)]
        arrays = [
            pyarrow.array(map(_as_text if field.type == TEXT else _as_stored, values), type=field.type)
            for field, values in zip(schema, zip(*rows, strict=True), strict=True)
        ]
        return pyarrow.table(arrays, schema=schema)

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The file, a group of rows after the other."""
        of_files = _ParquetColumns(self._files) if self._files else None
        schema = pyarrow.schema([*(of_files.schema if of_files else self._kept), *self._of_answers])
        file = _Buffer()
        with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(file, mode="w"), schema, compression="zstd") as writer:
            waiting: list[Any] = []
            for piece in pieces:
                kept = of_files.take(piece.num_rows) if of_files else []
                waiting.append(pyarrow.table([*kept, *piece.columns], schema=schema))
                if sum(it.num_rows for it in waiting) >= MOST_ROWS or sum(it.nbytes for it in waiting) >= MOST_BYTES:
                    writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MOST_ROWS)
                    waiting = []
                yield file.drain()
            if waiting:
                writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MOST_ROWS)
        yield file.drain()


class _Buffer(io.BytesIO):
    """A file of the bytes that are still to be passed on; pyarrow counts the positions itself."""

    def close(self) -> None:
        """Keep the end of the file, which pyarrow writes as it closes."""

    def drain(self) -> bytes:
        """Remove and return the bytes."""
        content = self.getvalue()
        self.seek(0)
        self.truncate()
        return content


class _ParquetColumns:
    """All columns of Parquet files as they are, read once more beside the texts; a column that one lacks is null."""

    def __init__(self, files: Sequence[Path]) -> None:
        schemas = [pyarrow.parquet.read_schema(file).remove_metadata() for file in files]
        try:
            self.schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise DataError(f"{files[0].parent}: the columns of these files do not fit together: {error}") from None
        self._batches = (
            pyarrow.Table.from_batches([batch])
            for file in files
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=BATCH_ROWS)
        )
        self._waiting: pyarrow.Table = self.schema.empty_table()

    def take(self, rows: int) -> list[Any]:
        """The columns of so many next rows."""
        while self._waiting.num_rows < rows:
            tables = [self._waiting, next(self._batches)]
            self._waiting = pyarrow.concat_tables(tables, promote_options="permissive")
        taken = self._waiting.slice(0, rows)
        self._waiting = self._waiting.slice(rows)
        return list(taken.columns)


def _as_text(value: Any) -> str | None:
    return None if value is None else encodable(cell(value))


def _as_stored(value: Any) -> Any:
    if isinstance(value, Explanation):
        return [{"word": encodable(it.word), "weight": it.weight} for it in value]
    if isinstance(value, list):
        return [_as_stored(item) for item in value]
    return encodable(value) if isinstance(value, str) else value


def _arrow_type(seen: set[type]) -> Any:
    """The type of a column with values of these types; of several types, text."""
    types = seen - {type(None)}
    if types == {bool}:
        return pyarrow.bool_()
    if types == {int}:
        return pyarrow.int64()
    return NUMBER if types in ({float}, {int, float}) else TEXT
