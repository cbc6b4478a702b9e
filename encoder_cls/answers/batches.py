"""The classifier as a function of batches, for Ray and Spark.

s3://bucket/out/part-03.parquet         the rows of part-03.parquet with their answers, in their order
    s3://bucket/out/_parts/part-03.json     of what they are: the input's version, the model, rows, bytes

A file is one worker's from its first row to its last, and what a killed worker was at is begun again by another. It is
in place when it is whole: an object store shows no upload that has not ended, and on a disk it is renamed. The record
comes after it, so each row has its answer once, however often the command is killed and run again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_cls.answers.outputs import check_output_folder
from encoder_cls.answers.parts import RECORDS
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import (
    CONFIG_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    load_classifier,
    model_folder,
)
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.display import kind
from encoder_cls.system.files import to_json
from encoder_cls.system.installed import check_installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspec import AbstractFileSystem


class Predictor:
    """Adds the answers of a classifier to batches of rows, whose columns all stay.

    A batch is a mapping of column names to arrays, a `pandas.DataFrame` or a `pyarrow.Table`, and the answer is of the
    same kind. It has the columns `label`, `probability` and `reason` (`blank`, or nothing); multi-label, `labels`
    and `probabilities`, lists, in place of the first two. Where the input has one of them, the answer's is called
    `predicted_label` and so on.

    With Ray, the class is the worker, and each loads the model once:

        dataset.map_batches(Predictor, fn_constructor_args=["runs/spam/model"], batch_format="pyarrow", concurrency=4)

    With Spark, a copy goes to each worker:

        frame.mapInPandas(Predictor("runs/spam/model").frames, schema="id long, text string, label string, ...")

    Args:
        model: a run, a model folder or `hub:owner/name`; every worker has to find it.
        engine: as `--engine`: `numpy` needs no PyTorch.

    Raises:
        ConfigError: where the model is first used: it cannot be read.
    """

    def __init__(self, model: str, *, engine: str = "numpy") -> None:
        self._model, self._engine = str(model), engine

    def __getstate__(self) -> dict[str, Any]:
        """All but the classifier, which is loaded where a copy of this is used."""
        return {name: value for name, value in self.__dict__.items() if name != "classifier"}

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier, loaded when it is first needed."""
        return load_classifier(self._model, engine=self._engine)

    def __call__(self, batch: Any) -> Any:
        """The batch with its answers.

        Raises:
            DataError: it lacks a column of the model's texts, or what is there is no text.
        """
        columns = self._answers(self._texts(batch))
        taken = set(_names(batch))
        named = {_free(name, taken): values for name, values in columns.items()}
        if isinstance(batch, Mapping):
            return {**batch, **{name: _array(values) for name, values in named.items()}}
        if hasattr(batch, "append_column"):
            for name, values in named.items():
                batch = batch.append_column(name, _arrow(values, name=name))
            return batch
        return batch.assign(**{name: _array(values) for name, values in named.items()})

    def frames(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One batch after the other, as Spark's `mapInPandas` and `mapInArrow` hand them out."""
        yield from map(self, batches)

    def _texts(self, batch: Any) -> list[str]:
        """The texts of a batch; nothing is a blank one."""
        wanted = self.classifier.text_columns
        missing = [name for name in wanted if name not in _names(batch)]
        if missing:
            raise DataError(f"no column {missing[0]!r}, which the model reads; there are {', '.join(_names(batch))}")
        found = []
        for name in wanted:
            column = batch[name]
            values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
            values = ["" if value is None or value != value else value for value in values]  # noqa: PLR0124 - NaN
            wrong = next((value for value in values if not isinstance(value, str)), None)
            if wrong is not None:
                raise DataError(f"column {name!r} has {kind(wrong)}, where a text is expected")
            found.append(values)
        return [" ".join(parts) for parts in zip(*found, strict=True)]

    def _answers(self, texts: list[str]) -> dict[str, list[Any]]:
        predictions = self.classifier.predict(texts) if texts else []
        if self.classifier.task is MULTI_LABEL:
            labels = [list(it.labels or ()) for it in predictions]
            probabilities = [[it.probabilities[label] for label in it.labels or ()] for it in predictions]
            answers: dict[str, list[Any]] = {"labels": labels, "probabilities": probabilities}
        else:
            answers = {"label": [it.label for it in predictions], "probability": [it.probability for it in predictions]}
        return {**answers, "reason": [it.reason for it in predictions]}


def _names(batch: Any) -> list[str]:
    return list(batch.column_names if hasattr(batch, "column_names") else batch)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"predicted_{name}"
    return name


def _array(values: list[Any]) -> Any:
    """Values of a column as NumPy has them: numbers as numbers (none is NaN), all else as objects."""
    if all(isinstance(value, float) or value is None for value in values) and any(
        value is not None for value in values
    ):
        return np.array(values, dtype=np.float64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _arrow(values: list[Any], *, name: str) -> Any:
    """A column of Arrow, of the same type in each batch, whatever is in it."""
    import pyarrow

    own = name.removeprefix("predicted_")
    types = {"labels": pyarrow.list_(pyarrow.string()), "probabilities": pyarrow.list_(pyarrow.float64())}
    types |= {"probability": pyarrow.float64()}
    return pyarrow.array(values, type=types.get(own, pyarrow.string()))


RECORD_VERSION = 1
BATCH_ROWS = 4096  # classified at once
NEEDED = "'encoder-cls[ray]'"


class RemotePart(NamedTuple):
    """A file of the input and the file of its answers, both by their paths in the file systems of their URIs."""

    source: str
    output: str
    record: str


class Work(NamedTuple):
    """What a worker needs to know.

    Attributes:
        input_uri: of the file system of the inputs.
        output_uri: of that of the answers.
        model: the files of the model folder, by name.
        model_sha256: of the model.
        engine: by which the encoder is computed.
    """

    input_uri: str
    output_uri: str
    model: Mapping[str, bytes]
    model_sha256: str
    engine: str


def predict_by_ray(
    input_uri: str, output_uri: str, *, model: Path, engine: str, workers: int, tell: Callable[[str], None]
) -> int:
    """Answer all files that are not answered yet; returns how many rows the answers have, those of before counted.

    Args:
        input_uri: a Parquet file or a folder of such files, in whatever way fsspec opens.
        output_uri: the folder of the answers.
        model: a run or a model folder of this machine; its files are sent to the workers.
        engine: by which the encoder is computed, on each worker.
        workers: how many there are; each has a processor.
        tell: told of each file.

    Raises:
        ConfigError: Ray is not installed, or there is no such file system.
        DataError: the input has no Parquet file, or one that cannot be read; what was answered stays.
        EncoderClsError: a worker failed; what was answered stays.
    """
    check_installed("ray", needed_by="predict --runner ray", install=NEEDED)
    import ray
    from ray.util import ActorPool

    parts = remote_parts(input_uri, output_uri, model=model)
    folder = model_folder(model)
    files = {name: (folder / name).read_bytes() for name in (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE)}
    work = Work(input_uri, output_uri, files, load_classifier(folder, engine="numpy").sha256 or "", engine)
    known = ray.is_initialized()
    ray.init(ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        shared = ray.put(work)
        # A worker that is killed is started again, and what it was at is given to it once more.
        actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(_Actor)
        pool = ActorPool([actor.remote() for _ in range(min(workers, len(parts)))])
        rows = 0
        for part, found, is_new in pool.map_unordered(lambda worker, part: worker.answer.remote(shared, part), parts):
            rows += found
            tell(f"{PurePosixPath(part.output).name}: {found:,} rows{'' if is_new else ', answered before'}")
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, EncoderClsError):
            raise error.cause from None
        raise EncoderClsError(f"a worker failed: {error.cause!r}") from None
    finally:
        if not known:
            ray.shutdown()
    return rows


def remote_parts(input_uri: str, output_uri: str, *, model: Path) -> list[RemotePart]:
    """The files of an input, in the order of their names.

    Raises:
        ConfigError: there is no such file system, or answers would be written over what is read.
        DataError: there is no Parquet file.
    """
    (inputs, place), (_, folder) = _opened(input_uri), _opened(output_uri)
    try:
        found = [place] if inputs.isfile(place) else inputs.ls(place, detail=False) if inputs.isdir(place) else []
    except OSError as error:
        raise DataError(f"{input_uri}: cannot be read: {error}") from None
    found = sorted(str(path) for path in found if path == place or str(path).endswith(".parquet"))
    if not found:
        raise DataError(f"{input_uri}: no Parquet file there")
    folder = folder.rstrip("/")
    parts = [
        RemotePart(path, f"{folder}/{PurePosixPath(path).name}", f"{folder}/{RECORDS}/{PurePosixPath(path).stem}.json")
        for path in found
    ]
    _check_not_read(parts, input_uri, output_uri, model)
    return parts


def _check_not_read(parts: Sequence[RemotePart], input_uri: str, output_uri: str, model: Path) -> None:
    """Refuse to write over what is read: as for any output where it is on this machine, else by the names of files."""
    from fsspec.implementations.local import LocalFileSystem

    (inputs, place), (outputs, folder) = (_opened(uri.rpartition("::")[2]) for uri in (input_uri, output_uri))
    if isinstance(outputs, LocalFileSystem):
        files = [Path(path) for part in parts for path in (part.output, part.record)]
        sources = [place] if isinstance(inputs, LocalFileSystem) else []
        check_output_folder(Path(folder), files, sources=sources, model=model)
    elif inputs == outputs and {normpath(it.output) for it in parts} & {normpath(it.source) for it in parts}:
        raise ConfigError(f"--output {output_uri}: is where the input is; name another folder")


class _Actor:
    """A worker as Ray starts it, again where it has been killed: without arguments, which would be lost then."""

    def __init__(self) -> None:
        self._worker: PartWorker | None = None

    def answer(self, work: Work, part: RemotePart) -> tuple[RemotePart, int, bool]:
        """As `PartWorker.answer`."""
        self._worker = self._worker or PartWorker(work)
        return self._worker.answer(part)


class PartWorker:
    """Answers one file after the other, with a model that is loaded once."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._inputs, _ = _opened(work.input_uri)
        self._outputs, _ = _opened(work.output_uri)
        with tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder:
            for name, content in work.model.items():
                Path(folder, name).write_bytes(content)
            self._predictor = Predictor(folder, engine=work.engine)
            self._predictor.classifier.encoder  # noqa: B018 - it is loaded here, while the folder is there

    def answer(self, part: RemotePart) -> tuple[RemotePart, int, bool]:
        """Answer a file, unless that has been done; returns how many rows it has, and whether they are new."""
        wanted = {
            "version": RECORD_VERSION,
            "input": part.source,
            "input_key": str(self._inputs.ukey(part.source)),
            "model_sha256": self._work.model_sha256,
            "engine": self._work.engine,
        }
        former = self._record(part)
        if wanted.items() <= former.items() and self._size(part.output) == former.get("output_bytes"):
            return part, int(former["rows"]), False
        self._outputs.makedirs(str(PurePosixPath(part.record).parent), exist_ok=True)
        with self._outputs.transaction, self._outputs.open(part.output, "wb") as file:
            rows = self._write(part, file)
        record = {**wanted, "rows": rows, "output_bytes": self._size(part.output)}
        with self._outputs.transaction, self._outputs.open(part.record, "wb") as file:
            file.write(to_json(record))
        return part, rows, True

    def _write(self, part: RemotePart, file: Any) -> int:
        """Write the answers; returns how many rows there are."""
        import pyarrow
        import pyarrow.parquet

        with self._inputs.open(part.source, "rb") as content:
            try:
                source = pyarrow.parquet.ParquetFile(content)
            except pyarrow.ArrowException as error:
                raise DataError(f"{part.source}: cannot be read: {error}") from None
            schema = self._answered(part, source.schema_arrow.empty_table()).schema
            with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                for batch in source.iter_batches(batch_size=BATCH_ROWS):
                    writer.write_table(self._answered(part, pyarrow.Table.from_batches([batch])))
            return int(source.metadata.num_rows)

    def _answered(self, part: RemotePart, table: Any) -> Any:
        try:
            return self._predictor(table)
        except DataError as error:
            raise DataError(f"{part.source}: {error}") from None

    def _record(self, part: RemotePart) -> dict[str, Any]:
        """What a record says; nothing where there is none that can be read."""
        with suppress(OSError, ValueError):
            found = json.loads(self._outputs.cat_file(part.record))
            return found if isinstance(found, dict) else {}
        return {}

    def _size(self, path: str) -> int | None:
        self._outputs.invalidate_cache()
        with suppress(OSError):
            return int(self._outputs.size(path))
        return None


def _opened(uri: str) -> tuple[AbstractFileSystem, str]:
    """The file system of a URI, and the path in it.

    Raises:
        ConfigError: there is none, or what reads it is not installed.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{uri}: {error}") from None
    return system, str(path)
