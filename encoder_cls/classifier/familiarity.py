"""Detection of out-of-distribution texts: texts that differ from all held-out texts.

A low probability (Hendrycks and Gimpel, 2017, https://arxiv.org/abs/1610.02136) does not reveal
all: a text on a new topic may share a few typical words with the training texts. So the score also
depends on how rare the linear model's features in it are, on its unknown words, and on the evidence
for the best class, which is weak for a new topic in familiar words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.feature_sums import NUM_EVIDENCE_FEATURES, NUM_RARITY_FEATURES
from encoder_cls.text.tokens import TokenizedTexts

# The weight of low confidence in the score of a text. Each feature of rarity has the weight 1.
CONFIDENCE_WEIGHT = 3.0
# The weights of the features of evidence. They count on both sides of their mean: much evidence
# makes a text more familiar.
EVIDENCE_WEIGHTS = (6.0, 4.0)
# A feature of rarity that lies more than `FAR` standard deviations above its mean has the
# additional weight `FAR_WEIGHT`. Otherwise a text of random characters, which has some evidence by
# chance, would not be flagged.
FAR = 4.0
FAR_WEIGHT = 2.0

# The fraction of held-out texts that are flagged as unfamiliar.
FLAGGED_FRACTION = 0.01

# The number of held-out texts that are needed to estimate standard deviations.
MIN_TEXTS = 20

# A feature with a smaller standard deviation is treated as constant.
MIN_DEVIATION = 1e-3

# The number of features that every classifier measures: the fraction of unknown tokens, and the
# confidence. A linear part adds its features of evidence and rarity.
NUM_COMMON_FEATURES = 2

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Familiarity:
    """How the features of `measure_familiarity` are distributed over held-out texts.

    Attributes:
        deviations: the standard deviations, (features,); 0 for a nearly constant feature.
        threshold: the score from which a text is out of distribution.
    """

    means: Array
    deviations: Array
    threshold: float

    @classmethod
    def of(cls, familiarity_features: Array) -> Familiarity | None:
        """Fit held-out texts, (texts, features); None if they are fewer than `MIN_TEXTS`."""
        if len(familiarity_features) < MIN_TEXTS:
            return None

        deviations = familiarity_features.std(axis=0)
        deviations[deviations < MIN_DEVIATION] = 0
        distribution = cls(
            means=familiarity_features.mean(axis=0), deviations=deviations, threshold=np.inf
        )

        # The threshold is just above the highest score of the texts that are not flagged. So no
        # text is flagged where there are fewer than 1 / `FLAGGED_FRACTION` texts.
        scores = np.sort(distribution.scores(familiarity_features))
        num_flagged = int(FLAGGED_FRACTION * len(scores))
        highest_familiar = scores[len(scores) - 1 - num_flagged]
        return replace(distribution, threshold=float(np.nextafter(highest_familiar, np.inf)))

    def scores(self, familiarity_features: Array) -> Array:
        """Score how unfamiliar texts are, (texts,): a weighted sum of standardized features."""
        # Standardize the features. A constant feature becomes 0, since it says nothing.
        is_variable = self.deviations > 0
        factors = np.where(is_variable, 1 / np.where(is_variable, self.deviations, 1), 0)
        standardized = (familiarity_features - self.means) * factors

        # Evidence is in the first columns, low confidence in the last one; the columns between them
        # are rarity, which includes the fraction of unknown tokens.
        num_evidence = 0
        if len(self.means) > NUM_COMMON_FEATURES:
            num_evidence = NUM_EVIDENCE_FEATURES
        rarity = standardized[:, num_evidence:-1]
        low_confidence = standardized[:, -1]

        scores: Array = np.maximum(rarity, 0).sum(axis=1)
        scores += CONFIDENCE_WEIGHT * np.maximum(low_confidence, 0)
        if num_evidence:
            scores += FAR_WEIGHT * np.maximum(rarity - FAR, 0).sum(axis=1)
            scores += standardized[:, :num_evidence] @ EVIDENCE_WEIGHTS
        return scores

    def are_unfamiliar(self, familiarity_features: Array) -> NDArray[np.bool_]:
        """Whether each text is out of distribution, (texts,)."""
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
        """Read the values of a model folder; a `ValueError` if one is invalid."""
        num_features = NUM_COMMON_FEATURES
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


# Larger log odds are cut off here, because float64 cannot tell such a probability from 1.
MAX_LOG_ODDS = 30.0


def measure_familiarity(
    probabilities: Array, texts: TokenizedTexts, linear_features: Array | None
) -> Array:
    """Measure the features that show how unusual texts are, (texts, features).

    They are the linear features, if there is a linear part, the fraction of unknown tokens, and the
    negative log odds of the most probable class.
    """
    # The first token of a text is [CLS].
    num_tokens = np.maximum(1, texts.num_words)
    unknown_fraction = texts.unknown / num_tokens

    best = probabilities.max(axis=1)
    log_odds = np.log(best / np.maximum(1 - best, np.exp(-MAX_LOG_ODDS)))
    log_odds = np.minimum(log_odds, MAX_LOG_ODDS)

    columns = [unknown_fraction[:, None], -log_odds[:, None]]
    if linear_features is not None:
        columns.insert(0, linear_features)
    return np.hstack(columns)
