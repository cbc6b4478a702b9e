"""Fit calibrations to the labels of texts held out.

All texts count alike, whatever the class weights in training, unless labelled texts are weighted to
resemble the texts without labels (`pool_weights`). Parameters of a single label are shrunk towards
those of all labels, the more the fewer examples it has: what ten examples say fits these ten rather
than the label (Efron and Morris, "Stein's Paradox", 1977).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.classification import (
    MIN_PROBABILITY,
    binary_cross_entropy,
    cross_entropy,
    one_hot,
)
from encoder_cls.metrics.logits import (
    MULTI_LABEL,
    SINGLE_LABEL,
    Logits,
    log_sigmoid,
    sigmoid,
    softmax,
    task_of,
)

Floats = NDArray[np.float64]

# Scales and inverse temperatures are from 1 / MAX_SCALE to MAX_SCALE.
MAX_SCALE = 20.0
LOG_SCALE_BOUNDS = (-float(np.log(MAX_SCALE)), float(np.log(MAX_SCALE)))

# From this logit on, a sigmoid is as good as an exponential, or as certainty.
MAX_SHIFT = 10.0
SHIFT_BOUNDS = (-MAX_SHIFT, MAX_SHIFT)


class Calibration(NamedTuple):
    """The scale and the shift from margins to logits.

    In a multi-label task they are arrays with a number for each label.

    Attributes:
        loss: the loss on the texts held out, with class weights.
        scale: the factor of margins.
        shift: the number that is added to scaled margins.
        logits: the calibrated logits of the texts held out.
        svm_c: the C of the machines.
    """

    loss: float
    scale: Any
    shift: Any
    logits: Logits
    svm_c: float = 0.0


def calibrate(
    margins: NDArray[np.float32],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    text_weights: Floats | None = None,
) -> Calibration:
    """Calibrate the margins of texts held out: all classes together, or multi-label each label.

    Args:
        margins: (texts, machines).
        labels: as in `Split`.
        class_weights: (classes,).
        text_weights: in a single-label task, (texts,); by default all texts count alike.
    """
    if task_of(labels) is MULTI_LABEL:
        return _calibrate_labels(margins, labels)
    return _calibrate_classes(margins, labels, class_weights, text_weights)


def _calibrate_labels(margins: NDArray[np.float32], labels: NDArray[Any]) -> Calibration:
    """Calibrate the margins of each label, in a multi-label task."""
    scales, shifts = fit_platt_per_label(margins, labels)
    logits = (margins * scales + shifts).astype(np.float32)

    # Class weights would change the choice of no penalty.
    loss = binary_cross_entropy(sigmoid(logits), labels)
    return Calibration(loss, scales.astype(np.float32), shifts.astype(np.float32), logits)


def _calibrate_classes(
    margins: NDArray[np.float32],
    labels: NDArray[np.int64],
    class_weights: NDArray[np.float32],
    text_weights: Floats | None,
) -> Calibration:
    """Calibrate the margins of all classes together, in a single-label task."""
    num_classes = len(class_weights)
    if SINGLE_LABEL.num_one_vs_rest(num_classes) == 1:
        # The logits of two classes are opposite, so they have no common shift.
        logits = SINGLE_LABEL.margins_to_logits(margins)
        scale = fit_inverse_temperature(logits, labels, text_weights)
        shift = 0.0
    else:
        scale, shift = fit_platt(margins, labels, text_weights)
    logits = SINGLE_LABEL.margins_to_logits((margins * scale + shift).astype(np.float32))

    # The loss chooses the penalty of machines, which are fitted with class weights; calibration
    # ignores them.
    loss_weights: NDArray[np.floating[Any]] = class_weights[labels]
    if text_weights is not None:
        loss_weights = loss_weights * text_weights
    loss = cross_entropy(softmax(logits), one_hot(labels, num_classes), loss_weights)
    return Calibration(loss, np.float32(scale), np.float32(shift), logits)


def fit_inverse_temperature(
    logits: Logits, labels: NDArray[Any], text_weights: Floats | None = None
) -> float:
    """Fit the factor of logits under which labels have the lowest loss (temperature scaling).

    Guo et al., "On Calibration of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599.
    """
    from scipy.optimize import minimize_scalar

    scores = logits.astype(np.float64)
    log_loss = LogLoss(labels, logits.shape[1], text_weights)

    def loss(log_scale: float) -> float:
        value, _ = log_loss.with_gradient(scores * np.exp(log_scale))
        return value

    minimum = minimize_scalar(loss, bounds=LOG_SCALE_BOUNDS, method="bounded")
    return float(np.exp(minimum.x))


def fit_platt(
    margins: Logits, labels: NDArray[np.int64], text_weights: Floats | None = None
) -> tuple[float, float]:
    """Fit one scale and one shift to the one-vs-rest margins of all classes.

    Each class has the probability sigmoid(scale * margin + shift) (Platt, "Probabilistic Outputs
    for Support Vector Machines", 1999), then a text's probabilities are normalized (Zadrozny and
    Elkan, 2002, https://doi.org/10.1145/775047.775151).
    """
    scores = margins.astype(np.float64)
    log_loss = LogLoss(labels, margins.shape[1], text_weights)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scale, shift = parameters
        calibrated = scale * scores + shift
        value, gradient = log_loss.with_gradient(log_sigmoid(calibrated))

        # By the chain rule: the derivative of ln(sigmoid(x)) is sigmoid(-x).
        gradient = gradient * sigmoid(-calibrated)
        return value, np.array([(gradient * scores).sum(), gradient.sum()])

    scale_bounds = (1 / MAX_SCALE, MAX_SCALE)
    scale, shift = minimize_loss(loss, start=[1.0, 0.0], bounds=[scale_bounds, SHIFT_BOUNDS])
    return float(scale), float(shift)


# The nats that a label's log scale or shift must gain to be 1 away from the common one.
CALIBRATION_PENALTY = 4.0


def fit_platt_per_label(margins: Logits, targets: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Fit the scale and the shift of each label's margins, both (labels,).

    They are drawn to the scale and the shift that fit all labels. Arguments are (texts, labels).
    """
    smoothed = smoothed_targets(targets, targets.shape[1])
    scores = margins.astype(np.float64)
    num_texts, num_labels = scores.shape

    def losses(log_scales: Floats, shifts: Floats) -> tuple[Floats, Floats]:
        """The loss of each label, (labels,), with its gradient in scale and shift, (2, labels)."""
        scaled = scores * np.exp(log_scales)
        logits = scaled + shifts
        losses_of_labels = (np.logaddexp(0, logits) - smoothed * logits).sum(axis=0)

        errors = sigmoid(logits) - smoothed
        gradient = np.stack([(errors * scaled).sum(axis=0), errors.sum(axis=0)])
        return losses_of_labels, gradient

    # Fit a pair of parameters to all labels together.
    def common_loss(parameters: Floats) -> tuple[float, Floats]:
        losses_of_labels, gradient = losses(parameters[:1], parameters[1:])
        return float(losses_of_labels.sum() / num_texts), gradient.sum(axis=1) / num_texts

    bounds = [LOG_SCALE_BOUNDS, SHIFT_BOUNDS]
    common = minimize_loss(common_loss, start=[0.0, 0.0], bounds=bounds)

    # Fit a pair to each label, with a penalty on its distance from the common pair. All labels
    # are fitted at once: first come all scales, then all shifts.
    def loss_of_pairs(parameters: Floats) -> tuple[float, Floats]:
        pairs = parameters.reshape(2, num_labels)
        losses_of_labels, gradient = losses(pairs[0], pairs[1])

        distances = pairs - common[:, None]
        loss = float(losses_of_labels.sum() + CALIBRATION_PENALTY * (distances**2).sum())
        return loss, (gradient + 2 * CALIBRATION_PENALTY * distances).ravel()

    start = np.repeat(common, num_labels)
    bounds = [LOG_SCALE_BOUNDS] * num_labels + [SHIFT_BOUNDS] * num_labels
    pairs = minimize_loss(loss_of_pairs, start=start, bounds=bounds).reshape(2, num_labels)
    return np.exp(pairs[0]), pairs[1]


def minimize_loss(
    loss: Callable[[Floats], tuple[float, Floats]],
    *,
    start: Sequence[float] | Floats,
    bounds: Sequence[tuple[float, float]],
) -> Floats:
    """Return the parameters with the lowest loss; `loss` returns its value and its gradient."""
    from scipy.optimize import minimize

    minimum: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return minimum


class LogLoss:
    """The mean negative log-likelihood of labels, as a function of logits, with its gradient.

    `text_weights`, (texts,), are for single-label tasks, and have a mean of 1.
    """

    def __init__(
        self, labels: NDArray[Any], num_classes: int, text_weights: Floats | None = None
    ) -> None:
        self._task = task_of(labels)
        self._targets = smoothed_targets(labels, num_classes)
        self._text_weights = text_weights

    def with_gradient(self, logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        """Return the loss of logits, and its gradient, both for (texts, classes).

        Logits must be float64: a loss in float32 is too coarse for a minimizer.
        """
        if self._task is MULTI_LABEL:
            return self._loss_of_labels(logits)
        return self._loss_of_classes(logits)

    def _loss_of_classes(self, logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        probabilities = softmax(logits)
        loss = cross_entropy(probabilities, self._targets, self._text_weights)

        # The loss counts probabilities below MIN_PROBABILITY as that number: there it is flat.
        counted = self._targets * (probabilities > MIN_PROBABILITY)
        gradient = counted.sum(axis=-1, keepdims=True) * probabilities - counted
        if self._text_weights is not None:
            gradient *= self._text_weights[:, None]
        return loss, gradient / len(self._targets)

    def _loss_of_labels(self, logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        yes = sigmoid(logits)
        no = 1 - yes
        loss = binary_cross_entropy(yes, self._targets)

        # As in `_loss_of_classes`, the loss is flat below MIN_PROBABILITY, of yes as of no.
        gradient_of_no = (1 - self._targets) * (no > MIN_PROBABILITY) * yes
        gradient_of_yes = self._targets * (yes > MIN_PROBABILITY) * no
        return loss, (gradient_of_no - gradient_of_yes) / len(self._targets)


def smoothed_targets(labels: NDArray[Any], num_classes: int) -> Floats:
    """The target probabilities of labels, (texts, classes), smoothed after Platt (1999).

    One more text is added that has all classes with equal probability: few texts without a mistake
    prove no certainty.
    """
    num_texts = len(labels)
    if task_of(labels) is MULTI_LABEL:
        smoothed: Floats = (labels * float(num_texts) + 0.5) / (num_texts + 1)
        return smoothed
    return (one_hot(labels, num_classes) * num_texts + 1 / num_classes) / (num_texts + 1)
