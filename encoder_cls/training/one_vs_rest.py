"""Features and labels in, a linear support vector machine for each class out, which tells it from all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.baseline import fit_svm
from encoder_cls.inference.tasks import task_of
from encoder_cls.training.feature_matrix import scaled_columns
from encoder_cls.training.interruptible import while_waited_for

NB_RATIO_POWER = 0.5  # of naive Bayes' ratios: at 1, where classes have few texts, chance scales features
TOLERANCE = 0.2  # LinearSVC's: with its own 1e-4 no accuracy was another, and learning took up to twice the time


class OneVsRest(NamedTuple):
    """What support vector machines have learned: weights (features, SVMs) and biases (SVMs,)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]


def learn_one_vs_rest(
    features: sp.csr_matrix,
    present: sp.csr_matrix,
    labels: NDArray[Any],
    text_weights: NDArray[np.float32],
    *,
    num_classes: int,
    penalty: float,
    coordinates: NDArray[np.float32] | None = None,
) -> OneVsRest:
    """What one-vs-rest classifiers learn.

    Args:
        features: of the texts.
        present: where they have which feature, by which naive Bayes' ratios are counted.
        labels: the texts' classes, (texts,), or all labels of each, (texts, classes).
        text_weights: how much each text counts, (texts,), or for each label, (texts, classes).
        num_classes: how many classes there are.
        penalty: LinearSVC's C.
        coordinates: further numbers of each text, (texts, coordinates), whose weights come after those of the features.
    """
    further = None if coordinates is None else sp.csr_matrix(coordinates)
    num_features = features.shape[1] + (0 if coordinates is None else coordinates.shape[1])
    classes = classes_to_tell(labels, num_classes)
    weights, biases = np.zeros((num_features, len(classes)), np.float32), np.zeros(len(classes), np.float32)
    everywhere = np.asarray(present.sum(axis=0, dtype=np.float64)).ravel()
    for column, number in enumerate(classes):
        with while_waited_for():
            pass
        is_class, of_class = of_one_class(labels, text_weights, number)
        if is_class.all() or not is_class.any():  # where texts are held out
            biases[column] = 1.0 if is_class.any() else -1.0
            continue
        inside = np.asarray(present[is_class].sum(axis=0, dtype=np.float64)).ravel()
        ratios = naive_bayes_ratios(inside, everywhere - inside)
        scaled, scales = scaled_columns(features, ratios), np.ones(num_features, dtype=np.float32)
        scales[: len(ratios)] = ratios
        if further is not None:
            scaled = sp.hstack([scaled, further], format="csr")
        svm = fit_svm(scaled, is_class, sample_weight=of_class, C=penalty, tol=TOLERANCE)
        weights[:, column], biases[column] = svm.coef_[0] * scales, svm.intercept_[0]
    return OneVsRest(weights, biases)


def classes_to_tell(labels: NDArray[Any], num_classes: int) -> range:
    """The classes that have a machine each: of two, the second alone."""
    return range(num_classes - task_of(labels).num_one_vs_rest(num_classes), num_classes)


def weights_of_texts(labels: NDArray[Any], class_weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much each text counts, (texts,); multi-label for each label, (texts, classes), 1 where it has it not."""
    weights: NDArray[np.float32] = np.where(labels, class_weights, 1) if labels.ndim > 1 else class_weights[labels]
    return weights


def of_one_class(
    labels: NDArray[Any], text_weights: NDArray[np.float32], number: int
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Which texts are of a class, and how much each text counts for it; args as of `learn_one_vs_rest`."""
    is_class = labels == number if labels.ndim == 1 else labels[:, number] > 0
    return is_class, text_weights if text_weights.ndim == 1 else text_weights[:, number]


def naive_bayes_ratios(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float32]:
    """By what each feature is multiplied: how much more often it is in a class than outside, or less, (features,).

    |ln(its share of the class's features / its share of the others')| to the power `NB_RATIO_POWER`, counts being one
    more.

    Args:
        inside: how many texts of the class have it.
        outside: how many other texts.
    """
    inside, outside = 1 + inside, 1 + outside
    ratios = np.log((inside / inside.sum()) / (outside / outside.sum())).astype(np.float32)
    scales: NDArray[np.float32] = np.abs(ratios) ** NB_RATIO_POWER
    return scales
