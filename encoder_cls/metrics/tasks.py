"""The two tasks, single-label and multi-label, and what differs between them.

Single-label, each text has one of the classes, and their probabilities sum to 1. Multi-label, each
label is an independent yes-or-no question, so a text may have several labels or none.

Labels and predictions are class numbers, (texts,); multi-label, they are indicators, (texts,
classes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.logits import Logits, log_sigmoid, sigmoid, softmax


class Task(ABC):
    """A task: `SINGLE_LABEL` or `MULTI_LABEL`. Its name is that in `config.json`."""

    name: ClassVar[str]
    min_classes: ClassVar[int]

    @abstractmethod
    def __reduce__(self) -> str:
        """A pickle names the global variable: a process that receives it compares tasks by `is`."""

    @abstractmethod
    def num_one_vs_rest(self, num_classes: int) -> int:
        """The number of one-vs-rest classifiers: one for each class.

        A single-label task of two classes has only one, of the second class.
        """

    @abstractmethod
    def margins_to_logits(self, margins: Logits) -> Logits:
        """Convert the margins of one-vs-rest classifiers to logits, (texts, classes).

        Multi-label, they are the margins; of two single-label classes, the logit of the second is
        the margin, that of the first its negative. With more classes, a logit is the log sigmoid of
        a margin: a softmax of margins would be too sure of many texts.
        """

    @abstractmethod
    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The probabilities of the classes, (texts, classes): a softmax; multi-label, sigmoids."""

    @abstractmethod
    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """The confidence in the prediction for each text, (texts,).

        It is the probability of the predicted class; multi-label, that of the least sure yes-or-no
        decision.
        """

    @abstractmethod
    def predictions(
        self, probabilities: NDArray[np.float64], thresholds: Sequence[float]
    ) -> NDArray[Any]:
        """The prediction for each text: the number of the most probable class, (texts,).

        Multi-label, whether its probability of each label reaches `thresholds`, (texts, classes).
        """

    @abstractmethod
    def are_correct(self, predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the prediction for each text is correct, (texts,); multi-label, exactly so.

        The classifier does not know labels beyond those of the predictions; their texts are never
        predicted correctly.
        """

    @abstractmethod
    def prediction_probabilities(
        self, probabilities: NDArray[np.float64], predictions: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The probability that the prediction for each text is correct, (texts,).

        Multi-label, of exactly the predicted labels, if labels are independent: the product over
        all yes-or-no decisions.
        """

    @abstractmethod
    def uncertainty(
        self, probabilities: NDArray[np.float64], predictions: NDArray[Any]
    ) -> NDArray[np.float64]:
        """How uncertain the prediction for each text is, from 0 to 1, (texts,).

        Single-label, it is 1 minus the lead of the most probable class, as in margin sampling:
        Scheffer et al., "Active Hidden Markov Models for Information Extraction" (2001),
        https://doi.org/10.1007/3-540-44816-0_31.

        Multi-label, it is 1 minus `prediction_probabilities`, as in least confident sampling of
        structured predictions: Culotta and McCallum, "Reducing Labeling Effort for Structured
        Prediction Tasks" (2005), https://cdn.aaai.org/AAAI/2005/AAAI05-117.pdf. It needs fewer
        labels than the uncertainty of the least certain label (docs/experiments/accuracy.md).
        """

    @abstractmethod
    def label_probabilities(
        self, probabilities: NDArray[np.float64], labels: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The probability of each text's label, (texts,).

        Multi-label, it is that of the least probable label of a text, and 1 for a text without
        labels. Unknown labels, which come last, have the probability 0.
        """

    @abstractmethod
    def label_sets(self, probabilities: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
        """Whether each class is in the set of a text, (texts, classes).

        A set has the classes from the probability `threshold` up, and in a single-label task always
        the most probable one.
        """

    @abstractmethod
    def are_known(self, labels: NDArray[Any], num_classes: int) -> NDArray[np.bool_]:
        """Whether all labels of a text are among the first `num_classes`, (texts,)."""

    @abstractmethod
    def label_numbers(self, labels: Any) -> list[int]:
        """The numbers of the labels of one text, from its row."""

    @abstractmethod
    def indicators(self, labels: NDArray[Any], num_classes: int) -> NDArray[np.bool_]:
        """Whether each text has each of the first classes, (texts, `num_classes`)."""

    @abstractmethod
    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        """ln(p / (1 - p)) of the probability p of the class with this number, (texts,)."""


class _SingleLabel(Task):
    name = "single-label"
    min_classes = 2

    def __reduce__(self) -> str:
        return "SINGLE_LABEL"

    def num_one_vs_rest(self, num_classes: int) -> int:
        if num_classes > 2:
            return num_classes
        return 1

    def margins_to_logits(self, margins: Logits) -> Logits:
        if margins.shape[1] == 1:
            return np.hstack([-margins, margins])
        return log_sigmoid(margins).astype(np.float32)

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        return softmax(logits)

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        return cast("NDArray[np.float64]", probabilities.max(axis=1))

    def predictions(
        self,
        probabilities: NDArray[np.float64],
        thresholds: Sequence[float],  # noqa: ARG002
    ) -> NDArray[Any]:
        return np.asarray(probabilities.argmax(axis=1))

    def are_correct(self, predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(predictions == labels)

    def prediction_probabilities(
        self, probabilities: NDArray[np.float64], predictions: NDArray[Any]
    ) -> NDArray[np.float64]:
        return np.asarray(probabilities[np.arange(len(predictions)), predictions])

    def uncertainty(
        self, probabilities: NDArray[np.float64], predictions: NDArray[Any]
    ) -> NDArray[np.float64]:
        best = self.prediction_probabilities(probabilities, predictions)
        others = probabilities.copy()
        others[np.arange(len(predictions)), predictions] = 0
        return np.asarray(1 - (best - others.max(axis=1)))

    def label_probabilities(
        self, probabilities: NDArray[np.float64], labels: NDArray[Any]
    ) -> NDArray[np.float64]:
        last_class = probabilities.shape[1] - 1
        rows = np.arange(len(labels))
        known_labels = np.minimum(labels, last_class)
        return np.where(labels <= last_class, probabilities[rows, known_labels], 0.0)

    def label_sets(self, probabilities: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
        best = probabilities.argmax(axis=1)
        is_best = np.arange(probabilities.shape[1]) == best[:, None]
        return np.asarray((probabilities >= threshold) | is_best)

    def are_known(self, labels: NDArray[Any], num_classes: int) -> NDArray[np.bool_]:
        return np.asarray(labels < num_classes)

    def label_numbers(self, labels: Any) -> list[int]:
        return [int(labels)]

    def indicators(self, labels: NDArray[Any], num_classes: int) -> NDArray[np.bool_]:
        return np.asarray(labels[:, None] == np.arange(num_classes))

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        other_logits = np.delete(logits, label, axis=1)
        others: NDArray[np.float64] = np.logaddexp.reduce(other_logits, axis=1)
        return logits[:, label] - others


class _MultiLabel(Task):
    name = "multi-label"
    min_classes = 1

    def __reduce__(self) -> str:
        return "MULTI_LABEL"

    def num_one_vs_rest(self, num_classes: int) -> int:
        return num_classes

    def margins_to_logits(self, margins: Logits) -> Logits:
        return margins

    def probabilities(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        return sigmoid(logits)

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        confidences = np.maximum(probabilities, 1 - probabilities)
        return cast("NDArray[np.float64]", confidences.min(axis=1))

    def predictions(
        self, probabilities: NDArray[np.float64], thresholds: Sequence[float]
    ) -> NDArray[Any]:
        return np.asarray(probabilities >= np.asarray(thresholds, dtype=np.float64))

    def are_correct(self, predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
        num_classes = predictions.shape[1]
        has_label = labels[:, :num_classes] > 0
        is_exact = (predictions == has_label).all(axis=1)
        return np.asarray(is_exact & self.are_known(labels, num_classes))

    def prediction_probabilities(
        self, probabilities: NDArray[np.float64], predictions: NDArray[Any]
    ) -> NDArray[np.float64]:
        decisions = np.where(predictions, probabilities, 1 - probabilities)
        return cast("NDArray[np.float64]", decisions.prod(axis=1))

    def uncertainty(
        self, probabilities: NDArray[np.float64], predictions: NDArray[Any]
    ) -> NDArray[np.float64]:
        return 1 - self.prediction_probabilities(probabilities, predictions)

    def label_probabilities(
        self, probabilities: NDArray[np.float64], labels: NDArray[Any]
    ) -> NDArray[np.float64]:
        num_classes = probabilities.shape[1]
        has_label = labels[:, :num_classes] > 0
        lowest = np.where(has_label, probabilities, 1.0).min(axis=1)
        return np.where(self.are_known(labels, num_classes), lowest, 0.0)

    def label_sets(self, probabilities: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
        return np.asarray(probabilities >= threshold)

    def are_known(self, labels: NDArray[Any], num_classes: int) -> NDArray[np.bool_]:
        return np.asarray(~(labels[:, num_classes:] > 0).any(axis=1))

    def label_numbers(self, labels: Any) -> list[int]:
        numbers: list[int] = np.flatnonzero(labels).tolist()
        return numbers

    def indicators(self, labels: NDArray[Any], num_classes: int) -> NDArray[np.bool_]:
        return np.asarray(labels[:, :num_classes] > 0)

    def log_odds(self, logits: NDArray[np.float64], label: int) -> NDArray[np.float64]:
        return logits[:, label]


SINGLE_LABEL = _SingleLabel()
MULTI_LABEL = _MultiLabel()
TASKS: dict[str, Task] = {task.name: task for task in (SINGLE_LABEL, MULTI_LABEL)}


def task_of(labels: NDArray[Any]) -> Task:
    """The task of labels: (texts,) is single-label, and (texts, classes) is multi-label."""
    if labels.ndim == 1:
        return SINGLE_LABEL
    return MULTI_LABEL


def padded(values: NDArray[Any], num_labels: int) -> NDArray[Any]:
    """Append columns of zeros to values, (texts, classes), so that they are (texts, labels)."""
    num_unseen = num_labels - values.shape[1]
    return np.pad(values, ((0, 0), (0, num_unseen)))
