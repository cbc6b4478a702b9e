"""Answer on many machines: the classifier as a function of batches, for Ray and Spark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.bulk.formats import answer_name
from encoder_cls.bulk.output_checks import check_outputs
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.system.display import kind
from encoder_cls.system.json_values import is_missing
from encoder_cls.system.libraries import check_installed
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


class Predictor:
    """Adds a classifier's answers to batches of rows as further columns.

    A batch is a mapping of column names to arrays, a `pandas.DataFrame` or a `pyarrow.Table`, and so is the result. The
    new columns are `label`, `probability` and `reason` (`blank` or None), or `predicted_label` and so on if the input
    has such a column; multi-label, the lists `labels` and `probabilities` replace the first two.

    With Ray, the class is the worker, and each loads the model once:

        dataset.map_batches(Predictor, fn_constructor_args=["runs/spam/model"], batch_format="pyarrow", concurrency=4)

    With Spark, a copy goes to each worker:

        frame.mapInPandas(Predictor("runs/spam/model").frames, schema="id long, text string, label string, ...")

    Args:
        model: a run, a model folder or `hub:owner/name`, which every worker can read; or a classifier.
        engine: as `--engine`: `numpy` needs no PyTorch.
    """

    def __init__(self, model: str | Classifier, *, engine: str = "numpy") -> None:
        self._model, self._engine = model, engine

    def __getstate__(self) -> dict[str, Any]:
        """All but the loaded classifier, since a copy loads its own."""
        return {name: value for name, value in self.__dict__.items() if name != "classifier"}

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier, loaded on first use."""
        model = self._model
        return (
            model if isinstance(model, Classifier) else load_classifier(model, engine=self._engine)
        )

    def __call__(self, batch: Any) -> Any:
        """Add the answers to a batch; a `DataError` if it lacks a column of the model's texts, or texts in it."""
        if _is_arrow(batch):
            return self._with_columns(batch)

        taken = list(batch)
        answers = self._answers(self._texts(batch, taken))
        if isinstance(batch, Mapping):
            arrays = {answer_name(name, taken): _array(name, answers[name]) for name in answers}
            return {**batch, **arrays}

        import pandas

        series = {}
        for name, values in answers.items():
            array = _array(name, values)
            # With its type, since pandas guesses it by the values of each batch.
            series[answer_name(name, taken)] = pandas.Series(array, batch.index, array.dtype)
        return batch.assign(**series)

    def _with_columns(self, table: Any) -> Any:
        """Add the answers to a table of pyarrow."""
        import pyarrow

        from encoder_cls.bulk.parquet import TYPES

        taken = table.column_names
        for name, values in self._answers(self._texts(table, taken)).items():
            column = pyarrow.array(values, type=TYPES[name])
            table = table.append_column(answer_name(name, taken), column)
        return table

    def frames(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add the answers to each batch, for Spark's `mapInPandas` and `mapInArrow`."""
        yield from map(self, batches)

    def _texts(self, batch: Any, names: Sequence[Any]) -> list[str]:
        """The texts of a batch, with blank ones for nulls."""
        columns = []
        for name in self.classifier.text_format.columns:
            if name not in names:
                there = ", ".join(map(str, names))
                raise DataError(f"no column {name!r}, which the model reads; there are {there}")
            column = batch[name]
            values = column.to_pylist() if _is_arrow(batch) else list(column)
            values = ["" if is_missing(value) else value for value in values]
            for value in values:
                if not isinstance(value, str):
                    raise DataError(f"column {name!r} has {kind(value)}, where a text is expected")
            columns.append(values)
        return [" ".join(parts) for parts in zip(*columns, strict=True)]

    def _answers(self, texts: list[str]) -> dict[str, list[Any]]:
        predictions = self.classifier.predict(texts) if texts else []
        if self.classifier.task is MULTI_LABEL:
            labels = [list(it.labels or ()) for it in predictions]
            probabilities = [
                [it.probabilities[label] for label in it.labels or ()] for it in predictions
            ]
            answers: dict[str, list[Any]] = {"labels": labels, "probabilities": probabilities}
        else:
            answers = {
                "label": [it.label for it in predictions],
                "probability": [it.probability for it in predictions],
            }
        return {**answers, "reason": [it.reason for it in predictions]}


def _is_arrow(batch: Any) -> bool:
    """Whether a batch is a table of pyarrow, which the caller has imported then."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(batch, pyarrow.Table | pyarrow.RecordBatch)


def _array(name: str, values: list[Any]) -> NDArray[Any]:
    """A column of the answer as an array of the type that it has in every batch; of a number None is NaN."""
    if name == "probability":
        return np.array(values, np.float64)
    return np.fromiter(values, object, len(values))


def predict_by_ray(request: Request) -> None:
    """Answer Parquet files with Ray, which gives the rows of a worker that dies to another one.

    The source is a Parquet file or a folder of them, the output a new folder, in any storage that fsspec opens. The
    model is sent to the workers.
    """
    model = request.model
    assert model
    check_installed("ray", needed_by="predict --runner ray", install="'encoder-cls[ray]'")
    (inputs, source), (outputs, folder) = check_places(
        str(request.source), str(request.output), model=model
    )
    classifier = load_classifier(model, engine=request.engine)
    import ray

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        rows = ray.data.read_parquet(source, filesystem=inputs)
        # Try an empty table first, so that a missing column is reported here.
        Predictor(classifier)(rows.schema().base_schema.empty_table())
        pool = ray.data.ActorPoolStrategy(size=request.workers)
        answered = rows.map_batches(
            Predictor, fn_constructor_args=[classifier], batch_format="pyarrow", compute=pool
        )
        answered.write_parquet(folder, filesystem=outputs)
        note(f"{request.output}: the answers to {rows.count():,} rows")
    except ray.exceptions.RayError as error:
        raise EncoderClsError(f"Ray failed: {error!r}") from error
    finally:
        ray.shutdown()


def check_places(
    input_uri: str, output_uri: str, *, model: Path
) -> list[tuple[AbstractFileSystem, str]]:
    """Open the places of rows and answers, each a path in a file system.

    A `DataError` if the input has no Parquet file; a `ConfigError` if a file system is unknown, or the output exists
    or is inside of what is read.
    """
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    try:
        places = [fsspec.core.url_to_fs(uri) for uri in (input_uri, output_uri)]
    except (
        ValueError,
        ImportError,
    ) as error:  # no such file system, or its library is not installed
        raise ConfigError(f"--input {input_uri} --output {output_uri}: {error}") from None
    (inputs, source), (outputs, folder) = places
    files = inputs.ls(source, detail=False) if inputs.isdir(source) else []
    if not inputs.isfile(source) and not any(str(path).endswith(".parquet") for path in files):
        raise DataError(f"{input_uri}: no Parquet file there")
    if isinstance(outputs, LocalFileSystem):
        sources = [source] if isinstance(inputs, LocalFileSystem) else []
        check_outputs([Path(folder, "part.parquet")], sources=sources, model=model)
    elif inputs == outputs and PurePosixPath(normpath(folder)).is_relative_to(normpath(source)):
        raise ConfigError(f"--output {output_uri}: is where the input is; name another folder")
    if outputs.isfile(folder) or (outputs.isdir(folder) and outputs.ls(folder, detail=False)):
        raise ConfigError(f"--output {output_uri}: exists already; name a new folder")
    return places
