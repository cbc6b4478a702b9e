"""The predictions of a classifier for the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.corrections import correction_key
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.doubtful_labels import label_probabilities
from encoder_cls.evaluation.label_tables import LabelRow
from encoder_cls.metrics.classification import padded, predicted_labels
from encoder_cls.metrics.logits import Logits, task_of

# Between several labels in a cell of a table.
LABEL_SEPARATOR = "|"


@dataclass(frozen=True, kw_only=True)
class SplitPredictions:
    """The predictions of a classifier for the texts of a split.

    Attributes:
        name: the name of the split, or a file.
        split: the texts and labels.
        logits: the logits of the texts, (texts, classes).
        label_names: the classes, then the labels that never occur in the training data.
        thresholds: multi-label, the probability from which texts get each label, (classes,).
    """

    name: str
    split: Split
    logits: Logits
    label_names: tuple[str, ...]
    thresholds: tuple[float, ...] = ()

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Class numbers, (texts,); multi-label, whether a text has a label, (texts, labels)."""
        if self.split.is_multi_label:
            return padded(self.split.labels, len(self.label_names)) > 0
        return self.split.labels

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Probabilities of the classes, (texts, classes)."""
        return task_of(self.split.labels).probabilities(self.logits)

    @cached_property
    def predicted_labels(self) -> NDArray[Any]:
        """What the classifier predicts, in the shape of `labels`."""
        return self.labels_from(self.logits)

    def labels_from(self, logits: Logits) -> NDArray[Any]:
        """What other logits would predict, in the shape of `labels`."""
        return predicted_labels(logits, self.thresholds, num_labels=len(self.label_names))

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """The indices of the texts with a wrong prediction, (mistakes,)."""
        is_wrong = self.predicted_labels != self.labels
        if self.split.is_multi_label:
            is_wrong = is_wrong.any(axis=1)
        return np.flatnonzero(is_wrong)

    def names(self, labels: Any) -> tuple[str, ...]:
        """The labels of one text, or those predicted for it, by name."""
        if not self.split.is_multi_label:
            return (self.label_names[labels],)
        return tuple(self.label_names[number] for number in np.flatnonzero(labels))

    def records(self) -> Iterator[dict[str, Any]]:
        """The texts in order, with their labels and predictions, as JSON values.

        Multi-label, the predicted labels are sorted by probability.
        """
        for row, (text, where) in enumerate(zip(self.split.texts, self.split.where, strict=True)):
            probabilities = self.probabilities[row]
            record: dict[str, Any] = {"where": where, "text": text}

            if self.split.is_multi_label:
                given = np.flatnonzero(self.predicted_labels[row])
                most_probable_first = np.argsort(-probabilities[given], kind="stable")
                given = given[most_probable_first]
                record["labels"] = self.names(self.labels[row])
                record["predictions"] = [self.label_names[number] for number in given]
                record["probabilities"] = probabilities[given].tolist()
            else:
                prediction = self.predicted_labels[row]
                record["label"] = self.label_names[self.labels[row]]
                record["prediction"] = self.label_names[prediction]
                record["probability"] = float(probabilities[prediction])
            yield record

    def label_rows(
        self, rows: Sequence[int] | NDArray[np.int64], separator: str | None = None
    ) -> list[LabelRow]:
        """The texts with these indices, in their order, as rows of a table to correct labels in."""
        if not separator:
            separator = LABEL_SEPARATOR

        doubts = self._doubts()
        found = []
        for row in np.asarray(rows, dtype=np.int64).tolist():
            text = self.split.texts[row]
            label = separator.join(self.names(self.labels[row]))
            key = ""
            if not self.split.is_multi_label:
                key = correction_key(text)

            found.append(
                LabelRow(
                    split=self.name,
                    where=self.split.where[row],
                    text=text,
                    label=label,
                    suggested=separator.join(self.names(self.predicted_labels[row])),
                    score=float(doubts[row]),
                    label_in_data=label,
                    key=key,
                )
            )
        return found

    def _doubts(self) -> NDArray[np.float64]:
        """1 minus the probability of each text's label, (texts,).

        Multi-label, the largest difference between a label, 0 or 1, and its probability, among the
        labels that are predicted wrongly.
        """
        if not self.split.is_multi_label:
            return 1 - label_probabilities(self.probabilities, self.labels)

        probabilities = padded(self.probabilities, len(self.label_names))
        differences = np.abs(self.labels - probabilities)
        is_right = self.predicted_labels == self.labels
        doubts: NDArray[np.float64] = np.where(is_right, 0.0, differences).max(axis=1)
        return doubts
