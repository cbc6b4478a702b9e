"""The verdict of a report: sentences that follow from its numbers, and silence where these are missing."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from encoder_cls.data.split import Split
from encoder_cls.evaluation import verdict
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.metrics import CalibrationBins, compute_metrics
from encoder_cls.evaluation.page import render_report
from encoder_cls.evaluation.report import FEWEST_ANSWERS, Report, report_text
from encoder_cls.evaluation.scores import Comparison


@pytest.fixture(scope="module")
def report(classifier) -> Report:
    """That of a classifier with both parts."""
    texts = ["rain and snow", "ball goal team", "soup bread"]
    split = Split(texts=texts, labels=np.zeros(3, dtype=np.int64), where=["f.csv:2"] * 3)
    return evaluate(classifier, split, name="test", reference=None)[0]


def test_the_page_begins_with_the_verdict(report, classifier):
    """Interval, what the encoder adds, each part on one scale, advice; of one part alone no such card."""
    split = Split(texts=["rain and snow"], labels=np.zeros(1, dtype=np.int64), where=["f.csv:2"])
    logits = classifier.logits(classifier.tokenize(split.texts))
    both = compared(report, 0.015, is_sure=False)
    page, plain = (
        render_report("x", it, split, logits, config_yaml="seed: <0>\n", written=date(2026, 3, 9))
        for it in (both, replace(report, comparison=None))
    )
    low, high = report.parts["combined"].accuracy_interval
    for words in (verdict.difference_sentence(both), "The encoder has most of the weight (70%).", "both together: "):
        assert words in page
        assert words not in plain
    assert "Is the encoder worth it?" not in plain
    for each in (page, plain):
        assert f"95% interval {100 * low:.1f} to {100 * high:.1f}%" in each
        assert "9 March 2026" in each
        assert "seed: &lt;0&gt;" in each
        assert each.index('id="verdict"') < each.index('id="mistakes"') < each.index('id="classes"')


def test_one_part_has_no_rows(report):
    """With both, the reference stands beside them."""
    assert verdict.part_rows(replace(report, comparison=None)) == []
    rows = verdict.part_rows(replace(compared(report, 0.1, is_sure=True), linear_reference=REFERENCE))
    assert [row.name for row in rows] == ["both together", "linear alone", "encoder alone", "TF-IDF model"]
    combined = report.parts["combined"]
    assert rows[0] == ("both together", combined.accuracy, combined.accuracy_interval)
    assert rows[-1] == ("TF-IDF model", 1.0, (0.4, 0.8))


@pytest.mark.parametrize(
    ("values", "gist", "words"),
    [
        ({"ece": 0.01}, "well calibrated", "at its word"),
        ({"ece": 0.05, "accuracy": [0.4, 0.9]}, "fairly calibrated", "too sure by 5.0 "),
        ({"ece": 0.2, "accuracy": [0.9, 0.9]}, "poorly calibrated", "too cautious by 20.0 "),
        ({"ece": 0.2, "texts": [10, 9]}, "too few texts to tell", "these 19 texts"),
    ],
)
def test_calibration_is_told_in_words(report, values, gist, words):
    """How well, in which direction, and only where there are texts enough."""
    bins = {"confidence": [0.5, 0.9], "accuracy": [0.5, 0.9], "texts": [100, 100]} | values
    ece = bins.pop("ece")
    metrics = replace(report.metrics, ece=ece, calibration=CalibrationBins(**bins))
    found = verdict.calibration(replace(report, metrics=metrics))
    assert found[0] == gist
    assert words in found[1]


@pytest.mark.parametrize(
    ("number", "threshold", "words"),
    [(3, None, f"that takes {FEWEST_ANSWERS} answers"), (50, None, "from no probability up"), (50, 0.0, "is needed")],
)
def test_a_threshold_that_is_not_suggested_has_a_reason(classifier, number, threshold, words):
    """On the page and in the terminal."""
    texts = ["rain and snow"] * number
    split = Split(texts=texts, labels=np.zeros(number, dtype=np.int64), where=["f.csv:2"] * number)
    report, logits = evaluate(classifier, split, name="test", reference=None)
    report = replace(report, suggested_threshold=threshold)
    assert words in report_text(report)
    assert words in render_report("x", report, split, logits)


def test_labels_that_were_not_checked_are_said_to_be_so(classifier):
    """With the reason: on the page and in the terminal; where they were, how many are in doubt."""
    split = Split(texts=["rain", "ball"], labels=np.array([0, 0]), where=["f:1", "f:2"])
    report, logits = evaluate(classifier, split, name="test", reference=None)
    unchecked = replace(report, doubtful_labels=None, label_check_note="no <cleanlab>")
    assert "labels were not checked: no <cleanlab>" in report_text(unchecked)
    assert "Labels were not checked: no &lt;cleanlab&gt;." in render_report("x", unchecked, split, logits)
    checked = replace(report, doubtful_labels=(1,), label_check_note="")
    assert "not checked" not in report_text(checked)
    assert '1 labels seem to be wrong (<a href="doubtful_labels.csv">' in render_report("x", checked, split, logits)


def test_the_matrix_has_every_class_that_occurs_and_no_other(classifier):
    """Also of more classes than a matrix can have, where the texts are of few; the absent ones are named."""
    names = tuple(f"class {number}" for number in range(150))
    labels, logits = np.array([3, 3, 149]), np.eye(150, dtype=np.float32)[[3, 7, 149]] * 9
    split = Split(texts=["rain", "ball", "bread"], labels=labels, where=["f:1", "f:2", "f:3"])
    small = Split(texts=["rain"], labels=np.array([0]), where=["f:1"])
    report, _ = evaluate(classifier, small, name="test", reference=None)
    report = replace(report, label_names=names, metrics=compute_metrics(logits, labels, names), worst_errors=[])
    page = render_report("x", report, split, logits)
    matrix = page.partition('<table class="sortable matrix"')[2].partition("</table>")[0]
    assert [name for name in names if f">{name}</th>" in matrix] == ["class 3", "class 7", "class 149"]
    assert 'title="class 3, taken for class 7: 1">1</td>' in matrix
    assert "147 classes are left out, since they occur neither as label nor as answer here" in page


def test_classes_are_listed_worst_first(classifier):
    """By F1; those without a text, whose scores say nothing, come last; bars are as long as their numbers."""
    weather, sport = (classifier.label_names.index(name) for name in ("weather", "sport"))
    texts = ["rain and snow", "ball goal team", "rain and snow"]
    split = Split(texts=texts, labels=np.array([weather, sport, sport]), where=["f:1", "f:2", "f:3"])
    report, logits = evaluate(classifier, split, name="test", reference=None)
    page = render_report("x", report, split, logits)
    table = page.partition('<table class="sortable full scores">')[2].partition("</table>")[0]
    assert re.findall("<tr><td>(.*?)</td>", table) == ["sport", "weather", "küche"]
    assert all(bar == number for bar, number in re.findall('class="bar" style="--v:(.*?)">(.*?)</td>', table))


def compared(report: Report, difference: float, *, is_sure: bool, linear: float = 0.3) -> Report:
    comparison = Comparison(
        combined_minus_linear=difference, interval=(difference - 0.01, difference + 0.02), is_sure=is_sure
    )
    return replace(report, comparison=comparison, mixture_shares={"encoder": 1 - linear, "linear": linear})


@pytest.mark.parametrize(
    ("difference", "is_sure", "linear", "words"),
    [
        (
            0.015,
            True,
            0.3,
            "+1.5 points over the linear model alone (sure; 95% interval +0.5 to +3.5); the encoder",
        ),
        (0.0, False, 0.52, "+0.0 points over the linear model alone (not sure; 95% interval -1.0 to +2.0); both weigh"),
        (-0.004, False, 0.999, "0.4 points below the linear model alone (not sure; 95% interval -1.4 to +1.6); the li"),
        (-0.0001, False, 0.5, "+0.0 points over"),
    ],
)
def test_what_the_encoder_adds_is_told_in_a_sentence(report, difference, is_sure, linear, words):
    """Points of accuracy, whether that is sure, and which part decides."""
    assert verdict.comparison_sentence(compared(report, difference, is_sure=is_sure, linear=linear)).startswith(words)


@pytest.mark.parametrize(
    ("linear", "words"),
    [
        (0.999, "the linear model decides nearly alone (99.9% of the weight)"),
        (0.01, "the encoder decides nearly alone (99.0% of the weight)"),
        (0.7, "the linear model has most of the weight (70%)"),
        (0.45, "both weigh about the same (the encoder 55%, the linear model 45%)"),
    ],
)
def test_the_weight_of_the_parts_is_told_in_words(report, linear, words):
    """A model of which nobody told the shares has no such words."""
    sentence = verdict.comparison_sentence(compared(report, 0.1, is_sure=True, linear=linear))
    assert sentence.endswith(f"; {words}")
    untold = replace(compared(report, 0.1, is_sure=True), mixture_shares=None)
    assert verdict.comparison_sentence(untold).endswith("+12.0)")


REFERENCE = {"accuracy": 1.0, "macro_f1": 1.0, "texts": 9, "of_texts": 9, "features": 7, "of_features": 7}
REFERENCE |= {"accuracy_interval": (0.4, 0.8), "macro_f1_interval": (0.4, 0.8)}


def test_advice_can_be_followed(report):
    """A linear model alone where the encoder is not sure to help; nothing where it is and nothing is better."""
    sure = replace(compared(report, 0.1, is_sure=True), metrics=replace(report.metrics, accuracy=0.9))
    assert verdict.advice(sure) == ""
    assert "--set model.encoder=false" in verdict.advice(compared(sure, 0.1, is_sure=False))
    assert "--set model.encoder=false" in verdict.advice(compared(sure, -0.1, is_sure=True))
    better = replace(sure, linear_reference=REFERENCE)
    assert "more labelled texts" in verdict.advice(better)
    alone = replace(better, comparison=None, parts={"combined": report.parts["encoder"], "encoder": None})
    assert "a linear model alone: --set model.encoder=false" in verdict.advice(alone)


def test_the_terminal_shows_all_of_it(report):
    """Each part with its interval, the sentence, the advice."""
    text = report_text(report)
    for name in ("linear", "encoder"):
        scores = report.parts[name]
        low, high = scores.accuracy_interval
        assert f"\n    {name} alone: accuracy {scores.accuracy:.4f} [{low:.3f}, {high:.3f}]   macro-F1 " in text
    assert f"\n  {verdict.comparison_sentence(report)}\n" in text
    assert f"\n  {verdict.advice(report)}\n" in text
    alone = report_text(replace(report, comparison=None))
    assert "alone" not in alone
