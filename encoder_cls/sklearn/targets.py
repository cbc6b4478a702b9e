"""Labels in the forms of scikit-learn: one per text, a list per text, or an indicator matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from encoder_cls.system.display import kind, listed
from encoder_cls.system.json_values import is_missing, label_name

# The types in which the labels of a multi-label text may be given.
_COLLECTIONS = (list, tuple, set, frozenset, np.ndarray)

Form = Literal["one", "lists", "matrix"]
"""The form in which labels are given: one per text, a list per text, or an indicator matrix."""


class Targets(NamedTuple):
    """The labels that are given to `fit` or `score`, not converted to names.

    Attributes:
        labels: of each text; None if missing.
        classes: sorted; of an indicator matrix, its columns.
    """

    labels: list[frozenset[Any] | None]
    classes: NDArray[Any]
    form: Form


def as_targets(labels: Any, known_classes: NDArray[Any] | None = None) -> Targets:
    """Convert one label per text, a list per text, or an indicator matrix.

    `known_classes` name the columns of a matrix without names; None in `fit`.

    Raises:
        ValueError: there are no labels, or they are of several types or of another shape.
    """
    if labels is None:
        # The tests of scikit-learn look for these words.
        raise ValueError(
            "TextClassifier requires y to be passed, but the target y is None: each text needs a "
            "label"
        )

    matrix = labels.toarray() if hasattr(labels, "toarray") else labels
    num_dimensions = getattr(matrix, "ndim", 1)
    if num_dimensions == 2 and matrix.shape[1] > 1:
        return _targets_of_matrix(matrix, known_classes)
    if num_dimensions == 1 and any(isinstance(label, _COLLECTIONS) for label in labels):
        return _targets_of_lists(labels)
    return _targets_of_column(labels)


def _targets_of_column(labels: Any) -> Targets:
    # Make an array of objects, because otherwise NumPy would convert integers that are mixed with
    # strings to strings.
    column = column_or_1d(np.asarray(labels, dtype=object), warn=True)
    labelled = [number for number, label in enumerate(column) if not is_missing(label)]
    values = _checked(labelled, column[labelled])

    sets: list[frozenset[Any] | None] = [None] * len(column)
    for number, value in zip(labelled, values.tolist(), strict=True):
        sets[number] = frozenset([value])
    return Targets(sets, np.unique(values), "one")


def _targets_of_matrix(matrix: Any, known_classes: NDArray[Any] | None) -> Targets:
    indicator = np.asarray(matrix)
    if not np.isin(indicator, (0, 1)).all():
        raise ValueError("labels of two dimensions are an indicator matrix, of 0 and 1")

    classes = np.asarray(getattr(matrix, "columns", np.arange(indicator.shape[1])))
    names, counts = np.unique([label_name(name) for name in classes], return_counts=True)
    if counts.max() > 1:
        raise ValueError(f"two columns of the labels are called {str(names[counts.argmax()])!r}")

    if known_classes is not None and set(classes.tolist()) != set(known_classes.tolist()):
        _check_columns(classes, known_classes)
        classes = known_classes

    sets: list[frozenset[Any] | None] = [frozenset(classes[row > 0].tolist()) for row in indicator]
    return Targets(sets, classes, "matrix")


def _check_columns(classes: NDArray[Any], known_classes: NDArray[Any]) -> None:
    both_have_names = _has_names(classes) and _has_names(known_classes)
    if len(classes) != len(known_classes) or both_have_names:
        given = listed([str(name) for name in classes])
        known = listed([str(name) for name in known_classes])
        raise ValueError(f"the labels have the columns {given}, and those of fit have {known}")


def _has_names(columns: NDArray[Any]) -> bool:
    return not np.array_equal(columns, np.arange(len(columns)))


def _targets_of_lists(texts_labels: Any) -> Targets:
    numbers = []
    all_labels = []
    for number, labels in enumerate(texts_labels):
        if not isinstance(labels, _COLLECTIONS):
            what = f"labels[{number}] is {kind(labels)}; a text without a label has an empty list"
            raise ValueError(what)  # noqa: TRY004 - as of any faulty label
        for label in labels:
            numbers.append(number)
            all_labels.append(label)

    classes = np.zeros(0)
    if all_labels:
        classes = np.unique(_checked(numbers, all_labels))
    return Targets([frozenset(labels) for labels in texts_labels], classes, "lists")


def _checked(numbers: Iterable[int], labels: Any) -> NDArray[Any]:
    values = list(np.asarray(labels, dtype=object).reshape(-1))
    for number, label in zip(numbers, values, strict=True):
        has_type = isinstance(label, str) if isinstance(values[0], str) else _is_integer(label)
        if not has_type:
            raise ValueError(
                f"labels[{number}] is {kind(label)}; labels must be all strings or all integers"
            )
        if isinstance(label, str) and not label.strip():
            raise ValueError(f"labels[{number}] is empty; give None for a text without a label")
    return np.asarray(values)


def _is_integer(label: Any) -> bool:
    """Whether a label is a whole number, maybe as a float."""
    if isinstance(label, float):
        return label.is_integer()
    return isinstance(label, int | np.integer | np.bool_)


def check_comparable(given: NDArray[Any], known: NDArray[Any]) -> None:
    """Check that labels have the type of those of `fit`; else a `ValueError`."""
    if len(given) and isinstance(given[0], str) != isinstance(known[0], str):
        raise ValueError(
            f"the labels to score, such as {given.tolist()[0]!r}, are of another type than those "
            f"of fit, such as {known.tolist()[0]!r}"
        )
