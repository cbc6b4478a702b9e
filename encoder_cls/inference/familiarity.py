"""The numbers that tell how usual a text is, by what held-out texts have, in; which texts are unlike them out.

Detecting what a classifier was not trained for by its probabilities alone (Hendrycks and Gimpel, "A Baseline for
Detecting Misclassified and Out-of-Distribution Examples in Neural Networks", 2017, https://arxiv.org/abs/1610.02136)
misses texts that share a few telling words with it. So the features count, too: how rare they were in training, and how
many were not there at all. Each number is measured in standard deviations above its mean on held-out texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE_WEIGHT = 3.0  # of the log odds of the best class, beside one for each other number
LARGEST_ODDS = 30.0  # log odds: a probability of which all digits are 9
FLAGGED = 0.01  # of the held-out texts
LEAST_DEVIATION = 1e-3  # of a number that is the same in nearly all texts, and says nothing of them
FEWEST_TEXTS = 20  # held out, for deviations to say something

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Familiarity:
    """What is usual in held-out texts.

    Attributes:
        means: of each number, (numbers,); the log odds of the best class, negated, come last.
        deviations: their standard deviations, (numbers,); those of a number that says nothing are 0.
        threshold: the score from which a text is unfamiliar.
    """

    means: Array
    deviations: Array
    threshold: float

    @classmethod
    def of(cls, numbers: Array) -> Familiarity | None:
        """What held-out texts tell, of which `FLAGGED` are then unfamiliar; none of too few.

        Args:
            numbers: as `text_numbers` has them, (texts, numbers).
        """
        if len(numbers) < FEWEST_TEXTS:
            return None
        deviations = numbers.std(axis=0)
        deviations[deviations < LEAST_DEVIATION] = 0
        usual = cls(means=numbers.mean(axis=0), deviations=deviations, threshold=np.inf)
        in_order = np.sort(usual.scores(numbers))
        # Just above the highest of the others: of few texts none is flagged.
        highest = in_order[len(in_order) - 1 - int(FLAGGED * len(in_order))]
        threshold = float(np.nextafter(highest, np.inf))
        return cls(means=usual.means, deviations=usual.deviations, threshold=threshold)

    def scores(self, numbers: Array) -> Array:
        """How unfamiliar texts are, (texts,): the deviations above the means, summed."""
        says_something = self.deviations > 0
        weights = np.where(says_something, 1 / np.where(says_something, self.deviations, 1), 0)
        weights[-1] *= CONFIDENCE_WEIGHT
        scores: Array = np.maximum((numbers - self.means) * weights, 0).sum(axis=1)
        return scores

    def are_unfamiliar(self, numbers: Array) -> NDArray[np.bool_]:
        """Which texts are unlike those of training, (texts,)."""
        return self.scores(numbers) >= self.threshold

    def to_json(self) -> dict[str, Any]:
        """As a model folder holds it."""
        return {"means": self.means.tolist(), "deviations": self.deviations.tolist(), "threshold": self.threshold}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, num_numbers: int) -> Familiarity:
        """What a model folder holds.

        Raises:
            ValueError: it is none.
            KeyError: a value is missing.
            TypeError: one is of another type.
        """
        means, deviations = (np.array(values[name], dtype=np.float64) for name in ("means", "deviations"))
        threshold = float(values["threshold"])
        is_whole = means.shape == deviations.shape == (num_numbers,) and np.isfinite([*means, *deviations]).all()
        if not is_whole or (deviations < 0).any() or np.isnan(threshold):
            raise ValueError("what is familiar to the model is described by other numbers than there are")
        return cls(means=means, deviations=deviations, threshold=threshold)


def text_numbers(probabilities: Array, unknown_share: Array, rarity: Array | None) -> Array:
    """All numbers of texts, (texts, numbers), in each of which more is less usual.

    Args:
        probabilities: (texts, classes).
        unknown_share: of the tokens of each text, (texts,).
        rarity: those of its features, as `LinearClassifier.read` has them, (texts, numbers); none without that part.
    """
    best = probabilities.max(axis=1)
    odds = np.minimum(np.log(best / np.maximum(1 - best, np.exp(-LARGEST_ODDS))), LARGEST_ODDS)
    columns = [unknown_share[:, None], -odds[:, None]]
    return np.hstack(columns if rarity is None else [rarity, *columns])
