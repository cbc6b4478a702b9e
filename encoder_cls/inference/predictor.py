"""A classifier as a function from batches to batches, for engines that deal them out to many processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from encoder_cls.errors import DataError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.serialization import load_classifier
from encoder_cls.inference.tasks import MULTI_LABEL
from encoder_cls.system.display import kind


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
