"""A guaranteed precision and coverage, measured on texts that the guarantees were not fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import Guarantees

# The precision and the coverage that a report measures. If the highest one that can be guaranteed
# is lower, it measures that one.
PRECISION = 0.95
COVERAGE = 0.9


@dataclass(frozen=True, kw_only=True)
class MeasuredGuarantees:
    """A guaranteed precision and coverage, and the measured precision and coverage.

    Attributes:
        guaranteed_precision: the precision that is guaranteed; 0 if none can be.
        threshold: the probability from which predictions are kept; None if no precision can be
            guaranteed.
        precision: the fraction of the kept predictions that are correct; None if no prediction is
            kept.
        answered_fraction: the fraction of texts whose prediction is kept.
        guaranteed_coverage: the coverage that is guaranteed: the fraction of texts whose set of
            classes contains their label.
        coverage: the measured coverage; None if no coverage can be guaranteed.
        mean_set_size: the mean number of classes in a set; None if no coverage can be guaranteed.
    """

    guaranteed_precision: float
    threshold: float | None
    precision: float | None
    answered_fraction: float
    guaranteed_coverage: float
    coverage: float | None
    mean_set_size: float | None

    def sentences(self) -> Iterator[str]:
        """Yield sentences on the options `--min-precision` and `--coverage` of `predict`."""
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
    """Measure guarantees on texts that they were not fitted to.

    Args:
        guarantees: the guarantees of a classifier.
        probabilities: the predicted probabilities of the texts, (texts, classes).
        labels: class numbers, (texts,). Numbers from `classes` on are labels that the
            classifier does not know, whose texts are mistakes.
    """
    # Precision is the fraction of correct predictions among those that reach the threshold.
    guaranteed_precision = min(PRECISION, guarantees.highest_precision)
    threshold = guarantees.precision_threshold(guaranteed_precision)
    predictions = probabilities.argmax(axis=1)
    is_kept = np.zeros(len(predictions), dtype=bool)
    if threshold is not None:
        is_kept = probabilities.max(axis=1) >= threshold

    precision = None
    if is_kept.any():
        is_correct = predictions == labels
        precision = float(is_correct[is_kept].mean())

    # Coverage is the fraction of texts whose set of classes contains their label.
    guaranteed_coverage = min(COVERAGE, guarantees.highest_coverage)
    set_threshold = guarantees.coverage_threshold(guaranteed_coverage)
    coverage = None
    mean_set_size = None
    if set_threshold is not None:
        classes = np.arange(probabilities.shape[1])
        is_prediction = classes == predictions[:, None]
        is_label = classes == labels[:, None]

        # A set contains the classes that reach the threshold, and always the predicted class.
        is_in_set = (probabilities >= set_threshold) | is_prediction
        coverage = float((is_in_set & is_label).any(axis=1).mean())
        mean_set_size = float(is_in_set.sum(axis=1).mean())

    return MeasuredGuarantees(
        guaranteed_precision=guaranteed_precision,
        threshold=threshold,
        precision=precision,
        answered_fraction=float(is_kept.mean()),
        guaranteed_coverage=guaranteed_coverage,
        coverage=coverage,
        mean_set_size=mean_set_size,
    )
