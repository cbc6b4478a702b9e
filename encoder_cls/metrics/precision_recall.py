"""Precision, recall and F1 of predicted labels, and of labels that are ranked by their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from encoder_cls.metrics.tasks import MULTI_LABEL, task_of

Floats = NDArray[np.float64]


def f1_scores(num_right: ArrayLike, num_occurrences: ArrayLike) -> Floats:
    """F1 scores, 2 * right / (labels + predictions); 0 where there are neither."""
    return np.asarray(2 * np.asarray(num_right) / np.maximum(1, num_occurrences))


class ClassCounts(NamedTuple):
    """The numbers of labels and predictions of each class, all (classes,).

    Macro-F1 counts the classes with `is_averaged`: those that occur as a label or as a prediction;
    multi-label, the labels that some text has.
    """

    right: NDArray[np.int64]
    support: NDArray[np.int64]
    predicted: NDArray[np.int64]
    is_averaged: NDArray[np.bool_]

    @classmethod
    def of(
        cls, predictions: NDArray[Any], labels: NDArray[Any], *, num_classes: int = 0
    ) -> ClassCounts:
        """Count labels and predictions; higher numbers than `num_classes` add classes."""
        if task_of(labels) is MULTI_LABEL:
            has_label = labels > 0
            right = (predictions & has_label).sum(axis=0)
            support = has_label.sum(axis=0)
            predicted = predictions.sum(axis=0)
            return cls(right, support, predicted, is_averaged=support > 0)

        num_classes = max(num_classes, 1 + int(predictions.max()), 1 + int(labels.max()))
        right = np.bincount(labels[predictions == labels], minlength=num_classes)
        support = np.bincount(labels, minlength=num_classes)
        predicted = np.bincount(predictions, minlength=num_classes)
        return cls(right, support, predicted, is_averaged=support + predicted > 0)

    @property
    def f1(self) -> Floats:
        """The F1 of each class; 0 for one that does not occur."""
        return f1_scores(self.right, self.support + self.predicted)

    @property
    def micro_f1(self) -> float:
        """The F1 over all pairs of a text and a label."""
        num_occurrences = self.support.sum() + self.predicted.sum()
        return float(f1_scores(self.right.sum(), num_occurrences))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes with `is_averaged`; 0 if there are none."""
        if not self.is_averaged.any():
            return 0.0
        return float(self.f1[self.is_averaged].mean())

    def scores(self, number: int) -> dict[str, Any]:
        """The fields of `ClassMetrics` for the class with this number."""
        right = int(self.right[number])
        support = int(self.support[number])
        predicted = int(self.predicted[number])

        if support == 0:
            return {"precision": None, "recall": None, "f1": None, "support": 0}
        return {
            "precision": right / max(1, predicted),
            "recall": right / support,
            "f1": float(f1_scores(right, support + predicted)),
            "support": support,
        }


def best_f1_threshold(scores: Floats, targets: NDArray[Any]) -> float:
    """The threshold of scores, (pairs,), from which predicting a label gives the best F1.

    It lies halfway between two scores; without positive targets it is 0.
    """
    num_positives = int(targets.sum())
    if num_positives == 0:
        return 0.0

    # Compute F1 if the label is predicted for the n highest scores, for each n from 1.
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    num_right = np.cumsum(targets[order], dtype=np.int64)
    num_predicted = np.arange(1, len(order) + 1)
    f1 = f1_scores(num_right, num_predicted + num_positives)

    # No threshold separates equal scores, so rule out each n that would separate some.
    best = int(np.argmax(np.where(_is_last_of_equals(ordered), f1, -1)))

    following = ordered[best]
    if best + 1 < len(ordered):
        following = ordered[best + 1]
    return float((ordered[best] + following) / 2)


def average_precisions(scores: Floats, labels: NDArray[Any]) -> Floats:
    """The average precision of each label, (labels,); NaN if no text has the label.

    As in scikit-learn, it is the sum over distinct scores of the precision times the gain in
    recall.
    """
    precisions = np.full(scores.shape[1], np.nan)
    has_label = labels > 0
    num_predicted = np.arange(1, len(scores) + 1)

    for label in np.flatnonzero(has_label.any(axis=0)).tolist():
        # Count the correct predictions among the n highest scores, for each n from 1.
        order = np.argsort(-scores[:, label], kind="stable")
        num_right = np.cumsum(has_label[order, label])

        # Texts with equal scores get the label together, so only the last of them counts.
        ends = np.flatnonzero(_is_last_of_equals(scores[order, label]))
        recall_gains = np.diff(num_right[ends], prepend=0) / num_right[-1]
        precisions[label] = (recall_gains * num_right[ends] / num_predicted[ends]).sum()
    return precisions


def mean_or_zero(values: Floats) -> float:
    """The mean of the values that are not NaN; 0 if all are."""
    if np.isnan(values).all():
        return 0.0
    return float(np.nanmean(values))


def _is_last_of_equals(descending: Floats) -> NDArray[np.bool_]:
    return np.append(descending[:-1] > descending[1:], True)
