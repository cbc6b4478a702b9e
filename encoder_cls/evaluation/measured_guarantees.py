"""A guaranteed precision and coverage, measured on other texts than those that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import Guarantees

# The guarantees that a report measures, or the highest possible ones where these are lower.
PRECISION = 0.95
COVERAGE = 0.9


@dataclass(frozen=True, kw_only=True)
class MeasuredGuarantees:
    """A guaranteed precision and coverage, and those measured on other texts.

    Attributes:
        guaranteed_precision: 0 where none can be guaranteed.
        threshold: the probability from which predictions are kept.
        precision: the fraction of the kept predictions that are correct; None if none is kept.
        answered_fraction: the fraction of texts whose prediction is kept.
        guaranteed_coverage: the fraction of texts whose set of classes has their label.
        coverage: the measured coverage; None where none can be guaranteed.
        mean_set_size: the mean number of classes in a set.
    """

    guaranteed_precision: float
    threshold: float | None
    precision: float | None
    answered_fraction: float
    guaranteed_coverage: float
    coverage: float | None
    mean_set_size: float | None

    def sentences(self) -> Iterator[str]:
        """One sentence for each option of `predict`."""
        if not self.guaranteed_precision:
            yield "no precision can be guaranteed (--min-precision): too few held-out texts"
            return

        measured = "keeps no prediction"
        if self.precision is not None:
            kept = f"keeps {self.answered_fraction:.0%} of the predictions"
            measured = f"got {self.precision:.3f}, {kept}"

        guaranteed = f"guaranteed {self.guaranteed_precision:g}"
        if self.guaranteed_precision < PRECISION:
            guaranteed += ", the highest possible here"
        yield f"--min-precision {self.guaranteed_precision:g}: {guaranteed}, {measured}"

        if self.coverage is not None:
            guaranteed = f"guaranteed {self.guaranteed_coverage:g}"
            measured = f"got {self.coverage:.3f}, {self.mean_set_size:.1f} classes in a set"
            yield f"--coverage {self.guaranteed_coverage:g}: {guaranteed}, {measured}"


def measure_guarantees(
    guarantees: Guarantees, probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> MeasuredGuarantees:
    """Measure guarantees on other texts than those that they come from.

    Probabilities are (texts, classes), labels (texts,); labels beyond the classes are mistakes.
    """
    # Precision: of the texts with a probability from the threshold up, how many are right?
    guaranteed_precision = min(PRECISION, guarantees.highest_precision)
    threshold = guarantees.precision_threshold(guaranteed_precision)
    predictions = probabilities.argmax(axis=1)
    is_predicted = np.zeros(len(predictions), dtype=bool)
    if threshold is not None:
        is_predicted = probabilities.max(axis=1) >= threshold

    precision = None
    if is_predicted.any():
        is_right = predictions == labels
        precision = float(is_right[is_predicted].mean())

    # Coverage: of how many texts does the set of classes have the label?
    guaranteed_coverage = min(COVERAGE, guarantees.highest_coverage)
    set_threshold = guarantees.coverage_threshold(guaranteed_coverage)
    coverage = None
    mean_set_size = None
    if set_threshold is not None:
        classes = np.arange(probabilities.shape[1])
        is_prediction = classes == predictions[:, None]
        is_label = classes == labels[:, None]

        # A set has the classes that are probable enough, and always the predicted one.
        is_in_set = (probabilities >= set_threshold) | is_prediction
        coverage = float((is_in_set & is_label).any(axis=1).mean())
        mean_set_size = float(is_in_set.sum(axis=1).mean())

    return MeasuredGuarantees(
        guaranteed_precision=guaranteed_precision,
        threshold=threshold,
        precision=precision,
        answered_fraction=float(is_predicted.mean()),
        guaranteed_coverage=guaranteed_coverage,
        coverage=coverage,
        mean_set_size=mean_set_size,
    )
