"""The weighted sum of the logits of both models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from encoder_cls.metrics.logits import Logits, combine_logits

# A smaller share counts as this one where it divides, so that no division is by zero.
SMALLEST_DIVISOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The weighted sum of the logits of encoder and linear model.

    Attributes:
        weights: the factor of each part's logits, with which the sum is calibrated; 1 for a
            part that has no entry.
        shares: each part's weight, relative to the weight that calibrates the part alone,
            normalized to sum to 1. None if unknown.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] | None = None

    def weights_of(self, parts: Iterable[str]) -> list[float]:
        """The weights of some parts, in the order of `parts`."""
        return [self.weights.get(part, 1.0) for part in parts]

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """The weighted sum of the logits of the parts, (texts, classes)."""
        weights = self.weights_of(part_logits)
        return combine_logits(list(part_logits.values()), weights).astype(np.float32)

    def parts_alone(self, part_logits: Mapping[str, Logits]) -> dict[str, Logits]:
        """The calibrated logits of each part without the other parts, (texts, classes).

        A part alone has the factor weight / share. If shares are unknown, it has its weight.
        """
        alone = {}
        for part, logits in part_logits.items():
            alone[part] = (logits * self.weight_alone(part)).astype(np.float32)
        return alone

    def weight_alone(self, part: str) -> float:
        """The factor that calibrates the logits of a part without the other parts."""
        weight = self.weights.get(part, 1.0)
        if self.shares is None:
            return weight
        return weight / max(self.shares[part], SMALLEST_DIVISOR)
