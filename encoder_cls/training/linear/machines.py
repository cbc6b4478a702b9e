"""Fit one-vs-rest linear machines by NB-SVM.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how strongly naive Bayes links it to the class, then a
linear support vector machine weighs them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.baseline import fit_svm
from encoder_cls.inference.task import SINGLE_LABEL
from encoder_cls.system.stop import while_waited_for
from encoder_cls.training.linear.calibration import Calibration
from encoder_cls.training.linear.features import scaled_columns

NB_RATIO_POWER = 0.5  # of naive Bayes' ratios: at 1, where classes have few texts, chance scales features
TOLERANCE = 0.2  # LinearSVC's: with its own 1e-4 no accuracy was another, and the fit took up to twice the time


class OneVsRest(NamedTuple):
    """The weights (features, machines) and biases (machines,) of linear machines."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """How far texts are on a class's side, (texts, machines)."""
        margins: NDArray[np.float32] = features @ self.weights + self.biases
        return margins

    def calibrated(self, calibration: Calibration) -> OneVsRest:
        """Scale and shift the margins."""
        scale, shift = calibration.scale, calibration.shift
        return OneVsRest(self.weights * scale, self.biases * scale + shift)


def fit_one_vs_rest(
    features: sp.csr_matrix, labels: NDArray[Any], class_weights: NDArray[np.float32], *, penalty: float
) -> OneVsRest:
    """Fit a machine for each class by LinearSVC, whose C is `penalty`.

    `labels` are classes, (texts,), or all labels, (texts, classes). A text counts by its class.
    """
    targets, text_weights = targets_of_machines(labels, class_weights)
    present = (features > 0).astype(np.float32)
    weights, biases = (
        np.zeros(shape, np.float32) for shape in ((features.shape[1], targets.shape[1]), targets.shape[1])
    )
    everywhere = np.asarray(present.sum(axis=0, dtype=np.float64)).ravel()
    for column, is_class in enumerate(targets.T):
        with while_waited_for():
            pass
        if is_class.all() or not is_class.any():  # where texts are held out
            biases[column] = 1.0 if is_class.any() else -1.0
            continue
        inside = np.asarray(present[is_class].sum(axis=0, dtype=np.float64)).ravel()
        ratios = naive_bayes_ratios(inside, everywhere - inside)
        scaled = scaled_columns(features, ratios)
        svm = fit_svm(scaled, is_class, sample_weight=text_weights[:, column], C=penalty, tol=TOLERANCE)
        weights[:, column], biases[column] = svm.coef_[0] * ratios, svm.intercept_[0]
    return OneVsRest(weights, biases)


def targets_of_machines(
    labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Whether each text is of each machine's class, and how much it counts there, both (texts, machines).

    Of two classes the second alone has a machine; each of several labels has one, in which texts without it count 1.
    """
    if labels.ndim > 1:
        return labels > 0, np.where(labels, class_weights, 1)
    num_classes = len(class_weights)
    is_class = labels[:, None] == np.arange(num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes), num_classes)
    return is_class, np.broadcast_to(class_weights[labels][:, None], is_class.shape)


def naive_bayes_ratios(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scale features by how much more often they occur in a class than outside, or less often, (features,).

    |ln(share of the class's features / share of the others')| to the power `NB_RATIO_POWER`, of texts with each
    feature.
    """
    inside, outside = 1 + inside, 1 + outside
    ratios = np.log((inside / inside.sum()) / (outside / outside.sum())).astype(np.float32)
    scales: NDArray[np.float32] = np.abs(ratios) ** NB_RATIO_POWER
    return scales
