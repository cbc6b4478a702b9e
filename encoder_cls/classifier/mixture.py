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
        weights: the factors of the parts' logits; 1 without an entry.
        shares: the weights relative to those that calibrate each part alone, normalized to sum to
            1; None if unknown.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] | None = None

    def weights_of(self, parts: Iterable[str]) -> list[float]:
        """The weights in the order of `parts`."""
        return [self.weights.get(part, 1.0) for part in parts]

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """The weighted sum of the logits of the parts, (texts, classes)."""
        weights = self.weights_of(part_logits)
        return combine_logits(list(part_logits.values()), weights).astype(np.float32)

    def parts_alone(self, part_logits: Mapping[str, Logits]) -> dict[str, Logits]:
        """The logits of each part, (texts, classes), as calibrated without the other parts."""
        alone = {}
        for part, logits in part_logits.items():
            alone[part] = (logits * self.weight_alone(part)).astype(np.float32)
        return alone

    def weight_alone(self, part: str) -> float:
        """The factor that calibrates a part alone: weight / share, or the weight if unknown."""
        weight = self.weights.get(part, 1.0)
        if self.shares is None:
            return weight
        return weight / max(self.shares[part], SMALLEST_DIVISOR)
