"""A guaranteed precision and coverage, measured on texts that the guarantees were not fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.metrics.tasks import task_of
from encoder_cls.system.display import counted

# The precision and the coverage that a report measures. If the highest one that can be guaranteed
# is lower, it measures that one.
PRECISION = 0.95
COVERAGE = 0.9
# The precisions for which a report counts the labels that can have them.
PRECISIONS = (0.95, 0.9, 0.8, 0.5)


@dataclass(frozen=True, kw_only=True)
class MeasuredLabelGuarantees:
    """Guaranteed and measured precision of the labels of a multi-label task.

    Attributes:
        highest_precisions: of each label; 0 if none can be guaranteed.
        guaranteed_precision: the one that is measured: `PRECISION`, or the highest of all labels if
            lower.
        num_labels: labels with the guarantee; the others are withheld.
        precision: of the kept labels; None if none is.
        answered_fraction: the share of predicted labels that is kept.
    """

    highest_precisions: dict[str, float]
    guaranteed_precision: float
    num_labels: int
    precision: float | None
    answered_fraction: float

    def sentences(self) -> Iterator[str]:
        """Sentences on the option `--min-precision` of `predict`."""
        total = len(self.highest_precisions)
        if not self.guaranteed_precision:
            yield "each label: no precision can be guaranteed (--min-precision): too few texts"
            return

        measured = "keeps none of the predicted labels"
        if self.precision is not None:
            kept = f"keeps {self.answered_fraction:.0%} of the predicted labels"
            measured = f"got {self.precision:.3f}, {kept}"
        guaranteed = f"guaranteed for {self.num_labels:,} of {counted(total, 'label')}"
        yield (
            f"each label: --min-precision {self.guaranteed_precision:g}: {guaranteed}, {measured}"
        )

        # Name lower precisions, if they can be guaranteed for more labels.
        numbers = []
        for precision in PRECISIONS:
            number = sum(highest >= precision for highest in self.highest_precisions.values())
            if precision < self.guaranteed_precision and number > self.num_labels:
                numbers.append(f"{precision:g} for {number:,}")
        if numbers:
            yield f"each label: guaranteed can be {', '.join(numbers)} of the labels"


@dataclass(frozen=True, kw_only=True)
class MeasuredGuarantees:
    """A guaranteed precision and coverage, and the measured ones.

    Multi-label, they are of whole texts, of which all labels must be right.

    Attributes:
        guaranteed_precision: 0 if there is none.
        threshold: from which predictions are kept; None without a guarantee.
        precision: of the kept ones; None if none is.
        guaranteed_coverage: the share of sets of classes that have their text's label.
        coverage: None without a guarantee, as is `mean_set_size`, in classes.
        labels: None in a single-label task.
    """

    guaranteed_precision: float
    threshold: float | None
    precision: float | None
    answered_fraction: float
    guaranteed_coverage: float
    coverage: float | None
    mean_set_size: float | None
    labels: MeasuredLabelGuarantees | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values; those of labels only in a multi-label task."""
        values = asdict(self)
        if self.labels is None:
            del values["labels"]
        return values

    def sentences(self) -> Iterator[str]:
        """Sentences on the options `--min-precision` and `--coverage` of `predict`."""
        option = "--min-precision"
        subject = ""
        predictions = "predictions"
        if self.labels is not None:
            yield from self.labels.sentences()
            option = "--whole-texts --min-precision"
            subject = "whole texts: "
            predictions = "texts"
        if not self.guaranteed_precision:
            yield f"{subject}no precision can be guaranteed ({option}): too few held-out texts"
            return

        measured = "keeps no prediction"
        if self.precision is not None:
            kept = f"keeps {self.answered_fraction:.0%} of the {predictions}"
            measured = f"got {self.precision:.3f}, {kept}"

        guaranteed = f"guaranteed {self.guaranteed_precision:g}"
        if self.guaranteed_precision < PRECISION:
            guaranteed += ", the highest possible here"
        yield f"{subject}{option} {self.guaranteed_precision:g}: {guaranteed}, {measured}"

        if self.coverage is not None:
            guaranteed = f"guaranteed {self.guaranteed_coverage:g}"
            measured = f"got {self.coverage:.3f}, {self.mean_set_size:.1f} classes in a set"
            yield f"{subject}--coverage {self.guaranteed_coverage:g}: {guaranteed}, {measured}"


def measure_guarantees(
    guarantees: Guarantees,
    probabilities: NDArray[np.float64],
    labels: NDArray[Any],
    *,
    label_names: Sequence[str] = (),
    thresholds: Sequence[float] = (),
) -> MeasuredGuarantees:
    """Measure guarantees on texts that they were not fitted to; unseen labels are mistakes."""
    task = task_of(labels)

    # Precision is the fraction of correct predictions among those that reach the threshold.
    guaranteed_precision = min(PRECISION, guarantees.highest_precision)
    threshold = guarantees.precision_threshold(guaranteed_precision)
    predictions = task.predictions(probabilities, thresholds)
    is_kept = np.zeros(len(predictions), dtype=bool)
    if threshold is not None:
        is_kept = task.prediction_probabilities(probabilities, predictions) >= threshold

    precision = None
    if is_kept.any():
        is_correct = task.are_correct(predictions, labels)
        precision = float(is_correct[is_kept].mean())

    # Coverage is the fraction of texts whose set of classes contains their label.
    guaranteed_coverage = min(COVERAGE, guarantees.highest_coverage)
    set_threshold = guarantees.coverage_threshold(guaranteed_coverage)
    coverage = None
    mean_set_size = None
    if set_threshold is not None:
        # Being in the set counts as a probability of 1: all labels of a covered text have it.
        is_in_set = task.label_sets(probabilities, set_threshold)
        is_covered = task.label_probabilities(is_in_set.astype(np.float64), labels) == 1
        coverage = float(is_covered.mean())
        mean_set_size = float(is_in_set.sum(axis=1).mean())

    measured_labels = None
    if guarantees.labels:
        measured_labels = _measure_labels(
            guarantees, probabilities, predictions, labels, label_names
        )

    return MeasuredGuarantees(
        guaranteed_precision=guaranteed_precision,
        threshold=threshold,
        precision=precision,
        answered_fraction=float(is_kept.mean()),
        guaranteed_coverage=guaranteed_coverage,
        coverage=coverage,
        mean_set_size=mean_set_size,
        labels=measured_labels,
    )


def _measure_labels(
    guarantees: Guarantees,
    probabilities: NDArray[np.float64],
    predictions: NDArray[np.bool_],
    labels: NDArray[Any],
    label_names: Sequence[str],
) -> MeasuredLabelGuarantees:
    highest_precisions = {}
    for name, counts in zip(label_names, guarantees.labels, strict=True):
        highest_precisions[name] = counts.highest_precision
    guaranteed_precision = min(PRECISION, max(highest_precisions.values()))

    # A label that cannot have the precision is withheld from all texts.
    thresholds = []
    for counts in guarantees.labels:
        threshold = counts.precision_threshold(guaranteed_precision)
        thresholds.append(np.inf if threshold is None else threshold)
    is_guaranteed = np.isfinite(thresholds) & (guaranteed_precision > 0)

    is_kept = predictions & (probabilities >= np.array(thresholds)) & is_guaranteed
    precision = None
    if is_kept.any():
        has_label = labels[:, : is_kept.shape[1]] > 0
        precision = float(has_label[is_kept].mean())
    return MeasuredLabelGuarantees(
        highest_precisions=highest_precisions,
        guaranteed_precision=guaranteed_precision,
        num_labels=int(is_guaranteed.sum()),
        precision=precision,
        answered_fraction=float(is_kept.sum() / max(1, predictions.sum())),
    )
