"""The accuracy to expect on texts without labels, from calibrated probabilities.

It is the mean probability of the predictions, plus the difference between accuracy and mean
probability on the held-out texts: the "difference of confidences" of Guillory et al., "Predicting
with Confidence on Unseen Distributions" (2021), https://arxiv.org/abs/2107.03315.

If only the shares of classes have changed, the probabilities of more frequent ones are too low.
Saerens, Latinne and Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori
Probabilities" (2002), https://doi.org/10.1162/089976602753284446, estimate the new shares by
expectation maximization. With calibrated probabilities, it is more exact than the confusion matrix
(BBSE): Alexandari et al., "Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at
Label Shift Adaptation" (2020), https://arxiv.org/abs/1901.06852.

How far off they may be is found by the bootstrap: Efron and Tibshirani, "An Introduction to the
Bootstrap" (1993).
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

# The drawings of the bootstrap, and the most texts of each.
DRAWINGS = 10
MAX_DRAWN_TEXTS = 4_000


class SampledProbabilities(NamedTuple):
    """The probabilities of a random sample of texts, (sampled, classes), by their `rows`."""

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float32]

    def among(self, is_member: NDArray[np.bool_]) -> SampledProbabilities:
        """The sampled texts among those that a mask, (texts,), marks."""
        chosen = is_member[self.rows]
        return SampledProbabilities(self.rows[chosen], self.probabilities[chosen])


@dataclass(frozen=True, kw_only=True)
class ExpectedAccuracy:
    """The share of right predictions to expect, with the 95% interval."""

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

    `mean_probabilities` are of the held-out texts; `shifted` is a sample of the later ones, if the
    shares of classes have changed.
    """
    confidence: NDArray[Any] = now.confidence
    variance_of_shares = 0.0
    # None of the texts of a week or month may be in the sample.
    is_corrected = False
    if shifted is not None and len(shifted.rows):
        is_corrected = True
        correction = _Correction.estimate(shifted.probabilities, mean_probabilities)
        confidence = correction.confidence(shifted.probabilities)
        variance_of_shares = _variance_of_shares(
            correction, shifted.probabilities, confidence, before.num_independent
        )
        # Texts that belong together count as fewer.
        variance_of_shares *= len(now) / now.num_independent
    mean = float(np.mean(confidence))

    # On held-out texts, probabilities are right on average but for this difference.
    differences = before.is_right - before.confidence
    accuracy = min(1.0, max(0.0, mean + float(differences.mean())))

    variance = float((confidence * (1 - confidence)).mean()) / now.num_independent
    variance += float(differences.var()) / before.num_independent + variance_of_shares
    half_width = NORMAL_QUANTILE * math.sqrt(variance)
    return ExpectedAccuracy(
        accuracy=accuracy,
        interval=(max(0.0, accuracy - half_width), min(1.0, accuracy + half_width)),
        is_corrected=is_corrected,
    )


class _Correction(NamedTuple):
    """The shares of classes among the held-out texts, and among the later ones."""

    old_shares: NDArray[np.float64]
    new_shares: NDArray[np.float64]

    @classmethod
    def estimate(
        cls, probabilities: NDArray[np.float32], old_shares: NDArray[np.float64]
    ) -> _Correction:
        old_shares = np.maximum(old_shares, np.finfo(np.float64).tiny)
        return cls(old_shares, old_shares).improved(probabilities)

    def improved(self, probabilities: NDArray[np.float32]) -> _Correction:
        """The correction after expectation maximization from the new shares."""
        correction = self
        for _ in range(MAX_ROUNDS):
            new_shares = correction.corrected(probabilities).mean(axis=0)
            change = float(np.abs(new_shares - correction.new_shares).max())
            correction = correction._replace(new_shares=new_shares)
            if change < SMALLEST_CHANGE:
                break
        return correction

    def corrected(self, probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
        products: NDArray[np.float64] = probabilities * (self.new_shares / self.old_shares)
        products /= products.sum(axis=1, keepdims=True)
        return products

    def confidence(self, probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
        predicted = probabilities.argmax(axis=1)
        corrected = self.corrected(probabilities)
        return np.asarray(corrected[np.arange(len(corrected)), predicted])


def _variance_of_shares(
    correction: _Correction,
    probabilities: NDArray[np.float32],
    confidence: NDArray[np.float64],
    num_held_out: float,
) -> float:
    """The variance of the mean confidence that comes from the shares, by bootstrap.

    Of probabilities of held-out texts, only the mean is kept, so the old shares vary as if each
    text were one class.
    """
    random = np.random.default_rng(0)
    old_shares, new_shares = correction
    num_expected = num_held_out * old_shares
    num_texts = len(probabilities)

    differences = []
    for _ in range(DRAWINGS):
        rows = random.integers(num_texts, size=min(num_texts, MAX_DRAWN_TEXTS))
        drawn_shares = old_shares * random.gamma(num_expected + 1) / (num_expected + 1)
        drawn_shares /= drawn_shares.sum()
        drawn = _Correction(drawn_shares, new_shares).improved(probabilities[rows])
        mean = float(drawn.confidence(probabilities[rows]).mean())
        differences.append(mean - float(confidence[rows].mean()))
    return float(np.mean(np.square(differences)))
