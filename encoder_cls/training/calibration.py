"""Logits and labels in, the weights that make the probabilities of a weighted sum of logits honest out.

Temperature scaling (Guo et al., "On Calibration of Modern Neural Networks", 2017, https://arxiv.org/abs/1706.04599) of
one classifier or of several together: the logits of each are multiplied by a number, chosen for the lowest negative
log-likelihood of labels not trained on. Platt scaling, where classes were learned one-vs-rest.

Each text counts alike here, also where classes have weights in training: a probability is to be as often right as it
says among the texts that there are. What weights have taught, which class is answered, a factor does not undo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import cross_entropy, one_hot
from encoder_cls.evaluation.multi_label_metrics import binary_cross_entropy
from encoder_cls.inference.logits import Logits, combine_logits, log_sigmoid, sigmoid, softmax
from encoder_cls.inference.tasks import MULTI_LABEL, task_of

MAX_SCALE = 20.0  # temperatures, and scales, from 1 / MAX_SCALE to MAX_SCALE: beyond there is nothing to calibrate on
MAX_SHIFT = 10.0  # shifts: a sigmoid is then as good as an exponential, or certain
MIN_WEIGHT = 1e-3  # of a classifier, however misleading in company
RIDGE_PENALTY = 8.0  # nats, that labels have to gain for a mixture weight which is 1 away from what is expected


def fit_inverse_temperature(logits: Logits, labels: NDArray[Any]) -> float:
    """The number by which logits are multiplied so that labels, as in `Split`, have the lowest loss."""
    from scipy.optimize import minimize_scalar

    loss_of = _loss_on(labels, logits.shape[1])

    def loss(log_scale: float) -> float:
        return loss_of(logits * np.exp(log_scale))

    limit = float(np.log(MAX_SCALE))
    return float(np.exp(minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x))


def fit_platt(margins: Logits, labels: NDArray[np.int64]) -> tuple[float, float]:
    """The scale and the shift of one-vs-rest margins under which labels (texts,) have the lowest loss.

    Platt scaling (1999), the same of all classes: each by itself has the probability sigmoid(scale * margin + shift);
    then a text's probabilities are normalized (Zadrozny and Elkan, "Transforming Classifier Scores into Accurate
    Multiclass Probability Estimates", 2002, https://doi.org/10.1145/775047.775151). The lower the shift, the nearer is
    that to a softmax of scaled margins.
    """
    from scipy.optimize import minimize

    targets = targets_of(labels, margins.shape[1])

    def loss(numbers: NDArray[np.float64]) -> float:
        log_scale, shift = numbers
        return cross_entropy(softmax(log_sigmoid(margins * np.exp(log_scale) + shift)), targets)

    limit = float(np.log(MAX_SCALE))
    bounds = [(-limit, limit), (-MAX_SHIFT, MAX_SHIFT)]
    log_scale, shift = minimize(loss, (0.0, 0.0), method="L-BFGS-B", bounds=bounds).x
    return float(np.exp(log_scale)), float(shift)


def fit_sum_of_margins(
    margins: Sequence[NDArray[np.float32]], labels: NDArray[np.int64], num_classes: int
) -> tuple[tuple[float, ...], float]:
    """The scales of several one-vs-rest margins and the shift of their sum under which labels have the lowest loss.

    Platt scaling as in `fit_platt`, of more than one classifier (stacking: Wolpert, "Stacked Generalization", 1992).
    No scale is below 0; that of the first is positive. Of two classes margins have one column, the second's.
    """
    from scipy.optimize import minimize

    targets = targets_of(labels, num_classes)

    def loss(numbers: NDArray[np.float64]) -> float:
        *scales, shift = numbers
        total = combine_logits(margins, scales) + shift
        logits = np.hstack([-total, total]) if total.shape[1] == 1 else log_sigmoid(total)
        return cross_entropy(softmax(logits), targets)

    bounds = [(1 / MAX_SCALE, MAX_SCALE), *[(0.0, MAX_SCALE)] * (len(margins) - 1), (-MAX_SHIFT, MAX_SHIFT)]
    start = [1.0, *[0.0] * (len(margins) - 1), 0.0]
    *scales, shift = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x
    return tuple(map(float, scales)), float(shift)


def fit_mixture_weights(
    logits: Sequence[Logits],
    labels: NDArray[Any],
    *,
    is_last_calibrated: bool = True,
    expects_equal_shares: bool = False,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The weights of a sum of logits under which labels have the lowest loss, and each classifier's share.

    A share is a weight in units of the classifier's own inverse temperature; shares sum to 1. Where the last one's
    logits are calibrated on other labels, the search is drawn to that classifier alone (its share 1, the others' 0):
    being elsewhere costs `RIDGE_PENALTY` * distance^2 / texts, ridge regression's penalty, so few labels move little.
    Where equal shares are expected, as of a student and its teacher, it is drawn to these instead. Where the last one's
    logits are not calibrated, there is to be one classifier, and it is scaled as these labels say.
    """
    from scipy.optimize import minimize

    if not is_last_calibrated:
        (only,) = logits
        return (fit_inverse_temperature(only, labels),), (1.0,)
    loss_of = _loss_on(labels, logits[0].shape[1])
    # A student's probabilities are to be those of its calibrated teacher.
    alone = np.array(
        [1.0 if expects_equal_shares else fit_inverse_temperature(part, labels) for part in logits[:-1]] + [1.0]
    )
    expected = np.full(len(logits), 1 / len(logits)) if expects_equal_shares else np.eye(len(logits))[-1]

    def loss(shares: NDArray[np.float64]) -> float:
        penalty = RIDGE_PENALTY * ((shares - expected) ** 2).sum() / len(labels)
        return loss_of(combine_logits(logits, shares * alone)) + float(penalty)

    equal = np.full(len(logits), 1 / len(logits))
    found = minimize(loss, equal, method="L-BFGS-B", bounds=[(MIN_WEIGHT, MAX_SCALE)] * len(logits)).x
    return tuple((found * alone).tolist()), tuple((found / found.sum()).tolist())


def _loss_on(labels: NDArray[Any], num_classes: int) -> Callable[[NDArray[np.floating[Any]]], float]:
    """From logits (texts, classes) to the mean negative log-likelihood of labels, which are as in `Split`."""
    targets = targets_of(labels, num_classes)
    if task_of(labels) is MULTI_LABEL:
        return lambda logits: binary_cross_entropy(sigmoid(logits), targets)
    return lambda logits: cross_entropy(softmax(logits), targets)


def targets_of(labels: NDArray[Any], num_classes: int) -> NDArray[np.float64]:
    """The target probabilities, (texts, classes), of labels as in `Split`.

    One more text counts, of which every class is equally probable, or every label as likely as not: a small split
    without a mistake is no reason to be certain (after Platt, "Probabilistic Outputs for Support Vector Machines",
    1999).
    """
    if task_of(labels) is MULTI_LABEL:
        smoothed: NDArray[np.float64] = (labels * float(len(labels)) + 0.5) / (len(labels) + 1)
        return smoothed
    return (one_hot(labels, num_classes) * len(labels) + 1 / num_classes) / (len(labels) + 1)
