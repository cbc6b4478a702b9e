"""The page: it shows what was counted, and runs nothing of a text."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from support.reports import REFERENCE, compared, split_of

from encoder_cls.evaluation import report_text
from encoder_cls.evaluation.mistakes import Answered
from encoder_cls.evaluation.report import evaluate
from encoder_cls.evaluation.report_files import render_report
from encoder_cls.metrics.classification import LARGEST_MATRIX, compute_metrics

HOSTILE = '<script>document.title="x"</script><img src=x onerror="alert(1)">"&\'{{ 7 * 7 }}'


def of_many_classes(classifier, labels, answers, names):
    """A report of these classes, each text a word."""
    split, logits = (
        split_of(["x"] * len(labels), labels),
        np.eye(len(names), dtype=np.float32)[answers] * 9,
    )
    answered = Answered(name="test", split=split, logits=logits, label_names=names)
    report = evaluate(classifier, split_of(["rain"]), name="test")
    return replace(
        report,
        answered=answered,
        metrics=compute_metrics(logits, split.labels, names),
        worst_errors=[],
    )


def test_the_summary_comes_first(classifier):
    """Interval, the encoder's part, each part on one scale, advice; of one part alone no such card."""
    report = evaluate(classifier, split_of(["rain and snow"]), name="test")
    both = replace(report, **compared(0.015, is_sure=False))
    page, plain = (
        render_report("x", it, config_yaml="seed: <0>\n", written=date(2026, 3, 9))
        for it in (both, replace(report, comparison=None))
    )
    low, high = report.scores["accuracy_interval"]
    for words in (
        report_text.comparison_sentence(both),
        "the encoder has most of the weight (70%)",
        "both together: ",
    ):
        assert words in page
        assert words not in plain
    assert "Is the encoder worth it?" not in plain
    for each in (page, plain):
        assert f"95% interval {100 * low:.1f}% to {100 * high:.1f}%" in each
        assert "9 March 2026" in each
        assert "seed: &lt;0&gt;" in each
        assert each.index('id="summary"') < each.index('id="mistakes"') < each.index('id="classes"')


def test_the_matrix_has_every_class_that_occurs_and_no_other(classifier):
    """Also of more classes than a matrix can have, where the texts are of few; the absent ones are named."""
    names = tuple({3: "سؤال!", 7: "a < b"}.get(number, f"class {number}") for number in range(150))
    page = render_report("x", of_many_classes(classifier, [3, 3, 149], [3, 7, 149], names))
    matrix = page.partition('<table class="sortable matrix"')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row" title="(.*?)"', matrix) == [
        "سؤال!",
        "a &lt; b",
        "class 149",
    ]
    # Names are isolated from what is beside them: in heads by elements, in titles by characters.
    assert re.findall(r"<th[^>]*><bdi>(.*?)</bdi></th>", matrix) == 2 * [
        "سؤال!",
        "a &lt; b",
        "class 149",
    ]
    assert 'title="\u2068سؤال\u2069!, taken for a &lt; b: 1">1</td>' in matrix
    assert "147 classes are left out, since they occur neither as label nor as answer here" in page


@pytest.mark.parametrize(
    ("classes", "drawn"), [(LARGEST_MATRIX, True), (LARGEST_MATRIX + 1, False)]
)
def test_of_many_classes_the_page_names_the_confused_pairs_instead_of_a_matrix(
    classifier, classes, drawn
):
    """A matrix of a thousand classes would have a million cells: 65 MB that nobody could read."""
    labels = np.arange(classes)
    names = tuple(f"class {number}" for number in range(classes))
    report = of_many_classes(classifier, labels, (labels + (labels % 2)) % classes, names)
    page = render_report("many", report)
    assert (report.metrics.confusion_matrix is not None) == drawn
    assert ('<table class="sortable matrix"' in page) == drawn
    assert ("class 1, taken for class 2: 1" in page) == drawn
    assert (f"{classes} classes are more than the {LARGEST_MATRIX}" in page) != drawn
    assert len(page) < 1_500_000
    assert {"label": "class 1", "prediction": "class 2", "count": 1} in report.to_dict()[
        "most_confused"
    ]


def test_classes_are_listed_worst_first(classifier):
    """By F1; those without a text, whose scores mean nothing, come last; bars are as long as their numbers."""
    weather, sport = (classifier.label_names.index(name) for name in ("weather", "sport"))
    split = split_of(["rain and snow", "ball goal team", "rain and snow"], [weather, sport, sport])
    page = render_report("x", evaluate(classifier, split, name="test"))
    table = page.partition('<table class="sortable full scores">')[2].partition("</table>")[0]
    assert re.findall("<tr><td><bdi>(.*?)</bdi></td>", table) == ["sport", "weather", "küche"]
    assert all(
        bar == number
        for bar, number in re.findall('class="bar" style="--v:(.*?)">(.*?)</td>', table)
    )


def test_the_page_has_what_was_measured(classifier):
    """Numbers of the metrics, each class, each mistake, and no address of anything outside the page."""
    split = split_of(
        ["rain and snow", "ball goal team", "soup bread", HOSTILE, "\x00\ud800\x1b[31m", ""]
    )
    report = evaluate(classifier, split, name="test")
    report = replace(report, linear_reference=REFERENCE | {"of_texts": 9000})
    page = render_report("a report", report)
    assert (
        "TF-IDF baseline (linear SVM, trained on 9 of 9,000 texts): accuracy 1.0000 [0.400, 0.800]"
        in page
    )
    assert f"{report.metrics.accuracy:.1%}" in page
    assert all(f"<td><bdi>{name}</bdi></td>" in page for name in classifier.label_names)
    assert page.count("<script") == 1
    assert not re.search(r"(src|href)=.?https?:", page)
    assert all(c.isprintable() or c in "\n\t" for c in page)
    wrong = len(report.answered.mistakes)
    assert len(report.worst_errors) == wrong
    assert page.count("f.csv:") == wrong
    assert (
        f'{wrong} of 6 texts get another answer than their label. All are in <a href="mistakes.csv">'
        in page
    )
    assert '(<a href="doubtful_labels.csv">' in page
    assert render_report("a report", report) == page


def test_mistakes_are_on_the_page_with_their_labels(classifier):
    """Also a label that never occurs in training; without mistakes the page says so."""
    texts, labels = ["rain and snow", "ball goal team", "an opera"], [2, 1, 3]
    report = evaluate(classifier, split_of(texts, labels, unseen_names=("music",)), name="test")
    assert [error.labelled for error in report.worst_errors] == [("music",)]
    assert "<td><bdi>music</bdi></td>" in render_report("a report", report)
    right = evaluate(classifier, split_of(texts[:1], labels[:1]), name="x")
    assert "There are none." in render_report("a report", right)
