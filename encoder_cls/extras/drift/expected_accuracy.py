"""The accuracy to expect on texts without labels, from calibrated probabilities.

It is the mean probability of the predictions, plus the difference between accuracy and mean
probability on the held-out texts: the "difference of confidences" of Guillory et al., "Predicting
with Confidence on Unseen Distributions" (2021), https://arxiv.org/abs/2107.03315.

If the shares of classes have changed, and nothing else, the probabilities of classes that have
become more frequent are too low. Saerens, Latinne and Decaestecker, "Adjusting the Outputs of a
Classifier to New a Priori Probabilities" (2002), https://doi.org/10.1162/089976602753284446,
estimate the new shares by expectation maximization. With calibrated probabilities, it is more exact
than the confusion matrix (BBSE), as Alexandari et al. found: "Maximum Likelihood with
Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation" (2020),
https://arxiv.org/abs/1901.06852.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.extras.drift.figures import Figures

NORMAL_QUANTILE = 1.959964
MAX_ROUNDS = 200
# Expectation maximization ends when no share changes by more than this in a round.
SMALLEST_CHANGE = 1e-5


class SampledProbabilities(NamedTuple):
    """The probabilities of a random sample of texts.

    Attributes:
        rows: the indices of these texts among all, (sampled,).
        probabilities: of all classes, (sampled, classes).
    """

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float32]

    def among(self, is_member: NDArray[np.bool_]) -> SampledProbabilities:
        """Those of the texts that are members, (texts,)."""
        chosen = is_member[self.rows]
        return SampledProbabilities(self.rows[chosen], self.probabilities[chosen])


@dataclass(frozen=True, kw_only=True)
class ExpectedAccuracy:
    """How many predictions are probably right, with the 95% interval."""

    accuracy: float
    interval: tuple[float, float]
    is_corrected: bool
    """Whether it is corrected for a shift of the shares of classes."""


def expected_accuracy(
    before: Figures,
    now: Figures,
    *,
    mean_probabilities: NDArray[np.float64],
    shifted: SampledProbabilities | None,
) -> ExpectedAccuracy:
    """Estimate the accuracy on later texts from that on held-out texts.

    `mean_probabilities` are those of the held-out texts, (classes,). `shifted` is a sample of the
    later texts, if the shares of classes have changed.
    """
    confidence: NDArray[Any] = now.confidence
    if shifted is not None and len(shifted.rows):
        confidence = _corrected_confidence(shifted, mean_probabilities)
    mean = float(np.mean(confidence))

    # On held-out texts, probabilities are right on average but for this difference.
    differences = before.is_right - before.confidence
    accuracy = min(1.0, max(0.0, mean + float(differences.mean())))

    variance = float((confidence * (1 - confidence)).mean()) / now.num_independent
    variance += float(differences.var()) / before.num_independent
    half_width = NORMAL_QUANTILE * math.sqrt(variance)
    return ExpectedAccuracy(
        accuracy=accuracy,
        interval=(max(0.0, accuracy - half_width), min(1.0, accuracy + half_width)),
        is_corrected=shifted is not None,
    )


def _corrected_confidence(
    sampled: SampledProbabilities, mean_probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The probabilities of predictions, (texts,), by the estimated new shares of classes."""
    old_shares = np.maximum(mean_probabilities, np.finfo(np.float64).tiny)
    shares = old_shares
    for _ in range(MAX_ROUNDS):
        corrected = sampled.probabilities * (shares / old_shares)
        corrected /= corrected.sum(axis=1, keepdims=True)
        new_shares = corrected.mean(axis=0)
        change = float(np.abs(new_shares - shares).max())
        shares = new_shares
        if change < SMALLEST_CHANGE:
            break

    predicted = sampled.probabilities.argmax(axis=1)
    confidence: NDArray[np.float64] = corrected[np.arange(len(corrected)), predicted]
    return confidence
