"""The first screen of a report's page: plain sentences for readers who know no metrics.

They answer four questions: how often the classifier is right, how far to trust this number, what
the classifier confuses, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder_cls.data.reading.delimited import CSV
from encoder_cls.data.reading.excel import EXCEL
from encoder_cls.data.reading.formats import format_of
from encoder_cls.evaluation import report_file_names
from encoder_cls.evaluation.judged_calibration import Calibration, JudgedCalibration
from encoder_cls.evaluation.label_tables import file_and_line
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_text import name_text
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.suggested_threshold import MIN_TEXTS, WANTED_ACCURACY
from encoder_cls.metrics.classification import Metrics, SingleLabelMetrics
from encoder_cls.metrics.intervals import accuracy_interval
from encoder_cls.system.display import counted

# The most pairs of confused classes on the first screen: the rest is further down on the page.
MAX_PAIRS = 3
# The most classes that are named as the ones to label more texts of.
MAX_WEAK_CLASSES = 2
# The fewest texts of a class from which its scores are judged: of 4 texts, one mistake more or less
# would change the recall by 25 points.
MIN_CLASS_TEXTS = 10
# A class with a higher recall is not named as one to label more texts of.
WEAK_RECALL = 0.8
# From this share of the texts on, labels that contradict a sure prediction are not called wrong:
# that many wrong labels are less likely than a model that has learned too little.
MANY_DOUBTFUL = 0.2
# An interval of this width or more is called wide: 20 points are one text in five.
WIDE_INTERVAL = 0.2


@dataclass(frozen=True, kw_only=True)
class ConfusedPair:
    """A pair of classes that the classifier confuses.

    `count` of the `num_texts` texts with the label get the prediction instead; multi-label, the
    label is missed and the prediction is wrong.
    """

    label: str
    prediction: str
    count: int
    num_texts: int


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """Something that a reader of the report can do: a sentence says what, and why.

    The file of the report and the command are empty if there is none. The word `RUN` of the command
    stands for the folder of the run.
    """

    sentence: str
    file: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class PlainSummary:
    """The answers of the first screen.

    Attributes:
        right: the share of correct predictions, such as `83%`.
        trust: sentences on how far to trust this number, and single predictions.
        confusion_note: a sentence in place of the pairs; empty if there are pairs.
        next_steps: the most useful step first.
    """

    right: str
    how_often: tuple[str, ...]
    trust: tuple[str, ...]
    confused: tuple[ConfusedPair, ...]
    confusion_note: str
    next_steps: tuple[NextStep, ...]


def plain_summary(report: Report) -> PlainSummary:
    """Summarize a report in plain sentences."""
    evaluation = report.evaluation
    metrics = evaluation.metrics
    num_right = metrics.num_examples - len(evaluation.predictions.mistakes)
    confused = tuple(_confused_pairs(metrics))

    confusion_note = ""
    if num_right == metrics.num_examples:
        confusion_note = "Nothing: each of these texts is predicted correctly."
    elif not confused:
        confusion_note = "No label is given in the place of another: labels are missed or added."

    return PlainSummary(
        right=_percent(num_right / metrics.num_examples),
        how_often=tuple(_how_often(report, num_right)),
        trust=tuple(_trust(evaluation)),
        confused=confused,
        confusion_note=confusion_note,
        next_steps=tuple(_next_steps(evaluation)),
    )


def _percent(share: float) -> str:
    """A share in whole percent; 100% and 0% only if the share is exactly that."""
    text = f"{share:.0%}"
    if text in {"0%", "100%"} and 0 < share < 1:
        # Without this rule, 3 mistakes in 1,000 texts would be shown as none.
        text = f"{np.clip(share, 0.001, 0.999):.1%}"
    return text


# How often is it right?


def _how_often(report: Report, num_right: int) -> Iterator[str]:
    evaluation = report.evaluation
    metrics = evaluation.metrics
    texts = counted(metrics.num_examples, "text")

    if isinstance(metrics, SingleLabelMetrics):
        yield f"It gives the right class to {num_right:,} of {texts}{_origin(evaluation)}."
        yield from _without_learned(evaluation)
        yield from _comparison(report, metrics)
        return

    yield f"It gives exactly the right labels to {num_right:,} of {texts}{_origin(evaluation)}."
    yield from _without_learned(evaluation)
    yield from _label_shares(evaluation)


def _origin(evaluation: SplitEvaluation) -> str:
    if evaluation.num_learned == 0:
        return " that it had not learned from"
    return ""


def _without_learned(evaluation: SplitEvaluation) -> Iterator[str]:
    """Yield a sentence on how often it is right for new texts, if it has learned from some."""
    new_texts = evaluation.new_texts
    if new_texts is None:
        return

    if new_texts.num_texts == 0:
        yield "It has learned from all of them, so this says nothing about new texts."
        return
    are_right = new_texts.predictions.are_right
    yield (
        f"It has learned from {evaluation.num_learned:,} of them; of the {new_texts.num_texts:,} "
        f"new ones, it is right for {are_right.sum():,} ({_percent(are_right.mean())})."
    )


def _comparison(report: Report, metrics: SingleLabelMetrics) -> Iterator[str]:
    most_frequent = max(metrics.per_class, key=lambda name: metrics.per_class[name].support)
    share = metrics.per_class[most_frequent].support / metrics.num_examples
    always = (
        f"always choosing “{name_text(most_frequent)}”, the most frequent class, "
        f"would be right for {_percent(share)}"
    )
    if report.baseline_scores is None:
        yield f"For comparison: {always}."
        return

    baseline = _percent(report.baseline_scores["accuracy"])
    yield f"For comparison: counting words (TF-IDF) is right for {baseline}; {always}."


def _label_shares(evaluation: SplitEvaluation) -> Iterator[str]:
    """Yield a sentence on how many labels of a multi-label task are right, and how many found."""
    has_label = evaluation.predictions.labels
    is_given = evaluation.predictions.predicted_labels
    num_right = int((has_label & is_given).sum())
    num_given = int(is_given.sum())
    num_labels = int(has_label.sum())

    if num_given == 0:
        yield "It gives no label at all."
        return

    precision = f"Of the labels that it gives, {_percent(num_right / num_given)} are right"
    if num_labels == 0:
        yield f"{precision}; these texts have no labels."
        return
    recall = f"it finds {_percent(num_right / num_labels)} of the labels of the texts"
    yield f"{precision}; {recall}."


# How far can I trust it?


def _trust(evaluation: SplitEvaluation) -> Iterator[str]:
    predictions = evaluation.predictions_of_new
    num_texts = len(predictions.split)
    if num_texts == 0:
        yield "Not at all: score texts that it has not learned from."
        return

    low, high = accuracy_interval(predictions.are_right, predictions.groups)
    texts = counted(num_texts, "text")
    if high - low >= WIDE_INTERVAL:
        yield (
            f"Only roughly, because {texts} are few. On other texts of the same kind, it may be "
            f"right for anything between {_percent(low)} and {_percent(high)}."
        )
    else:
        expected = f"{_percent(low)} to {_percent(high)}"
        yield f"On other texts of the same kind, expect it to be right for {expected}."

    if evaluation.split_name == "validation":
        yield "It was tuned on these texts, so expect slightly less on new ones."
    if evaluation.calibration is not None:
        yield from _calibration(evaluation.calibration)


def _calibration(judged: JudgedCalibration) -> Iterator[str]:
    """Yield a sentence on the probabilities; nothing if there are too few texts to judge them."""
    grade = judged.grade
    points = f"{100 * judged.error:.0f} points"
    if grade is Calibration.GOOD:
        yield "Its probabilities are honest: where it says 80%, about 80% are right."
    elif grade is Calibration.FAIR:
        yield f"Its probabilities are about right: off by {points} on average."
    elif grade is Calibration.POOR:
        yield f"Do not rely on its probabilities: they are off by {points} on average."


# What does it confuse?


def _confused_pairs(metrics: Metrics) -> Iterator[ConfusedPair]:
    for pair in metrics.most_confused[:MAX_PAIRS]:
        yield ConfusedPair(
            label=pair.label,
            prediction=pair.prediction,
            count=pair.count,
            num_texts=metrics.per_class[pair.label].support,
        )


# What to do next


def _next_steps(evaluation: SplitEvaluation) -> Iterator[NextStep]:
    num_doubtful = len(evaluation.doubtful_labels)
    if num_doubtful:
        texts = counted(num_doubtful, "text whose label", "texts whose labels")
        sentence = f"Check the {texts} may be wrong: wrong labels make a model worse."
        if num_doubtful >= MANY_DOUBTFUL * evaluation.metrics.num_examples:
            sentence = (
                f"For {counted(num_doubtful, 'text')}, it is sure of something else than the label "
                "says. Look at some of them: who is right?"
            )
        yield NextStep(
            sentence=sentence,
            file=report_file_names.DOUBTFUL_LABELS,
            command=f"encoder-cls review RUN --output review{_ending_of_table(evaluation)}",
        )

    if len(evaluation.predictions.mistakes):
        yield _more_labels(evaluation)

    yield from _who_decides(evaluation)

    if evaluation.split_name == "validation":
        yield NextStep(
            sentence=(
                "Keep some labelled texts in a file of their own (data.test): the model is not "
                "tuned on them, so they show how good it really is."
            )
        )


def _ending_of_table(evaluation: SplitEvaluation) -> str:
    """The ending of a table in which people correct labels: that of Excel if the data is Excel."""
    first_file, _ = file_and_line(evaluation.predictions.split.where[0])
    if format_of(Path(first_file)) is EXCEL:
        return EXCEL.ending
    return CSV.ending


def _more_labels(evaluation: SplitEvaluation) -> NextStep:
    per_class = evaluation.metrics.per_class
    weak = []
    for name, scores in per_class.items():
        if scores.recall is None or scores.support < MIN_CLASS_TEXTS:
            continue
        if scores.recall < WEAK_RECALL:
            weak.append((scores.recall, name))

    which = ""
    if weak:
        lowest_recall_first = sorted(weak)[:MAX_WEAK_CLASSES]
        names = [f"“{name_text(name)}”" for _, name in lowest_recall_first]
        which = f", above all of {' and '.join(names)}"
    return NextStep(
        sentence=f"Label more texts{which}. The program names those that help most.",
        command="encoder-cls suggest RUN --input UNLABELLED.csv",
    )


def _who_decides(evaluation: SplitEvaluation) -> Iterator[NextStep]:
    """Yield the step of using the model: alone, above a threshold, or only for suggestions."""
    threshold = evaluation.threshold
    if threshold is None or evaluation.num_independent < MIN_TEXTS:
        return

    wanted = _percent(WANTED_ACCURACY)
    if threshold.probability is None:
        yield NextStep(
            sentence=(
                "Let a person check its predictions: there is no probability from which surely "
                f"{wanted} of a good part of them are right."
            )
        )
    elif threshold.probability == 0:
        yield NextStep(
            sentence=f"Let it decide: at least {wanted} of its predictions are right.",
            command="encoder-cls predict --model RUN --input TEXTS.csv --output predictions.csv",
        )
    else:
        share = _percent(threshold.predicted_fraction)
        probability = f"{threshold.probability:.3f}"
        yield NextStep(
            sentence=(
                f"Let it decide where its probability is {probability} or more: that is {share} "
                f"of the texts, at least {wanted} of them right. Let a person decide the others."
            ),
            command=f"encoder-cls predict --model RUN --input TEXTS.csv --threshold {probability}",
        )
