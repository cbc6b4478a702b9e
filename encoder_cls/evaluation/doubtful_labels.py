"""Find labels that seem to be wrong, by confident learning.

The method is that of Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in
Dataset Labels" (2021), https://arxiv.org/abs/1911.00068. The probabilities must come from a
classifier that has not learned from the labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.tasks import SINGLE_LABEL, task_of


def doubtful_rows(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> tuple[int, ...]:
    """Find the texts whose labels seem to be wrong, ascending.

    They are those with the least probable labels, as many as `estimated_errors`; multi-label, each
    label is a binary task. Labels beyond the classes have no probability, and are never doubtful.
    """
    if task_of(labels) is SINGLE_LABEL:
        is_doubtful = _are_doubtful(probabilities, labels)
        return tuple(np.flatnonzero(is_doubtful).tolist())

    is_doubtful = np.zeros(len(labels), dtype=bool)
    for number in range(probabilities.shape[1]):
        has_label = (labels[:, number] > 0).astype(np.int64)
        probability = probabilities[:, number]
        no_and_yes = np.stack([1 - probability, probability], axis=1)
        is_doubtful |= _are_doubtful(no_and_yes, has_label)
    return tuple(np.flatnonzero(is_doubtful).tolist())


def _are_doubtful(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    # A label can only be wrong where another class is more probable.
    is_known = labels < probabilities.shape[1]
    is_another = probabilities.argmax(axis=1) != labels
    candidates = np.flatnonzero(is_known & is_another)

    # Take the least probable of these labels, as many as are estimated to be wrong. The paper calls
    # the probability of a label its self-confidence. The normalized margin, an alternative in the
    # paper, ranks texts with two probable classes worse (docs/experiments/accuracy.md).
    confidence = SINGLE_LABEL.label_probabilities(probabilities, labels)
    least_probable_first = candidates[np.argsort(confidence[candidates], kind="stable")]
    num_errors = estimated_errors(probabilities, labels)

    is_doubtful = np.zeros(len(labels), dtype=bool)
    is_doubtful[least_probable_first[:num_errors]] = True
    return is_doubtful


def estimated_errors(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """Estimate the number of wrong labels: those off the diagonal of the paper's confident joint.

    It counts texts by label and by the class that they confidently belong to.
    """
    num_classes = probabilities.shape[1]
    is_known = labels < num_classes
    probabilities = probabilities[is_known]
    labels = labels[is_known]

    # The threshold of a class is its mean probability over the texts with this label.
    label_counts = np.bincount(labels, minlength=num_classes)
    confidence = probabilities[np.arange(len(labels)), labels]
    confidence_sums = np.bincount(labels, weights=confidence, minlength=num_classes)
    thresholds = confidence_sums / np.maximum(1, label_counts)

    # A text confidently belongs to the most probable of the classes that reach their threshold.
    is_confident = (probabilities >= thresholds) & (label_counts > 0)
    confident_classes = np.where(is_confident, probabilities, -1.0).argmax(axis=1)
    has_confident_class = is_confident.any(axis=1)

    # For each label, count the texts on the diagonal of the confident joint, and those off it.
    is_diagonal = confident_classes == labels
    num_on = np.bincount(labels[has_confident_class & is_diagonal], minlength=num_classes)
    num_off = np.bincount(labels[has_confident_class & ~is_diagonal], minlength=num_classes)

    # Calibrate the counts as the paper does. Not every text has a confident class, so apply the
    # fraction of wrong labels to all texts with this label.
    wrong_fractions = num_off / np.maximum(1, num_on + num_off)
    return round(float((wrong_fractions * label_counts).sum()))
