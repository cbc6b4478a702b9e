"""Findings: sentences that follow from the numbers of a report, and silence where these lack."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from support.reports import (
    BASELINE_SCORES,
    compared,
    report_of,
    report_on,
    said,
    split_of,
)

from encoder_cls.evaluation.findings import Kind, RunFacts, sentences
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_page import render_report
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.evaluation.suggested_threshold import MIN_TEXTS, SuggestedThreshold
from encoder_cls.metrics.classification import CalibrationBins, ClassMetrics


def test_a_notebook_shows_what_the_terminal_does(classifier):
    report = report_on(classifier, split_of(["rain and snow"] * 3), name="<test>")

    shown = report._repr_html_()

    assert "<test>" not in shown
    text = html.unescape(re.sub("<[^>]*>", "\n", shown))
    lines_shown = {line.strip() for line in text.splitlines()}
    _, *lines = str(report).splitlines()
    for line in lines:
        assert line.strip() in lines_shown


def test_a_report_in_a_session_is_one_line(classifier):
    report = report_on(classifier, split_of(["rain and snow"] * 3), name="test")

    assert repr(report) == "Report('test', 3 examples)"


def test_a_macro_f1_without_an_interval_has_a_reason(classifier):
    """In the terminal, on the page and in JSON."""
    report = report_on(classifier, split_of(["rain and snow", "ball goal team"], [2, 1]))

    note = "no interval of macro-F1: fewer than 5 independent texts a class"
    values = report.to_dict()
    assert values["macro_f1_interval"] is None
    assert values["macro_f1_interval_note"] == note
    assert note in str(report)
    assert f"There is {note}" in render_report("x", report)


def test_texts_that_the_classifier_has_learned_from_are_scored_and_judged_apart(classifier):
    """In the terminal, in the table of the page, in JSON; no threshold is suggested by them."""
    texts = [f"rain and snow {row}" for row in range(300)]
    split = split_of(texts, [2] * 200 + [0] * 100)
    evaluation = evaluate_split(classifier, split, name="test", learned=split.texts[:200])

    report = Report(evaluation=evaluation)

    assert evaluation.scores["accuracy"] == 2 / 3
    assert evaluation.threshold.probability is None
    new_texts = report.to_dict()["new_texts"]
    assert (report.to_dict()["learned_texts"], new_texts["num_examples"]) == (200, 100)
    assert new_texts["accuracy"] == 0
    words = "the model has learned from 200 of these texts; the 100 new ones alone: accuracy 0.0000"
    assert words in str(report)
    assert words.replace("the model", "The model") in render_report("x", report)
    assert "<bdi>both together, new texts alone</bdi>" in render_report("x", report)
    assert "poorly calibrated" in str(report)


def test_classes_of_few_texts_that_lower_macro_f1_are_named(classifier):
    """The F1 of a class with one text is 0 or 1, and counts like that of all others."""
    split = split_of(["rain and snow", "ball goal team"] * 20 + ["a film"], [2, 1] * 20 + [0])
    report = Report(evaluation=evaluate_split(classifier, split, name="test"))

    metrics = report.evaluation.metrics
    f1 = [scores.f1 for scores in metrics.per_class.values() if scores.support > 1]
    name = classifier.label_names[0]
    assert f"like all others; without them it is {sum(f1) / 2:.4f}" in str(report)
    assert f"fewer than 5 texts ('{name}')" in str(report)

    frequent = split_of(["rain and snow", "ball goal team"] * 20, [2, 1] * 20)
    report = Report(evaluation=evaluate_split(classifier, frequent, name="test"))
    assert "like all others" not in str(report)


@pytest.mark.parametrize(
    ("accuracy", "texts", "gist", "words"),
    [
        ([0.5, 0.9], [100, 100], "well calibrated", "about 80% are right"),
        (
            [0.4, 0.9],
            [500, 500],
            "fairly calibrated",
            "4.8 points on average, 4.8 too high",
        ),
        (
            [0.9, 0.9],
            [100, 100],
            "poorly calibrated",
            "19.7 points on average, 19.7 too low",
        ),
        ([0.5, 0.9], [10, 9], "too few texts to judge", "on 19 texts"),
    ],
)
def test_calibration_is_put_in_words(classifier, accuracy, texts, gist, words):
    """How good, in which direction, and only where there are enough texts.

    Overall they are never off by more than on average: neither number has chance in it.
    """
    bins = CalibrationBins(confidence=[0.5, 0.9], accuracy=accuracy, texts=texts)
    report = report_of(classifier, metrics={"calibration": bins})

    found_gist, found_words = sentences(report.findings, Kind.CALIBRATION)

    assert found_gist == gist
    assert words in found_words.replace(" points too", " too")


@pytest.mark.parametrize(
    ("num_texts", "threshold", "words"),
    [
        (3, None, f"that takes at least {MIN_TEXTS} independent texts"),
        (300, None, "threshold is sure to reach 95% precision"),
        (300, 0.0, "threshold is needed"),
    ],
)
def test_a_threshold_that_is_not_suggested_has_a_reason(classifier, num_texts, threshold, words):
    split = split_of([f"rain and snow {row}" for row in range(num_texts)])
    evaluation = evaluate_split(classifier, split, name="test")
    suggested = SuggestedThreshold(threshold, 1.0)

    report = Report(evaluation=replace(evaluation, threshold=suggested))

    assert words in str(report)
    assert words in render_report("x", report)


@pytest.mark.parametrize(
    ("difference", "is_sure", "sentence"),
    [
        (0.015, True, "+1.5 points over the linear model alone (sure; 95% interval +0.5 to +3.5)"),
        (0, False, "+0.0 points over the linear model alone (not sure; 95% interval -1.0 to +2.0)"),
        (
            -0.004,
            False,
            "0.4 points below the linear model alone (not sure; 95% interval -1.4 to +1.6)",
        ),
        (
            -0.0001,
            False,
            "+0.0 points over the linear model alone (not sure; 95% interval -1.0 to +2.0)",
        ),
    ],
)
def test_a_sentence_says_what_the_encoder_adds(classifier, difference, is_sure, sentence):
    """Points of accuracy, and whether that is sure; zero has no minus."""
    changes = compared(difference, is_sure=is_sure) | {"mixture_shares": None}

    assert said(report_of(classifier, **changes), Kind.ENCODER_GAIN) == sentence


@pytest.mark.parametrize(
    ("linear_share", "words"),
    [
        (0.01, "the encoder decides nearly alone (99.0% of the weight)"),
        (0.45, "both weigh about the same (the encoder 55%, the linear model 45%)"),
        (0.7, "the linear model has most of the weight (70%)"),
        (0.999, "the linear model decides nearly alone (99.9% of the weight)"),
        (1.0, "the linear model decides nearly alone (100% of the weight)"),
    ],
)
def test_a_sentence_says_which_part_decides(classifier, linear_share, words):
    report = report_of(classifier, **compared(0.01, is_sure=True, linear=linear_share))

    assert said(report, Kind.ENCODER_GAIN).endswith(f"; {words}")


def test_there_is_no_advice_where_the_classifier_is_the_best(classifier):
    report = report_of(classifier, **compared(0.1, is_sure=True), metrics={"accuracy": 0.9})

    assert said(report, Kind.ADVICE) == ""


@pytest.mark.parametrize(("difference", "is_sure"), [(0.1, False), (-0.1, True)])
def test_the_linear_model_alone_is_advised_where_the_encoder_may_not_help(
    classifier, difference, is_sure
):
    report = report_of(classifier, **compared(difference, is_sure=is_sure))

    advice = said(report, Kind.ADVICE)

    assert "the linear model alone may do as well" in advice
    assert "--set model.encoder=false" in advice


def test_advice_where_the_baseline_is_more_accurate(classifier):
    """More labels, or a linear model where there is none."""
    scores = {"accuracy": 0.9}
    all_parts = {"combined": scores, "linear": scores, "encoder": scores}
    with_both = report_of(
        classifier,
        **compared(0.1, is_sure=True),
        parts=all_parts,
        baseline_scores=BASELINE_SCORES,
    )
    encoder_alone = report_of(
        classifier,
        part_comparison=None,
        parts={"combined": scores, "encoder": scores},
        baseline_scores=BASELINE_SCORES,
    )

    assert "more labelled texts" in said(with_both, Kind.ADVICE)
    advice = said(encoder_alone, Kind.ADVICE)
    assert "a linear model alone: --set model.encoder=false" in advice


def test_the_terminal_shows_each_part(classifier):
    report = report_of(classifier)
    evaluation = report.evaluation

    text = str(report)

    for part in ("linear", "encoder"):
        scores = evaluation.parts[part]
        low, high = scores["accuracy_interval"]
        accuracy = f"accuracy {scores['accuracy']:.4f} [{low:.3f}, {high:.3f}]"
        assert f"\n    {part} alone: {accuracy}, macro-F1 " in text

    assert f"\n    {said(report, Kind.ENCODER_GAIN)}\n" in text
    assert f"\n    {said(report, Kind.ADVICE)}\n" in text


def test_the_terminal_shows_no_parts_of_a_single_one(classifier):
    assert "alone" not in str(report_of(classifier, part_comparison=None))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"baseline_scores": BASELINE_SCORES},
            "(linear SVM): accuracy 1.0000 [0.400, 0.800], macro-F1 1.0000",
        ),
        (
            {"baseline_scores": BASELINE_SCORES | {"of_texts": 3000}},
            "(linear SVM, trained on 9 of 3,000 texts)",
        ),
        (
            {"baseline_scores": BASELINE_SCORES | {"of_texts": 10, "of_features": 8}},
            "9 of 10 texts and 7 of 8 features)",
        ),
        (
            {"threshold": SuggestedThreshold(0.9961, 0.66)},
            "--threshold 0.996 keeps 66% of the predictions, at least 95% of them right",
        ),
        ({"predictions": {"name": "validation"}}, "the model was tuned on these texts"),
        (
            {"run_facts": RunFacts(num_refitted=1)},
            "the final linear model was also trained on 1 validation text",
        ),
        (
            {"run_facts": RunFacts(num_unscored=997)},
            "of the 1,000 test texts, chosen at random: there was no time for more",
        ),
        ({"doubtful_labels": (1,)}, "labels that may be wrong: 1"),
        (
            {"metrics": {"unseen_labels": {"x\x1b": 15, "y": 5}}},
            "20 texts have labels that never occur in the training data ('x\\x1b', 'y')",
        ),
    ],
)
def test_the_report_has_notes_where_they_apply(classifier, changes, words):
    assert words in str(report_of(classifier, **changes))
    assert words not in str(report_of(classifier))


def test_a_report_without_a_baseline_says_so(classifier):
    assert "TF-IDF baseline: none" in str(report_of(classifier, baseline_scores=None))


@pytest.mark.parametrize(("num_classes", "has_matrix"), [(3, True), (100, False)])
def test_the_report_fits_a_terminal(classifier, num_classes, has_matrix):
    """A line for each class; the confusion matrix only where it fits; no control characters."""
    names = [f"{number}\x1b[2J\u202e" for number in range(num_classes)]
    scores = ClassMetrics(precision=0.5, recall=0.5, f1=0.5, support=1)
    metrics = {
        "per_class": dict.fromkeys(names, scores),
        "confusion_matrix": np.ones((num_classes, num_classes), dtype=int).tolist(),
        "most_confused": [],
    }
    report = report_of(classifier, predictions={"label_names": tuple(names)}, metrics=metrics)

    text = str(report)

    assert ("   1    1    1" in text) == has_matrix
    assert ("no matrix here: 100 classes are more than" in text) != has_matrix
    assert sum(line.endswith("       1") for line in text.splitlines()) >= num_classes
    assert text.replace("\n", "").isprintable()


def test_a_report_names_the_groups_of_texts_that_belong_together(classifier):
    """In JSON always, in words only where they are fewer than the texts."""
    copies = report_on(classifier, split_of(["rain and snow"] * 3), name="test")
    different = report_on(classifier, split_of(["rain", "snow", "soup"]), name="test")

    assert (copies.to_dict()["num_examples"], copies.to_dict()["num_groups"]) == (3, 1)
    assert different.to_dict()["num_groups"] == 3
    words = "3 texts form 1 group"
    assert words in str(copies)
    assert words in render_report("x", copies)
    assert "form" not in str(different)
