"""Measure the guarantees of held-out texts on other texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.guarantees import Guarantees

# The guarantees that a report measures; where they cannot be given, the highest that can be.
PRECISION, COVERAGE = 0.95, 0.9


@dataclass(frozen=True, kw_only=True)
class MeasuredGuarantees:
    """Guarantees, and how well they hold.

    Attributes:
        promised_precision: 0 where none can be guaranteed.
        threshold: the probability from which texts are answered.
        precision: the fraction of these answers that are right; None without an answer.
        answered_fraction: the fraction of the texts that are answered.
        promised_coverage: the fraction of the texts whose label is to be in their set.
        coverage: the fraction of the texts whose label is.
        mean_set_size: the mean number of classes in a set.
    """

    promised_precision: float
    threshold: float | None
    precision: float | None
    answered_fraction: float
    promised_coverage: float
    coverage: float | None
    mean_set_size: float | None

    def sentences(self) -> Iterator[str]:
        """The guarantees by option of `predict`."""
        if not self.promised_precision:
            yield "no precision can be guaranteed (--min-precision): there are too few held-out texts"
            return
        got = "no text is answered" if self.precision is None else (
            f"got {self.precision:.3f}, answers {self.answered_fraction:.0%}")  # fmt: skip
        is_lower = ", the highest that can be" if self.promised_precision < PRECISION else ""
        yield f"--min-precision {self.promised_precision:g}: guaranteed {self.promised_precision:g}{is_lower}, {got}"
        if self.coverage is not None:
            yield (
                f"--coverage {self.promised_coverage:g}: guaranteed {self.promised_coverage:g}, got "
                f"{self.coverage:.3f}, {self.mean_set_size:.1f} classes in a set"
            )


def measure_guarantees(
    guarantees: Guarantees, probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> MeasuredGuarantees:
    """Measure guarantees on other texts than those that they come from.

    Probabilities are (texts, classes), labels (texts,); those beyond the classes are mistakes.
    """
    precision = PRECISION
    threshold = guarantees.precision_threshold(precision)
    if threshold is None and guarantees.highest_precision < precision:
        precision = guarantees.highest_precision
        threshold = guarantees.precision_threshold(precision)
    confidence, best = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_answered = confidence >= (np.inf if threshold is None else threshold)
    coverage = min(COVERAGE, guarantees.highest_coverage)
    set_threshold = guarantees.coverage_threshold(coverage)
    sets = probabilities >= (np.inf if set_threshold is None else set_threshold)
    sets[np.arange(len(best)), best] = True
    is_known = labels < probabilities.shape[1]
    is_covered = np.zeros(len(labels), dtype=bool)
    is_covered[is_known] = sets[is_known, labels[is_known]]
    return MeasuredGuarantees(
        promised_precision=precision,
        threshold=threshold,
        precision=float((best == labels)[is_answered].mean()) if is_answered.any() else None,
        answered_fraction=float(is_answered.mean()),
        promised_coverage=coverage,
        coverage=None if set_threshold is None else float(is_covered.mean()),
        mean_set_size=None if set_threshold is None else float(sets.sum(axis=1).mean()),
    )
