"""The model in the loop: it learns from labels, predicts the pool, and suggests texts."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls import Row, TextPool, load_classifier

Floats = NDArray[np.float64]

# The number of classes that a guess lists; all predicted ones if there are more.
TOP = 3
# The number of texts that are suggested after a fit. Up to 500 labels, the next fit comes earlier.
SUGGESTED = 50
# The same for a trained model, which is not fitted again, and before the first fit.
SUGGESTED_AT_FIRST = 150
# The maximum number of texts that a trained model predicts.
PREDICTED_BY_RUN = 5000
# By how much the process of the model gives way to others, the page among them.
NICENESS = 5


class Labels(NamedTuple):
    """The labels to learn from.

    Attributes:
        texts: by number.
        class_names: of labelled texts.
        class_numbers: in the session, which renaming keeps.
    """

    texts: Sequence[int]
    labels: Sequence[Sequence[str]]
    class_names: Sequence[str]
    class_numbers: Sequence[int]
    is_multi_label: bool


class Fit(NamedTuple):
    """What the model has learned.

    Attributes:
        top_classes: by number in the session, (texts, top), predicted ones first.
        top_probabilities: (texts, top).
        num_predicted: how many of these are, (texts,).
        suggestions: texts to label next, the most useful first.
        is_right: as in `PoolFit`; so is `error_factor`.
    """

    top_classes: NDArray[np.int32]
    top_probabilities: NDArray[np.float32]
    num_predicted: NDArray[np.int32]
    suggestions: Sequence[int]
    is_right: NDArray[np.bool_]
    error_factor: float | None
    seconds: float


@dataclass
class PoolModel:
    """A model of a pool, whose texts come first, before further labelled ones."""

    texts: Sequence[str]
    pool_size: int
    _is_nice: bool = field(default=False, init=False)

    def __call__(self, task: Labels | Path | None) -> Fit | list[int]:
        """Fit to labels, predict the pool by a run, or for None suggest first texts."""
        if not self._is_nice:
            self._is_nice = True
            with suppress(OSError, AttributeError):
                os.nice(NICENESS)

        if task is None:
            return self._pool.representatives(SUGGESTED_AT_FIRST)
        if isinstance(task, Path):
            return self._predict_by_run(task)
        return self._fit(task)

    @cached_property
    def _pool(self) -> TextPool:
        return TextPool(self.texts[: self.pool_size], self.texts[self.pool_size :])

    def _fit(self, labels: Labels) -> Fit:
        began = time.monotonic()
        if labels.is_multi_label:
            found = self._pool.fit(
                dict(zip(labels.texts, labels.labels, strict=True)), labels.class_names
            )
        else:
            only_labels = [label for (label,) in labels.labels]
            found = self._pool.fit(
                dict(zip(labels.texts, only_labels, strict=True)), labels.class_names
            )
        top, num_predicted = top_classes(found.probabilities, found.is_predicted)

        return Fit(
            top_classes=np.array(labels.class_numbers, dtype=np.int32)[top],
            top_probabilities=_values_of(found.probabilities, top),
            num_predicted=num_predicted,
            suggestions=self._pool.representatives(
                SUGGESTED, weights=found.uncertainty, labelled=labels.texts
            ),
            is_right=found.is_right,
            error_factor=found.error_factor,
            seconds=time.monotonic() - began,
        )

    def _predict_by_run(self, run: Path) -> Fit:
        """Predict by a run, whose classes are the session's first ones."""
        began = time.monotonic()
        classifier = load_classifier(run, engine="numpy")
        texts = self.texts[: self.pool_size][:PREDICTED_BY_RUN]
        predictions = classifier.predict([Row(text) for text in texts])
        probabilities = np.array(
            [list(prediction.probabilities.values()) for prediction in predictions]
        )
        is_predicted = probabilities.argmax(axis=1)[:, None] == np.arange(probabilities.shape[1])
        if classifier.is_multi_label:
            is_predicted = probabilities >= classifier.thresholds
        top, num_predicted = top_classes(probabilities, is_predicted)

        return Fit(
            top_classes=top.astype(np.int32),
            top_probabilities=_values_of(probabilities, top),
            num_predicted=num_predicted,
            suggestions=self._pool.representatives(
                SUGGESTED_AT_FIRST,
                weights=np.array([prediction.uncertainty for prediction in predictions]),
            ),
            is_right=np.zeros(0, dtype=bool),
            error_factor=None,
            seconds=time.monotonic() - began,
        )


def _values_of(probabilities: Floats, columns: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.take_along_axis(probabilities, columns, axis=1).astype(np.float32)


def top_classes(
    probabilities: Floats, is_predicted: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The classes that guesses list, (texts, top), predicted ones first, and how many of these."""
    # Each label has a threshold of its own, so a label that is not predicted may be more probable
    # than one that is. The last key of `lexsort` counts first.
    num_predicted = is_predicted.sum(axis=1)
    num_top = max(TOP, num_predicted.max())
    top = np.lexsort((-probabilities, ~is_predicted), axis=1)[:, :num_top]
    return top, num_predicted.astype(np.int32)


def has_enough(labels: Labels) -> bool:
    """Whether there are two classes, or one of a multi-label task."""
    least = 1 if labels.is_multi_label else 2
    return len(labels.class_names) >= least
