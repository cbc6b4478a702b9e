"""Scores with their intervals, and comparisons of two classifiers on the same texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Split, renumbered
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions, held_out_logits
from encoder_cls.metrics.classification import predicted_labels
from encoder_cls.metrics.intervals import (
    MIN_TEXTS_PER_CLASS,
    Interval,
    accuracy_difference_interval,
    accuracy_interval,
    macro_f1_interval,
    mcnemar_p_value,
    micro_f1_difference,
    micro_f1_interval,
)
from encoder_cls.metrics.precision_recall import ClassCounts
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.scores import SCORES, Score, main_score
from encoder_cls.metrics.tasks import MULTI_LABEL, padded, task_of
from encoder_cls.system.display import counted, printable

Scores = dict[str, Any]
"""JSON values: `accuracy` (multi-label `micro_f1`), `macro_f1`, and their 95% intervals.

The key of an interval is the `interval_key` of the score, such as `accuracy_interval`.
"""

NO_MACRO_F1_INTERVAL = (
    f"no interval of macro-F1: fewer than {MIN_TEXTS_PER_CLASS} independent texts a class"
)

# The key of the whole classifier in tables of scores by part, beside `linear` and `encoder`.
COMBINED = "combined"


def score_predictions(predictions: NDArray[Any], labels: NDArray[Any], groups: RowGroups) -> Scores:
    """Score predictions, with the intervals that the table in `metrics/scores` names."""
    task = task_of(labels)
    scores: Scores = {}
    for key, value in scores_without_intervals(predictions, labels).items():
        scores[key] = value
        if task in SCORES[key].interval_in:
            compute_interval = INTERVALS[key]
            scores[SCORES[key].interval_key] = compute_interval(labels, predictions, groups)
    return scores


def scores_without_intervals(predictions: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """The scores that depend only on predicted labels."""
    counts = ClassCounts.of(predictions, labels)
    if task_of(labels) is MULTI_LABEL:
        return {"micro_f1": counts.micro_f1, "macro_f1": counts.macro_f1}

    accuracy = int((predictions == labels).sum()) / len(labels)
    return {"accuracy": accuracy, "macro_f1": counts.macro_f1}


def _accuracy_interval(
    labels: NDArray[Any], predictions: NDArray[Any], groups: RowGroups
) -> Interval:
    return accuracy_interval(predictions == labels, groups)


# For each score, the function that computes its interval from labels, predictions and groups.
INTERVALS: dict[str, Callable[[NDArray[Any], NDArray[Any], RowGroups], Interval | None]] = {
    "accuracy": _accuracy_interval,
    "micro_f1": micro_f1_interval,
    "macro_f1": macro_f1_interval,
}


@dataclass(frozen=True, kw_only=True)
class PartComparison:
    """The whole classifier compared with its linear model alone: what the encoder adds.

    The difference is sure if its 95% interval does not contain 0.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_parts(
    predictions: Mapping[str, NDArray[Any]], labels: NDArray[Any], groups: RowGroups
) -> tuple[dict[str, Scores], PartComparison | None]:
    """Score the predictions of a classifier, `combined`, and of its parts alone."""
    scores = {}
    for part, part_predictions in predictions.items():
        scores[part] = score_predictions(part_predictions, labels, groups)

    if "linear" not in predictions or "encoder" not in predictions:
        return scores, None

    test = _paired_test(labels, predictions[COMBINED], predictions["linear"], groups)
    low, high = test.interval
    comparison = PartComparison(
        combined_minus_linear=test.difference, interval=(low, high), is_sure=low > 0 or high < 0
    )
    return scores, comparison


class _PairedTest(NamedTuple):
    """The difference of the main scores on the same texts, its 95% interval and p-value."""

    difference: float
    interval: Interval
    p_value: float


# The test that gives the p-value, by the main score.
TEST_NAMES = {"accuracy": "McNemar's test", "micro_f1": "randomization test"}


def _paired_test(
    labels: NDArray[Any], first: NDArray[Any], second: NDArray[Any], groups: RowGroups
) -> _PairedTest:
    if task_of(labels) is MULTI_LABEL:
        score = ClassCounts.of(first, labels).micro_f1
        difference = score - ClassCounts.of(second, labels).micro_f1
        interval, p_value = micro_f1_difference(labels, first, second, groups)
        return _PairedTest(difference, interval, p_value)

    is_first_right = first == labels
    is_second_right = second == labels
    only_first = int((is_first_right & ~is_second_right).sum())
    only_second = int((is_second_right & ~is_first_right).sum())
    return _PairedTest(
        difference=(only_first - only_second) / len(labels),
        interval=accuracy_difference_interval(is_first_right, is_second_right, groups),
        p_value=mcnemar_p_value(is_first_right, is_second_right, groups),
    )


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """The classifier of another run compared with the classifier of a report, on the same texts.

    A difference is the other's score minus the report's, so above 0 if the other one is better;
    intervals have 95%.

    Attributes:
        macro_f1_difference_interval: None with too few texts of each class.
        only_this: texts of which only the report's classifier predicts all labels; `only_other`
            likewise.
        p_value: that the main scores are equal.
    """

    run: str
    score: Score
    scores: Scores
    difference: float
    difference_interval: Interval
    macro_f1_difference: float
    macro_f1_difference_interval: Interval | None
    only_this: int
    only_other: int
    p_value: float

    @property
    def is_other_better(self) -> bool:
        """Whether the other classifier is surely better, by the interval of the main score."""
        low, _ = self.difference_interval
        return low > 0

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the scores of the other classifier at the top level."""
        return {
            "run": self.run,
            **self.scores,
            f"{self.score.key}_difference": self.difference,
            f"{self.score.key}_difference_interval": self.difference_interval,
            "macro_f1_difference": self.macro_f1_difference,
            "macro_f1_difference_interval": self.macro_f1_difference_interval,
            "only_this": self.only_this,
            "only_other": self.only_other,
            "p_value": self.p_value,
        }

    def sentences(self) -> tuple[str, str]:
        """Two sentences: on the main score, and on macro-F1."""
        main = self._sentence(self.score.name, self.difference, self.difference_interval)
        macro_f1 = self._sentence(
            SCORES["macro_f1"].name, self.macro_f1_difference, self.macro_f1_difference_interval
        )

        p_value = "p < 0.001"
        if self.p_value >= 0.001:
            p_value = f"p = {self.p_value:.3f}"

        right = "right"
        if self.score.key == "micro_f1":
            right = "right in all labels"
        only_other = f"it alone is {right} on {counted(self.only_other, 'text')}"
        only_this = f"wrong on {self.only_this:,}"
        test = TEST_NAMES[self.score.key]
        return f"{main} ({test}: {p_value}; {only_other}, {only_this})", macro_f1

    def _sentence(self, score: str, difference: float, interval: Interval | None) -> str:
        if interval is None:
            points = f"{100 * difference:+.1f} points of {score}"
            return f"{printable(self.run)} differs by {points}, with {NO_MACRO_F1_INTERVAL}"

        low, high = interval
        direction = "better"
        if difference < 0:
            direction = "worse"
            difference = -difference
            low, high = -high, -low

        points = (
            f"{100 * difference:.1f} points of {score}, "
            f"95% interval {100 * low:.1f} to {100 * high:.1f}"
        )
        if 100 * difference < 0.05:
            # The difference is shown as 0.0, which is neither better nor worse.
            return f"no sure difference: {points}"

        sentence = f"{printable(self.run)} is {direction} by {points}"
        if low > 0:
            return sentence
        return f"no sure difference: {sentence}"


def compare_predictions(
    labels: NDArray[Any],
    this: NDArray[Any],
    other: NDArray[Any],
    groups: RowGroups,
    *,
    run: str,
) -> RunComparison:
    """Compare predictions of another classifier, of the folder `run`."""
    task = task_of(labels)
    if task is MULTI_LABEL:
        # Labels that only the other classifier predicts are columns of its predictions alone.
        num_labels = max(matrix.shape[1] for matrix in (labels, this, other))
        labels, this, other = (padded(matrix, num_labels) for matrix in (labels, this, other))
    test = _paired_test(labels, other, this, groups)
    is_this_right = task.are_correct(this, labels)
    is_other_right = task.are_correct(other, labels)
    scores = score_predictions(other, labels, groups)
    this_macro_f1 = ClassCounts.of(this, labels).macro_f1

    return RunComparison(
        run=run,
        score=main_score(task),
        scores=scores,
        difference=test.difference,
        difference_interval=test.interval,
        macro_f1_difference=scores["macro_f1"] - this_macro_f1,
        macro_f1_difference_interval=macro_f1_interval(labels, other, groups, this),
        only_this=int((is_this_right & ~is_other_right).sum()),
        only_other=int((is_other_right & ~is_this_right).sum()),
        p_value=test.p_value,
    )


def labels_predicted_by(
    classifier: Classifier,
    split: Split,
    class_names: Sequence[str],
    validation_predictions: ValidationPredictions | None,
) -> NDArray[Any]:
    """Predict texts as indices into `class_names`, or multi-label as indicators.

    Classes that only the classifier knows follow. Held-out predictions of its run replace those of
    the final classifier.
    """
    all_names = joined_names(class_names, classifier.label_names)
    logits = held_out_logits(classifier, split, validation_predictions)
    predictions = predicted_labels(
        logits, classifier.thresholds, num_labels=len(classifier.label_names)
    )
    return renumbered(predictions, classifier.label_names, all_names)


def joined_names(names: Sequence[str], further_names: Sequence[str]) -> list[str]:
    """Both lists, without repetitions."""
    joined = list(names)
    known_names = set(names)
    for name in further_names:
        if name not in known_names:
            joined.append(name)
    return joined
