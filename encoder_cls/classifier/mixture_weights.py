"""Fit the weights of a mixture of classifiers to the labels of texts held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.calibration import (
    MAX_SCALE,
    Floats,
    LogLoss,
    fit_inverse_temperature,
    minimize_loss,
)
from encoder_cls.metrics.logits import Logits, combine_logits

# The least share of a classifier in a mixture, however misleading it is.
MIN_SHARE = 1e-3
# The nats that a share must gain to be 1 away from the expected one.
RIDGE_PENALTY = 8.0


def fit_mixture_weights(
    logits: Sequence[Logits], labels: NDArray[Any], *, expects_equal_shares: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Fit the weights of a sum of logits under which labels have the lowest loss.

    A share is a weight in units of the classifier's own inverse temperature. A ridge penalty,
    `RIDGE_PENALTY` * distance^2 / texts, draws the shares to the expected ones, so that few labels
    move them little.

    Args:
        logits: of each classifier, (texts, classes). The last one is calibrated already.
        labels: as in `Split`.
        expects_equal_shares: whether equal shares are expected, as of a student and its teacher;
            by default, the last classifier alone is.

    Returns:
        The weight and the share of each classifier; shares sum to 1.
    """
    num_classifiers = len(logits)
    scores = [part.astype(np.float64) for part in logits]
    log_loss = LogLoss(labels, logits[0].shape[1])

    # Find the inverse temperature of each classifier alone. A student has 1, since it learns the
    # probabilities of its teacher, which is calibrated.
    scales_alone = np.ones(num_classifiers)
    if not expects_equal_shares:
        for number in range(num_classifiers - 1):
            scales_alone[number] = fit_inverse_temperature(logits[number], labels)

    equal_shares = np.full(num_classifiers, 1 / num_classifiers)
    expected_shares = equal_shares
    if not expects_equal_shares:
        expected_shares = np.zeros(num_classifiers)
        expected_shares[-1] = 1

    def loss(shares: Floats) -> tuple[float, Floats]:
        value, gradient = log_loss.with_gradient(combine_logits(scores, shares * scales_alone))
        gradient_of_shares = scales_alone * [(gradient * part).sum() for part in scores]

        distances = shares - expected_shares
        penalty = float(RIDGE_PENALTY * (distances**2).sum() / len(labels))
        gradient_of_penalty = 2 * RIDGE_PENALTY * distances / len(labels)
        return value + penalty, gradient_of_shares + gradient_of_penalty

    bounds = [(MIN_SHARE, MAX_SCALE)] * num_classifiers
    shares = minimize_loss(loss, start=equal_shares, bounds=bounds)
    weights = shares * scales_alone
    return tuple(weights.tolist()), tuple((shares / shares.sum()).tolist())
