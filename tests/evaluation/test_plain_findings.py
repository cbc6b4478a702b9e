"""The first screen of a report: plain sentences that follow from what was measured."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from support.reports import BASELINE_SCORES, evaluation_of, report_of, report_on, said, split_of

from encoder_cls.evaluation.findings import Finding, Kind, sentences
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_page import render_report
from encoder_cls.evaluation.split_evaluation import SplitEvaluation, evaluate_split
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.evaluation.suggested_threshold import SuggestedThreshold
from encoder_cls.metrics.classification import ClassMetrics, Confusion, compute_metrics

NAMES = ("bill", "parcel", "return")


def how_often(report: Report) -> list[str]:
    return sentences(report.findings, Kind.HOW_OFTEN)


def trust(report: Report) -> list[str]:
    return sentences(report.findings, Kind.TRUST)


def next_steps(report: Report) -> list[Finding]:
    """The most useful one first."""
    return [finding for finding in report.findings if finding.kind is Kind.NEXT_STEP]


def shown_as_right(report: Report) -> str:
    """The share of right predictions in big letters."""
    (share,) = re.findall('<b class="big">(.*?)</b>', render_report("x", report))
    return share


def shown_as_confused(report: Report) -> list[str]:
    """The pairs of confused classes on the first screen."""
    page = render_report("x", report)
    _, _, answer = page.partition("<h2>What does it confuse?</h2>")
    answer, _, _ = answer.partition("</div>")
    pairs = re.findall("<li>(.*?)</li>", answer, re.DOTALL)
    return [" ".join(re.sub("</?bdi>", "", pair).split()) for pair in pairs]


def evaluation_of_labels(classifier, labels, predictions, **changes) -> SplitEvaluation:
    """The evaluation of these labels and predictions, with some fields changed."""
    split = split_of(["x" * (row + 1) for row in range(len(labels))], labels)
    logits = np.eye(len(NAMES), dtype=np.float32)[predictions] * 9
    return replace(
        evaluation_of(classifier),
        predictions=SplitPredictions(name="test", split=split, logits=logits, label_names=NAMES),
        metrics=compute_metrics(logits, np.array(labels), NAMES),
        **changes,
    )


def test_it_says_how_often_the_classifier_is_right(classifier):
    evaluation = evaluation_of_labels(
        classifier, [0] * 60 + [1] * 40, [0] * 90 + [1] * 10, num_learned=0
    )

    report = Report(evaluation=evaluation, baseline_scores=BASELINE_SCORES)

    assert shown_as_right(report) == "70%"
    assert how_often(report) == [
        "It gives the right class to 70 of 100 texts that it had not learned from.",
        "For comparison: counting words (TF-IDF) is right for 100%; always choosing “bill”, the "
        "most frequent class, would be right for 60%.",
    ]
    assert "expect it to be right for 60% to 78%" in trust(report)[0]


def test_what_the_classifier_has_learned_from_may_be_unknown(classifier):
    report = report_on(classifier, split_of(["rain and snow"] * 2))

    assert "learned" not in how_often(report)[0]


def test_texts_that_the_classifier_has_learned_from_say_nothing_of_new_ones(classifier):
    """The number of right ones, and what to expect, are those of the new texts."""
    texts = ["rain and snow", "ball goal team"] * 30
    labels = [2, 1] * 10 + [0, 0] * 20
    split = split_of([f"{text} {row}" for row, text in enumerate(texts)], labels)
    evaluation = evaluate_split(classifier, split, name="test", learned=split.texts[:20])

    report = Report(evaluation=evaluation)

    assert how_often(report)[:2] == [
        "It gives the right class to 20 of 60 texts.",
        "It has learned from 20 of them; of the 40 new ones, it is right for 0 (0%).",
    ]
    assert trust(report)[0].endswith("expect it to be right for 0% to 9%.")


def test_where_the_classifier_has_learned_from_all_texts_nothing_is_known(classifier):
    split = split_of(["rain and snow"] * 2, [2, 2])
    evaluation = evaluate_split(classifier, split, name="test", learned=["rain and snow"])

    report = Report(evaluation=evaluation)

    learned = "he model has learned from all of these texts: this says nothing about new texts"
    assert how_often(report)[1] == f"T{learned}."
    assert trust(report) == ["Not at all: score texts that it has not learned from."]
    assert learned in str(report)


@pytest.mark.parametrize(
    ("num_wrong", "num_texts", "shown"),
    [
        (0, 5, "100%"),
        (1, 1000, "99.9%"),
        (1, 9000, "99.9%"),
        (5, 5, "0%"),
        (1, 3, "67%"),
    ],
)
def test_only_what_is_always_right_is_right_for_100_percent(
    classifier, num_wrong, num_texts, shown
):
    predictions = [1] * num_wrong + [0] * (num_texts - num_wrong)
    evaluation = evaluation_of_labels(classifier, [0] * num_texts, predictions)

    assert shown_as_right(Report(evaluation=evaluation)) == shown


def test_few_texts_are_called_few(classifier):
    evaluation = evaluation_of_labels(classifier, [0] * 4, [0, 0, 1, 1])

    sentence = trust(Report(evaluation=evaluation))[0]

    assert sentence.startswith("Only roughly, because 4 texts are few.")
    assert "anything between 15% and 85%" in sentence


def test_validation_texts_are_called_tuned_on(classifier):
    """And a file of test texts is advised, which other splits do not need."""
    on_validation = report_of(classifier, predictions={"name": "validation"})
    on_test = report_of(classifier)

    assert "The model was tuned on these texts" in trust(on_validation)[1]
    assert "data.test" in next_steps(on_validation)[-1].sentence
    assert not any("tuned" in sentence for sentence in trust(on_test))
    assert not any("data.test" in step.sentence for step in next_steps(on_test))


def test_the_most_confused_pairs_are_shown_with_the_size_of_their_class(classifier):
    labels = [0, 0, 0, 0, 1, 1, 1, 1, 1]
    predictions = [0, 0, 2, 1, 1, 1, 1, 0, 0]
    evaluation = evaluation_of_labels(classifier, labels, predictions)

    first, *others = shown_as_confused(Report(evaluation=evaluation))

    assert first == "parcel is taken for bill: 2 of 5 texts"
    assert len(others) == 2


def test_without_mistakes_nothing_is_confused(classifier):
    evaluation = evaluation_of_labels(classifier, [0, 1], [0, 1], doubtful_labels=())

    report = Report(evaluation=evaluation)

    nothing = "Nothing: each of these texts is predicted correctly."
    assert said(report, Kind.NOTHING_CONFUSED) == nothing
    assert shown_as_confused(report) == []
    assert next_steps(report) == []


def test_doubtful_labels_come_first_among_the_next_steps(classifier):
    evaluation = evaluation_of_labels(
        classifier, [0] * 20, [0] * 18 + [1] * 2, doubtful_labels=(18, 19)
    )

    first, second, *_ = next_steps(Report(evaluation=evaluation))

    assert "2 texts whose labels may be wrong" in first.sentence
    assert (first.file, first.command) == (
        "doubtful_labels.csv",
        "encoder-cls review RUN --output review.csv",
    )
    assert second.command == "encoder-cls suggest RUN --input UNLABELLED.csv"


def test_labels_of_an_excel_sheet_are_corrected_in_one(classifier):
    evaluation = evaluation_of_labels(
        classifier, [0] * 20, [0] * 18 + [1] * 2, doubtful_labels=(18, 19)
    )
    rows = [f"messages.xlsx:{row}" for row in range(2, 22)]
    predictions = evaluation.predictions
    predictions = replace(predictions, split=replace(predictions.split, where=rows))
    evaluation = replace(evaluation, predictions=predictions)

    first, *_ = next_steps(Report(evaluation=evaluation))

    assert first.command == "encoder-cls review RUN --output review.xlsx"


def test_many_doubtful_labels_may_be_mistakes_of_the_model(classifier):
    evaluation = evaluation_of_labels(
        classifier, [0] * 20, [0] * 15 + [1] * 5, doubtful_labels=(15, 16, 17, 18)
    )

    first, *_ = next_steps(Report(evaluation=evaluation))

    assert first.sentence.startswith("For 4 texts, it is sure of something else than the label")


def test_weak_classes_are_named_if_they_have_texts_enough(classifier):
    """Two at most, the weakest first; a class of three texts proves nothing."""

    def scores(recall: float, support: int) -> ClassMetrics:
        return ClassMetrics(precision=0.5, recall=recall, f1=0.5, support=support)

    per_class = {
        "rare": scores(0.0, 3),
        "weak": scores(0.5, 10),
        "weaker": scores(0.4, 10),
        "middling": scores(0.7, 10),
        "good": scores(0.9, 10),
    }
    confused = [Confusion(label="rare", prediction="good", count=3)]
    report = report_of(classifier, metrics={"per_class": per_class, "most_confused": confused})

    assert any("above all of “weaker” and “weak”." in step.sentence for step in next_steps(report))


@pytest.mark.parametrize(
    ("threshold", "words", "option"),
    [
        (SuggestedThreshold(0.62, 0.84), "0.620 or more: that is 84% of the texts", "0.620"),
        (SuggestedThreshold(0.0, 1.0), "Let it decide: at least 95%", "predictions.csv"),
        (SuggestedThreshold(None, 1.0), "Let a person check its predictions", ""),
    ],
)
def test_it_says_who_should_decide(classifier, threshold, words, option):
    evaluation = evaluation_of_labels(classifier, [0] * 250, [0] * 250, threshold=threshold)

    step = next_steps(Report(evaluation=evaluation))[-1]

    assert words in step.sentence
    assert step.command.endswith(option)


def test_several_labels_are_right_if_all_of_a_text_are(classifier):
    """Beside that, it says how many of the given labels are right, and how many are found."""
    labels = np.array(
        [
            [1, 0, 0],
            [1, 1, 0],
            [0, 1, 0],
        ]
    )
    only_the_first_label = [9, -9, -9]
    logits = np.array([only_the_first_label] * 3, dtype=np.float32)
    predictions = SplitPredictions(
        name="test",
        split=split_of(["x"] * 3, labels),
        logits=logits,
        label_names=NAMES,
        thresholds=(0.5, 0.5, 0.5),
    )
    evaluation = replace(
        evaluation_of(classifier, num_learned=0),
        predictions=predictions,
        metrics=compute_metrics(logits, labels, NAMES, predictions.thresholds),
        threshold=None,
    )

    report = Report(evaluation=evaluation)

    assert shown_as_right(report) == "33%"
    assert how_often(report) == [
        "It gives exactly the right labels to 1 of 3 texts that it had not learned from.",
        "Of the labels that it gives, 67% are right; it finds 50% of the labels of the texts.",
    ]
    assert shown_as_confused(report) == ["parcel is missed where bill is given: 1 of 2 texts"]
