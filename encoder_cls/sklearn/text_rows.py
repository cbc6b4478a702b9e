"""Texts and their weights as they are given, and the rows that a training reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_cls import Columns
from encoder_cls.classifier.given_rows import is_frame, rows_given
from encoder_cls.errors import DataError
from encoder_cls.sklearn.targets import Form, Targets
from encoder_cls.system.display import listed
from encoder_cls.system.json_values import is_missing, json_text, label_name
from encoder_cls.system.row_text import row_text
from encoder_cls.text.checked_texts import check_are_several, checked_texts, is_table

if TYPE_CHECKING:
    from encoder_cls.training.from_python import TextInMemory


def as_rows(texts: Any, method: str, columns: Columns) -> list[str]:
    """Check texts or rows, and return each as one string; `method` is for messages.

    With features or several text columns, they are rows of a `DataFrame`.

    Raises:
        TypeError: a text is not a string.
        ValueError: a table is given in place of texts, or texts in place of a table, or it lacks a
            column.
    """
    if columns.features or len(columns.text) > 1:
        if not is_frame(texts):
            raise ValueError(
                f"a DataFrame with the columns {listed(columns.named)} is expected, because the "
                "estimator has features or several text columns"
            )
        try:
            return list(rows_given(texts, columns, method))
        except DataError as error:
            raise ValueError(str(error)) from None

    if is_table(texts):
        raise ValueError(
            f"texts are expected, not a table of shape {texts.shape}; choose the column with the "
            "texts"
        )
    check_are_several(texts, method)

    # An empty cell of a table is None or NaN in pandas. The command line reads it as no text.
    texts = ["" if is_missing(text) else text for text in texts]
    return [row_text([("", text)], {}) for text in checked_texts(texts, method)]


def rows_in_memory(
    texts: Sequence[str], targets: Targets, sample_weight: Sequence[float] | None
) -> list[TextInMemory]:
    """Make rows of texts, labels and weights, without texts of weight 0."""
    from encoder_cls.training.from_python import TextInMemory

    weights: Sequence[float | None] = [None] * len(texts)
    if sample_weight is not None:
        weights = _checked_weights(sample_weight)

    rows = []
    for number, text in enumerate(texts):
        if weights[number] == 0:
            continue
        label = _label_names(targets.labels[number], targets.form)
        rows.append(TextInMemory(number, text, label, weights[number]))
    return rows


def _label_names(labels: frozenset[Any] | None, form: Form) -> str | list[str] | None:
    if labels is None:
        return None
    names = sorted(label_name(label) for label in labels)
    if form == "one":
        return names[0]
    return names


def _checked_weights(sample_weight: Sequence[float]) -> list[float]:
    """Finite weights from 0, divided by the largest."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    is_valid = weights.ndim == 1 and np.isfinite(weights).all() and (weights >= 0).all()
    if not is_valid or not weights.any():
        raise ValueError(
            "sample_weight: one number for each text is expected, from 0 on, and not all of them 0"
        )
    relative: list[float] = (weights / weights.max()).tolist()
    return relative


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """Write rows as lines of JSON."""
    return "".join(f"{json_text(row)}\n" for row in rows).encode()
