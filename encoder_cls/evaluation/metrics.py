"""Metrics of logits and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.task import Logits, sigmoid, softmax

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


Floats = NDArray[np.float64]
LEAST_PROBABILITY = 0.1  # of a label that counts for calibration


@dataclass(frozen=True, kw_only=True)
class LabelMetrics(ClassMetrics):
    """How well one label is found: fractions from 0 to 1, none without examples; and the number of these.

    Attributes:
        average_precision: the area below the curve of precision against recall; none where no text has the label.
        threshold: the probability from which a text is said to have it; none of a label that was never trained on.
    """

    average_precision: float | None
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class MultiLabelMetrics:
    """How well predictions fit labels, where a text may have any number of them.

    Attributes:
        num_examples: examples counted.
        micro_f1: F1 of all pairs of a text and a label.
        macro_f1: the mean F1 of the labels that some text has.
        samples_f1: the mean F1 of texts; 1 where a text has no label and gets none.
        subset_accuracy: the part of the texts whose labels are all right, and none missing.
        mean_average_precision: the mean average precision of the labels that some text has.
        loss: the mean negative log-likelihood of the labels of a text, in nats: the sum of the binary cross entropies.
        ece: the expected calibration error of labels with a probability of `LEAST_PROBABILITY` or more: the mean
            distance between that and how many of the texts have them. Most labels are out of the question for most
            texts, which would hide how the others are.
        labels_per_text: how many labels a text has, on average, and
        predicted_per_text: how many it gets.
        per_class: by label.
        calibration: how probable these labels are, and how often they are right.
        most_confused: the most frequent pairs of a label that was missed and one that a text got in its place.
        unseen_labels: of each label that never occurs in the training data its number of examples. They count as
            mistakes, and are left out of `loss`, `ece` and `calibration`.
    """

    num_examples: int
    micro_f1: float
    macro_f1: float
    samples_f1: float
    subset_accuracy: float
    mean_average_precision: float
    loss: float
    ece: float
    labels_per_text: float
    predicted_per_text: float
    per_class: dict[str, LabelMetrics]
    calibration: CalibrationBins
    most_confused: list[Confusion]
    unseen_labels: dict[str, int]

    def scalars(self) -> dict[str, float]:
        """The metrics that are single numbers, as curves have them."""
        return {
            "loss": self.loss,
            "micro_f1": self.micro_f1,
            "macro_f1": self.macro_f1,
            "samples_f1": self.samples_f1,
            "subset_accuracy": self.subset_accuracy,
            "mean_average_precision": self.mean_average_precision,
            "ece": self.ece,
        }

    def drawable(self) -> dict[str, Any]:
        """What plots are drawn from, as JSON values."""
        return {"calibration": asdict(self.calibration)}


class F1Scores(NamedTuple):
    """Micro-F1, macro-F1 over the labels that some text has, and the F1 of each label, (labels,)."""

    micro: float
    macro: float
    of_labels: Floats


def f1_scores(answers: NDArray[np.bool_], labels: NDArray[Any]) -> F1Scores:
    """The F1 of answers, against labels, both (texts, labels)."""
    has_label = labels > 0
    right = (answers & has_label).sum(axis=0)
    positives, answered = has_label.sum(axis=0), answers.sum(axis=0)
    of_labels: Floats = 2 * right / np.maximum(1, positives + answered)
    occurring = of_labels[positives > 0]
    micro = float(2 * right.sum() / max(1, positives.sum() + answered.sum()))
    return F1Scores(micro, float(occurring.mean()) if len(occurring) else 0.0, of_labels)


def best_f1_threshold(scores: Floats, targets: NDArray[Any]) -> float:
    """The score from which answering yes has the best F1: halfway between two scores; 0 without positives.

    Args:
        scores: (pairs,).
        targets: 1 where yes is right, else 0, (pairs,).
    """
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
    """The average precision of each label, (labels,); NaN of one that no text has.

    As scikit-learn has it: the sum of the precisions at each score, each times the recall that it adds; texts of equal
    scores come at once.

    Args:
        scores: (texts, labels).
        labels: 1 where a text has a label, else 0, (texts, labels).
    """
    found = np.full(scores.shape[1], np.nan)
    ranks = np.arange(1, len(scores) + 1)
    for label in np.flatnonzero((labels > 0).any(axis=0)).tolist():
        order = np.argsort(-scores[:, label], kind="stable")
        ordered = scores[order, label]
        right = np.cumsum(labels[order, label] > 0)
        ends = np.flatnonzero(np.append(ordered[:-1] > ordered[1:], True))
        gains = np.diff(right[ends], prepend=0) / right[-1]
        found[label] = float((gains * right[ends] / ranks[ends]).sum())
    return found


def binary_cross_entropy(probabilities: Floats, targets: NDArray[Any]) -> float:
    """The mean over texts of the negative log-likelihood of all their labels, both (texts, labels), in nats."""
    yes, no = (np.log(np.maximum(it, MIN_PROBABILITY)) for it in (probabilities, 1 - probabilities))
    losses = -(targets * yes + (1 - targets) * no).sum(axis=-1)
    return float(losses.mean())


def answers_of(logits: Logits, thresholds: Sequence[float], *, num_labels: int) -> NDArray[np.bool_]:
    """Which labels texts are said to have, (texts, labels); of those that have no logit none.

    Args:
        logits: (texts, classes).
        thresholds: the probability from which a label is said to be there, (classes,).
        num_labels: of the classes, and of labels that never occur in the training data.
    """
    found = sigmoid(logits) >= np.asarray(thresholds, dtype=np.float64)
    return np.pad(found, ((0, 0), (0, num_labels - logits.shape[1])))


def samples_f1(answers: NDArray[np.bool_], labels: NDArray[Any]) -> Floats:
    """The F1 of each text, (texts,); 1 where there is no label and none is answered."""
    has_label = labels > 0
    total = has_label.sum(axis=1) + answers.sum(axis=1)
    of_texts: Floats = np.where(total == 0, 1.0, 2 * (answers & has_label).sum(axis=1) / np.maximum(1, total))
    return of_texts


def compute_multi_label_metrics(
    logits: Logits, labels: NDArray[Any], label_names: Sequence[str], thresholds: Sequence[float]
) -> MultiLabelMetrics:
    """Score predictions against labels.

    Args:
        logits: (texts, classes).
        labels: 1 where a text has a label, else 0, (texts, labels).
        label_names: of the classes, then of the labels that have no logit, since they never occur in the training data.
        thresholds: of the classes.
    """
    num_classes, num_labels = logits.shape[1], len(label_names)
    labels = np.pad(labels, ((0, 0), (0, num_labels - labels.shape[1])))
    has_label = labels > 0
    probabilities = sigmoid(logits)
    answers = answers_of(logits, thresholds, num_labels=num_labels)
    right, support, answered = (answers & has_label).sum(axis=0), has_label.sum(axis=0), answers.sum(axis=0)
    scores = f1_scores(answers, labels)
    precisions = average_precisions(np.pad(probabilities, ((0, 0), (0, num_labels - num_classes))), labels)
    precisions[num_classes:] = np.where(support[num_classes:] > 0, 0.0, np.nan)  # nothing can find them
    known = has_label[:, :num_classes]
    is_likely = probabilities >= LEAST_PROBABILITY
    bins = calibration_bins(probabilities[is_likely], known[is_likely])
    return MultiLabelMetrics(
        num_examples=len(labels),
        micro_f1=scores.micro,
        macro_f1=scores.macro,
        samples_f1=float(samples_f1(answers, labels).mean()),
        subset_accuracy=float((answers == has_label).all(axis=1).mean()),
        mean_average_precision=float(np.nanmean(precisions)) if support.any() else 0.0,
        loss=binary_cross_entropy(probabilities, known),
        ece=expected_calibration_error(bins) if is_likely.any() else 0.0,
        labels_per_text=float(has_label.sum(axis=1).mean()),
        predicted_per_text=float(answers.sum(axis=1).mean()),
        per_class={
            name: LabelMetrics(
                support=int(support[i]),
                **found_scores(
                    {
                        "precision": right[i] / max(1, answered[i]),
                        "recall": right[i] / max(1, support[i]),
                        "f1": scores.of_labels[i],
                    },
                    support[i],
                ),
                average_precision=None if np.isnan(precisions[i]) else float(precisions[i]),
                threshold=float(thresholds[i]) if i < num_classes else None,
            )
            for i, name in enumerate(label_names)
        },
        calibration=bins,
        most_confused=_most_confused(answers, has_label, label_names),
        unseen_labels={name: int(support[i]) for i, name in enumerate(label_names) if i >= num_classes},
    )


def _most_confused(
    answers: NDArray[np.bool_], has_label: NDArray[np.bool_], label_names: Sequence[str]
) -> list[Confusion]:
    """The most frequent pairs of a missed label and a wrong one of the same text, `MOST_CONFUSED` at most."""
    missed, wrong = (it.astype(np.float32) for it in (has_label & ~answers, answers & ~has_label))
    counts = (missed.T @ wrong).astype(np.int64)
    order = np.argsort(-counts, axis=None, kind="stable")[:MOST_CONFUSED]
    pairs = zip(*(it.tolist() for it in np.unravel_index(order, counts.shape)), strict=True)
    return [
        Confusion(label=label_names[label], prediction=label_names[prediction], count=int(counts[label, prediction]))
        for label, prediction in pairs
        if counts[label, prediction]
    ]
