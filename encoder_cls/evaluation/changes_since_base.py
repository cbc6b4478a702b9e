"""How predictions have changed in a continued run since its base run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.codes import Codes
from encoder_cls.data.dataset import Dataset, renumbered
from encoder_cls.evaluation.comparisons import (
    RunComparison,
    compare_predictions,
    joined_names,
    labels_predicted_by,
)
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.metrics.precision_recall import ClassCounts
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import Task, task_of
from encoder_cls.system.display import counted, printable, shortened
from encoder_cls.system.label_cells import cell_separator, joined_labels
from encoder_cls.system.row_text import readable


class ChangedPrediction(NamedTuple):
    """A text whose prediction has changed; several labels are joined by a separator."""

    where: str
    text: str
    label: str
    before: str
    now: str


MAX_NAMED_CLASSES = 5
# The most characters of the name of a class in a sentence.
MAX_CLASS_NAME_LENGTH = 80


@dataclass(frozen=True, kw_only=True)
class ChangesSinceBase:
    """How predictions have changed since the base run, on the split of the base run's report.

    Attributes:
        comparison: differences above 0 mean that the base run is better.
        lost_recall: the recall before and now of classes, the largest loss first.
    """

    split: str
    num_texts: int
    comparison: RunComparison
    changed: list[ChangedPrediction]
    lost_recall: dict[str, tuple[float, float]]
    codes: Codes | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the number of changed predictions in place of a list."""
        values: dict[str, Any] = {
            "split": self.split,
            "texts": self.num_texts,
            "changed": len(self.changed),
            "lost_recall": self.lost_recall,
        }
        # Leave out macro-F1. If the continued run has a new class, the base run never predicts it,
        # and its macro-F1 would be a mean over other classes.
        for key, value in self.comparison.to_dict().items():
            if "macro_f1" not in key:
                values[key] = value
        return values

    def sentences(self) -> Iterator[str]:
        """Sentences for people."""
        yield self._changes()

        main, _ = self.comparison.sentences()
        yield main

        if self.lost_recall:
            yield self._losses()

    def _changes(self) -> str:
        fixed = sum(prediction.now == prediction.label for prediction in self.changed)
        broken = sum(prediction.before == prediction.label for prediction in self.changed)
        wrong_in_both = len(self.changed) - fixed - broken

        texts = counted(self.num_texts, "text")
        predictions = counted(len(self.changed), "prediction differs", "predictions differ")
        split = f"the {self.split} split of {printable(self.comparison.run)}"
        return (
            f"on {texts} of {split}, {predictions}: "
            f"{fixed:,} fixed, {broken:,} broken, {wrong_in_both:,} wrong in both"
        )

    def _losses(self) -> str:
        losses = []
        for name, (before, now) in list(self.lost_recall.items())[:MAX_NAMED_CLASSES]:
            full_name = self.codes.shown(name) if self.codes else name
            shown_name = printable(shortened(full_name, limit=MAX_CLASS_NAME_LENGTH))
            losses.append(f"{shown_name} {before:.3f} to {now:.3f}")

        if len(self.lost_recall) > MAX_NAMED_CLASSES:
            losses.append("…")
        return f"recall fell: {', '.join(losses)}"


def compare_with_base(
    classifier: Classifier,
    base: Classifier,
    dataset: Dataset,
    *,
    run: str,
    validation_predictions: ValidationPredictions | None = None,
    base_validation_predictions: ValidationPredictions | None = None,
) -> ChangesSinceBase:
    """Compare a continued run with its base run, on the split of the base run's report.

    `dataset` and `run` are those of the base run; held-out predictions are None without any.
    """
    split_name, split = dataset.report_split

    # Give the classes of the labels and of both classifiers the same numbers. A continued run has
    # all classes of its base run, so the names are those of the classifier, then the labels that
    # occur only in this split.
    names = joined_names(classifier.label_names, split.unseen_names)
    split_names = (*dataset.label_names, *split.unseen_names)
    labels = renumbered(split.labels, split_names, names)
    now = labels_predicted_by(classifier, split, names, validation_predictions)
    before = labels_predicted_by(base, split, names, base_validation_predictions)

    task = task_of(labels)
    is_same = task.are_correct(before, now)
    changed = []
    for row in np.flatnonzero(~is_same).tolist():
        changed.append(
            ChangedPrediction(
                where=split.where[row],
                text=readable(split.texts[row]),
                label=_written_labels(task, labels[row], names),
                before=_written_labels(task, before[row], names),
                now=_written_labels(task, now[row], names),
            )
        )

    return ChangesSinceBase(
        split=split_name,
        num_texts=len(split),
        comparison=compare_predictions(labels, now, before, RowGroups(split.split_groups), run=run),
        changed=changed,
        lost_recall=_lost_recall(before, now, labels, names),
        codes=classifier.codes,
    )


def _written_labels(task: Task, labels: Any, names: Sequence[str]) -> str:
    label_names = [names[number] for number in task.label_numbers(labels)]
    return joined_labels(label_names, cell_separator(names, None))


def _lost_recall(
    before: NDArray[Any], now: NDArray[Any], labels: NDArray[Any], names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    recalls_before = _recalls(before, labels, len(names))
    recalls_now = _recalls(now, labels, len(names))

    losses = []
    for name, recall_before, recall_now in zip(names, recalls_before, recalls_now, strict=True):
        if recall_now < recall_before:
            losses.append((recall_now - recall_before, name, (recall_before, recall_now)))

    losses.sort()
    return {name: recalls for _, name, recalls in losses}


def _recalls(predictions: NDArray[Any], labels: NDArray[Any], num_classes: int) -> list[float]:
    counts = ClassCounts.of(predictions, labels, num_classes=num_classes)
    recalls = counts.right / np.maximum(1, counts.support)
    return [float(recall) for recall in recalls[:num_classes]]
