"""Confidence intervals of scores, and paired comparisons of classifiers on the same texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Dataset, Split, renumbered
from encoder_cls.evaluation.held_out_answers import OwnAnswers, logits_before_refit
from encoder_cls.metrics.classification import ClassCounts
from encoder_cls.system.display import counted, printable, shortened

Interval = tuple[float, float]
"""The lowest and the highest value."""
Scores = dict[str, Any]
"""JSON values: `accuracy` (multi-label `micro_f1`) and `macro_f1`, each with its 95% interval under `..._interval`."""

COMBINED = "combined"  # the classifier as it answers
MOST_NAMED = 5  # classes in a sentence
QUANTILE = 1.959964  # of the normal distribution, with 2.5% above it
SAMPLES, FEWEST_SAMPLES = 1000, 100  # of the bootstrap
MOST_DRAWS = (
    5_000_000  # samples times pairs of label and answer, a second: more pairs have fewer samples
)


def score_answers(answers: NDArray[Any], labels: NDArray[Any]) -> Scores:
    """Score answers against labels, both (texts,), or multi-label (texts, labels)."""
    counts = ClassCounts.of(answers, labels)
    if labels.ndim > 1:
        interval = micro_f1_interval(labels, answers)
        return {
            "micro_f1": counts.micro_f1,
            "micro_f1_interval": interval,
            "macro_f1": counts.macro_f1,
        }
    right = int((answers == labels).sum())
    return {
        "accuracy": right / len(labels),
        "accuracy_interval": wilson_interval(right, len(labels)),
        "macro_f1": counts.macro_f1,
        "macro_f1_interval": macro_f1_interval(labels, answers),
    }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The encoder's contribution: accuracy, or micro-F1, minus that of the linear classifier alone.

    The 95% interval is from the texts on which one of both is right; the difference is sure where 0 is outside.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_parts(
    answers: Mapping[str, NDArray[Any]], labels: NDArray[Any]
) -> tuple[dict[str, Scores], Comparison | None]:
    """Score the answers of `combined` and of the parts `linear` and `encoder`; compare them if both exist."""
    scores = {part: score_answers(of_part, labels) for part, of_part in answers.items()}
    if not {"linear", "encoder"} <= set(answers):
        return scores, None
    combined, linear = answers[COMBINED], answers["linear"]
    if labels.ndim > 1:
        difference = scores[COMBINED]["micro_f1"] - scores["linear"]["micro_f1"]
        interval = micro_f1_interval(labels, combined, linear)
    else:
        _, _, difference, interval = _paired(combined, linear, labels)
    is_sure = interval[0] > 0 or interval[1] < 0
    return scores, Comparison(combined_minus_linear=difference, interval=interval, is_sure=is_sure)


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """A report's classifier and another one, that of the folder `run`, on the same texts; intervals are 95%.

    Differences are the other's `scores` minus those of the report. `only_this` and `only_other` count the texts that
    only one of them answers correctly; `p_value` is that of McNemar's exact test.
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
        values = {key: value for key, value in vars(self).items() if key not in {"run", "scores"}}
        return {"run": self.run, **self.scores, **values}

    def sentences(self) -> tuple[str, str]:
        """The better classifier by accuracy, and by macro-F1."""
        p_value = f"p = {self.p_value:.3f}" if self.p_value >= 0.001 else "p < 0.001"
        alone = (
            f"{self.only_other:,} texts it alone gets right, {self.only_this:,} it alone gets wrong"
        )
        accuracy = self._sentence(
            self.accuracy_difference, self.accuracy_difference_interval, "accuracy"
        )
        macro_f1 = self._sentence(
            self.macro_f1_difference, self.macro_f1_difference_interval, "macro-F1"
        )
        return f"{accuracy} (McNemar's test: {p_value}; {alone})", macro_f1

    def _sentence(self, difference: float, interval: Interval, of: str) -> str:
        (low, high), which = interval, "better"
        if difference < 0:
            difference, low, high, which = -difference, -high, -low, "worse"
        points = f"{100 * difference:.1f} points of {of}, 95% interval {100 * low:.1f} to {100 * high:.1f}"
        if 100 * difference < 0.05:  # as it is shown
            return f"no sure difference: {points}"
        better = f"{printable(self.run)} is {which} by {points}"
        return better if low > 0 else f"no sure difference: {better}"


def compare_answers(
    labels: NDArray[np.int64], this: NDArray[np.int64], other: NDArray[np.int64], *, run: str
) -> PairedComparison:
    """Compare the answers of two classifiers, all (texts,); `run` names the other.

    McNemar, "Note on the sampling error of the difference between correlated proportions or percentages" (1947),
    https://doi.org/10.1007/BF02295996, with exact probabilities.
    """
    from scipy.stats import binomtest

    only_other, only_this, difference, interval = _paired(other, this, labels)
    scores = score_answers(other, labels)
    return PairedComparison(
        run=run,
        scores=scores,
        accuracy_difference=difference,
        accuracy_difference_interval=interval,
        macro_f1_difference=scores["macro_f1"] - ClassCounts.of(this, labels).macro_f1,
        macro_f1_difference_interval=macro_f1_interval(labels, other, this),
        only_this=only_this,
        only_other=only_other,
        p_value=float(binomtest(only_other, only_this + only_other).pvalue)
        if only_this + only_other
        else 1.0,
    )


def numbered_answers(
    classifier: Classifier, split: Split, names: Sequence[str], own: OwnAnswers | None = None
) -> NDArray[np.int64]:
    """The answer to each text, (texts,), as an index into `names` and then the classifier's further classes.

    `own` are the earlier answers of the classifier's run to its own validation texts, some of which may be here.
    """
    every = list(dict.fromkeys((*names, *classifier.label_names)))
    logits = logits_before_refit(classifier, split, own)
    return renumbered(logits.argmax(axis=1), classifier.label_names, every)


class ChangedAnswer(NamedTuple):
    """A text of the base run's test, else validation, split whose answer has changed."""

    where: str
    text: str
    label: str
    before: str
    now: str


@dataclass(frozen=True, kw_only=True)
class BaseAnswers:
    """Changed answers since the base run, which `comparison` names, on the split that it was tested on.

    `lost_recall` has the recall before and now of each class whose recall fell, the largest loss first.
    """

    split: str
    num_texts: int
    comparison: PairedComparison
    changed: list[ChangedAnswer]
    lost_recall: dict[str, tuple[float, float]]

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the changed answers themselves."""
        return {
            "split": self.split,
            "texts": self.num_texts,
            "changed": len(self.changed),
            "lost_recall": self.lost_recall,
            **{
                key: value
                for key, value in self.comparison.to_dict().items()
                if "macro_f1" not in key
            },
        }

    def sentences(self) -> Iterator[str]:
        """The changes, as sentences."""
        right = sum(answer.now == answer.label for answer in self.changed)
        wrong = sum(answer.before == answer.label for answer in self.changed)
        yield (
            f"of {counted(self.num_texts, 'text')} of the {self.split} split of {printable(self.comparison.run)}, "
            f"{len(self.changed):,} are answered otherwise: {right:,} are right now, {wrong:,} are wrong now, "
            f"{len(self.changed) - right - wrong:,} are wrong as before"
        )
        # Macro-F1 would count a class more where the base run could not give an answer.
        yield self.comparison.sentences()[0]
        if self.lost_recall:
            worst = [
                f"{printable(shortened(name, limit=80))} {before:.3f} to {now:.3f}"
                for name, (before, now) in list(self.lost_recall.items())[:MOST_NAMED]
            ]
            yield f"recall fell: {', '.join(worst)}{', …' if len(self.lost_recall) > MOST_NAMED else ''}"


def compare_with_base(
    classifier: Classifier,
    base: Classifier,
    dataset: Dataset,
    *,
    run: str,
    own: OwnAnswers | None = None,
    own_of_base: OwnAnswers | None = None,
) -> BaseAnswers:
    """Answer the texts that the base run was tested on with both classifiers; `dataset` is the base run's.

    `own` and `own_of_base` are the earlier answers of both runs to their own validation texts.
    """
    split_name, split = dataset.reported
    names = tuple(dict.fromkeys((*classifier.label_names, *split.unseen_names)))
    labels = renumbered(split.labels, (*dataset.label_names, *split.unseen_names), names)
    now = numbered_answers(classifier, split, names, own)
    before = numbered_answers(base, split, names, own_of_base)
    counts = (ClassCounts.of(it, labels, num_classes=len(names)) for it in (before, now))
    recalls = zip(
        names, *((it.right / np.maximum(1, it.support)).tolist() for it in counts), strict=False
    )
    lost = sorted(
        (after - earlier, name, (earlier, after))
        for name, earlier, after in recalls
        if after < earlier
    )
    return BaseAnswers(
        split=split_name,
        num_texts=len(split),
        comparison=compare_answers(labels, now, before, run=run),
        changed=[
            ChangedAnswer(
                split.where[row],
                split.texts[row],
                *(names[it[row]] for it in (labels, before, now)),
            )
            for row in np.flatnonzero(before != now).tolist()
        ],
        lost_recall={name: recall for _, name, recall in lost},
    )


def _paired(
    first: NDArray[Any], second: NDArray[Any], labels: NDArray[Any]
) -> tuple[int, int, float, Interval]:
    """Count the texts that only one of both answers correctly; compute the difference of accuracy and its interval."""
    is_right, is_second_right = first == labels, second == labels
    only_first, only_second = (
        int((is_right & ~is_second_right).sum()),
        int((is_second_right & ~is_right).sum()),
    )
    interval = paired_interval(only_first, only_second, len(labels))
    return only_first, only_second, (only_first - only_second) / len(labels), interval


def wilson_interval(right: int, total: int) -> Interval:
    """The interval of a fraction, `right` of `total`.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927),
    https://doi.org/10.1080/01621459.1927.10502953: it holds for few texts, too, and near 0 and 1.
    """
    fraction, square = right / total, QUANTILE**2
    center = (fraction + square / (2 * total)) / (1 + square / total)
    spread = (
        math.sqrt(fraction * (1 - fraction) / total + square / (4 * total**2))
        * QUANTILE
        / (1 + square / total)
    )
    # Rounding must not exclude the fraction itself, at 0 and at 1.
    return min(max(0.0, center - spread), fraction), max(min(1.0, center + spread), fraction)


def paired_interval(only_first: int, only_second: int, total: int) -> Interval:
    """The interval of the difference of two accuracies on the same texts.

    Agresti and Min, "Simple Improved Confidence Intervals for Comparing Matched Proportions" (2005),
    https://doi.org/10.1002/sim.1781: texts that both get right, or both wrong, do not show which is better.
    """
    first, second, texts = only_first + 0.5, only_second + 0.5, total + 2
    center = (first - second) / texts
    spread = QUANTILE * math.sqrt(first + second - (first - second) ** 2 / texts) / texts
    return max(-1.0, center - spread), min(1.0, center + spread)


def macro_f1_interval(
    labels: NDArray[np.int64],
    answers: NDArray[np.integer[Any]],
    others: NDArray[np.integer[Any]] | None = None,
) -> Interval:
    """The interval of macro-F1, or of its difference from that of `others`; arguments are (texts,).

    A percentile bootstrap over texts, each with all its answers, so that common mistakes cancel: Efron and Tibshirani,
    "An Introduction to the Bootstrap" (1993), chapter 13. Equal labels and answers have equal draws.
    """
    columns = np.stack([labels, answers] if others is None else [labels, answers, others])
    kinds, counts = np.unique(columns, axis=1, return_counts=True)
    drawn = _bootstrap(counts)
    return _percentiles([_macro_f1(drawn, kinds[0], of_kinds) for of_kinds in kinds[1:]])


def micro_f1_interval(
    labels: NDArray[Any], answers: NDArray[np.bool_], others: NDArray[np.bool_] | None = None
) -> Interval:
    """The interval of micro-F1, or of its difference from that of `others`; arguments are (texts, labels).

    As `macro_f1_interval`; texts with equal numbers of labels, answers and right answers are drawn together.
    """
    has_label = labels > 0
    columns = [has_label.sum(axis=1)]
    for given in (answers,) if others is None else (answers, others):
        columns += [given.sum(axis=1), (given & has_label).sum(axis=1)]
    kinds, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    of_labels, *of_answers = kinds @ _bootstrap(counts).T
    pairs = zip(of_answers[::2], of_answers[1::2], strict=True)
    return _percentiles([2 * right / np.maximum(1, of_labels + given) for given, right in pairs])


def _bootstrap(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each kind of text is drawn in each sample, (samples, kinds)."""
    samples = min(SAMPLES, max(FEWEST_SAMPLES, MOST_DRAWS // len(counts)))
    return np.random.default_rng(0).multinomial(counts.sum(), counts / counts.sum(), size=samples)


def _percentiles(scores: Sequence[NDArray[np.float64]]) -> Interval:
    """The interval of the scores of samples, or of their differences from a second sequence of scores."""
    first, *others = scores
    low, high = np.quantile(first - sum(others), [0.025, 0.975])
    return float(low), float(high)


def _macro_f1(
    drawn: NDArray[np.int64], labels: NDArray[Any], answers: NDArray[Any]
) -> NDArray[np.float64]:
    """The macro-F1 of each sample, of its draws (samples, kinds): the mean over the classes that occur in it."""
    classes, numbers = np.unique(np.stack([labels, answers]), return_inverse=True)
    of_labels, of_answers = (
        sp.csr_matrix((np.ones(len(it)), (np.arange(len(it)), it)), shape=(len(it), len(classes)))
        for it in numbers.reshape(2, -1)
    )
    right, occurrences = (
        np.ascontiguousarray(drawn @ it)
        for it in (of_labels.multiply(of_answers).tocsr(), of_labels + of_answers)
    )
    f1 = 2 * right / np.maximum(1, occurrences)
    scores: NDArray[np.float64] = f1.sum(axis=1) / (occurrences > 0).sum(axis=1)
    return scores
