"""Splits and reports for tests of evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.comparisons import PartComparison
from encoder_cls.evaluation.findings import Kind, RunFacts, sentences
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.split_evaluation import SplitEvaluation, evaluate_split

# The scores of a TF-IDF baseline.
BASELINE_SCORES: dict[str, Any] = {
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


def report_on(classifier: Classifier, split: Split, *, name: str = "test") -> Report:
    """The report on a split, without a baseline."""
    return Report(evaluation=evaluate_split(classifier, split, name=name))


def evaluation_of(classifier: Classifier, **changes: Any) -> SplitEvaluation:
    """The evaluation on three texts with some values changed.

    Changes of `metrics` and `predictions` are dictionaries of their fields.
    """
    split = split_of(["rain and snow", "ball goal team", "soup bread"])
    evaluation = evaluate_split(classifier, split, name="test")

    metrics = replace(evaluation.metrics, **changes.pop("metrics", {}))
    predictions = replace(evaluation.predictions, **changes.pop("predictions", {}))
    return replace(evaluation, metrics=metrics, predictions=predictions, **changes)


def report_of(
    classifier: Classifier,
    *,
    baseline_scores: dict[str, Any] | None = None,
    run_facts: RunFacts = RunFacts(),  # noqa: B008
    **changes: Any,
) -> Report:
    """The report of an evaluation with some values changed, as by `evaluation_of`."""
    return Report(
        evaluation=evaluation_of(classifier, **changes),
        baseline_scores=baseline_scores,
        run_facts=run_facts,
    )


def said(report: Report, kind: Kind) -> str:
    """The only sentence of a report about something; empty if there is none."""
    found = sentences(report.findings, kind)
    assert len(found) <= 1
    return "".join(found)


def compared(difference: float, *, is_sure: bool, linear: float = 0.3) -> dict[str, Any]:
    """Changes of an evaluation: what the encoder adds, and the share of the linear model."""
    interval = (difference - 0.01, difference + 0.02)
    comparison = PartComparison(
        combined_minus_linear=difference, interval=interval, is_sure=is_sure
    )
    return {
        "part_comparison": comparison,
        "mixture_shares": {"encoder": 1 - linear, "linear": linear},
    }
