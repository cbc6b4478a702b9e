"""The figures of texts in which drift would show: of held-out texts, and of later ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from encoder_cls import Reference

# The value of `is_right` of a text whose label is not known.
NO_LABEL = -1


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of texts with words, by the classifier's predictions.

    Attributes:
        num_predicted: of each class, (classes,).
        confidence: of predictions, (texts,), rounded to float32 in both samples: an exact
            probability near 1 would differ from each rounded one.
        num_words: that are read, (texts,).
        unknown_words: of these, not in the vocabulary, (texts,).
        is_unfamiliar: (texts,), or (0,) if not measured.
        is_right: 1 or 0, or `NO_LABEL`, (texts,).
        groups: equal for texts that belong together, (texts,).
    """

    num_predicted: NDArray[np.int64]
    confidence: NDArray[np.float32]
    num_words: NDArray[np.integer]
    unknown_words: NDArray[np.integer]
    is_unfamiliar: NDArray[np.bool_]
    is_right: NDArray[np.int8]
    groups: NDArray[np.int64]

    @classmethod
    def of_reference(cls, reference: Reference) -> Figures:
        """The figures of the held-out texts of a run."""
        return cls(
            num_predicted=reference.num_predicted,
            confidence=reference.prediction_probabilities.astype(np.float32),
            num_words=reference.num_words,
            unknown_words=reference.unknown_words,
            is_unfamiliar=reference.is_unfamiliar,
            is_right=reference.is_right.astype(np.int8),
            groups=reference.groups,
        )

    def __len__(self) -> int:
        return len(self.confidence)

    def subset(self, rows: NDArray[np.int64], num_predicted: NDArray[np.int64]) -> Figures:
        """The figures of some texts, of which `num_predicted` have each class."""
        return replace(
            self,
            num_predicted=num_predicted,
            confidence=self.confidence[rows],
            num_words=self.num_words[rows],
            unknown_words=self.unknown_words[rows],
            is_unfamiliar=self.is_unfamiliar[rows]
            if len(self.is_unfamiliar)
            else np.zeros(0, bool),
            is_right=self.is_right[rows],
            groups=self.groups[rows],
        )

    @property
    def num_independent(self) -> float:
        """The independent texts that these are worth, if texts of a group are all alike."""
        return independent(self.groups)

    @property
    def is_labelled(self) -> NDArray[np.bool_]:
        """Whether the label of each text is known."""
        return np.not_equal(self.is_right, NO_LABEL)

    @property
    def accuracy(self) -> float:
        """The accuracy on labelled texts."""
        return float(self.is_right[self.is_labelled].mean())

    @property
    def unknown_shares(self) -> NDArray[np.float64]:
        """The share of unknown words in each text."""
        shares: NDArray[np.float64] = self.unknown_words / np.maximum(1, self.num_words)
        return shares

    @property
    def unknown_fraction(self) -> float:
        """The share of unknown words among all."""
        return float(self.unknown_words.sum() / max(1, self.num_words.sum()))


def independent(groups: NDArray[np.int64]) -> float:
    """How many independent texts are worth as much as groups of texts that are all alike.

    Kish, "Survey Sampling" (1965), chapter 5: the squared number of texts, by the sum of squared
    sizes of groups.
    """
    if not len(groups):
        return 0.0
    _, sizes = np.unique(groups, return_counts=True)
    return float(len(groups) ** 2 / (sizes.astype(np.float64) ** 2).sum())
