"""Texts and their weights as they are given, and the rows that a training reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_cls.sklearn.targets import Form, Targets
from encoder_cls.system.json_values import is_missing, json_text, label_name
from encoder_cls.text.checked_texts import check_are_several, checked_texts, is_table

if TYPE_CHECKING:
    from encoder_cls.training.from_python import TextInMemory


def as_texts(texts: Any, method: str) -> list[str]:
    """Check texts, and return them as a list; `method` is the public method, for messages."""
    if is_table(texts):
        raise ValueError(
            f"texts are expected, not a table of shape {texts.shape}; choose the column with the "
            "texts"
        )
    check_are_several(texts, method)

    # An empty cell of a table is None or NaN in pandas. The command line reads it as no text.
    texts = ["" if is_missing(text) else text for text in texts]
    return list(checked_texts(texts, method))


def rows_in_memory(
    texts: Sequence[str], targets: Targets, sample_weight: Sequence[float] | None
) -> list[TextInMemory]:
    """Make rows of texts, the names of their labels, and their weights.

    Texts of weight 0 are left out.
    """
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
    """The name of the label of a text, or the sorted names of its labels; None without one."""
    if labels is None:
        return None
    names = sorted(label_name(label) for label in labels)
    if form == "one":
        return names[0]
    return names


def _checked_weights(sample_weight: Sequence[float]) -> list[float]:
    """Finite weights from 0, divided by the largest; a `ValueError` if they are not, or all 0."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    is_valid = weights.ndim == 1 and np.isfinite(weights).all() and (weights >= 0).all()
    if not is_valid or not weights.any():
        raise ValueError(
            "sample_weight: one number for each text is expected, from 0 on, and not all of them 0"
        )
    relative: list[float] = (weights / weights.max()).tolist()
    return relative


def labelled_record(row: TextInMemory) -> dict[str, Any]:
    """A labelled text as a row of `texts.jsonl`."""
    record: dict[str, Any] = {"text": row.text, "label": row.label}
    if row.weight is not None:
        record["weight"] = row.weight
    return record


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """Write rows as lines of JSON."""
    return "".join(f"{json_text(row)}\n" for row in rows).encode()
