"""Logits and labels in, numbers out that tell how well they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.logits import Logits, softmax

CALIBRATION_BINS = 15  # as in Guo et al. (2017)
LARGEST_MATRIX = 100  # classes; a wider confusion matrix would outweigh all else, and nobody could read it
MOST_CONFUSED = 100  # pairs of classes that are named
MIN_PROBABILITY = 1e-12  # probabilities below count as this: one impossible label must not outweigh all others


@dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """How well one class is found: fractions from 0 to 1, none without examples; and the number of these."""

    precision: float | None
    recall: float | None
    f1: float | None
    support: int


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How many examples of a class were predicted to be another."""

    label: str
    prediction: str
    count: int


@dataclass(frozen=True, kw_only=True)
class CalibrationBins:
    """Of each bin of confidence its mean confidence, the part that is right, and how many texts are in it."""

    confidence: list[float]
    accuracy: list[float]
    texts: list[int]


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How well predictions fit labels.

    Attributes:
        num_examples: examples counted.
        accuracy: the part that is right.
        macro_f1: the mean F1 of the classes that occur as label or prediction.
        loss: the mean cross-entropy, in nats.
        ece: the expected calibration error: the mean distance between confidence and accuracy.
        per_class: by class name.
        calibration: how sure the answers are, and how often right.
        confusion_matrix: `[label][prediction]` counts, in the order of the class names; none of more than
            `LARGEST_MATRIX` classes.
        most_confused: the most frequent mistakes, the most frequent first, `MOST_CONFUSED` at most.
        unseen_labels: of each label that never occurs in the training data its number of examples. They count as
            mistakes in `accuracy`, `macro_f1` and `per_class`, and are left out of `loss`, `ece` and `calibration`.
    """

    num_examples: int
    accuracy: float
    macro_f1: float
    loss: float
    ece: float
    per_class: dict[str, ClassMetrics]
    calibration: CalibrationBins
    confusion_matrix: list[list[int]] | None
    most_confused: list[Confusion]
    unseen_labels: dict[str, int]

    def scalars(self) -> dict[str, float]:
        """The metrics that are single numbers."""
        return {"loss": self.loss, "accuracy": self.accuracy, "macro_f1": self.macro_f1, "ece": self.ece}

    def drawable(self) -> dict[str, Any]:
        """What plots are drawn from, as JSON values."""
        drawn: dict[str, Any] = {"calibration": asdict(self.calibration)}
        if self.confusion_matrix:
            drawn["confusion_matrix"] = self.confusion_matrix
        if self.unseen_labels:
            drawn["label_names"] = list(self.per_class)
        return drawn


def cross_entropy(
    probabilities: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.floating[Any]] | None = None
) -> float:
    """The mean negative log-likelihood of targets, both (texts, classes), in nats, by the texts' weights."""
    losses = -(targets * np.log(np.maximum(probabilities, MIN_PROBABILITY))).sum(axis=-1)
    return float(np.average(losses, weights=weights))


def one_hot(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """Labels (texts,) as targets, (texts, classes)."""
    return np.eye(num_classes)[labels]


def found_scores(scores: Mapping[str, float], support: int) -> dict[str, float | None]:
    """The scores of a class, none of one without examples."""
    return {name: float(score) if support else None for name, score in scores.items()}


def score_text(score: float | None) -> str:
    """A score with three digits, a dash for none."""
    return "-" if score is None else f"{score:.3f}"


def compute_metrics(logits: Logits, labels: NDArray[np.int64], label_names: Sequence[str]) -> Metrics:
    """Score predictions against labels.

    Args:
        logits: (texts, classes).
        labels: (texts,), each an index into the names.
        label_names: of the classes, then of the labels that have no logit, since they never occur in the training data.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    num_classes = logits.shape[1]
    is_known = labels < num_classes
    known_logits, known_labels = logits[is_known], labels[is_known]
    predictions = logits.argmax(axis=1)
    bins = calibration_bins(*answers(known_logits, known_labels))
    numbers = range(len(label_names))
    precision, recall, f1, support = precision_recall_fscore_support(
        labels, predictions, labels=numbers, zero_division=0
    )
    occurs = np.union1d(labels, predictions)
    return Metrics(
        num_examples=len(labels),
        accuracy=float((predictions == labels).mean()),
        macro_f1=float(f1[occurs].mean()),
        loss=cross_entropy(softmax(known_logits), one_hot(known_labels, num_classes)),
        ece=expected_calibration_error(bins),
        per_class={
            name: ClassMetrics(
                support=int(support[i]),
                **found_scores({"precision": precision[i], "recall": recall[i], "f1": f1[i]}, support[i]),
            )
            for i, name in enumerate(label_names)
        },
        calibration=bins,
        confusion_matrix=confusion_matrix(labels, predictions, labels=numbers).tolist()
        if len(label_names) <= LARGEST_MATRIX
        else None,
        most_confused=most_confused(labels, predictions, label_names),
        unseen_labels={name: int(support[i]) for i, name in enumerate(label_names) if i >= num_classes},
    )


def most_confused(
    labels: NDArray[np.int64], predictions: NDArray[np.int64], label_names: Sequence[str]
) -> list[Confusion]:
    """The most frequent mistakes, the most frequent first; of equally frequent ones that of the first class."""
    wrong = labels != predictions
    pairs, counts = np.unique(np.stack([labels[wrong], predictions[wrong]]), axis=1, return_counts=True)
    return [
        Confusion(label=label_names[pairs[0, i]], prediction=label_names[pairs[1, i]], count=int(counts[i]))
        for i in np.argsort(-counts, kind="stable")[:MOST_CONFUSED]
    ]


class Answers(NamedTuple):
    """Of each text how probable its most probable class is, and whether that is its label; both (texts,)."""

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_]


def answers(logits: Logits, labels: NDArray[np.int64]) -> Answers:
    """What logits (texts, classes) answer, against labels (texts,)."""
    return Answers(softmax(logits).max(axis=1), logits.argmax(axis=1) == labels)


def calibration_bins(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> CalibrationBins:
    """Answers sorted into `CALIBRATION_BINS` bins of equal width; empty bins have zeros."""
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    count = np.bincount(bins, minlength=CALIBRATION_BINS)
    sums = (np.bincount(bins, weights=values, minlength=CALIBRATION_BINS) for values in (confidence, correct))
    mean_confidence, accuracy = (total / np.maximum(1, count) for total in sums)
    return CalibrationBins(confidence=mean_confidence.tolist(), accuracy=accuracy.tolist(), texts=count.tolist())


def expected_calibration_error(bins: CalibrationBins) -> float:
    """The mean over bins of |accuracy - confidence|, weighted by the bins' sizes.

    Guo et al., "On Calibration of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599.
    """
    distances = np.abs(np.subtract(bins.accuracy, bins.confidence))
    return float(np.average(distances, weights=bins.texts))
