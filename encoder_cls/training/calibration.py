"""Logits and labels in, the weights that make the probabilities of a weighted sum of logits honest out.

Temperature scaling (Guo et al., "On Calibration of Modern Neural Networks", 2017, https://arxiv.org/abs/1706.04599) of
one classifier or of several together: the logits of each are multiplied by a number, chosen for the lowest negative
log-likelihood of labels not trained on. Platt scaling, where classes were learnt one against the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import cross_entropy, one_hot
from encoder_cls.inference.logits import Logits, combine_logits, log_sigmoid, softmax

MAX_SCALE = 20.0  # temperatures, and scales, from 1 / MAX_SCALE to MAX_SCALE: beyond there is nothing to calibrate on
MAX_SHIFT = 10.0  # shifts: a sigmoid is then as good as an exponential, or certain
MIN_WEIGHT = 1e-3  # of a classifier, however misleading in company
RIDGE_PENALTY = 8.0  # nats, that labels have to gain for a mixture weight which is 1 away from what is expected


def fit_scale(scores: Logits, labels: NDArray[np.int64], weights: NDArray[np.floating[Any]] | None = None) -> float:
    """The scale under which one classifier's scores explain labels (texts,) best: the inverse of its temperature.

    Weights are of texts, (texts,): those with which the classifier was trained, or else the scale would undo them.
    """
    from scipy.optimize import minimize_scalar

    targets = _targets(labels, scores.shape[1])

    def objective(log_scale: float) -> float:
        return cross_entropy(softmax(scores * np.exp(log_scale)), targets, weights)

    limit = float(np.log(MAX_SCALE))
    return float(np.exp(minimize_scalar(objective, bounds=(-limit, limit), method="bounded").x))


def fit_platt(
    margins: Logits, labels: NDArray[np.int64], weights: NDArray[np.floating[Any]] | None = None
) -> tuple[float, float]:
    """The scale and the shift under which margins of each class against the rest explain labels (texts,) best.

    Platt scaling (1999), the same of all classes: each by itself has the probability sigmoid(scale * margin + shift);
    then a text's probabilities are made to add up to 1 (Zadrozny and Elkan, "Transforming Classifier Scores into
    Accurate Multiclass Probability Estimates", 2002, https://doi.org/10.1145/775047.775151). The lower the shift, the
    nearer is that to a softmax of scaled margins. Weights are as in `fit_scale`.
    """
    from scipy.optimize import minimize

    targets = _targets(labels, margins.shape[1])

    def objective(numbers: NDArray[np.float64]) -> float:
        log_scale, shift = numbers
        return cross_entropy(softmax(log_sigmoid(margins * np.exp(log_scale) + shift)), targets, weights)

    limit = float(np.log(MAX_SCALE))
    bounds = [(-limit, limit), (-MAX_SHIFT, MAX_SHIFT)]
    log_scale, shift = minimize(objective, (0.0, 0.0), method="L-BFGS-B", bounds=bounds).x
    return float(np.exp(log_scale)), float(shift)


def fit_scales(
    scores: Sequence[Logits], labels: NDArray[np.int64], weights: NDArray[np.floating[Any]] | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The scales under which the sum of scores explains labels best, and what part each classifier has in it.

    A classifier's part is its scale in units of the one that would suit it alone, made to add up to 1 with the others'.
    Of several classifiers the last one's scores are to be logits, calibrated on other labels. The search is drawn to
    that classifier alone (its part 1, the others' 0): being elsewhere costs `RIDGE_PENALTY` * distance^2 / texts, ridge
    regression's penalty, so few labels move little. Weights are as in `fit_scale`.
    """
    from scipy.optimize import minimize

    if len(scores) == 1:
        return (fit_scale(scores[0], labels, weights),), (1.0,)
    targets = _targets(labels, scores[0].shape[1])
    alone = np.array([*(fit_scale(score, labels, weights) for score in scores[:-1]), 1.0])
    expected = np.eye(len(scores))[-1]

    def objective(parts: NDArray[np.float64]) -> float:
        penalty = RIDGE_PENALTY * ((parts - expected) ** 2).sum() / len(labels)
        return cross_entropy(softmax(combine_logits(scores, parts * alone)), targets, weights) + float(penalty)

    equal = np.full(len(scores), 1 / len(scores))
    found = minimize(objective, equal, method="L-BFGS-B", bounds=[(MIN_WEIGHT, MAX_SCALE)] * len(scores)).x
    return tuple((found * alone).tolist()), tuple((found / found.sum()).tolist())


def _targets(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """What is to be explained, (texts, classes).

    One more text is taken to have been seen whose class is anyone's guess: a small split without a mistake
    is no reason to be certain (after Platt, "Probabilistic Outputs for Support Vector Machines", 1999).
    """
    return (one_hot(labels, num_classes) * len(labels) + 1 / num_classes) / (len(labels) + 1)
