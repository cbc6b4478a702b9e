"""The findings on the first screen of a report's page, for readers who know no metrics.

They say how often the classifier is right, how far to trust this number, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from encoder_cls.data.reading.delimited import CSV
from encoder_cls.data.reading.excel import EXCEL
from encoder_cls.data.reading.formats import format_of
from encoder_cls.evaluation import file_names
from encoder_cls.evaluation.findings import (
    LEARNED_ALL,
    TUNED,
    Finding,
    Kind,
    name_text,
    reading_of_probabilities,
)
from encoder_cls.evaluation.judged_calibration import Calibration
from encoder_cls.evaluation.label_tables import file_and_line
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.suggested_threshold import MIN_TEXTS, WANTED_ACCURACY
from encoder_cls.metrics.classification import SingleLabelMetrics
from encoder_cls.metrics.intervals import accuracy_interval
from encoder_cls.system.display import capitalized, counted

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


def plain_findings(
    evaluation: SplitEvaluation, baseline_scores: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """The findings, the most useful next step first."""
    for sentence in _how_often(evaluation, baseline_scores):
        yield Finding(Kind.HOW_OFTEN, sentence)
    for sentence in _trust(evaluation):
        yield Finding(Kind.TRUST, sentence)

    num_mistakes = len(evaluation.predictions.mistakes)
    if num_mistakes == 0:
        nothing = "Nothing: each of these texts is predicted correctly."
        yield Finding(Kind.NOTHING_CONFUSED, nothing)
    elif not evaluation.metrics.most_confused:
        nothing = "No label is given in the place of another: labels are missed or added."
        yield Finding(Kind.NOTHING_CONFUSED, nothing)

    if evaluation.doubtful_labels:
        yield _check_labels(evaluation)
    if num_mistakes:
        yield _label_more(evaluation)
    yield from _who_decides(evaluation)
    if evaluation.split_name == "validation":
        yield _next_step(
            "Keep some labelled texts in a file of their own (data.test): the model is not "
            "tuned on them, so they show how good it really is."
        )


def percent(share: float) -> str:
    """A share in whole percent; 100% and 0% only if it is exactly that."""
    text = f"{share:.0%}"
    if text in {"0%", "100%"} and 0 < share < 1:
        # Without this rule, 3 mistakes in 1,000 texts would be shown as none.
        text = f"{np.clip(share, 0.001, 0.999):.1%}"
    return text


# How often is it right?


def _how_often(
    evaluation: SplitEvaluation, baseline_scores: Mapping[str, Any] | None
) -> Iterator[str]:
    metrics = evaluation.metrics
    gives = "gives exactly the right labels"
    if isinstance(metrics, SingleLabelMetrics):
        gives = "gives the right class"

    num_right = metrics.num_examples - len(evaluation.predictions.mistakes)
    origin = ""
    if evaluation.num_learned == 0:
        origin = " that it had not learned from"
    yield f"It {gives} to {num_right:,} of {counted(metrics.num_examples, 'text')}{origin}."

    new_texts = evaluation.new_texts
    if new_texts and new_texts.num_texts:
        are_right = new_texts.predictions.are_right
        yield (
            f"It has learned from {evaluation.num_learned:,} of them; of the "
            f"{new_texts.num_texts:,} new ones, it is right for {are_right.sum():,} "
            f"({percent(are_right.mean())})."
        )
    elif new_texts:
        yield _sentence(LEARNED_ALL)

    if isinstance(metrics, SingleLabelMetrics):
        yield _comparison(metrics, baseline_scores)
    else:
        yield _label_shares(evaluation)


def _comparison(metrics: SingleLabelMetrics, baseline_scores: Mapping[str, Any] | None) -> str:
    most_frequent = max(metrics.per_class, key=lambda name: metrics.per_class[name].support)
    share = metrics.per_class[most_frequent].support / metrics.num_examples
    always = (
        f"always choosing “{name_text(most_frequent)}”, the most frequent class, "
        f"would be right for {percent(share)}"
    )
    if baseline_scores is None:
        return f"For comparison: {always}."

    baseline = percent(baseline_scores["accuracy"])
    return f"For comparison: counting words (TF-IDF) is right for {baseline}; {always}."


def _label_shares(evaluation: SplitEvaluation) -> str:
    has_label = evaluation.predictions.labels
    is_given = evaluation.predictions.predicted_labels
    num_right = int((has_label & is_given).sum())
    num_given = int(is_given.sum())
    num_labels = int(has_label.sum())

    if num_given == 0:
        return "It gives no label at all."

    precision = f"Of the labels that it gives, {percent(num_right / num_given)} are right"
    if num_labels == 0:
        return f"{precision}; these texts have no labels."
    recall = f"it finds {percent(num_right / num_labels)} of the labels of the texts"
    return f"{precision}; {recall}."


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
            f"right for anything between {percent(low)} and {percent(high)}."
        )
    else:
        expected = f"{percent(low)} to {percent(high)}"
        yield f"On other texts of the same kind, expect it to be right for {expected}."

    if evaluation.split_name == "validation":
        yield _sentence(TUNED)
    judged = evaluation.calibration
    if judged and judged.grade is not Calibration.UNKNOWN:
        yield _sentence(reading_of_probabilities(judged))


def _sentence(words: str) -> str:
    return f"{capitalized(words)}."


# What to do next


def _next_step(sentence: str, *, file: str = "", command: str = "") -> Finding:
    return Finding(Kind.NEXT_STEP, sentence, file, command)


def _check_labels(evaluation: SplitEvaluation) -> Finding:
    num_doubtful = len(evaluation.doubtful_labels)
    texts = counted(num_doubtful, "text whose label", "texts whose labels")
    sentence = f"Check the {texts} may be wrong: wrong labels make a model worse."
    if num_doubtful >= MANY_DOUBTFUL * evaluation.metrics.num_examples:
        sentence = (
            f"For {counted(num_doubtful, 'text')}, it is sure of something else than the label "
            "says. Look at some of them: who is right?"
        )

    # People correct labels in a table of the kind that they know.
    first_file, _ = file_and_line(evaluation.predictions.split.where[0])
    table = CSV
    if format_of(Path(first_file)) is EXCEL:
        table = EXCEL
    return _next_step(
        sentence,
        file=file_names.DOUBTFUL_LABELS,
        command=f"encoder-cls review RUN --output review{table.ending}",
    )


def _label_more(evaluation: SplitEvaluation) -> Finding:
    weak = []
    for name, scores in evaluation.metrics.per_class.items():
        if scores.recall is None or scores.support < MIN_CLASS_TEXTS:
            continue
        if scores.recall < WEAK_RECALL:
            weak.append((scores.recall, name))

    which = ""
    if weak:
        lowest_recall_first = sorted(weak)[:MAX_WEAK_CLASSES]
        names = [f"“{name_text(name)}”" for _, name in lowest_recall_first]
        which = f", above all of {' and '.join(names)}"
    return _next_step(
        f"Label more texts{which}. The program names those that help most.",
        command="encoder-cls suggest RUN --input UNLABELLED.csv",
    )


def _who_decides(evaluation: SplitEvaluation) -> Iterator[Finding]:
    threshold = evaluation.threshold
    if threshold is None or evaluation.num_independent < MIN_TEXTS:
        return

    wanted = percent(WANTED_ACCURACY)
    if threshold.probability is None:
        yield _next_step(
            "Let a person check its predictions: there is no probability from which surely "
            f"{wanted} of a good part of them are right."
        )
    elif threshold.probability == 0:
        yield _next_step(
            f"Let it decide: at least {wanted} of its predictions are right.",
            command="encoder-cls predict --model RUN --input TEXTS.csv --output predictions.csv",
        )
    else:
        share = percent(threshold.predicted_fraction)
        probability = f"{threshold.probability:.3f}"
        yield _next_step(
            f"Let it decide where its probability is {probability} or more: that is {share} "
            f"of the texts, at least {wanted} of them right. Let a person decide the others.",
            command=f"encoder-cls predict --model RUN --input TEXTS.csv --threshold {probability}",
        )
