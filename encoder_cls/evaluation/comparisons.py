"""Scores with their intervals, and comparisons of two classifiers on the same texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Dataset, Split, renumbered
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions, held_out_logits
from encoder_cls.metrics.classification import ClassCounts
from encoder_cls.metrics.intervals import (
    Interval,
    macro_f1_interval,
    micro_f1_interval,
    paired_interval,
    wilson_interval,
)
from encoder_cls.metrics.scores import SCORES, Tasks
from encoder_cls.system.display import counted, printable, shortened

Scores = dict[str, Any]
"""JSON values: `accuracy` (multi-label `micro_f1`), `macro_f1`, and their 95% intervals.

The key of an interval is the `interval_key` of the score, such as `accuracy_interval`.
"""

# The key of the whole classifier in tables of scores by part, beside `linear` and `encoder`.
COMBINED = "combined"


def score_predictions(predictions: NDArray[Any], labels: NDArray[Any]) -> Scores:
    """Score predictions by their labels, both (texts,), or multi-label (texts, labels).

    Scores have an interval if the table in `metrics/scores` says so for the task.
    """
    task = Tasks.of(is_multi_label=labels.ndim > 1)
    scores: Scores = {}
    for key, value in scores_without_intervals(predictions, labels).items():
        scores[key] = value
        if task in SCORES[key].interval_in:
            compute_interval = INTERVALS[key]
            scores[SCORES[key].interval_key] = compute_interval(labels, predictions)
    return scores


def scores_without_intervals(predictions: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Compute the scores that depend only on predicted labels, not on their probabilities.

    Predictions and labels are (texts,), or multi-label (texts, labels).
    """
    counts = ClassCounts.of(predictions, labels)
    if labels.ndim > 1:
        return {"micro_f1": counts.micro_f1, "macro_f1": counts.macro_f1}

    accuracy = int((predictions == labels).sum()) / len(labels)
    return {"accuracy": accuracy, "macro_f1": counts.macro_f1}


def _accuracy_interval(labels: NDArray[Any], predictions: NDArray[Any]) -> Interval:
    num_correct = int((predictions == labels).sum())
    return wilson_interval(num_correct, len(labels))


# For each score, the function that computes its interval from labels and predictions.
INTERVALS: dict[str, Callable[[NDArray[Any], NDArray[Any]], Interval]] = {
    "accuracy": _accuracy_interval,
    "micro_f1": micro_f1_interval,
    "macro_f1": macro_f1_interval,
}


@dataclass(frozen=True, kw_only=True)
class PartComparison:
    """The whole classifier compared with its linear model alone, to show what the encoder adds.

    They are compared by accuracy; multi-label, by micro-F1.

    Attributes:
        combined_minus_linear: the score of the whole classifier minus that of the linear model.
        interval: the 95% interval of this difference.
        is_sure: whether the interval does not contain 0.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_parts(
    predictions: Mapping[str, NDArray[Any]], labels: NDArray[Any]
) -> tuple[dict[str, Scores], PartComparison | None]:
    """Score the predictions of a whole classifier and of each of its parts alone.

    Args:
        predictions: the predictions of the classifier, `combined`, and of its parts `linear` and
            `encoder`, each (texts,), or multi-label (texts, labels).
        labels: the labels, in the same shape.

    Returns:
        The scores by the same keys, and the comparison of the classifier with its linear part; None
        if it has only one part.
    """
    scores = {}
    for part, part_predictions in predictions.items():
        scores[part] = score_predictions(part_predictions, labels)

    if "linear" not in predictions or "encoder" not in predictions:
        return scores, None

    if labels.ndim > 1:
        difference = scores[COMBINED]["micro_f1"] - scores["linear"]["micro_f1"]
        interval = micro_f1_interval(labels, predictions[COMBINED], predictions["linear"])
    else:
        pairs = _PredictionPairs.of(predictions[COMBINED], predictions["linear"], labels)
        difference = pairs.accuracy_difference
        interval = pairs.interval

    low, high = interval
    is_sure = low > 0 or high < 0
    comparison = PartComparison(
        combined_minus_linear=difference, interval=interval, is_sure=is_sure
    )
    return scores, comparison


class _PredictionPairs(NamedTuple):
    """Counts of the predictions of two classifiers for the same texts.

    Attributes:
        only_first: the number of texts that only the first classifier predicts correctly.
        only_second: the number of texts that only the second classifier predicts correctly.
        num_texts: the number of all texts.
    """

    only_first: int
    only_second: int
    num_texts: int

    @classmethod
    def of(
        cls, first: NDArray[Any], second: NDArray[Any], labels: NDArray[Any]
    ) -> _PredictionPairs:
        """Count the correct predictions of two classifiers; all arguments are (texts,)."""
        is_first_correct = first == labels
        is_second_correct = second == labels
        return cls(
            only_first=int((is_first_correct & ~is_second_correct).sum()),
            only_second=int((is_second_correct & ~is_first_correct).sum()),
            num_texts=len(labels),
        )

    @property
    def accuracy_difference(self) -> float:
        """The accuracy of the first classifier minus that of the second."""
        return (self.only_first - self.only_second) / self.num_texts

    @property
    def interval(self) -> Interval:
        """The 95% interval of the difference of the accuracies."""
        return paired_interval(self.only_first, self.only_second, self.num_texts)

    @property
    def p_value(self) -> float:
        """The p-value of McNemar's exact test of equal accuracies.

        If the classifiers are equally accurate, each text that only one of them predicts correctly
        is like the toss of a coin. See McNemar, "Note on the sampling error of the difference
        between correlated proportions or percentages" (1947), https://doi.org/10.1007/BF02295996;
        the probabilities here are exact.
        """
        from scipy.stats import binomtest

        num_tosses = self.only_first + self.only_second
        if num_tosses == 0:
            return 1.0
        return float(binomtest(self.only_first, num_tosses).pvalue)


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """The classifier of another run compared with the classifier of a report, on the same texts.

    Each difference is the score of the other classifier minus that of the report's classifier, so
    it is above 0 if the other classifier is better.

    Attributes:
        run: the folder of the other run.
        scores: the scores of the other classifier.
        accuracy_difference: the difference of the accuracies.
        accuracy_difference_interval: the 95% interval of this difference.
        macro_f1_difference: the difference of the macro-F1 scores.
        macro_f1_difference_interval: the 95% interval of this difference.
        only_this: the number of texts that only the report's classifier predicts correctly.
        only_other: the number of texts that only the other classifier predicts correctly.
        p_value: the p-value of McNemar's exact test that the accuracies are equal.
    """

    run: str
    scores: Scores
    accuracy_difference: float
    accuracy_difference_interval: Interval
    macro_f1_difference: float
    macro_f1_difference_interval: Interval
    only_this: int
    only_other: int
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the scores of the other classifier at the top level."""
        return {
            "run": self.run,
            **self.scores,
            "accuracy_difference": self.accuracy_difference,
            "accuracy_difference_interval": self.accuracy_difference_interval,
            "macro_f1_difference": self.macro_f1_difference,
            "macro_f1_difference_interval": self.macro_f1_difference_interval,
            "only_this": self.only_this,
            "only_other": self.only_other,
            "p_value": self.p_value,
        }

    def sentences(self) -> tuple[str, str]:
        """Two sentences on which classifier is better, one by accuracy and one by macro-F1."""
        accuracy = self._sentence(
            SCORES["accuracy"].name, self.accuracy_difference, self.accuracy_difference_interval
        )
        macro_f1 = self._sentence(
            SCORES["macro_f1"].name, self.macro_f1_difference, self.macro_f1_difference_interval
        )

        p_value = "p < 0.001"
        if self.p_value >= 0.001:
            p_value = f"p = {self.p_value:.3f}"

        only_other = f"it alone is right on {counted(self.only_other, 'text')}"
        only_this = f"wrong on {self.only_this:,}"
        return f"{accuracy} (McNemar's test: {p_value}; {only_other}, {only_this})", macro_f1

    def _sentence(self, score: str, difference: float, interval: Interval) -> str:
        """A sentence on whether the other classifier is better or worse, and by how many points.

        Args:
            score: the name of the score.
            difference: the score of the other classifier minus that of the report's classifier.
            interval: the 95% interval of the difference.
        """
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
    labels: NDArray[np.int64], this: NDArray[np.int64], other: NDArray[np.int64], *, run: str
) -> RunComparison:
    """Compare the predictions of another classifier with those of a report's classifier.

    Args:
        labels: the labels, (texts,).
        this: the predictions of the report's classifier, (texts,).
        other: the predictions of the other classifier, (texts,).
        run: the folder of the other classifier.
    """
    pairs = _PredictionPairs.of(other, this, labels)
    scores = score_predictions(other, labels)
    this_macro_f1 = ClassCounts.of(this, labels).macro_f1

    return RunComparison(
        run=run,
        scores=scores,
        accuracy_difference=pairs.accuracy_difference,
        accuracy_difference_interval=pairs.interval,
        macro_f1_difference=scores["macro_f1"] - this_macro_f1,
        macro_f1_difference_interval=macro_f1_interval(labels, other, this),
        only_this=pairs.only_second,
        only_other=pairs.only_first,
        p_value=pairs.p_value,
    )


def predicted_classes(
    classifier: Classifier,
    split: Split,
    class_names: Sequence[str],
    validation_predictions: ValidationPredictions | None = None,
) -> NDArray[np.int64]:
    """Predict the class of each text of a split, (texts,), as an index into `class_names`.

    Args:
        classifier: the classifier of a run.
        split: the texts.
        class_names: the names of classes by number. Classes that only the classifier knows get the
            numbers that follow.
        validation_predictions: the held-out predictions of the classifier's run, which count for
            their texts in place of the predictions of the final classifier; None if there are none.
    """
    all_names = _joined_names(class_names, classifier.label_names)
    logits = held_out_logits(classifier, split, validation_predictions)
    return renumbered(logits.argmax(axis=1), classifier.label_names, all_names)


def _joined_names(names: Sequence[str], further_names: Sequence[str]) -> list[str]:
    """Join two lists of names; names that are in both lists are only in the first place."""
    joined = list(names)
    known_names = set(names)
    for name in further_names:
        if name not in known_names:
            joined.append(name)
    return joined


class ChangedPrediction(NamedTuple):
    """A text of the base run's report for which the prediction has changed since the base run.

    Attributes:
        where: the file and line of the text.
        text: the text.
        label: the name of its label.
        before: the class that the base run predicts.
        now: the class that the continued run predicts.
    """

    where: str
    text: str
    label: str
    before: str
    now: str


# The most classes that a sentence names.
MAX_NAMED_CLASSES = 5
# The most characters of the name of a class in a sentence.
MAX_CLASS_NAME_LENGTH = 80


@dataclass(frozen=True, kw_only=True)
class ChangesSinceBase:
    """How predictions have changed since the base run, on the split of the base run's report.

    Attributes:
        split: the name of the split, `test` or `validation`.
        num_texts: the number of texts of the split.
        comparison: the base run as the other run, compared with the continued run. A difference
            above 0 means that the base run is better.
        changed: the texts whose predictions have changed.
        lost_recall: the classes whose recall fell, with the recall of the base run and of the
            continued run, the largest loss first.
    """

    split: str
    num_texts: int
    comparison: RunComparison
    changed: list[ChangedPrediction]
    lost_recall: dict[str, tuple[float, float]]

    def to_dict(self) -> dict[str, Any]:
        """The changes as JSON values, with the number of changed predictions in place of a list."""
        values: dict[str, Any] = {
            "split": self.split,
            "texts": self.num_texts,
            "changed": len(self.changed),
            "lost_recall": self.lost_recall,
        }
        # Leave out macro-F1. If the continued run has a new class, the base run never predicts it,
        # and its macro-F1 would be a mean over other classes.
        for key, value in self.comparison.to_dict().items():
            if "macro_f1" not in key:
                values[key] = value
        return values

    def sentences(self) -> Iterator[str]:
        """Yield sentences on the changes, for people."""
        yield self._changes()

        accuracy, _ = self.comparison.sentences()
        yield accuracy

        if self.lost_recall:
            yield self._losses()

    def _changes(self) -> str:
        fixed = sum(prediction.now == prediction.label for prediction in self.changed)
        broken = sum(prediction.before == prediction.label for prediction in self.changed)
        wrong_in_both = len(self.changed) - fixed - broken

        texts = counted(self.num_texts, "text")
        predictions = counted(len(self.changed), "prediction differs", "predictions differ")
        split = f"the {self.split} split of {printable(self.comparison.run)}"
        return (
            f"on {texts} of {split}, {predictions}: "
            f"{fixed:,} fixed, {broken:,} broken, {wrong_in_both:,} wrong in both"
        )

    def _losses(self) -> str:
        losses = []
        for name, (before, now) in list(self.lost_recall.items())[:MAX_NAMED_CLASSES]:
            shown_name = printable(shortened(name, limit=MAX_CLASS_NAME_LENGTH))
            losses.append(f"{shown_name} {before:.3f} to {now:.3f}")

        if len(self.lost_recall) > MAX_NAMED_CLASSES:
            losses.append("…")
        return f"recall fell: {', '.join(losses)}"


def compare_with_base(
    classifier: Classifier,
    base: Classifier,
    dataset: Dataset,
    *,
    run: str,
    validation_predictions: ValidationPredictions | None = None,
    base_validation_predictions: ValidationPredictions | None = None,
) -> ChangesSinceBase:
    """Compare a continued run with its base run, on the split of the base run's report.

    Args:
        classifier: the classifier of the continued run.
        base: the classifier of the base run.
        dataset: the data of the base run.
        run: the folder of the base run.
        validation_predictions: the held-out predictions of the continued run for its validation
            texts; None if there are none.
        base_validation_predictions: the held-out predictions of the base run for its validation
            texts; None if there are none.
    """
    split_name, split = dataset.report_split

    # Give the classes of the labels and of both classifiers the same numbers. A continued run has
    # all classes of its base run, so the names are those of the classifier, then the labels that
    # occur only in this split.
    names = _joined_names(classifier.label_names, split.unseen_names)
    split_names = (*dataset.label_names, *split.unseen_names)
    labels = renumbered(split.labels, split_names, names)
    now = predicted_classes(classifier, split, names, validation_predictions)
    before = predicted_classes(base, split, names, base_validation_predictions)

    changed = []
    for row in np.flatnonzero(before != now).tolist():
        changed.append(
            ChangedPrediction(
                where=split.where[row],
                text=split.texts[row],
                label=names[labels[row]],
                before=names[before[row]],
                now=names[now[row]],
            )
        )

    return ChangesSinceBase(
        split=split_name,
        num_texts=len(split),
        comparison=compare_predictions(labels, now, before, run=run),
        changed=changed,
        lost_recall=_lost_recall(before, now, labels, names),
    )


def _lost_recall(
    before: NDArray[np.int64],
    now: NDArray[np.int64],
    labels: NDArray[np.int64],
    names: Sequence[str],
) -> dict[str, tuple[float, float]]:
    """Find the classes whose recall fell, the largest loss first.

    Returns:
        The recall of the base run and that of the continued run, by the name of the class.
    """
    recalls_before = _recalls(before, labels, len(names))
    recalls_now = _recalls(now, labels, len(names))

    losses = []
    for name, recall_before, recall_now in zip(names, recalls_before, recalls_now, strict=True):
        if recall_now < recall_before:
            losses.append((recall_now - recall_before, name, (recall_before, recall_now)))

    losses.sort()
    return {name: recalls for _, name, recalls in losses}


def _recalls(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], num_classes: int
) -> list[float]:
    """Compute the recall of each of the first `num_classes` classes; 0 if a class has no texts."""
    counts = ClassCounts.of(predictions, labels, num_classes=num_classes)
    recalls = counts.right / np.maximum(1, counts.support)
    return [float(recall) for recall in recalls[:num_classes]]
