"""Texts with and without labels in, a naive Bayes classifier of both out, by expectation maximization.

Nigam et al., "Text Classification from Labeled and Unlabeled Documents using EM" (2000),
https://doi.org/10.1023/A:1007692713085: the classifier of the labelled texts says how probable each class is for each
unlabelled one; a classifier is learned from all, in which an unlabelled text counts less; and so on.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.inference.logits import softmax
from encoder_cls.inference.tasks import SINGLE_LABEL

ITERATIONS = 8
UNLABELLED_WEIGHT = 0.2  # of a text whose class is guessed, as the paper's lambda
SMOOTHING = 0.1  # occurrences that each feature has in each class besides those counted


def log_ratios(
    labelled: sp.csr_matrix,
    labels: NDArray[np.int64],
    text_weights: NDArray[np.float32],
    unlabelled: sp.csr_matrix,
    *,
    num_classes: int,
) -> NDArray[np.float32]:
    """Of each feature ln(its share of the class's features / its share of the others'), (features, classes).

    Of two classes there is the second's column alone.

    Args:
        labelled: how often each feature occurs, a row a text.
        labels: their classes.
        text_weights: how much each counts.
        unlabelled: the same features of the texts without labels.
        num_classes: how many there are.
    """
    targets = np.zeros((len(labels), num_classes))
    targets[np.arange(len(labels)), labels] = text_weights
    known = labelled.T @ targets
    counts, class_sizes = known, targets.sum(axis=0)
    for _ in range(ITERATIONS):
        smoothed = counts + SMOOTHING
        # A class of which all texts are held out is as rare as one text would be.
        scores = unlabelled @ np.log(smoothed / smoothed.sum(axis=0)) + np.log(np.maximum(class_sizes, 1))
        guesses = UNLABELLED_WEIGHT * softmax(scores)
        counts, class_sizes = known + unlabelled.T @ guesses, targets.sum(axis=0) + guesses.sum(axis=0)
    smoothed = counts + SMOOTHING
    others = smoothed.sum(axis=1, keepdims=True) - smoothed
    ratios = np.log(smoothed / smoothed.sum(axis=0)) - np.log(others / others.sum(axis=0))
    found: NDArray[np.float32] = ratios[:, num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes) :].astype(np.float32)
    return found
