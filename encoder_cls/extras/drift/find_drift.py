"""Compare the texts of a file with the held-out texts of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from encoder_cls import load_classifier, read_reference
from encoder_cls.errors import ConfigError
from encoder_cls.extras.drift.comparison import (
    LEVEL,
    SHARES_OF_CLASSES,
    SMALLEST_DISTANCE,
    Change,
    Figure,
    compare,
    corrected,
    noticeable_difference,
)
from encoder_cls.extras.drift.expected_accuracy import (
    ExpectedAccuracy,
    SampledProbabilities,
    expected_accuracy,
)
from encoder_cls.extras.drift.figures import Figures, independent
from encoder_cls.extras.drift.predicted_texts import PredictedTexts, predict_texts


class Verdict(StrEnum):
    """What a comparison says as a whole."""

    DRIFT = "drift"
    NO_DRIFT = "no drift"
    TOO_FEW = "too few to tell"


class MeasuredAccuracy(NamedTuple):
    """The accuracy on labelled texts, with its 95% interval."""

    num_labelled: int
    accuracy: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The later texts, or those of a week or month, beside the held-out texts.

    Attributes:
        changes: with corrected p-values, in the order of `Figure`.
        measured: None without labels.
    """

    before: Figures
    now: Figures
    changes: list[Change]
    expected: ExpectedAccuracy
    measured: MeasuredAccuracy | None

    def change_of(self, figure: Figure) -> Change | None:
        """The change of a figure, if it was compared."""
        return next((change for change in self.changes if change.figure is figure), None)

    @property
    def alarms(self) -> list[Change]:
        """The changes that are large and significant."""
        return [change for change in self.changes if change.is_alarm]

    @property
    def verdict(self) -> Verdict:
        """Whether the texts have drifted, if that can be told."""
        if self.alarms:
            return Verdict.DRIFT
        if noticeable_difference(self.before, self.now) > SMALLEST_DISTANCE:
            return Verdict.TOO_FEW
        return Verdict.NO_DRIFT

    @property
    def reasons_to_doubt(self) -> list[Change]:
        """The alarms other than shares of classes, which make the expected accuracy a guess.

        Probabilities are known to be right for texts like the held-out ones, in whatever shares.
        """
        return [alarm for alarm in self.alarms if alarm.figure not in SHARES_OF_CLASSES]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What was found of a run's model and the texts of a source."""

    run: str
    source: str
    label_names: tuple[str, ...]
    texts: PredictedTexts
    whole: Comparison
    periods: dict[str, Comparison]

    @property
    def has_drifted(self) -> bool:
        """Whether there is an alarm for all texts, or in a period."""
        return any(comparison.alarms for comparison in (self.whole, *self.periods.values()))


def find_drift(run: Path, source: str, *, date_column: str | None = None) -> Drift:
    """Compare the texts of files with the held-out texts of a run.

    Raises:
        ConfigError: the run has no reference, or that of another model.
        DataError: the source is missing or malformed.
    """
    classifier = load_classifier(run)
    reference = read_reference(run)
    if len(reference.num_predicted) != len(classifier.label_names):
        raise ConfigError(f"{run}: its reference is of a model with other classes; train again")
    texts = predict_texts(
        classifier, source, group_column=reference.group_column, date_column=date_column
    )
    before = Figures.of_reference(reference)
    if not len(before):
        raise ConfigError(
            f"{run}: held out no text with a word, so there is nothing to compare with"
        )

    all_figures = [texts.figures, *texts.periods.values()]
    samples = [texts.sampled, *texts.sampled_in_periods]
    changes_of = corrected(
        [
            compare(before, now, classifier.label_names, is_multi_label=classifier.is_multi_label)
            for now in all_figures
        ]
    )

    comparisons = []
    for now, sampled, changes in zip(all_figures, samples, changes_of, strict=True):
        comparison = Comparison(
            before=before,
            now=now,
            changes=changes,
            expected=expected_accuracy(
                before,
                now,
                mean_probabilities=reference.mean_probabilities,
                shifted=probabilities_if_shifted(
                    changes, sampled, is_multi_label=classifier.is_multi_label
                ),
            ),
            measured=_measured_accuracy(now),
        )
        comparisons.append(comparison)

    whole, *of_periods = comparisons
    return Drift(
        run=str(run),
        source=source,
        label_names=classifier.label_names,
        texts=texts,
        whole=whole,
        periods=dict(zip(texts.periods, of_periods, strict=True)),
    )


def probabilities_if_shifted(
    changes: list[Change], sampled: SampledProbabilities, *, is_multi_label: bool = False
) -> SampledProbabilities | None:
    """The sample, if the shares of the classes of a single-label task have surely changed."""
    is_shifted = any(
        change.figure in SHARES_OF_CLASSES and change.p_value <= LEVEL for change in changes
    )
    if is_multi_label or not is_shifted:
        return None
    return sampled


def _measured_accuracy(now: Figures) -> MeasuredAccuracy | None:
    is_right = now.is_right[now.is_labelled]
    if not len(is_right):
        return None

    accuracy = float(np.mean(is_right))
    number = max(1, round(independent(now.groups[now.is_labelled])))
    interval = stats.binomtest(round(accuracy * number), number).proportion_ci(method="wilson")
    return MeasuredAccuracy(len(is_right), accuracy, (float(interval.low), float(interval.high)))
