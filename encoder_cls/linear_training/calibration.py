"""Calibrate logits: fit scales and shifts to the labels of held-out texts.

Calibration ignores class weights: independent texts count alike (`row_groups`), or by how they
represent texts without labels (`post_stratification`).

In a multi-label task, the parameters of each label are shrunk towards those of all labels, the
more, the fewer examples a label has: a fit to ten examples alone would overfit (Efron and Morris,
"Stein's Paradox", 1977).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.log_loss import (
    MIN_PROBABILITY,
    binary_cross_entropy,
    cross_entropy,
    one_hot,
)
from encoder_cls.metrics.logits import Logits, log_sigmoid, sigmoid, softmax
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, task_of

Floats = NDArray[np.float64]

# Scales and inverse temperatures lie between 1 / MAX_SCALE and MAX_SCALE.
MAX_SCALE = 20.0
LOG_SCALE_BOUNDS = (-float(np.log(MAX_SCALE)), float(np.log(MAX_SCALE)))

# Shifts lie between -MAX_SHIFT and MAX_SHIFT. For logits below -10, a sigmoid is practically
# exp(x), and above 10 it is practically 1, so larger shifts would change nothing.
MAX_SHIFT = 10.0
SHIFT_BOUNDS = (-MAX_SHIFT, MAX_SHIFT)


class Calibration(NamedTuple):
    """The scale and the shift that turn margins into logits.

    Attributes:
        loss: of held-out texts, in nats; class-weighted in a single-label task.
        scale: multi-label, (labels,), as is `shift`.
        logits: of held-out texts, (texts, classes).
        svm_c: the C with which the classifiers of the margins were fitted.
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
    groups: RowGroups,
    text_weights: Floats | None = None,
) -> Calibration:
    """Calibrate the margins of held-out texts, (texts, classifiers).

    A single-label task has one scale and one shift for all classes, where class weights and text
    weights apply to the loss; a multi-label task has one of each for every label.
    """
    task = task_of(labels)
    weights = independent_weights(task.margins_to_logits(margins), labels, groups)
    if task is MULTI_LABEL:
        return _calibrate_labels(margins, labels, weights)

    if text_weights is not None:
        weights = weights * text_weights
    return _calibrate_classes(margins, labels, class_weights, weights)


def independent_weights(logits: Logits, labels: NDArray[Any], groups: RowGroups) -> Floats:
    """How much each text counts in a fit, which is less in a group that is right or wrong together.

    The weights sum to the number of independent texts. The logits need no calibration.
    """
    task = task_of(labels)
    predictions = task.predictions(logits.astype(np.float64), [0.0] * logits.shape[1])
    return groups.weights(groups.correlation(task.are_correct(predictions, labels)))


def _calibrate_labels(
    margins: NDArray[np.float32], labels: NDArray[Any], text_weights: Floats
) -> Calibration:
    scales, shifts = fit_platt_per_label(margins, labels, text_weights)
    logits = (margins * scales + shifts).astype(np.float32)

    # Leave the loss unweighted: class weights have never changed which C has the lowest loss.
    loss = binary_cross_entropy(sigmoid(logits), labels, text_weights)
    return Calibration(loss, scales.astype(np.float32), shifts.astype(np.float32), logits)


def _calibrate_classes(
    margins: NDArray[np.float32],
    labels: NDArray[np.int64],
    class_weights: NDArray[np.float32],
    text_weights: Floats,
) -> Calibration:
    num_classes = len(class_weights)
    if SINGLE_LABEL.num_one_vs_rest(num_classes) == 1:
        # The logits of two classes have opposite signs, so a common shift would change nothing.
        logits = SINGLE_LABEL.margins_to_logits(margins)
        scale = fit_inverse_temperature(logits, labels, text_weights)
        shift = 0.0
    else:
        scale, shift = fit_platt(margins, labels, text_weights)
    logits = SINGLE_LABEL.margins_to_logits((margins * scale + shift).astype(np.float32))

    # Unlike the scale and the shift, the loss has class weights: it decides which C is best, and
    # the classifiers are fitted with class weights, too.
    loss_weights = class_weights[labels] * text_weights
    loss = cross_entropy(softmax(logits), one_hot(labels, num_classes), loss_weights)
    return Calibration(loss, np.float32(scale), np.float32(shift), logits)


def fit_inverse_temperature(
    logits: Logits, labels: NDArray[Any], text_weights: Floats | None = None
) -> float:
    """Fit the factor of logits that minimizes the log loss of the labels (temperature scaling).

    Args:
        text_weights: sum to the number of independent texts; by default 1 each.

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
    for Support Vector Machines", 1999). The probabilities of each text are then normalized
    (Zadrozny and Elkan, 2002, https://doi.org/10.1145/775047.775151).
    """
    scale_bounds = (1 / MAX_SCALE, MAX_SCALE)
    loss = LogLoss(labels, margins.shape[1], text_weights)
    scale, shift = minimize_loss(
        _loss_of_sum([margins], loss), start=[1.0, 0.0], bounds=[scale_bounds, SHIFT_BOUNDS]
    )
    return float(scale), float(shift)


def _loss_of_sum(
    margins: Sequence[Logits], log_loss: LogLoss
) -> Callable[[Floats], tuple[float, Floats]]:
    scores = [of_model.astype(np.float64) for of_model in margins]

    def loss(parameters: Floats) -> tuple[float, Floats]:
        *scales, shift = parameters
        scaled = [scale * of_model for scale, of_model in zip(scales, scores, strict=True)]
        calibrated = sum(scaled[1:], start=scaled[0]) + shift
        value, gradient = log_loss.with_gradient(log_sigmoid(calibrated))

        # Apply the chain rule. The derivative of ln(sigmoid(x)) is sigmoid(-x).
        gradient = gradient * sigmoid(-calibrated)
        by_scale = [(gradient * of_model).sum() for of_model in scores]
        return value, np.array([*by_scale, gradient.sum()])

    return loss


class SumOfMargins(NamedTuple):
    """The scales of margins of several models, their shift, and the loss."""

    scales: tuple[float, ...]
    shift: float
    loss: float


# The largest scale of margins in a sum: those of naive Bayes need more than MAX_SCALE.
MAX_SCALE_IN_SUM = 100.0


def fit_sum_of_margins(
    margins: Sequence[Logits], labels: NDArray[np.int64], groups: RowGroups
) -> SumOfMargins:
    """Fit scales and one shift to one-vs-rest margins of several models, each (texts, classes).

    A model that does not help gets the scale 0.
    """
    equal_parts = np.mean(margins, axis=0)
    text_weights = independent_weights(equal_parts, labels, groups)
    loss = _loss_of_sum(margins, LogLoss(labels, margins[0].shape[1], text_weights))

    scale_bounds = [(0.0, MAX_SCALE_IN_SUM)] * len(margins)
    start = [1.0] * len(margins) + [0.0]
    *scales, shift = minimize_loss(loss, start=start, bounds=[*scale_bounds, SHIFT_BOUNDS])
    lowest, _ = loss(np.array([*scales, shift]))
    return SumOfMargins(tuple(map(float, scales)), float(shift), lowest)


# The weight of the quadratic penalty on the distance of a label's log scale or shift from the
# common one: a distance of 1 must reduce the label's loss by 4 nats.
CALIBRATION_PENALTY = 4.0


def fit_platt_per_label(
    margins: Logits, targets: NDArray[np.int8], text_weights: Floats
) -> tuple[Floats, Floats]:
    """Fit scales and shifts of labels, which are shrunk towards those that fit all."""
    num_texts = _number_of(text_weights)
    smoothed = smoothed_targets(targets, targets.shape[1], num_texts)
    scores = margins.astype(np.float64)
    num_labels = scores.shape[1]
    weights = text_weights[:, None]

    def losses(log_scales: Floats, shifts: Floats) -> tuple[Floats, Floats]:
        """The losses, (labels,), and gradients by log scale and shift, (2, labels)."""
        scaled = scores * np.exp(log_scales)
        logits = scaled + shifts
        losses_of_labels = (weights * (np.logaddexp(0, logits) - smoothed * logits)).sum(axis=0)

        errors = weights * (sigmoid(logits) - smoothed)
        gradient = np.stack([(errors * scaled).sum(axis=0), errors.sum(axis=0)])
        return losses_of_labels, gradient

    def common_loss(parameters: Floats) -> tuple[float, Floats]:
        losses_of_labels, gradient = losses(parameters[:1], parameters[1:])
        return float(losses_of_labels.sum() / num_texts), gradient.sum(axis=1) / num_texts

    bounds = [LOG_SCALE_BOUNDS, SHIFT_BOUNDS]
    common = minimize_loss(common_loss, start=[0.0, 0.0], bounds=bounds)

    # Fit a log scale and a shift to each label, with a penalty on their distance from the common
    # ones. All labels are fitted at once: the parameters are all log scales, then all shifts.
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
    """Find the parameters with the lowest loss, by L-BFGS-B; `loss` also returns its gradient."""
    from scipy.optimize import minimize

    minimum: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return minimum


class LogLoss:
    """The mean negative log-likelihood of independent texts, with its gradient.

    Args:
        text_weights: sum to the number of independent texts; by default 1 each.
    """

    def __init__(
        self, labels: NDArray[Any], num_classes: int, text_weights: Floats | None = None
    ) -> None:
        self._task = task_of(labels)
        if text_weights is None:
            text_weights = np.ones(len(labels))
        self._text_weights = text_weights
        self.num_texts = _number_of(text_weights)
        self._targets = smoothed_targets(labels, num_classes, self.num_texts)

    def with_gradient(self, logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        """The loss of logits in float64, since float32 is too coarse for a minimizer."""
        if self._task is MULTI_LABEL:
            return self._loss_of_labels(logits)
        return self._loss_of_classes(logits)

    def _loss_of_classes(self, logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        probabilities = softmax(logits)
        loss = cross_entropy(probabilities, self._targets, self._text_weights)

        # `cross_entropy` clips probabilities at MIN_PROBABILITY, so the gradient of a clipped
        # probability is 0.
        counted = self._targets * (probabilities > MIN_PROBABILITY)
        gradient = counted.sum(axis=-1, keepdims=True) * probabilities - counted
        return loss, self._mean(gradient)

    def _loss_of_labels(self, logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        yes = sigmoid(logits)
        no = 1 - yes
        loss = binary_cross_entropy(yes, self._targets, self._text_weights)

        # `binary_cross_entropy` clips the probabilities of "yes" and of "no" at MIN_PROBABILITY, so
        # the gradient of a clipped probability is 0.
        gradient_of_no = (1 - self._targets) * (no > MIN_PROBABILITY) * yes
        gradient_of_yes = self._targets * (yes > MIN_PROBABILITY) * no
        return loss, self._mean(gradient_of_no - gradient_of_yes)

    def _mean(self, gradient: Floats) -> Floats:
        return gradient * self._text_weights[:, None] / self.num_texts


def _number_of(text_weights: Floats) -> float:
    """The number of independent texts, without errors of rounding."""
    return round(float(text_weights.sum()), 6)


def smoothed_targets(labels: NDArray[Any], num_classes: int, num_texts: float) -> Floats:
    """The target probabilities of labels, (texts, classes), smoothed after Platt (1999).

    With n texts, a target is the mean of n observations of the label and one of a uniform
    distribution: so no probability is fitted to 0 or 1 where few texts are all predicted correctly.
    """
    if task_of(labels) is MULTI_LABEL:
        smoothed: Floats = (labels * num_texts + 0.5) / (num_texts + 1)
        return smoothed
    return (one_hot(labels, num_classes) * num_texts + 1 / num_classes) / (num_texts + 1)
