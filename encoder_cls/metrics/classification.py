"""Compute metrics from logits and labels, for single-label and multi-label tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.log_loss import binary_cross_entropy, cross_entropy, one_hot
from encoder_cls.metrics.logits import Logits, sigmoid, softmax
from encoder_cls.metrics.precision_recall import ClassCounts, average_precisions, mean_or_zero
from encoder_cls.metrics.scores import (
    MIN_CLASSES_OF_TOP_K,
    TOP_K,
    Score,
    main_score,
    scores_of_task,
)
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task, padded, task_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """Scores of one class, from 0 to 1; None if no example has it."""

    precision: float | None
    recall: float | None
    f1: float | None
    support: int


@dataclass(frozen=True, kw_only=True)
class LabelMetrics(ClassMetrics):
    """Scores of one label; `average_precision` is None if no text has it.

    Attributes:
        threshold: the probability from which a text gets it; None if it is not in the training
            data.
    """

    average_precision: float | None
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How often examples of one class were predicted to be another class."""

    label: str
    prediction: str
    count: int


# The number of bins of confidence, which have equal widths, as in Guo et al. (2017).
CALIBRATION_BINS = 15


@dataclass(frozen=True, kw_only=True)
class CalibrationBins:
    """Predictions in bins by their confidence; means and shares of an empty bin are 0."""

    confidence: list[float]
    accuracy: list[float]
    texts: list[int]

    @classmethod
    def of(cls, confidence: Floats, correct: NDArray[np.bool_]) -> CalibrationBins:
        """Sort predictions into bins by their confidence."""
        # A confidence of 1 belongs to the last bin.
        bins = (confidence * CALIBRATION_BINS).astype(int)
        bins = np.minimum(bins, CALIBRATION_BINS - 1)

        counts = np.bincount(bins, minlength=CALIBRATION_BINS)
        confidence_sums = np.bincount(bins, weights=confidence, minlength=CALIBRATION_BINS)
        num_correct = np.bincount(bins, weights=correct, minlength=CALIBRATION_BINS)

        at_least_one = np.maximum(1, counts)
        return cls(
            confidence=(confidence_sums / at_least_one).tolist(),
            accuracy=(num_correct / at_least_one).tolist(),
            texts=counts.tolist(),
        )

    @property
    def expected_error(self) -> float:
        """The expected calibration error (ECE); 0 without predictions.

        The mean of |accuracy - confidence| over bins, weighted by size: Guo et al., "On Calibration
        of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599.
        """
        if not any(self.texts):
            return 0.0
        gaps = np.abs(np.subtract(self.accuracy, self.confidence))
        return float(np.average(gaps, weights=self.texts))


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Scores of predictions, single-label or multi-label.

    Attributes:
        macro_f1: of the classes that occur as a label or a prediction; multi-label, of the labels
            that some text has.
        loss: the mean negative log-likelihood of a text's label, or of all its labels, in nats.
        most_confused: pairs of a label and a wrong prediction; multi-label, of a missed and a wrong
            label of a text.
        unseen_labels: examples of each label that training lacks, which count as mistakes, and not
            in `loss`, `ece` and `calibration`.
    """

    task: ClassVar[Task]

    num_examples: int
    macro_f1: float
    loss: float
    ece: float
    per_class: Mapping[str, ClassMetrics]
    calibration: CalibrationBins
    most_confused: list[Confusion]
    unseen_labels: dict[str, int]

    def scalars(self) -> dict[str, float]:
        """The scores that are not None, by key."""
        scores = {score.key: getattr(self, score.key) for score in scores_of_task(self.task)}
        return {key: value for key, value in scores.items() if value is not None}

    @property
    def main_score(self) -> Score:
        """The score by which models and their parts are compared."""
        return main_score(self.task)

    def drawable(self) -> dict[str, Any]:
        """The data of plots, as JSON values."""
        return {"calibration": asdict(self.calibration)}


# The maximum number of classes of a confusion matrix: a person cannot read a larger one.
MAX_MATRIX_CLASSES = 100


@dataclass(frozen=True, kw_only=True)
class SingleLabelMetrics(Metrics):
    """Scores of single-label predictions.

    The confusion matrix counts texts by `[label][prediction]`; it is None above
    `MAX_MATRIX_CLASSES`.

    Attributes:
        top_3: how often the label is among the 3 most probable classes; None, as `top_5` and
            `top_10`, with fewer than `MIN_CLASSES_OF_TOP_K` classes.
    """

    task = SINGLE_LABEL

    accuracy: float
    top_3: float | None
    top_5: float | None
    top_10: float | None
    confusion_matrix: list[list[int]] | None

    def drawable(self) -> dict[str, Any]:
        """See `Metrics.drawable`."""
        values = super().drawable()
        if self.confusion_matrix:
            values["confusion_matrix"] = self.confusion_matrix
        if self.unseen_labels:
            # The matrix has more classes than the classifier, so it needs names of its own.
            values["label_names"] = list(self.per_class)
        return values


# In a multi-label task, labels with a lower probability do not count in the calibration error.
MIN_LIKELY_PROBABILITY = 0.1


@dataclass(frozen=True, kw_only=True)
class MultiLabelMetrics(Metrics):
    """Scores of multi-label predictions.

    `ece` counts only labels from `MIN_LIKELY_PROBABILITY` on: the many improbable ones would hide
    their calibration.

    Attributes:
        micro_f1: over all pairs of a text and a label.
        samples_f1: the mean of the texts' F1; 1 for a text that has no label and gets none.
        subset_accuracy: how often a text gets exactly its labels.
    """

    task = MULTI_LABEL

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
    """Compute the metrics of logits, (texts, classes).

    The names are of the classes, then of labels that training lacks, which have no logit.
    Multi-label, a text gets each label from the probability `thresholds`, (classes,).
    """
    if task_of(labels) is SINGLE_LABEL:
        return _single_label_metrics(logits, labels, label_names)
    return _multi_label_metrics(logits, labels, label_names, thresholds)


def _single_label_metrics(
    logits: Logits, labels: NDArray[np.int64], label_names: Sequence[str]
) -> SingleLabelMetrics:
    num_classes = logits.shape[1]
    num_labels = len(label_names)
    predictions = logits.argmax(axis=1)

    # Score each class. Texts with a label that never occurs in the training data are mistakes.
    counts = ClassCounts.of(predictions, labels, num_classes=num_labels)
    per_class = {}
    for number, name in enumerate(label_names):
        per_class[name] = ClassMetrics(**counts.scores(number))

    # Compute loss and calibration on the texts whose label has a probability.
    is_known = labels < num_classes
    probabilities = softmax(logits[is_known])
    is_correct = predictions[is_known] == labels[is_known]
    bins = CalibrationBins.of(probabilities.max(axis=1), is_correct)
    targets = one_hot(labels[is_known], num_classes)

    # Count how often each pair of label and prediction occurs: (2, pairs) and (pairs,).
    pairs, pair_counts = np.unique(np.stack([labels, predictions]), axis=1, return_counts=True)
    matrix = None
    if num_labels <= MAX_MATRIX_CLASSES:
        cells = np.zeros((num_labels, num_labels), dtype=np.int64)
        cells[pairs[0], pairs[1]] = pair_counts
        matrix = cells.tolist()

    top = top_k_accuracies(logits, labels) if num_classes >= MIN_CLASSES_OF_TOP_K else {}

    return SingleLabelMetrics(
        num_examples=len(labels),
        accuracy=float((predictions == labels).mean()),
        top_3=top.get(3),
        top_5=top.get(5),
        top_10=top.get(10),
        macro_f1=counts.macro_f1,
        loss=cross_entropy(probabilities, targets),
        ece=bins.expected_error,
        calibration=bins,
        per_class=per_class,
        confusion_matrix=matrix,
        most_confused=_most_confused(pairs, pair_counts, label_names),
        unseen_labels=_unseen_labels(counts, label_names, num_classes),
    )


def top_k_accuracies(
    logits: NDArray[np.floating[Any]], labels: NDArray[np.int64]
) -> dict[int, float]:
    """The share of texts whose label is among the k most probable classes, for each of `TOP_K`.

    `logits` may be probabilities. Labels beyond the classes are never among them.
    """
    num_classes = logits.shape[1]
    is_known = labels < num_classes
    rows = np.arange(len(labels))
    of_label = logits[rows, np.minimum(labels, num_classes - 1)]
    num_before = (logits > of_label[:, None]).sum(axis=1)
    return {k: float((is_known & (num_before < k)).mean()) for k in TOP_K}


def _multi_label_metrics(
    logits: Logits, labels: NDArray[Any], label_names: Sequence[str], thresholds: Sequence[float]
) -> MultiLabelMetrics:
    num_classes = logits.shape[1]
    num_labels = len(label_names)
    labels = padded(labels, num_labels)
    has_label = labels > 0
    probabilities = sigmoid(logits)
    is_given = predicted_labels(logits, thresholds, num_labels=num_labels)

    # Count by label, and after a transposition by text.
    counts = ClassCounts.of(is_given, labels)
    text_counts = ClassCounts.of(is_given.T, labels.T)

    # A text that has no label and gets none is predicted perfectly.
    has_any = text_counts.support + text_counts.predicted > 0
    f1_of_texts = np.where(has_any, text_counts.f1, 1.0)

    # A label without a logit is never predicted, so its average precision is 0 if some text has it.
    precisions = average_precisions(padded(probabilities, num_labels), labels)
    precisions[num_classes:] = np.where(counts.support[num_classes:] > 0, 0.0, np.nan)

    # Compute loss and calibration on the labels that have a probability.
    known_labels = has_label[:, :num_classes]
    is_likely = probabilities >= MIN_LIKELY_PROBABILITY
    bins = CalibrationBins.of(probabilities[is_likely], known_labels[is_likely])

    # Count the texts that lack one of their labels and get another, wrong label: (missed, wrong).
    is_missed = (has_label & ~is_given).astype(np.float32)
    is_wrong = (is_given & ~has_label).astype(np.float32)
    confused = (is_missed.T @ is_wrong).astype(np.int64)
    pairs = np.stack(np.nonzero(confused))

    return MultiLabelMetrics(
        num_examples=len(labels),
        micro_f1=counts.micro_f1,
        macro_f1=counts.macro_f1,
        samples_f1=float(f1_of_texts.mean()),
        subset_accuracy=float((is_given == has_label).all(axis=1).mean()),
        mean_average_precision=mean_or_zero(precisions),
        labels_per_text=float(text_counts.support.mean()),
        predicted_per_text=float(text_counts.predicted.mean()),
        loss=binary_cross_entropy(probabilities, known_labels),
        ece=bins.expected_error,
        calibration=bins,
        per_class=_label_metrics(counts, precisions, label_names, thresholds),
        most_confused=_most_confused(pairs, confused[pairs[0], pairs[1]], label_names),
        unseen_labels=_unseen_labels(counts, label_names, num_classes),
    )


def _label_metrics(
    counts: ClassCounts, precisions: Floats, names: Sequence[str], thresholds: Sequence[float]
) -> dict[str, LabelMetrics]:
    """Scores by name; labels that never occur in training come last, and precisions may be NaN."""
    metrics = {}
    for number, name in enumerate(names):
        average_precision = None
        if not np.isnan(precisions[number]):
            average_precision = float(precisions[number])

        threshold = None
        if number < len(thresholds):
            threshold = float(thresholds[number])

        metrics[name] = LabelMetrics(
            **counts.scores(number), average_precision=average_precision, threshold=threshold
        )
    return metrics


def _unseen_labels(
    counts: ClassCounts, label_names: Sequence[str], num_classes: int
) -> dict[str, int]:
    unseen_names = label_names[num_classes:]
    num_examples = counts.support[num_classes:].tolist()
    return dict(zip(unseen_names, num_examples, strict=True))


# The maximum number of confused pairs of classes in the metrics.
MAX_CONFUSED = 100


def _most_confused(
    pairs: NDArray[np.int64], counts: NDArray[np.int64], names: Sequence[str]
) -> list[Confusion]:
    """The most frequent mistakes, in descending order.

    `pairs` of a label and a prediction are (2, pairs); `counts` is how often each occurs.
    """
    is_wrong = pairs[0] != pairs[1]
    pairs = pairs[:, is_wrong]
    counts = counts[is_wrong]

    # Sort stably: of equally frequent pairs, the one with the lower class number comes first.
    most_frequent = np.argsort(-counts, kind="stable")[:MAX_CONFUSED]
    confusions = []
    for number in most_frequent:
        label, prediction = pairs[:, number]
        confusion = Confusion(
            label=names[label], prediction=names[prediction], count=int(counts[number])
        )
        confusions.append(confusion)
    return confusions


def predicted_labels(
    logits: Logits, thresholds: Sequence[float], *, num_labels: int
) -> NDArray[Any]:
    """Predict texts by their logits, (texts, classes).

    The thresholds are empty in a single-label task. `num_labels` includes labels without a logit,
    which are the last ones; no text gets them.
    """
    if len(thresholds) == 0:
        return np.asarray(logits.argmax(axis=1))
    is_given = sigmoid(logits) >= np.asarray(thresholds, dtype=np.float64)
    return padded(is_given, num_labels)
