"""The predictions of a classifier for the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.evaluation.label_tables import LabelRow
from encoder_cls.metrics.classification import predicted_labels
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task, padded, task_of
from encoder_cls.system.label_cells import cell_separator, joined_labels
from encoder_cls.system.row_text import readable


@dataclass(frozen=True, kw_only=True)
class SplitPredictions:
    """The predictions of a classifier for the texts of a split.

    Attributes:
        name: `train`, `validation`, `test` or a file.
        logits: calibrated, (texts, classes).
        label_names: the classes, then unseen labels.
        thresholds: from which a text gets each label; empty if single-label.
    """

    name: str
    split: Split
    logits: Logits
    label_names: tuple[str, ...]
    thresholds: tuple[float, ...] = ()

    def subset(self, rows: NDArray[np.int64]) -> SplitPredictions:
        """The predictions for some texts."""
        return replace(self, split=self.split.subset(rows), logits=self.logits[rows])

    @property
    def task(self) -> Task:
        """Single-label or multi-label."""
        return task_of(self.split.labels)

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Numbers in `label_names`, or multi-label indicators."""
        if self.task is MULTI_LABEL:
            return padded(self.split.labels, len(self.label_names)) > 0
        return self.split.labels

    @cached_property
    def groups(self) -> RowGroups:
        """Which texts belong together."""
        return RowGroups(self.split.split_groups)

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """The probabilities of the classes, (texts, classes)."""
        return self.task.probabilities(self.logits)

    @cached_property
    def predicted_labels(self) -> NDArray[Any]:
        """The predicted labels."""
        return self.labels_from(self.logits)

    def labels_from(self, logits: Logits) -> NDArray[Any]:
        """Predict labels by other logits."""
        return predicted_labels(logits, self.thresholds, num_labels=len(self.label_names))

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """The texts with a wrong prediction, in any label."""
        return np.flatnonzero(~self.are_right)

    @property
    def are_right(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, in all labels."""
        return self.task.are_correct(self.predicted_labels, self.labels)

    def names(self, labels: Any) -> tuple[str, ...]:
        """The names of a row of `labels` or `predicted_labels`."""
        return tuple(self.label_names[number] for number in self.task.label_numbers(labels))

    def records(self) -> Iterator[dict[str, Any]]:
        """The texts, their labels and predictions as JSON values, the most probable label first."""
        for row, (text, where) in enumerate(zip(self.split.texts, self.split.where, strict=True)):
            probabilities = self.probabilities[row]
            record: dict[str, Any] = {"where": where, "text": readable(text)}

            if self.task is MULTI_LABEL:
                predicted = np.flatnonzero(self.predicted_labels[row])
                most_probable_first = np.argsort(-probabilities[predicted], kind="stable")
                predicted = predicted[most_probable_first]
                record["labels"] = self.names(self.labels[row])
                record["predictions"] = [self.label_names[number] for number in predicted]
                record["probabilities"] = probabilities[predicted].tolist()
            else:
                prediction = self.predicted_labels[row]
                record["label"] = self.label_names[self.labels[row]]
                record["prediction"] = self.label_names[prediction]
                record["probability"] = float(probabilities[prediction])
            yield record

    def label_rows(
        self, rows: Sequence[int] | NDArray[np.int64], separator: str | None = None
    ) -> list[LabelRow]:
        """Rows of a table to correct labels; `separator`, if the data has one, joins several."""
        separator = cell_separator(self.label_names, separator)
        doubts = self._doubts()
        label_rows = []
        for row in np.asarray(rows, dtype=np.int64).tolist():
            text = self.split.texts[row]
            label = joined_labels(self.names(self.labels[row]), separator)
            suggested = joined_labels(self.names(self.predicted_labels[row]), separator)
            label_rows.append(
                LabelRow(
                    split=self.name,
                    where=self.split.where[row],
                    text=readable(text),
                    label=label,
                    suggested=suggested,
                    score=float(doubts[row]),
                    label_in_data=label,
                    key=key_of_text(text),
                    row=text,
                )
            )
        return label_rows

    def _doubts(self) -> NDArray[np.float64]:
        """How doubtful each text's labels are, from 0 to 1: 1 minus the label's probability.

        Multi-label, that of the most doubtful label that differs from the prediction, present or
        missing; 0 if none does. Thyagarajan et al., "Identifying Incorrect Annotations in
        Multi-Label Classification Data" (2022), https://arxiv.org/abs/2211.13895, compare ways to
        score a text by its labels; this is the minimum of their self-confidence.
        """
        if self.task is SINGLE_LABEL:
            return 1 - SINGLE_LABEL.label_probabilities(self.probabilities, self.labels)

        probabilities = padded(self.probabilities, len(self.label_names))
        differences = np.abs(self.labels - probabilities)
        is_correct = self.predicted_labels == self.labels
        doubts: NDArray[np.float64] = np.where(is_correct, 0.0, differences).max(axis=1)
        return doubts
