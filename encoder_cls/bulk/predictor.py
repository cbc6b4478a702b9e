"""Predict on many machines with Ray or Spark: `Predictor` adds predictions to batches of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.bulk.table_columns import prediction_column
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind
from encoder_cls.system.json_values import is_missing
from encoder_cls.system.row_text import row_text


class Predictor:
    """Adds the predictions of a classifier to batches of rows as further columns.

    A batch is a mapping of column names to arrays, a `pandas.DataFrame` or a `pyarrow.Table`, and
    so is the result. The new columns are `label`, `probability` and `reason` (`blank`, `none` or
    None), or for a multi-label model the lists `labels` and `probabilities`, and `reason`. Where
    labels are codes, `name` and a column for each level, from `level_1` at the top, follow. A name
    that the batch has already gets the prefix `predicted_`.

    With Ray, each worker is an instance of this class, and loads the model once:

        workers = ray.data.ActorPoolStrategy(size=4)
        dataset.map_batches(
            Predictor,
            fn_constructor_args=["runs/spam/model"],
            batch_format="pyarrow",
            compute=workers,
        )

    With Spark, each worker gets a copy of the instance, and loads the model once:

        predict = Predictor("runs/spam/model").frames
        frame.mapInPandas(predict, schema="id long, text string, label string, ...")

    Args:
        model: a run folder, a model folder or `hub:owner/name` that every worker can read, or a
            loaded classifier.
        engine: "numpy", which needs no PyTorch, "torch", or "auto".
    """

    def __init__(self, model: str | Classifier, *, engine: str = "numpy") -> None:
        self._model = model
        self._engine = engine

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the loaded classifier: a copy loads its own."""
        state = dict(self.__dict__)
        state.pop("classifier", None)
        return state

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier, loaded when it is first used."""
        if isinstance(self._model, Classifier):
            return self._model
        return load_classifier(self._model, engine=self._engine)

    def __call__(self, batch: Any) -> Any:
        """Add the predictions for a batch.

        Raises:
            DataError: a column that the model reads is missing, or has values that are not texts.
        """
        if _is_arrow(batch):
            return self._with_columns(batch)

        taken = list(batch)
        columns = self._predict(self._texts(batch, taken))
        arrays = {}
        for name, values in columns.items():
            arrays[prediction_column(name, taken)] = _array(name, values)
        if isinstance(batch, Mapping):
            return {**batch, **arrays}

        import pandas

        series = {}
        for name, array in arrays.items():
            # Pass the type, because pandas would guess it from the values of this batch alone.
            series[name] = pandas.Series(array, batch.index, array.dtype)
        return batch.assign(**series)

    def _with_columns(self, table: Any) -> Any:
        import pyarrow

        from encoder_cls.bulk.parquet_format import type_of_column

        taken = table.column_names
        for name, values in self._predict(self._texts(table, taken)).items():
            column = pyarrow.array(values, type=type_of_column(name))
            table = table.append_column(prediction_column(name, taken), column)
        return table

    def frames(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add the predictions for each batch, for Spark's `mapInPandas` and `mapInArrow`."""
        for batch in batches:
            yield self(batch)

    def _texts(self, batch: Any, names: Sequence[Any]) -> list[str]:
        wanted = self.classifier.columns
        for name in wanted.named:
            if name not in names:
                known = ", ".join(map(str, names))
                raise DataError(f"no column {name!r}, which the model reads; columns: {known}")

        texts = [_texts_of_column(batch[name], name) for name in wanted.text]
        features = [_values_of_column(batch[name]) for name in wanted.features]
        rows = []
        for values in zip(*texts, *features, strict=True):
            fields = list(zip(wanted.text, values[: len(texts)], strict=True))
            rows.append(
                row_text(fields, dict(zip(wanted.features, values[len(texts) :], strict=True)))
            )
        return rows

    def _predict(self, texts: list[str]) -> dict[str, list[Any]]:
        predictions = []
        if texts:
            predictions = self.classifier.predict_tokenized(self.classifier.tokenize(texts))
        reasons = [prediction.reason for prediction in predictions]

        if not self.classifier.is_multi_label:
            return {
                "label": [prediction.label for prediction in predictions],
                "probability": [prediction.probability for prediction in predictions],
                "reason": reasons,
                **self._columns_of_codes(predictions),
            }

        labels = []
        probabilities = []
        for prediction in predictions:
            labels_of_text = list(prediction.labels or ())
            labels.append(labels_of_text)
            probabilities.append([prediction.probabilities[label] for label in labels_of_text])
        return {"labels": labels, "probabilities": probabilities, "reason": reasons}

    def _columns_of_codes(self, predictions: Sequence[Prediction]) -> dict[str, list[Any]]:
        """The names beside labels, and their code at each level; None where there is none."""
        codes = self.classifier.codes
        columns: dict[str, list[Any]] = {}
        if codes and codes.names:
            columns["name"] = [
                codes.names.get(prediction.label or "") for prediction in predictions
            ]
        if codes and codes.has_levels:
            paths = [[code.label for code in answer.path] for answer in predictions]
            for number in range(codes.num_levels):
                codes_of_level = [path[number] if number < len(path) else None for path in paths]
                columns[f"level_{number + 1}"] = codes_of_level
        return columns


def _texts_of_column(column: Any, name: str) -> list[str]:
    """The texts of a column, "" for nulls; a `DataError` for other values."""
    texts = []
    for value in _values_of_column(column):
        if is_missing(value):
            texts.append("")
        elif isinstance(value, str):
            texts.append(value)
        else:
            raise DataError(f"column {name!r} has {kind(value)}, where a text is expected")
    return texts


def _values_of_column(column: Any) -> list[Any]:
    # Check the type, not whether there is a method `to_pylist`: a pandas column also has its index
    # labels as attributes.
    return column.to_pylist() if _is_arrow_column(column) else list(column)


def _is_arrow(batch: Any) -> bool:
    """Nobody can have made a table of pyarrow without importing it."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(batch, pyarrow.Table | pyarrow.RecordBatch)


def _is_arrow_column(column: Any) -> bool:
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(column, pyarrow.Array | pyarrow.ChunkedArray)


def _array(name: str, values: list[Any]) -> NDArray[Any]:
    """A column of the same type in every batch; None becomes NaN among numbers."""
    if name == "probability":
        return np.array(values, np.float64)
    return np.fromiter(values, object, len(values))
