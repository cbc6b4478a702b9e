"""The verdict of a report: sentences that follow from its numbers, and silence where these are missing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pytest

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation import verdict
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.html import render_report
from encoder_cls.evaluation.metrics import compute_metrics
from encoder_cls.evaluation.report import FEWEST_ANSWERS, Report, report_text

MORE: dict[str, Any] = {
    "accuracy_interval": [0.781, 0.857],
    "parts": {
        "combined": {"accuracy": 0.821, "accuracy_interval": [0.781, 0.857], "macro_f1": 0.8},
        "linear": {"accuracy": 0.806, "accuracy_interval": [0.764, 0.842], "macro_f1": 0.8},
        "encoder": {"accuracy": 0.742, "accuracy_interval": [0.697, 0.783], "macro_f1": 0.7},
    },
    "comparison": {"combined_minus_linear": 0.0151, "interval": [-0.004, 0.035], "is_sure": False},
    "mixture_shares": {"linear": 0.64, "encoder": 0.36},
}
BINS = {"confidence": [0.5, 0.9], "accuracy": [0.5, 0.9], "texts": [100, 100]}


@dataclass(frozen=True, kw_only=True)
class FullerReport(Report):
    """A report with the keys that not every report has."""

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | MORE


@dataclass(frozen=True, kw_only=True)
class OlderReport(Report):
    """A report without them."""

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_dict().items() if key not in MORE}


def rendered(classifier, kind: type[Report]) -> str:
    texts = ["rain and snow", "ball goal team", "soup bread"]
    split = Split(texts=texts, labels=np.zeros(3, dtype=np.int64), where=["f.csv:2"] * 3)
    report, logits = evaluate(classifier, split, name="test", reference=None)
    fuller = kind(**{name: getattr(report, name) for name in report.__dataclass_fields__})
    return render_report("a report", fuller, split, logits, config_yaml="seed: <0>\n", written=date(2026, 3, 9))


def test_intervals_parts_and_shares_are_shown_where_the_report_has_them(classifier):
    """The verdict with them, and without them the page as it was; date and config stand in both."""
    fuller, plain = rendered(classifier, FullerReport), rendered(classifier, OlderReport)
    for words in (
        "95% interval 78.1 to 85.7%",
        "+1.5 over the linear model alone (not sure: 95% interval −0.4 to +3.5)",
        "both together: 82.1%, 78.1% to 85.7%",
        "Of the weight in the answer the linear model has 64% and the encoder 36%.",
    ):
        assert words in fuller
        assert words not in plain
    assert "Is the encoder worth it?" not in plain
    for page in (fuller, plain):
        assert "9 March 2026" in page
        assert "seed: &lt;0&gt;" in page
        assert page.index('id="verdict"') < page.index('id="mistakes"') < page.index('id="classes"')


@pytest.mark.parametrize("is_sure", [True, False])
def test_a_difference_says_whether_it_is_sure(is_sure):
    """Loss and gain alike."""
    comparison = {"combined_minus_linear": -0.02, "interval": [-0.03, -0.01], "is_sure": is_sure}
    found = verdict.comparison_sentence({"comparison": comparison})
    assert found == (
        f"−2.0 over the linear model alone ({'sure' if is_sure else 'not sure'}: 95% interval −3.0 to −1.0)"
    )
    assert verdict.comparison_sentence({"comparison": None}) == verdict.comparison_sentence({}) == ""


def test_a_part_that_hardly_counts_is_named():
    """A run whose linear part has nearly all the weight looks like a gain of the encoder otherwise."""
    found = verdict.share_sentence({"mixture_shares": {"linear": 0.999, "encoder": 0.001}})
    assert found == "The linear model answers nearly alone: the encoder has 0.1% of the weight."
    assert verdict.share_sentence({"mixture_shares": {"linear": 1.0}}) == ""


def test_one_part_or_an_old_report_has_no_rows():
    """What a report lacks is left out; the reference stands beside parts only."""
    reference = {"linear_reference": {"accuracy": 0.7}}
    assert verdict.part_rows(reference) == verdict.part_rows({"parts": {}, **reference}) == []
    assert verdict.part_rows({"parts": {"combined": {"accuracy": 0.8}, "linear": {"accuracy": 0.8}}}) == []
    rows = verdict.part_rows({"parts": MORE["parts"], **reference})
    assert [name for name, *_ in rows] == ["both together", "linear alone", "encoder alone", "TF-IDF model"]
    assert rows[0] == ("both together", 0.821, (0.781, 0.857))
    assert rows[-1] == ("TF-IDF model", 0.7, None)


@pytest.mark.parametrize(
    ("values", "gist", "words"),
    [
        ({"ece": 0.01}, "well calibrated", "at its word"),
        ({"ece": 0.05, "accuracy": [0.4, 0.9]}, "fairly calibrated", "too sure by 5.0 points"),
        ({"ece": 0.2, "accuracy": [0.9, 0.9]}, "poorly calibrated", "too cautious by 20.0 points"),
        ({"ece": 0.2, "texts": [10, 9]}, "too few texts to tell", "these 19 texts"),
    ],
)
def test_calibration_is_told_in_words(values, gist, words):
    """How well, in which direction, and only where there are texts enough."""
    report = {"ece": values["ece"], "calibration": BINS | {key: values[key] for key in values if key != "ece"}}
    found = verdict.calibration(report)
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
