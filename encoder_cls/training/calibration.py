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

from encoder_cls.evaluation.metrics import MIN_PROBABILITY, cross_entropy, one_hot
from encoder_cls.evaluation.multi_label_metrics import binary_cross_entropy
from encoder_cls.inference.logits import Logits, combine_logits, log_sigmoid, sigmoid, softmax
from encoder_cls.inference.tasks import MULTI_LABEL, task_of

Floats = NDArray[np.float64]

MAX_SCALE = 20.0  # temperatures, and scales, from 1 / MAX_SCALE to MAX_SCALE: beyond there is nothing to calibrate on
MAX_SHIFT = 10.0  # shifts: a sigmoid is then as good as an exponential, or certain
MIN_WEIGHT = 1e-3  # of a classifier, however misleading in company
RIDGE_PENALTY = 8.0  # nats, that labels have to gain for a mixture weight which is 1 away from what is expected


def fit_inverse_temperature(logits: Logits, labels: NDArray[Any]) -> float:
    """The number by which logits are multiplied so that labels, as in `Split`, have the lowest loss."""
    from scipy.optimize import minimize_scalar

    scores = logits.astype(np.float64)
    loss_of = _loss_on(labels, logits.shape[1])
    limit = float(np.log(MAX_SCALE))
    found = minimize_scalar(lambda it: loss_of(scores * np.exp(it))[0], bounds=(-limit, limit), method="bounded")
    return float(np.exp(found.x))


def fit_platt(
    margins: Sequence[NDArray[np.float32]], labels: NDArray[np.int64], num_classes: int
) -> tuple[tuple[float, ...], float]:
    """The scales of one-vs-rest margins and the shift of their sum under which labels (texts,) have the lowest loss.

    Platt scaling (1999), the same of all classes: each by itself has the probability sigmoid(scale * margin + shift);
    then a text's probabilities are normalized (Zadrozny and Elkan, "Transforming Classifier Scores into Accurate
    Multiclass Probability Estimates", 2002, https://doi.org/10.1145/775047.775151). The lower the shift, the nearer is
    that to a softmax of scaled margins. The margins of more than one classifier are summed (stacking: Wolpert, "Stacked
    Generalization", 1992). No scale is below 0; that of the first is positive. Of two classes margins have one column,
    the second's.
    """
    from scipy.optimize import minimize

    scores = [it.astype(np.float64) for it in margins]
    loss_of = _loss_on(labels, num_classes)

    def loss(numbers: Floats) -> tuple[float, Floats]:
        total = combine_logits(scores, numbers[:-1]) + numbers[-1]
        if total.shape[1] == 1:
            value, of_logits = loss_of(np.hstack([-total, total]))
            of_total = of_logits[:, 1:] - of_logits[:, :1]
        else:
            value, of_logits = loss_of(log_sigmoid(total))
            of_total = of_logits * sigmoid(-total)
        return value, np.array([*((of_total * it).sum() for it in scores), of_total.sum()])

    bounds = [(1 / MAX_SCALE, MAX_SCALE), *[(0.0, MAX_SCALE)] * (len(margins) - 1), (-MAX_SHIFT, MAX_SHIFT)]
    start = [1.0, *[0.0] * (len(margins) - 1), 0.0]
    *scales, shift = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
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
    scores = [it.astype(np.float64) for it in logits]
    loss_of = _loss_on(labels, logits[0].shape[1])
    # A student's probabilities are to be those of its calibrated teacher.
    alone = np.array(
        [1.0 if expects_equal_shares else fit_inverse_temperature(part, labels) for part in logits[:-1]] + [1.0]
    )
    expected = np.full(len(logits), 1 / len(logits)) if expects_equal_shares else np.eye(len(logits))[-1]

    def loss(shares: Floats) -> tuple[float, Floats]:
        value, of_logits = loss_of(combine_logits(scores, shares * alone))
        away = shares - expected
        of_shares = alone * [(of_logits * it).sum() for it in scores] + 2 * RIDGE_PENALTY * away / len(labels)
        return value + float(RIDGE_PENALTY * (away**2).sum() / len(labels)), of_shares

    equal = np.full(len(logits), 1 / len(logits))
    found = minimize(loss, equal, jac=True, method="L-BFGS-B", bounds=[(MIN_WEIGHT, MAX_SCALE)] * len(logits)).x
    return tuple((found * alone).tolist()), tuple((found / found.sum()).tolist())


def _loss_on(labels: NDArray[Any], num_classes: int) -> Callable[[NDArray[np.floating[Any]]], tuple[float, Floats]]:
    """From logits (texts, classes) to the mean negative log-likelihood of labels, as in `Split`, and its gradient.

    Both are in float64: differences of a loss in float32 show a minimizer no slope.
    """
    targets = targets_of(labels, num_classes)

    def of_classes(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        probabilities = softmax(logits)
        counted = targets * (probabilities > MIN_PROBABILITY)
        gradient = counted.sum(axis=-1, keepdims=True) * probabilities - counted
        return cross_entropy(probabilities, targets), gradient / len(targets)

    def of_each_label(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        yes = sigmoid(logits)
        no = 1 - yes
        gradient = (1 - targets) * (no > MIN_PROBABILITY) * yes - targets * (yes > MIN_PROBABILITY) * no
        return binary_cross_entropy(yes, targets), gradient / len(targets)

    return of_each_label if task_of(labels) is MULTI_LABEL else of_classes


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
