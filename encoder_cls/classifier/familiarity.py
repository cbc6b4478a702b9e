"""Detection of out-of-distribution texts, measured on held-out texts.

Probabilities alone (Hendrycks and Gimpel, 2017, https://arxiv.org/abs/1610.02136) miss texts that
share a few typical words with the training texts. So features count, too: their rarity, the share
of unknown ones, and the evidence for the best class, which is low for a new topic with familiar
words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.linear_model import NUM_EVIDENCE_FEATURES
from encoder_cls.linear.ngrams import NUM_RARITY_FEATURES
from encoder_cls.text.tokens import TokenizedTexts

# The weight of confidence in the score of a text. Each number of rarity has the weight 1.
CONFIDENCE_WEIGHT = 3.0
# The weights of the linear part's evidence, which also counts below its mean.
EVIDENCE_WEIGHTS = (6.0, 4.0)
# The deviations from which rarity counts more, since noise has some evidence by chance.
FAR = 4.0
# The further weight of rarity beyond them.
FAR_WEIGHT = 2.0

# The share of held-out texts that are flagged.
FLAGGED = 0.01

# The number of held-out texts that are needed to estimate deviations.
MIN_TEXTS = 20

# A number with a smaller deviation counts as constant.
MIN_DEVIATION = 1e-3

# The numbers of a text without a linear part: the share of unknown tokens, and the confidence.
MIN_NUMBERS = 2

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Familiarity:
    """The distribution of `measure_familiarity` on held-out texts.

    Attributes:
        means: (numbers,).
        deviations: standard deviations, (numbers,); 0 of a number that is nearly constant.
        threshold: the score from which a text is out of distribution.
    """

    means: Array
    deviations: Array
    threshold: float

    @classmethod
    def of(cls, familiarity_features: Array) -> Familiarity | None:
        """Fit held-out texts, (texts, numbers), so that a share of `FLAGGED` is unfamiliar.

        Returns:
            None if there are too few texts.
        """
        if len(familiarity_features) < MIN_TEXTS:
            return None

        deviations = familiarity_features.std(axis=0)
        deviations[deviations < MIN_DEVIATION] = 0
        distribution = cls(
            means=familiarity_features.mean(axis=0), deviations=deviations, threshold=np.inf
        )

        # The threshold lies just above the highest score of the others, so that none of few texts
        # is flagged.
        scores = np.sort(distribution.scores(familiarity_features))
        num_flagged = int(FLAGGED * len(scores))
        highest = scores[len(scores) - 1 - num_flagged]
        return replace(distribution, threshold=float(np.nextafter(highest, np.inf)))

    def scores(self, familiarity_features: Array) -> Array:
        """The unfamiliarity of texts, (texts,): a weighted sum of deviations from the means."""
        # A constant number says nothing.
        varies = self.deviations > 0
        factors = np.where(varies, 1 / np.where(varies, self.deviations, 1), 0)
        deviations = (familiarity_features - self.means) * factors

        # Evidence comes first, confidence last.
        num_evidence = 0
        if len(self.means) > MIN_NUMBERS:
            num_evidence = NUM_EVIDENCE_FEATURES
        rarity = deviations[:, num_evidence:-1]
        confidence = deviations[:, -1]

        scores: Array = np.maximum(rarity, 0).sum(axis=1)
        scores = scores + CONFIDENCE_WEIGHT * np.maximum(confidence, 0)
        if num_evidence:
            scores += FAR_WEIGHT * np.maximum(rarity - FAR, 0).sum(axis=1)
            scores += deviations[:, :num_evidence] @ EVIDENCE_WEIGHTS
        return scores

    def are_unfamiliar(self, familiarity_features: Array) -> NDArray[np.bool_]:
        """Which texts are out of distribution, (texts,)."""
        return self.scores(familiarity_features) >= self.threshold

    # --- In a model folder ------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The values for a model folder."""
        return {
            "means": self.means.tolist(),
            "deviations": self.deviations.tolist(),
            "threshold": self.threshold,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, has_linear: bool) -> Familiarity:
        """Read the values of a model folder, which may come from a stranger.

        Raises:
            ValueError: they do not fit the parts of the model.
        """
        num_features = MIN_NUMBERS
        if has_linear:
            num_features += NUM_EVIDENCE_FEATURES + NUM_RARITY_FEATURES

        means = np.array(values["means"], dtype=np.float64)
        deviations = np.array(values["deviations"], dtype=np.float64)
        threshold = float(values["threshold"])

        expected = f"expected {num_features} finite numbers"
        if means.shape != (num_features,) or not np.isfinite(means).all():
            raise ValueError(f"familiarity.means: invalid value ({expected})")
        if deviations.shape != (num_features,) or not np.isfinite(deviations).all():
            raise ValueError(f"familiarity.deviations: invalid value ({expected})")
        if (deviations < 0).any():
            raise ValueError("familiarity.deviations: invalid value (expected none below 0)")
        if np.isnan(threshold):
            raise ValueError("familiarity.threshold: invalid value (expected a number)")
        return cls(means=means, deviations=deviations, threshold=threshold)


# The largest log odds that count: all digits of such a probability are 9.
LARGEST_ODDS = 30.0


def measure_familiarity(
    probabilities: Array, texts: TokenizedTexts, linear_features: Array | None
) -> Array:
    """Measure how unusual texts are, (texts, numbers).

    The numbers are those of the linear part, if any, then the share of unknown tokens, and the
    negative log odds of the best class.

    Args:
        probabilities: (texts, classes).
        texts: tokenized.
        linear_features: of `LinearModel.read`, (texts, numbers), if there is a linear part.
    """
    num_words = np.maximum(1, texts.lengths - 1)
    unknown_share = texts.unknown / num_words

    best = probabilities.max(axis=1)
    log_odds = np.log(best / np.maximum(1 - best, np.exp(-LARGEST_ODDS)))
    log_odds = np.minimum(log_odds, LARGEST_ODDS)

    columns = [unknown_share[:, None], -log_odds[:, None]]
    if linear_features is not None:
        columns.insert(0, linear_features)
    return np.hstack(columns)
