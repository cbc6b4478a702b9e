"""Labels that seem to be wrong, by confident learning.

Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021),
https://arxiv.org/abs/1911.00068. Probabilities must come from a classifier that has not seen the
labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def doubtful_rows(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> tuple[int, ...]:
    """The indices of the texts with the least probable labels, as many as are wrong by estimate.

    Probabilities are (texts, classes), labels (texts,). Multi-label, labels are (texts, labels),
    and each one is a binary task. Labels beyond the classes have no probability, and are not
    doubted.
    """
    if labels.ndim == 1:
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
    """Whether each label is doubtful, (texts,)."""
    # A label can only be wrong where another class is more probable.
    is_known = labels < probabilities.shape[1]
    is_another = probabilities.argmax(axis=1) != labels
    candidates = np.flatnonzero(is_known & is_another)

    # Of these, the least probable ones, as many as are wrong by estimate.
    confidence = label_probabilities(probabilities, labels)
    least_probable_first = candidates[np.argsort(confidence[candidates], kind="stable")]
    num_errors = estimated_errors(probabilities, labels)

    is_doubtful = np.zeros(len(labels), dtype=bool)
    is_doubtful[least_probable_first[:num_errors]] = True
    return is_doubtful


def label_probabilities(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The probability of each text's label, (texts,), 0 for labels beyond the classes.

    The paper calls it self-confidence. Its normalized margin ranks worse where a text has two
    probable classes (docs/experiments/accuracy.md).
    """
    last_class = probabilities.shape[1] - 1
    rows = np.arange(len(labels))
    known_labels = np.minimum(labels, last_class)
    found: NDArray[np.float64] = probabilities[rows, known_labels]
    return np.where(labels <= last_class, found, 0.0)


def estimated_errors(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """The estimated number of wrong labels: those off the diagonal of the paper's confident joint.

    Probabilities are (texts, classes), labels (texts,).
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

    # A text is confidently of the most probable class among those that reach their threshold.
    is_confident = (probabilities >= thresholds) & (label_counts > 0)
    confident_classes = np.where(is_confident, probabilities, -1.0).argmax(axis=1)
    has_confident_class = is_confident.any(axis=1)

    # The diagonal of the confident joint, and what is off it, by label.
    is_right = confident_classes == labels
    num_right = np.bincount(labels[has_confident_class & is_right], minlength=num_classes)
    num_wrong = np.bincount(labels[has_confident_class & ~is_right], minlength=num_classes)

    # The paper's calibration: each class has as many texts as labels, in these proportions.
    wrong_fractions = num_wrong / np.maximum(1, num_right + num_wrong)
    return round(float((wrong_fractions * label_counts).sum()))
