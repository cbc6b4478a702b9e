"""Fit the weights with which the logits of several classifiers are added, on held-out texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear_training.calibration import (
    MAX_SCALE,
    Floats,
    LogLoss,
    fit_inverse_temperature,
    independent_weights,
    minimize_loss,
)
from encoder_cls.metrics.logits import Logits, combine_logits
from encoder_cls.metrics.row_groups import RowGroups

# The lowest share of a classifier in a mixture, so that no classifier is dropped entirely.
MIN_SHARE = 1e-3
# The strength of the ridge penalty: a share moves from its expected value by 1 only if this lowers
# the sum of the losses of all independent texts by more than this number of nats.
RIDGE_PENALTY = 8.0


def fit_mixture_weights(
    logits: Sequence[Logits],
    labels: NDArray[Any],
    groups: RowGroups,
    *,
    expects_equal_shares: bool = False,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Fit the weights with which the sum of logits has the lowest loss.

    The share of a classifier is its weight, divided by the inverse temperature that calibrates it
    alone. A ridge penalty, `RIDGE_PENALTY` * distance^2 / texts, draws the shares towards expected
    values, so that a few labels change them little: all equal with `expects_equal_shares`, as of a
    student and its teacher; else 1 for the last classifier.

    The logits of the last classifier, (texts, classes), must be calibrated. The result has the
    weight and the share of each classifier; shares sum to 1.
    """
    num_classifiers = len(logits)
    float64_logits = [part.astype(np.float64) for part in logits]
    text_weights = independent_weights(logits[-1], labels, groups)
    log_loss = LogLoss(labels, logits[0].shape[1], text_weights)

    # Find the inverse temperature of each classifier alone. That of the last one is 1, since it is
    # calibrated. That of a student is 1, too, since it learns the probabilities of its calibrated
    # teacher.
    scales_alone = np.ones(num_classifiers)
    if not expects_equal_shares:
        for number in range(num_classifiers - 1):
            scales_alone[number] = fit_inverse_temperature(logits[number], labels, text_weights)

    equal_shares = np.full(num_classifiers, 1 / num_classifiers)
    expected_shares = equal_shares
    if not expects_equal_shares:
        expected_shares = np.zeros(num_classifiers)
        expected_shares[-1] = 1

    def loss(shares: Floats) -> tuple[float, Floats]:
        combined = combine_logits(float64_logits, shares * scales_alone)
        value, gradient = log_loss.with_gradient(combined)
        gradient_of_shares = scales_alone * [(gradient * part).sum() for part in float64_logits]

        distances = shares - expected_shares
        penalty = float(RIDGE_PENALTY * (distances**2).sum() / log_loss.num_texts)
        gradient_of_penalty = 2 * RIDGE_PENALTY * distances / log_loss.num_texts
        return value + penalty, gradient_of_shares + gradient_of_penalty

    bounds = [(MIN_SHARE, MAX_SCALE)] * num_classifiers
    shares = minimize_loss(loss, start=equal_shares, bounds=bounds)
    weights = shares * scales_alone
    normalized_shares = shares / shares.sum()
    return tuple(weights.tolist()), tuple(normalized_shares.tolist())
