"""Metrics of logits and labels, single-label and multi-label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.logits import Logits, sigmoid, softmax, task_of

CALIBRATION_BINS = 15  # as in Guo et al. (2017)
LARGEST_MATRIX = 100  # classes of a confusion matrix that can be read
MOST_CONFUSED = 100  # pairs of classes that are named
MIN_PROBABILITY = (
    1e-12  # lower ones count as this: one impossible label must not outweigh all others
)
LEAST_PROBABILITY = 0.1  # of a label that counts for calibration, multi-label

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """Scores of one class, from 0 to 1, or None without examples; `support` is the number of examples."""

    precision: float | None
    recall: float | None
    f1: float | None
    support: int


@dataclass(frozen=True, kw_only=True)
class LabelMetrics(ClassMetrics):
    """Scores of one label, and the probability from which texts get it, None if it never occurs in training."""

    average_precision: float | None
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """The number of examples of one class that were predicted to be another."""

    label: str
    prediction: str
    count: int


@dataclass(frozen=True, kw_only=True)
class CalibrationBins:
    """Mean confidence, accuracy and count of each of `CALIBRATION_BINS` bins of equal width, 0 in empty bins."""

    confidence: list[float]
    accuracy: list[float]
    texts: list[int]

    @classmethod
    def of(cls, confidence: Floats, correct: NDArray[np.bool_]) -> CalibrationBins:
        """Sort answers into bins by their confidence."""
        bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
        count = np.bincount(bins, minlength=CALIBRATION_BINS)
        sums = (
            np.bincount(bins, weights=values, minlength=CALIBRATION_BINS)
            for values in (confidence, correct)
        )
        mean_confidence, accuracy = (total / np.maximum(1, count) for total in sums)
        return cls(
            confidence=mean_confidence.tolist(), accuracy=accuracy.tolist(), texts=count.tolist()
        )

    @property
    def expected_error(self) -> float:
        """The mean over bins of |accuracy - confidence|, weighted by the bins' sizes.

        Guo et al., "On Calibration of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599.
        """
        distances = np.abs(np.subtract(self.accuracy, self.confidence))
        return float(np.average(distances, weights=self.texts)) if any(self.texts) else 0.0


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Scores of predictions, single-label or multi-label.

    Attributes:
        macro_f1: the mean F1 of the classes that occur as label or prediction; multi-label, as label.
        loss: the mean negative log-likelihood of a text's label, or of all its labels, in nats.
        ece: the expected calibration error.
        most_confused: pairs of label and wrong answer, the most frequent first; multi-label, a missed and a wrong label
            of the same text.
        unseen_labels: the number of examples of labels that never occur in the training data. They count as mistakes,
            and are left out of `loss`, `ece` and `calibration`.
    """

    scalar_names: ClassVar[tuple[str, ...]]
    score_name: ClassVar[str]  # the score that parts and models are compared by

    num_examples: int
    macro_f1: float
    loss: float
    ece: float
    per_class: Mapping[str, ClassMetrics]
    calibration: CalibrationBins
    most_confused: list[Confusion]
    unseen_labels: dict[str, int]

    def scalars(self) -> dict[str, float]:
        """The metrics that are single numbers."""
        return {name: getattr(self, name) for name in self.scalar_names}

    def drawable(self) -> dict[str, Any]:
        """The data of plots, as JSON values."""
        return {"calibration": asdict(self.calibration)}


@dataclass(frozen=True, kw_only=True)
class SingleLabelMetrics(Metrics):
    """Single-label scores."""

    scalar_names = ("loss", "accuracy", "macro_f1", "ece")
    score_name = "accuracy"

    accuracy: float
    confusion_matrix: (
        list[list[int]] | None
    )  # `[label][prediction]` counts, of at most `LARGEST_MATRIX` classes

    def drawable(self) -> dict[str, Any]:
        """See `Metrics`."""
        matrix = {"confusion_matrix": self.confusion_matrix} if self.confusion_matrix else {}
        names = {"label_names": list(self.per_class)} if self.unseen_labels else {}
        return {**super().drawable(), **matrix, **names}


@dataclass(frozen=True, kw_only=True)
class MultiLabelMetrics(Metrics):
    """Multi-label scores.

    `ece` counts labels with a probability of `LEAST_PROBABILITY` or more: the many improbable labels would hide the
    calibration of the others.

    Attributes:
        micro_f1: F1 of all pairs of a text and a label.
        samples_f1: the mean F1 of texts; 1 where a text has no label and gets none.
        subset_accuracy: the fraction of texts that get exactly their labels.
        mean_average_precision: the mean over the labels that some text has.
    """

    scalar_names = (
        "loss",
        "micro_f1",
        "macro_f1",
        "samples_f1",
        "subset_accuracy",
        "mean_average_precision",
        "ece",
    )
    score_name = "micro_f1"

    micro_f1: float
    samples_f1: float
    subset_accuracy: float
    mean_average_precision: float
    labels_per_text: float
    predicted_per_text: float


def compute_metrics(
    logits: Logits,
    labels: NDArray[Any],
    label_names: Sequence[str],
    thresholds: Sequence[float] = (),
) -> Metrics:
    """Score logits, (texts, classes), by labels: (texts,), or multi-label 1 where a text has a label, (texts, labels).

    `label_names` are the classes, then the labels without a logit, which never occur in the training data.
    """
    if labels.ndim == 1:
        return _single_label_metrics(logits, labels, label_names)
    return _multi_label_metrics(logits, labels, label_names, thresholds)


def _single_label_metrics(
    logits: Logits, labels: NDArray[np.int64], label_names: Sequence[str]
) -> SingleLabelMetrics:
    num_classes, num_labels = logits.shape[1], len(label_names)
    is_known = labels < num_classes
    predictions, probabilities = logits.argmax(axis=1), softmax(logits[is_known])
    bins = CalibrationBins.of(probabilities.max(axis=1), predictions[is_known] == labels[is_known])
    counts = ClassCounts.of(predictions, labels, num_classes=num_labels)
    pairs, numbers = np.unique(np.stack([labels, predictions]), axis=1, return_counts=True)
    matrix = (
        np.zeros((num_labels, num_labels), dtype=np.int64) if num_labels <= LARGEST_MATRIX else None
    )
    if matrix is not None:
        matrix[tuple(pairs)] = numbers
    return SingleLabelMetrics(
        accuracy=float((predictions == labels).mean()),
        macro_f1=counts.macro_f1,
        loss=cross_entropy(probabilities, one_hot(labels[is_known], num_classes)),
        per_class={
            name: ClassMetrics(**counts.scores(number)) for number, name in enumerate(label_names)
        },
        confusion_matrix=None if matrix is None else matrix.tolist(),
        calibration=bins,
        ece=bins.expected_error,
        most_confused=_most_confused(pairs, numbers, label_names),
        unseen_labels=dict(
            zip(label_names[num_classes:], counts.support[num_classes:].tolist(), strict=True)
        ),
        num_examples=len(labels),
    )


def _multi_label_metrics(
    logits: Logits, labels: NDArray[Any], label_names: Sequence[str], thresholds: Sequence[float]
) -> MultiLabelMetrics:
    num_classes, num_labels = logits.shape[1], len(label_names)
    labels = padded(labels, num_labels)
    has_label, known = labels > 0, labels[:, :num_classes] > 0
    probabilities, given = sigmoid(logits), answers_of(logits, thresholds, num_labels=num_labels)
    counts, of_texts = ClassCounts.of(given, labels), ClassCounts.of(given.T, labels.T)
    precisions = average_precisions(padded(probabilities, num_labels), labels)
    precisions[num_classes:] = np.where(
        counts.support[num_classes:] > 0, 0.0, np.nan
    )  # nothing can predict them
    is_likely = probabilities >= LEAST_PROBABILITY
    bins = CalibrationBins.of(probabilities[is_likely], known[is_likely])
    missed, wrong = (it.astype(np.float32) for it in (has_label & ~given, given & ~has_label))
    confused = (missed.T @ wrong).astype(np.int64)
    pairs = np.stack(np.nonzero(confused))
    return MultiLabelMetrics(
        micro_f1=counts.micro_f1,
        macro_f1=counts.macro_f1,
        samples_f1=float(np.where(of_texts.support + of_texts.answered, of_texts.f1, 1.0).mean()),
        subset_accuracy=float((given == has_label).all(axis=1).mean()),
        mean_average_precision=mean_or_zero(precisions),
        loss=binary_cross_entropy(probabilities, known),
        labels_per_text=float(of_texts.support.mean()),
        predicted_per_text=float(of_texts.answered.mean()),
        per_class={
            name: LabelMetrics(
                **counts.scores(number),
                average_precision=None
                if np.isnan(precisions[number])
                else float(precisions[number]),
                threshold=float(thresholds[number]) if number < num_classes else None,
            )
            for number, name in enumerate(label_names)
        },
        calibration=bins,
        ece=bins.expected_error,
        most_confused=_most_confused(pairs, confused[tuple(pairs)], label_names),
        unseen_labels=dict(
            zip(label_names[num_classes:], counts.support[num_classes:].tolist(), strict=True)
        ),
        num_examples=len(labels),
    )


def _most_confused(
    pairs: NDArray[np.int64], numbers: NDArray[np.int64], names: Sequence[str]
) -> list[Confusion]:
    """The most frequent mistakes among pairs of label and answer, (2, pairs), by their numbers, (pairs,)."""
    is_wrong = pairs[0] != pairs[1]
    pairs, numbers = pairs[:, is_wrong], numbers[is_wrong]
    return [
        Confusion(label=names[pairs[0, it]], prediction=names[pairs[1, it]], count=int(numbers[it]))
        for it in np.argsort(-numbers, kind="stable")[:MOST_CONFUSED]
    ]


class ClassCounts(NamedTuple):
    """By class, the numbers of correct answers, labels and answers, and whether macro-F1 counts the class."""

    right: NDArray[np.int64]
    support: NDArray[np.int64]
    answered: NDArray[np.int64]
    is_averaged: NDArray[np.bool_]

    @classmethod
    def of(
        cls, answers: NDArray[Any], labels: NDArray[Any], *, num_classes: int = 0
    ) -> ClassCounts:
        """Count answers and labels, (texts,), of at least `num_classes` classes; multi-label, (texts, labels)."""
        if labels.ndim > 1:
            has_label = labels > 0
            right, support, answered = (
                it.sum(axis=0) for it in (answers & has_label, has_label, answers)
            )
            return cls(right, support, answered, support > 0)
        num_classes = max(num_classes, 1 + int(max(answers.max(), labels.max())))
        columns = (labels[answers == labels], labels, answers)
        right, support, answered = (np.bincount(it, minlength=num_classes) for it in columns)
        return cls(right, support, answered, support + answered > 0)

    @property
    def f1(self) -> Floats:
        """F1 of each class; 0 of one that does not occur."""
        return np.asarray(2 * self.right / np.maximum(1, self.support + self.answered))

    @property
    def micro_f1(self) -> float:
        """F1 of all pairs of a text and a label."""
        return float(2 * self.right.sum() / max(1, self.support.sum() + self.answered.sum()))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur as label or answer; multi-label, as label."""
        return float(self.f1[self.is_averaged].mean()) if self.is_averaged.any() else 0.0

    def scores(self, number: int) -> dict[str, Any]:
        """The fields of `ClassMetrics`."""
        if not (support := int(self.support[number])):
            return {"precision": None, "recall": None, "f1": None, "support": 0}
        right, answered = int(self.right[number]), int(self.answered[number])
        f1 = 2 * right / (support + answered)
        return {
            "precision": right / max(1, answered),
            "recall": right / support,
            "f1": f1,
            "support": support,
        }


def cross_entropy(
    probabilities: Floats, targets: Floats, weights: NDArray[np.floating[Any]] | None = None
) -> float:
    """The mean negative log-likelihood of targets, both (texts, classes), in nats, by the texts' weights."""
    return float(np.average(_losses(probabilities, targets), weights=weights))


def binary_cross_entropy(probabilities: Floats, targets: NDArray[Any]) -> float:
    """The mean over texts of the negative log-likelihood of all their labels, both (texts, labels), in nats."""
    return float((_losses(probabilities, targets) + _losses(1 - probabilities, 1 - targets)).mean())


def losses_of_texts(logits: Logits, labels: NDArray[Any]) -> Floats:
    """The negative log-likelihood of the label of each text, or of all its labels, (texts,), in nats."""
    probabilities = task_of(labels).probabilities(logits)
    if labels.ndim > 1:
        return _losses(probabilities, labels) + _losses(1 - probabilities, 1 - labels)
    return _losses(probabilities, one_hot(labels, logits.shape[1]))


def _losses(probabilities: Floats, targets: NDArray[Any]) -> Floats:
    losses: Floats = -(targets * np.log(np.maximum(probabilities, MIN_PROBABILITY))).sum(axis=-1)
    return losses


def one_hot(labels: NDArray[np.int64], num_classes: int) -> Floats:
    """Labels (texts,) as targets, (texts, classes)."""
    return np.eye(num_classes)[labels]


def padded(values: NDArray[Any], num_labels: int) -> NDArray[Any]:
    """Values (texts, classes) with a column of zeros for each further label."""
    return np.pad(values, ((0, 0), (0, num_labels - values.shape[1])))


def mean_or_zero(values: Floats) -> float:
    """The mean of the values that are not NaN; 0 without one."""
    return 0.0 if np.isnan(values).all() else float(np.nanmean(values))


def best_f1_threshold(scores: Floats, targets: NDArray[Any]) -> float:
    """The threshold of scores, (pairs,), with the best F1, halfway between two scores; 0 without positive targets."""
    positives = int(targets.sum())
    if not positives:
        return 0.0
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    f1 = 2 * np.cumsum(targets[order], dtype=np.int64) / (np.arange(1, len(order) + 1) + positives)
    is_last_of_equals = np.append(ordered[:-1] > ordered[1:], True)
    best = int(np.argmax(np.where(is_last_of_equals, f1, -1)))
    following = ordered[best + 1] if best + 1 < len(ordered) else ordered[best]
    return float((ordered[best] + following) / 2)


def average_precisions(scores: Floats, labels: NDArray[Any]) -> Floats:
    """The average precision of each label, (labels,), NaN if no text has it; arguments are (texts, labels).

    As in scikit-learn, the sum over distinct scores of the precision times the gain of recall.
    """
    precisions = np.full(scores.shape[1], np.nan)
    ranks = np.arange(1, len(scores) + 1)
    for label in np.flatnonzero((labels > 0).any(axis=0)).tolist():
        order = np.argsort(-scores[:, label], kind="stable")
        ordered = scores[order, label]
        right = np.cumsum(labels[order, label] > 0)
        ends = np.flatnonzero(np.append(ordered[:-1] > ordered[1:], True))
        gains = np.diff(right[ends], prepend=0) / right[-1]
        precisions[label] = (gains * right[ends] / ranks[ends]).sum()
    return precisions


def answers_of(logits: Logits, thresholds: Sequence[float], *, num_labels: int) -> NDArray[Any]:
    """The most probable class of each text, (texts,); with thresholds, whether it gets each label, (texts, labels).

    Thresholds are probabilities, (classes,). No text gets the last labels, which have no logit.
    """
    if not len(thresholds):
        return np.asarray(logits.argmax(axis=1))
    return padded(sigmoid(logits) >= np.asarray(thresholds, dtype=np.float64), num_labels)


def parts_alone(
    part_logits: Mapping[str, Logits], mixture_weights: Sequence[float], shares: Sequence[float]
) -> dict[str, Logits]:
    """The logits of each part without the others; all arguments are in the order of the parts.

    The factor of a part alone is its mixture weight divided by its share of the sum.
    """
    return {
        name: (logits * (weight / max(share, 1e-6))).astype(np.float32)
        for (name, logits), weight, share in zip(
            part_logits.items(), mixture_weights, shares, strict=True
        )
    }
