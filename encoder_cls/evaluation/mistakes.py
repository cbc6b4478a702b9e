"""The answers of a classifier to the labelled texts of a split, and its mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.explain import WordWeight
from encoder_cls.data.corrections import correction_key
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.doubtful_labels import label_probabilities
from encoder_cls.evaluation.label_tables import LabelRow
from encoder_cls.metrics.classification import padded, predicted_labels
from encoder_cls.metrics.logits import Logits, task_of


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong answer to a text; multi-label, one wrong or one missed label.

    Attributes:
        text: the text.
        where: the file and line.
        labels: the labels of the text, one in a single-label task.
        answers: what the classifier answers, likewise.
        answer: the wrong answer; multi-label, the wrong or the missed label.
        is_missed: multi-label, whether the text has this label and does not get it; else None.
        probability: the probability of `answer`.
        likely_mislabelled: whether the label, rather than the answer, seems to be wrong.
        words: the words' contributions to the answer; empty where explaining would take too long.
    """

    text: str
    where: str
    labels: tuple[str, ...]
    predictions: tuple[str, ...]
    prediction: str
    is_missed: bool | None
    probability: float
    likely_mislabelled: bool
    words: Sequence[WordWeight]

    @property
    def kind(self) -> str:
        """Multi-label, `missed` or `given`; else empty."""
        if self.is_missed is None:
            return ""
        if self.is_missed:
            return "missed"
        return "given"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values: dict[str, Any] = {"text": self.text, "where": self.where}
        if self.is_missed is None:
            (values["label"],) = self.labels
            values["prediction"] = self.prediction
        else:
            values["labels"] = self.labels
            values["predictions"] = self.predictions
            values["label"] = self.prediction
            values["is_missed"] = self.is_missed

        values["probability"] = self.probability
        values["likely_mislabelled"] = self.likely_mislabelled
        values["words"] = [asdict(word) for word in self.words]
        return values


# Mistakes that a report keeps.
MOST_MISTAKES = 20
# Between several labels in a cell of a table.
LABEL_SEPARATOR = "|"


@dataclass(frozen=True, kw_only=True)
class PredictedSplit:
    """The answers of a classifier to the texts of a split.

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
    def predictions(self) -> NDArray[Any]:
        """Answers in the shape of `labels`."""
        return self.predicted_labels(self.logits)

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """The indices of the texts with a wrong answer, (mistakes,)."""
        is_wrong = self.predictions != self.labels
        if self.split.is_multi_label:
            is_wrong = is_wrong.any(axis=1)
        return np.flatnonzero(is_wrong)

    def predicted_labels(self, logits: Logits) -> NDArray[Any]:
        """The answers that other logits would give."""
        return predicted_labels(logits, self.thresholds, num_labels=len(self.label_names))

    def names(self, labels: Any) -> tuple[str, ...]:
        """The labels of one text, or its answers, by name."""
        if not self.split.is_multi_label:
            return (self.label_names[labels],)
        return tuple(self.label_names[number] for number in np.flatnonzero(labels))

    def records(self) -> Iterator[dict[str, Any]]:
        """The texts in order, with their labels and answers, as JSON values.

        Multi-label, the answers are sorted by probability.
        """
        for row, (text, where) in enumerate(zip(self.split.texts, self.split.where, strict=True)):
            probabilities = self.probabilities[row]
            record: dict[str, Any] = {"where": where, "text": text}

            if self.split.is_multi_label:
                given = np.flatnonzero(self.predictions[row])
                most_probable_first = np.argsort(-probabilities[given], kind="stable")
                given = given[most_probable_first]
                record["labels"] = self.names(self.labels[row])
                record["predictions"] = [self.label_names[number] for number in given]
                record["probabilities"] = probabilities[given].tolist()
            else:
                prediction = self.predictions[row]
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
                    suggested=separator.join(self.names(self.predictions[row])),
                    score=float(doubts[row]),
                    label_in_data=label,
                    key=key,
                )
            )
        return found

    def _doubts(self) -> NDArray[np.float64]:
        """1 minus the probability of each text's label, (texts,).

        Multi-label, the largest difference between a label, 0 or 1, and its probability, among the
        labels that are answered wrongly.
        """
        if not self.split.is_multi_label:
            return 1 - label_probabilities(self.probabilities, self.labels)

        probabilities = padded(self.probabilities, len(self.label_names))
        differences = np.abs(self.labels - probabilities)
        is_right = self.predictions == self.labels
        doubts: NDArray[np.float64] = np.where(is_right, 0.0, differences).max(axis=1)
        return doubts

    def worst_mistakes(self) -> list[tuple[int, int]]:
        """The most confident mistakes, the surest first: the text's index and the wrong class.

        Multi-label, the second number is that of the wrong or missed label.
        """
        if self.split.is_multi_label:
            return self._worst_labels()

        wrong_predictions = self.predictions[self.mistakes]
        confidence = self.probabilities[self.mistakes, wrong_predictions]
        surest = np.argsort(-confidence, kind="stable")[:MOST_MISTAKES]
        rows = self.mistakes[surest].tolist()
        classes = wrong_predictions[surest].tolist()
        return list(zip(rows, classes, strict=True))

    def _worst_labels(self) -> list[tuple[int, int]]:
        """The most confident wrong and missed labels, the surest first.

        Half of them are missed labels, as far as there are enough of both kinds: a classifier is
        nearly sure that a text lacks most labels, so missed ones would fill the list.
        """
        num_classes = self.logits.shape[1]
        has_label = self.labels[:, :num_classes]
        is_wrong = self.predictions[:, :num_classes] != has_label

        # All mistakes, the surest first, as positions in the flattened (texts, classes).
        confidence = np.where(is_wrong, np.abs(has_label - self.probabilities), -1.0).ravel()
        num_wrong = int(is_wrong.sum())
        surest = np.argsort(-confidence, kind="stable")[:num_wrong]

        # The rank of each mistake among those of its kind: 1, 2, ...
        is_missed = has_label.ravel()[surest]
        ranks = np.where(is_missed, np.cumsum(is_missed), np.cumsum(~is_missed))

        # Take both kinds in turn, then put what was taken back into the order of confidence.
        taken = np.argsort(ranks, kind="stable")[:MOST_MISTAKES]
        positions = surest[np.sort(taken)]
        rows, classes = np.unravel_index(positions, is_wrong.shape)
        return list(zip(rows.tolist(), classes.tolist(), strict=True))
