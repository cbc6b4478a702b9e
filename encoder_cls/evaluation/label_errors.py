"""Probabilities and labels in, labels out in the order in which they are to be looked at: the doubtful first.

Confident learning: Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021),
https://arxiv.org/abs/1911.00068. The probabilities have to come from a classifier that has not seen the label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def self_confidence(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """How probable each label is, (texts,): the lower, the more doubtful it is.

    The paper's normalized margin ranks worse where a text has two probable classes (docs/experiments/accuracy.md).

    Args:
        probabilities: (texts, classes).
        labels: (texts,); one beyond the classes has the probability 0.
    """
    is_known = labels < probabilities.shape[1]
    found: NDArray[np.float64] = np.zeros(len(labels))
    found[is_known] = probabilities[is_known, labels[is_known]]
    return found


def estimated_errors(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """About how many of the labels are wrong: those off the diagonal of the paper's confident joint.

    A text is confidently of the most probable class among those that are at least as probable as they are, on average,
    where they are the label; it says nothing where there is none.

    Args:
        probabilities: (texts, classes).
        labels: (texts,); one beyond the classes is not looked at.
    """
    num_classes = probabilities.shape[1]
    is_known = labels < num_classes
    probabilities, labels = probabilities[is_known], labels[is_known]
    counts = np.bincount(labels, minlength=num_classes)
    of_label = probabilities[np.arange(len(labels)), labels]
    thresholds = np.bincount(labels, weights=of_label, minlength=num_classes) / np.maximum(1, counts)
    is_confident = (probabilities >= thresholds) & (counts > 0)
    confident = np.where(is_confident, probabilities, -1.0)
    guesses, any_confident = confident.argmax(axis=1), is_confident.any(axis=1)
    right = np.bincount(labels[any_confident & (guesses == labels)], minlength=num_classes)
    wrong = np.bincount(labels[any_confident & (guesses != labels)], minlength=num_classes)
    # The paper's calibration: of each class as many as have its label, in these proportions.
    return round(float((wrong / np.maximum(1, right + wrong) * counts).sum()))
