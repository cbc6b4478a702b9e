"""Sections of a report: sentences that follow from its numbers, and silence where these are missing."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from support.reports import REFERENCE, compared, report_of, split_of

from encoder_cls.evaluation import report_text
from encoder_cls.evaluation.report import FEWEST_ANSWERS, evaluate
from encoder_cls.evaluation.report_files import render_report
from encoder_cls.evaluation.report_text import full_text
from encoder_cls.metrics.classification import CalibrationBins, ClassMetrics


def test_a_notebook_shows_what_the_terminal_does(classifier):
    report = evaluate(classifier, split_of(["rain and snow"] * 3), name="<test>")
    shown = report._repr_html_()
    assert "<test>" not in shown
    text, (_, *lines) = (
        html.unescape(re.sub("<[^>]*>", "\n", shown)),
        full_text(report).splitlines(),
    )
    assert {line.strip() for line in lines} <= {line.strip() for line in text.splitlines()}


@pytest.mark.parametrize(
    ("values", "gist", "words"),
    [
        ({"ece": 0.01}, "well calibrated", "about 80% are right"),
        ({"ece": 0.05, "accuracy": [0.4, 0.9]}, "fairly calibrated", "too sure by 5.0 "),
        ({"ece": 0.2, "accuracy": [0.9, 0.9]}, "poorly calibrated", "too cautious by 20.0 "),
        ({"ece": 0.2, "texts": [10, 9]}, "too few texts to judge", "on 19 texts"),
    ],
)
def test_calibration_is_put_in_words(classifier, values, gist, words):
    """How well, in which direction, and only where there are texts enough."""
    bins = {"confidence": [0.5, 0.9], "accuracy": [0.5, 0.9], "texts": [100, 100]} | values
    ece = bins.pop("ece")
    found = report_text.calibration(
        report_of(classifier, metrics={"ece": ece, "calibration": CalibrationBins(**bins)})
    )
    assert found[0] == gist
    assert words in found[1]


@pytest.mark.parametrize(
    ("number", "threshold", "words"),
    [
        (3, None, f"that takes {FEWEST_ANSWERS} answers"),
        (50, None, "threshold reaches 95% precision"),
        (50, 0.0, "is needed"),
    ],
)
def test_a_threshold_that_is_not_suggested_has_a_reason(classifier, number, threshold, words):
    report = evaluate(classifier, split_of(["rain and snow"] * number), name="test")
    report = replace(report, suggested_threshold=threshold)
    assert words in full_text(report)
    assert words in render_report("x", report)


@pytest.mark.parametrize(
    ("difference", "is_sure", "linear", "gain", "interval", "weights"),
    [
        (
            0.015,
            True,
            0.01,
            "+1.5 points over",
            "+0.5 to +3.5",
            "the encoder decides nearly alone (99.0% of",
        ),
        (
            0.0,
            False,
            0.45,
            "+0.0 points over",
            "-1.0 to +2.0",
            "both weigh about the same (the encoder 55%, ",
        ),
        (
            -0.004,
            False,
            0.999,
            "0.4 points below",
            "-1.4 to +1.6",
            "the linear model decides nearly alone (99.9% of",
        ),
        (
            -0.0001,
            False,
            0.7,
            "+0.0 points over",
            "-1.0 to +2.0",
            "the linear model has most of the weight (70%)",
        ),
    ],
)
def test_the_gain_of_the_encoder_is_a_sentence(
    classifier, difference, is_sure, linear, gain, interval, weights
):
    """Points of accuracy, whether that is sure, and which part decides, if that is known."""
    report = report_of(classifier, **compared(difference, is_sure=is_sure, linear=linear))
    gain = f"{gain} the linear model alone ({'sure' if is_sure else 'not sure'}; 95% interval {interval})"
    assert report_text.comparison_sentence(report).startswith(f"{gain}; {weights}")
    assert report_text.comparison_sentence(replace(report, mixture_shares=None)) == gain


def test_advice_can_be_followed(classifier):
    """A linear model alone where the encoder is not sure to help; nothing where it is and nothing is better."""
    sure = report_of(classifier, **compared(0.1, is_sure=True), metrics={"accuracy": 0.9})
    assert report_text.advice(sure) == ""
    for difference, is_sure in ((0.1, False), (-0.1, True)):
        assert "--set model.encoder=false" in report_text.advice(
            replace(sure, **compared(difference, is_sure=is_sure))
        )
    better = replace(sure, linear_reference=REFERENCE)
    assert "more labelled texts" in report_text.advice(better)
    alone = replace(
        better, comparison=None, parts={"combined": sure.parts["encoder"], "encoder": None}
    )
    assert "a linear model alone: --set model.encoder=false" in report_text.advice(alone)


def test_the_terminal_shows_each_part(classifier):
    report = report_of(classifier)
    text = full_text(report)
    both = report.scores
    assert report_text.part_rows(report)[0] == (
        "both together",
        both["accuracy"],
        both["accuracy_interval"],
    )
    line = "\n    {} alone: accuracy {accuracy:.4f} [{accuracy_interval[0]:.3f}, {accuracy_interval[1]:.3f}], macro-F1 "
    for name in ("linear", "encoder"):
        assert line.format(name, **report.parts[name]) in text
    assert f"\n    {report_text.comparison_sentence(report)}\n" in text
    assert f"\n    {report_text.advice(report)}\n" in text
    assert "alone" not in full_text(replace(report, comparison=None))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"linear_reference": None}, "TF-IDF baseline: none"),
        (
            {"linear_reference": REFERENCE},
            "(linear SVM): accuracy 1.0000 [0.400, 0.800], macro-F1 1.0000",
        ),
        (
            {"linear_reference": REFERENCE | {"of_texts": 3000}},
            "(linear SVM, trained on 9 of 3,000 texts)",
        ),
        (
            {"linear_reference": REFERENCE | {"of_texts": 10, "of_features": 8}},
            "9 of 10 texts and 7 of 8 features)",
        ),
        (
            {"suggested_threshold": 0.9961, "answered_fraction": 0.66},
            "up (--threshold), 66% of all, are right 95% of the time, on topics that training has seen",
        ),
        ({"answered": {"name": "validation"}}, "these texts also chose the weights"),
        ({"num_refitted": 1}, "fitted again, with the text held out for validation"),
        ({"doubtful_labels": (1,)}, "labels that seem to be wrong: 1"),
        (
            {"metrics": {"unseen_labels": {"x\x1b": 15, "y": 5}}},
            "20 texts have labels that never occur in the training data ('x\\x1b', 'y')",
        ),
    ],
)
def test_the_report_has_notes_where_they_apply(classifier, changes, words):
    assert words in full_text(report_of(classifier, **changes))
    assert words == "TF-IDF baseline: none" or words not in full_text(report_of(classifier))


@pytest.mark.parametrize(("classes", "table"), [(3, True), (100, False)])
def test_the_report_fits_a_terminal(classifier, classes, table):
    """A line for each class; the confusion matrix only where it fits; no control character of a class name."""
    names = [f"{number}\x1b[2J\u202e" for number in range(classes)]
    per_class = dict.fromkeys(names, ClassMetrics(precision=0.5, recall=0.5, f1=0.5, support=1))
    metrics = {
        "per_class": per_class,
        "confusion_matrix": np.ones((classes, classes), dtype=int).tolist(),
    }
    text = full_text(report_of(classifier, answered={"label_names": tuple(names)}, metrics=metrics))
    assert ("   1    1    1" in text) == table
    assert ("no matrix here: 100 classes are more than" in text) != table
    assert sum(line.endswith("       1") for line in text.splitlines()) >= classes
    assert text.replace("\n", "").isprintable()
