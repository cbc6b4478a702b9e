"""Write answers as Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from encoder_cls.bulk.formats import Answer, Table, encodable
from encoder_cls.bulk.inputs import ColumnTypes, Source
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import Explanation
from encoder_cls.errors import DataError
from encoder_cls.system.csv_cells import cell

# A row group is written once it has so many rows or bytes: few large groups are quick to read, but held in memory.
MOST_ROWS, MOST_BYTES = 1 << 16, 1 << 25
BATCH_ROWS = 2048  # read at once of a file whose columns are kept

TEXT, NUMBER = pyarrow.string(), pyarrow.float64()
WORD = pyarrow.struct([("word", TEXT), ("weight", NUMBER)])
TYPES = {
    **{
        "label": TEXT,
        "probability": NUMBER,
        "labels": pyarrow.list_(TEXT),
        "probabilities": pyarrow.list_(NUMBER),
    },
    **{
        "truncated": pyarrow.bool_(),
        "unknown_words": pyarrow.int64(),
        "unfamiliar": pyarrow.bool_(),
        "reason": TEXT,
    },
    **{"set": pyarrow.list_(TEXT), "answered_by": TEXT, "explanation": pyarrow.list_(WORD)},
}


class ParquetWriter(Table):
    """A row for each answer, after the kept columns, which keep their types if the input is Parquet."""

    def __init__(
        self, request: Request, classifier: Classifier, source: Source, columns: ColumnTypes
    ) -> None:
        super().__init__(request, classifier, source, columns)
        are_parquet = all(it.is_file() and it.suffix.lower() == ".parquet" for it in source.files)
        can_read_again = are_parquet and request.bad_rows != "skip"  # row by row beside the answers
        self._files = source.files if self.keep_columns and can_read_again else []
        kept = {} if self._files else columns
        self._schema_kept = pyarrow.schema(
            [(encodable(name), _arrow_type(seen)) for name, seen in kept.items()]
        )
        # `label_2` has the type of `label`.
        types = [
            TYPES[own if own in TYPES else own.rpartition("_")[0]] for own in self.answer_names
        ]
        self._schema_of_answers = pyarrow.schema(
            zip(map(encodable, self.answer_names.values()), types, strict=True)
        )

    def encode(self, answers: Sequence[Answer]) -> Any:
        """A table of the answers and, unless `content` reads them again, the kept columns."""
        schema = pyarrow.schema([*self._schema_kept, *self._schema_of_answers])
        kept = ([] if self._files else self.kept_values(answer.item) for answer in answers)
        rows = [
            [*before, *self.answer_values(answer)]
            for before, answer in zip(kept, answers, strict=True)
        ]
        arrays = [
            pyarrow.array(
                map(_as_text if field.type == TEXT else _as_stored, values), type=field.type
            )
            for field, values in zip(schema, zip(*rows, strict=True), strict=True)
        ]
        return pyarrow.table(arrays, schema=schema)

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The file, one group of rows after the other."""
        of_files = _ParquetColumns(self._files) if self._files else None
        schema = pyarrow.schema(
            [*(of_files.schema if of_files else self._schema_kept), *self._schema_of_answers]
        )
        file, waiting = _Buffer(), list[Any]()
        with pyarrow.parquet.ParquetWriter(
            pyarrow.PythonFile(file, mode="w"), schema, compression="zstd"
        ) as writer:
            for piece in pieces:
                kept = of_files.take(piece.num_rows) if of_files else []
                waiting.append(pyarrow.table([*kept, *piece.columns], schema=schema))
                if (
                    sum(it.num_rows for it in waiting) >= MOST_ROWS
                    or sum(it.nbytes for it in waiting) >= MOST_BYTES
                ):
                    writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MOST_ROWS)
                    waiting.clear()
                yield file.drain()
            if waiting:
                writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MOST_ROWS)
        yield file.drain()


class _Buffer(io.BytesIO):
    """A file in memory that is emptied again and again; pyarrow counts the positions itself."""

    def close(self) -> None:
        """Keep the end of the file, which pyarrow writes as it closes."""

    def drain(self) -> bytes:
        """Remove and return the bytes."""
        content = self.getvalue()
        self.seek(0)
        self.truncate()
        return content


class _ParquetColumns:
    """All columns of Parquet files with their types, read a second time beside the answers; null where missing."""

    def __init__(self, files: Sequence[Path]) -> None:
        schemas = [pyarrow.parquet.read_schema(file).remove_metadata() for file in files]
        try:
            self.schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise DataError(
                f"{files[0].parent}: the columns of these files do not fit together: {error}"
            ) from None
        self._batches = (
            pyarrow.Table.from_batches([batch])
            for file in files
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=BATCH_ROWS)
        )
        self._waiting: pyarrow.Table = self.schema.empty_table()

    def take(self, rows: int) -> list[Any]:
        """The columns of the next rows."""
        while self._waiting.num_rows < rows:
            self._waiting = pyarrow.concat_tables(
                [self._waiting, next(self._batches)], promote_options="permissive"
            )
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
    """The Arrow type for values of these types; text if they have several."""
    types = seen - {type(None)}
    if types == {bool}:
        return pyarrow.bool_()
    if types == {int}:
        return pyarrow.int64()
    return NUMBER if types in ({float}, {int, float}) else TEXT
