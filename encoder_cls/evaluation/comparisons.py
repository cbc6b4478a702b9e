"""Scores with their intervals, and paired comparisons of classifiers on the same texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Dataset, Split, renumbered
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions, logits_before_refit
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

The interval of a score is under its `interval_key`.
"""

# The key of the scores of the whole classifier, beside those of its parts `linear` and `encoder`.
COMBINED = "combined"


def score_predictions(predictions: NDArray[Any], labels: NDArray[Any]) -> Scores:
    """Score predictions against labels, both (texts,), or multi-label (texts, labels).

    The table in `metrics/scores` says which of these scores have an interval.
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
    """The scores that follow from predictions alone, without their probabilities."""
    counts = ClassCounts.of(predictions, labels)
    if labels.ndim > 1:
        return {"micro_f1": counts.micro_f1, "macro_f1": counts.macro_f1}

    accuracy = int((predictions == labels).sum()) / len(labels)
    return {"accuracy": accuracy, "macro_f1": counts.macro_f1}


def _accuracy_interval(labels: NDArray[Any], predictions: NDArray[Any]) -> Interval:
    num_right = int((predictions == labels).sum())
    return wilson_interval(num_right, len(labels))


# The functions of labels and predictions that compute the interval of a score.
INTERVALS: dict[str, Callable[[NDArray[Any], NDArray[Any]], Interval]] = {
    "accuracy": _accuracy_interval,
    "micro_f1": micro_f1_interval,
    "macro_f1": macro_f1_interval,
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the encoder adds: the score of the whole classifier minus that of the linear model.

    The score is accuracy, multi-label micro-F1.

    Attributes:
        combined_minus_linear: the difference of the scores.
        interval: the 95% interval of the difference.
        is_sure: whether 0 is outside this interval.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_parts(
    predictions: Mapping[str, NDArray[Any]], labels: NDArray[Any]
) -> tuple[dict[str, Scores], Comparison | None]:
    """Score the predictions of `combined` and of the parts `linear` and `encoder`.

    The comparison is None unless there are both parts.
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
    return scores, Comparison(combined_minus_linear=difference, interval=interval, is_sure=is_sure)


class _PredictionPairs(NamedTuple):
    """How many texts only the first, or only the second of two classifiers predicts correctly."""

    only_first: int
    only_second: int
    num_texts: int

    @classmethod
    def of(
        cls, first: NDArray[Any], second: NDArray[Any], labels: NDArray[Any]
    ) -> _PredictionPairs:
        """Count the predictions of both for the same texts; all arguments are (texts,)."""
        is_first_right = first == labels
        is_second_right = second == labels
        return cls(
            only_first=int((is_first_right & ~is_second_right).sum()),
            only_second=int((is_second_right & ~is_first_right).sum()),
            num_texts=len(labels),
        )

    @property
    def accuracy_difference(self) -> float:
        """The accuracy of the first minus that of the second."""
        return (self.only_first - self.only_second) / self.num_texts

    @property
    def interval(self) -> Interval:
        """The 95% interval of the difference."""
        return paired_interval(self.only_first, self.only_second, self.num_texts)

    @property
    def p_value(self) -> float:
        """The p-value of McNemar's exact test of equal accuracies.

        If both are equally accurate, each text that only one gets right is a toss of a coin.
        McNemar, "Note on the sampling error of the difference between correlated proportions or
        percentages" (1947), https://doi.org/10.1007/BF02295996, with exact probabilities.
        """
        from scipy.stats import binomtest

        num_tosses = self.only_first + self.only_second
        if num_tosses == 0:
            return 1.0
        return float(binomtest(self.only_first, num_tosses).pvalue)


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """A report's classifier and another one, that of the folder `run`, on the same texts.

    Attributes:
        run: the folder of the other classifier.
        scores: the scores of the other classifier.
        accuracy_difference: the other's accuracy minus that of the report's classifier.
        accuracy_difference_interval: the 95% interval of the difference.
        macro_f1_difference: as above, of macro-F1.
        macro_f1_difference_interval: as above.
        only_this: the number of texts that only the report's classifier predicts correctly.
        only_other: the number of texts that only the other classifier predicts correctly.
        p_value: that of McNemar's exact test.
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
        """JSON values; the other's scores are at the top level."""
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
        """Which classifier is better, by accuracy and by macro-F1."""
        accuracy = self._sentence(
            SCORES["accuracy"].name, self.accuracy_difference, self.accuracy_difference_interval
        )
        macro_f1 = self._sentence(
            SCORES["macro_f1"].name, self.macro_f1_difference, self.macro_f1_difference_interval
        )

        p_value = "p < 0.001"
        if self.p_value >= 0.001:
            p_value = f"p = {self.p_value:.3f}"

        right_alone = f"it alone is right on {counted(self.only_other, 'text')}"
        wrong_alone = f"wrong on {self.only_this:,}"
        return f"{accuracy} (McNemar's test: {p_value}; {right_alone}, {wrong_alone})", macro_f1

    def _sentence(self, score: str, difference: float, interval: Interval) -> str:
        """Whether the other classifier is better or worse by a score, and by how many points."""
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
            # It is shown as 0.0, which is neither better nor worse.
            return f"no sure difference: {points}"

        sentence = f"{printable(self.run)} is {direction} by {points}"
        if low > 0:
            return sentence
        return f"no sure difference: {sentence}"


def compare_predictions(
    labels: NDArray[np.int64], this: NDArray[np.int64], other: NDArray[np.int64], *, run: str
) -> PairedComparison:
    """Compare the predictions of two classifiers; `run` names the folder of the other.

    Arrays are (texts,).
    """
    pairs = _PredictionPairs.of(other, this, labels)
    scores = score_predictions(other, labels)
    this_macro_f1 = ClassCounts.of(this, labels).macro_f1

    return PairedComparison(
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


def numbered_predictions(
    classifier: Classifier,
    split: Split,
    names: Sequence[str],
    own: ValidationPredictions | None = None,
) -> NDArray[np.int64]:
    """The prediction for each text, (texts,), as a number of a class.

    The classes are `names`, then those that only the classifier knows. `own` are the earlier
    predictions of the classifier's run for its own validation texts, some of which may be here.
    """
    all_names = _joined_names(names, classifier.label_names)
    logits = logits_before_refit(classifier, split, own)
    return renumbered(logits.argmax(axis=1), classifier.label_names, all_names)


def _joined_names(names: Sequence[str], further_names: Sequence[str]) -> list[str]:
    """Names, then those of the further ones that are not among them."""
    joined = list(names)
    known = set(names)
    for name in further_names:
        if name not in known:
            joined.append(name)
    return joined


class ChangedPrediction(NamedTuple):
    """A text of the split that the base run was tested on, whose prediction has changed."""

    where: str
    text: str
    label: str
    before: str
    now: str


# Classes that a sentence names.
MAX_NAMED_CLASSES = 5
# Characters of the name of such a class.
LONGEST_CLASS_NAME = 80


@dataclass(frozen=True, kw_only=True)
class ChangesSinceBase:
    """How predictions have changed since the base run, on the split that it was tested on.

    Attributes:
        split: `test` or `validation`.
        num_texts: the number of texts of the split.
        comparison: the base run compared with this one.
        changed: the texts whose predictions have changed.
        lost_recall: by class whose recall fell, the recall before and now, the largest loss first.
    """

    split: str
    num_texts: int
    comparison: PairedComparison
    changed: list[ChangedPrediction]
    lost_recall: dict[str, tuple[float, float]]

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the changed predictions themselves."""
        values: dict[str, Any] = {
            "split": self.split,
            "texts": self.num_texts,
            "changed": len(self.changed),
            "lost_recall": self.lost_recall,
        }
        # Macro-F1 would count one class more where the base run did not know a class.
        for key, value in self.comparison.to_dict().items():
            if "macro_f1" not in key:
                values[key] = value
        return values

    def sentences(self) -> Iterator[str]:
        """The changes in words."""
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
            shown_name = printable(shortened(name, limit=LONGEST_CLASS_NAME))
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
    own: ValidationPredictions | None = None,
    own_of_base: ValidationPredictions | None = None,
) -> ChangesSinceBase:
    """Predict the texts that the base run was tested on with both classifiers.

    `dataset` is that of the base run, whose folder is `run`. `own` and `own_of_base` are the
    earlier predictions of both runs for their own validation texts.
    """
    split_name, split = dataset.report_split

    # Number classes alike for both: those of the classifier, then those that only the split has.
    names = _joined_names(classifier.label_names, split.unseen_names)
    split_names = (*dataset.label_names, *split.unseen_names)
    labels = renumbered(split.labels, split_names, names)
    now = numbered_predictions(classifier, split, names, own)
    before = numbered_predictions(base, split, names, own_of_base)

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
    """The recall before and now of each class whose recall fell, the largest loss first."""
    recall_before = _recalls(before, labels, len(names))
    recall_now = _recalls(now, labels, len(names))

    losses = []
    for name, earlier, later in zip(names, recall_before, recall_now, strict=True):
        if later < earlier:
            losses.append((later - earlier, name, (earlier, later)))

    losses.sort()
    return {name: recalls for _, name, recalls in losses}


def _recalls(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], num_classes: int
) -> list[float]:
    """The recall of each of the first `num_classes` classes, 0 without a text."""
    counts = ClassCounts.of(predictions, labels, num_classes=num_classes)
    recalls = counts.right / np.maximum(1, counts.support)
    return [float(recall) for recall in recalls[:num_classes]]
