"""Splits and reports for tests of evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.comparisons import Comparison
from encoder_cls.evaluation.report import Report, evaluate

# What a report says about the TF-IDF baseline.
REFERENCE: dict[str, Any] = {
    "accuracy": 1.0,
    "accuracy_interval": (0.4, 0.8),
    "macro_f1": 1.0,
    "macro_f1_interval": (0.4, 0.8),
    "texts": 9,
    "of_texts": 9,
    "features": 7,
    "of_features": 7,
}


def split_of(texts: Sequence[str], labels: Sequence[Any] | int = 0, **values: Any) -> Split:
    """A split of texts with these labels, or all with one.

    Labels are (texts,), or (texts, classes) of a multi-label task.
    """
    numbers = np.array(labels)
    if isinstance(labels, int):
        numbers = np.full(len(texts), labels)

    return Split(
        texts=texts,
        labels=numbers,
        where=[f"f.csv:{row + 2}" for row in range(len(texts))],
        **values,
    )


def report_of(classifier: Classifier, **changes: Any) -> Report:
    """The report on three texts with some values changed.

    Changes of `metrics` and `answered` are dictionaries of their fields.
    """
    split = split_of(["rain and snow", "ball goal team", "soup bread"])
    report = evaluate(classifier, split, name="test")

    metrics = replace(report.metrics, **changes.pop("metrics", {}))
    predicted = replace(report.predicted, **changes.pop("predicted", {}))
    return replace(report, metrics=metrics, predicted=predicted, **changes)


def compared(difference: float, *, is_sure: bool, linear: float = 0.3) -> dict[str, Any]:
    """Changes of a report: how much accuracy the encoder adds, and the linear model's share."""
    interval = (difference - 0.01, difference + 0.02)
    comparison = Comparison(combined_minus_linear=difference, interval=interval, is_sure=is_sure)
    return {"comparison": comparison, "mixture_shares": {"encoder": 1 - linear, "linear": linear}}
