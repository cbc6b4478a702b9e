"""Write answers as Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_cls.answers.tables import Answer, Table, cell, encodable
from encoder_cls.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow

    from encoder_cls.answers.inputs import Columns

# A group of rows is written once it has so many rows or bytes: few large groups are quick to read, and all of one is in
# memory.
MOST_ROWS, MOST_BYTES = 1 << 16, 1 << 25
BATCH_ROWS = 2048  # read at once of a file whose columns are kept


def check_pyarrow() -> None:
    """Make sure that Parquet files can be written.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401 - whether it can be
    except ImportError:
        raise ConfigError("--format parquet: needs pyarrow: pip install pyarrow") from None


def parquet_bytes(
    answers: Iterable[Sequence[Answer]], table: Table, columns: Columns, files: Sequence[Path]
) -> Iterator[bytes]:
    """The parts of a file with a row for each answer.

    Args:
        answers: chunks of them.
        table: which columns there are.
        columns: the types of the columns that are taken over.
        files: what the answers are of; of Parquet files the columns that are kept have the types that they have there.
    """
    import pyarrow
    import pyarrow.parquet

    kept: _KeptColumns | _ParquetColumns
    if table.keep_columns and files and all(file.suffix.lower() == ".parquet" for file in files):
        kept = _ParquetColumns(files)
    else:
        kept = _KeptColumns(table, columns)
    of_answers = pyarrow.schema(_answer_fields(table))
    schema = pyarrow.schema([*kept.schema, *of_answers])
    file = _Drained()
    with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(file, mode="w"), schema, compression="zstd") as writer:
        waiting: list[Any] = []
        for chunk in answers:
            values = zip(*map(table.values_of_answer, chunk), strict=True)
            arrays = [
                pyarrow.array(map(_as_stored, value), type=field.type)
                for value, field in zip(values, of_answers, strict=False)
            ]
            arrays += [_explanations(chunk, of_answers[-1].type)] if table.explained else []
            waiting.append(pyarrow.table([*kept.take(chunk), *arrays], schema=schema))
            if sum(it.num_rows for it in waiting) >= MOST_ROWS or sum(it.nbytes for it in waiting) >= MOST_BYTES:
                writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MOST_ROWS)
                waiting = []
            yield file.drain()
        if waiting:
            writer.write_table(pyarrow.concat_tables(waiting), row_group_size=MOST_ROWS)
    yield file.drain()


class _Drained(io.RawIOBase):
    """A file that is written to and hands on what it got; it cannot be read or gone back in."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, content: Any) -> int:
        self._parts.append(bytes(content))
        self._position += len(self._parts[-1])
        return len(self._parts[-1])

    def close(self) -> None:
        """Nothing is lost by it: what was written can still be had."""

    def drain(self) -> bytes:
        """What has been written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _KeptColumns:
    """Columns that are taken over as values of Python, `id` among them."""

    def __init__(self, table: Table, columns: Columns) -> None:
        import pyarrow

        self._table = table
        self.schema = pyarrow.schema([(encodable(name), _arrow_type(columns[name])) for name in table.taken_over])

    def take(self, chunk: Sequence[Answer]) -> list[Any]:
        """The columns of these rows."""
        import pyarrow

        rows = [self._table.values_taken_over(answer.item) for answer in chunk]
        arrays = []
        for values, field in zip(zip(*rows, strict=True), self.schema, strict=True):
            is_text = pyarrow.types.is_string(field.type)
            texts = [None if value is None else encodable(cell(value)) for value in values] if is_text else values
            arrays.append(pyarrow.array(texts, type=field.type))
        return arrays


class _ParquetColumns:
    """All columns of Parquet files as they are, read once more beside the texts; a column that one lacks is null."""

    def __init__(self, files: Sequence[Path]) -> None:
        import pyarrow
        import pyarrow.parquet

        schemas = [pyarrow.parquet.read_schema(file).remove_metadata() for file in files]
        try:
            self.schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise DataError(f"{files[0].parent}: the columns of these files do not fit together: {error}") from None
        self._batches = self._read(files)
        self._waiting: pyarrow.Table = self.schema.empty_table()

    def take(self, chunk: Sequence[Answer]) -> list[Any]:
        """The columns of the next rows, which are those of these answers."""
        import pyarrow

        while self._waiting.num_rows < len(chunk):
            self._waiting = pyarrow.concat_tables([self._waiting, next(self._batches)])
        taken = self._waiting.slice(0, len(chunk))
        self._waiting = self._waiting.slice(len(chunk))
        return list(taken.columns)

    def _read(self, files: Sequence[Path]) -> Iterator[Any]:
        import pyarrow
        import pyarrow.parquet

        for path in files:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=BATCH_ROWS):
                    arrays = [
                        batch.column(field.name).cast(field.type)
                        if field.name in batch.schema.names
                        else pyarrow.nulls(batch.num_rows, field.type)
                        for field in self.schema
                    ]
                    yield pyarrow.table(arrays, schema=self.schema)


def _answer_fields(table: Table) -> Iterator[Any]:
    import pyarrow

    word = pyarrow.struct([("word", pyarrow.string()), ("weight", pyarrow.float64())])
    types = {"label": pyarrow.string(), "probability": pyarrow.float64(), "truncated": pyarrow.bool_()}
    types |= {"labels": pyarrow.list_(pyarrow.string()), "probabilities": pyarrow.list_(pyarrow.float64())}
    types |= {"unknown_words": pyarrow.int64(), "reason": pyarrow.string(), "set": pyarrow.list_(pyarrow.string())}
    types |= {"unfamiliar": pyarrow.bool_(), "explanation": pyarrow.list_(word)}
    for own, name in table.answer_names().items():  # `label_2` is a label
        yield encodable(name), types[own if own in types else own.rpartition("_")[0]]


def _explanations(chunk: Sequence[Answer], as_type: Any) -> Any:
    import pyarrow

    return pyarrow.array(
        [[{"word": encodable(word.word), "weight": word.weight} for word in answer.words or ()] for answer in chunk],
        type=as_type,
    )


def _as_stored(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_stored(item) for item in value]
    return encodable(value) if isinstance(value, str) else value


def _arrow_type(found: set[type]) -> Any:
    """The type of a column in which values of these types are; where they are of several, the text of each."""
    import pyarrow

    types = found - {type(None)}
    if types == {bool}:
        return pyarrow.bool_()
    if types == {int}:
        return pyarrow.int64()
    return pyarrow.float64() if types in ({float}, {int, float}) else pyarrow.string()
