"""The page: it shows what was counted, and runs nothing of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from support.reports import BASELINE_SCORES, compared, report_of, report_on, said, split_of

from encoder_cls.evaluation.findings import Kind
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_page import render_report
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.metrics.classification import MAX_MATRIX_CLASSES, compute_metrics

HOSTILE = '<script>document.title="x"</script><img src=x onerror="alert(1)">"&\'{{ 7 * 7 }}'


def report_of_predictions(
    classifier, labels: Sequence[int], predictions: Sequence[int], names: tuple[str, ...]
) -> Report:
    """A report of these labels and predictions, each of a text with one word."""
    split = split_of(["x"] * len(labels), labels)
    logits = np.eye(len(names), dtype=np.float32)[predictions] * 9
    evaluation = replace(
        evaluate_split(classifier, split_of(["rain"]), name="test"),
        predictions=SplitPredictions(name="test", split=split, logits=logits, label_names=names),
        metrics=compute_metrics(logits, split.labels, names),
        worst_mistakes=[],
    )
    return Report(evaluation=evaluation)


def table_of(page: str, css_class: str) -> str:
    """The HTML of the table with this class."""
    start = page.index(f'<table class="{css_class}"')
    return page[start : page.index("</table>", start)]


def test_the_summary_comes_first(classifier):
    report = report_on(classifier, split_of(["rain and snow"]))

    page = render_report("x", report, config_yaml="seed: <0>\n", written=date(2026, 3, 9))

    low, high = report.evaluation.scores["accuracy_interval"]
    assert f"{low:.4f} to {high:.4f}" in page
    assert "9 March 2026" in page
    assert "seed: &lt;0&gt;" in page
    sections = re.findall(r'<(?:section|h2) id="(\w+)"', page)
    assert sections == [
        "summary",
        "figures",
        "mistakes",
        "classes",
        "words",
        "confusion",
        "trust",
        "config",
    ]


def test_the_first_screen_is_plain(classifier):
    """It names no metric, and repeats no accuracy; both are among the figures."""
    report = report_of(classifier, **compared(0.015, is_sure=False))

    page = render_report("x", report)

    first_screen = page[page.index('id="summary"') : page.index('id="figures"')]
    assert report.metrics.accuracy not in (0, 1)
    assert first_screen.count(f"{report.metrics.accuracy:.0%}") == 1
    for jargon in ("accuracy", "F1", "interval", "calibration", "encoder alone"):
        assert jargon not in first_screen
        assert jargon in page.lower() or jargon in page


def test_the_page_says_what_the_encoder_adds(classifier):
    """In words and in the table of scores; a classifier with one part has no such sentence."""
    both_parts = report_of(classifier, **compared(0.015, is_sure=False))
    one_part = report_of(classifier, part_comparison=None)

    with_both = render_report("x", both_parts)
    with_one = render_report("x", one_part)

    sentence = said(both_parts, Kind.ENCODER_GAIN)
    assert "the encoder has most of the weight (70%)" in sentence
    for words in (sentence, "<bdi>both together</bdi>", "Is the encoder worth it?"):
        assert words in with_both
        assert words not in with_one


def test_the_table_of_scores_begins_with_the_classifier(classifier):
    """Then its parts and the baseline, each with the same scores and their intervals."""
    report = report_of(classifier, baseline_scores=BASELINE_SCORES)
    scores = report.evaluation.scores

    page = render_report("x", report)

    table = page[page.index("<table>") : page.index("</table>")]
    assert re.findall("<th>(.*?)</th>", table) == ["test", "accuracy", "macro-F1"]
    names = ["both together", "linear alone", "encoder alone", "TF-IDF baseline (linear SVM)"]
    assert re.findall("<tr>\\n<td><bdi>(.*?)</bdi></td>", table) == names
    low, high = scores["accuracy_interval"]
    cell = f'<td>{scores["accuracy"]:.4f}<br><span class="note nowrap">{low:.4f} to {high:.4f}<'
    assert cell in table
    assert '<td>1.0000<br><span class="note nowrap">0.4000 to 0.8000</span></td>' in table


def test_the_table_of_scores_has_one_row_for_a_single_part(classifier):
    page = render_report("x", report_of(classifier, part_comparison=None))

    table = page[page.index("<table>") : page.index("</table>")]
    assert re.findall("<tr>\\n<td><bdi>(.*?)</bdi></td>", table) == ["this model"]


def test_the_matrix_has_every_class_that_occurs_and_no_other(classifier):
    """Also of more classes than a matrix can have, if few occur; the absent ones are named."""
    names = [f"class {number}" for number in range(150)]
    names[3] = "سؤال!"
    names[7] = "a < b"
    report = report_of_predictions(classifier, [3, 3, 149], [3, 7, 149], tuple(names))

    page = render_report("x", report)

    # Names are isolated from what is beside them: in heads by elements, in titles by characters.
    occurring = ["سؤال!", "a &lt; b", "class 149"]
    matrix = table_of(page, "sortable matrix")
    assert re.findall(r'<th scope="row" title="(.*?)"', matrix) == occurring
    assert re.findall(r"<th[^>]*><bdi>(.*?)</bdi></th>", matrix) == 2 * occurring
    assert 'title="\u2068سؤال\u2069!, taken for a &lt; b: 1">1</td>' in matrix
    left_out = "147 classes are left out, since they occur neither as label nor as prediction here"
    assert left_out in page


@pytest.mark.parametrize(
    ("num_classes", "has_matrix"), [(MAX_MATRIX_CLASSES, True), (MAX_MATRIX_CLASSES + 1, False)]
)
def test_with_many_classes_the_page_names_confused_pairs_instead_of_a_matrix(
    classifier, num_classes, has_matrix
):
    """A matrix of a thousand classes would have a million cells: 65 MB that nobody could read."""
    labels = np.arange(num_classes)
    # Each class with an odd number is taken for the next one.
    predictions = (labels + labels % 2) % num_classes
    names = tuple(f"class {number}" for number in range(num_classes))
    report = report_of_predictions(classifier, labels, predictions, names)

    page = render_report("many", report)

    assert (report.metrics.confusion_matrix is not None) == has_matrix
    assert ('<table class="sortable matrix"' in page) == has_matrix
    assert ("class 1, taken for class 2: 1" in page) == has_matrix
    assert (f"{num_classes} classes are more than the {MAX_MATRIX_CLASSES}" in page) != has_matrix
    assert len(page) < 1_500_000

    pair = {"label": "class 1", "prediction": "class 2", "count": 1}
    assert pair in report.to_dict()["most_confused"]


def test_classes_are_listed_worst_first(classifier):
    """By F1; those without a text, whose scores mean nothing, come last."""
    weather = classifier.label_names.index("weather")
    sport = classifier.label_names.index("sport")
    split = split_of(["rain and snow", "ball goal team", "rain and snow"], [weather, sport, sport])

    page = render_report("x", report_on(classifier, split))

    table = table_of(page, "sortable full scores")
    assert re.findall("<tr>\n<td><bdi>(.*?)</bdi></td>", table) == ["sport", "weather", "küche"]

    # Bars are as long as their numbers.
    bars = re.findall('class="bar" style="--v:(.*?)">(.*?)</td>', table)
    assert len(bars) == 6
    for length, number in bars:
        assert length == number


def test_classes_with_few_texts_come_after_the_others_with_the_reason(classifier):
    """Here the worst F1 is that of a class with 3 texts, and c occurs nowhere."""
    labels = [0] * 3 + [1] * 20 + [2] * 20
    predictions = [1] * 3 + [1] * 15 + [2] * 5 + [2] * 20
    report = report_of_predictions(classifier, labels, predictions, ("few", "b", "a", "c"))

    page = render_report("x", report)

    table = table_of(page, "sortable full scores")
    names = re.findall(r"<tr>\s*<td>(?:<bdi>)?(\w+)", table)
    assert names == ["b", "a", "few", "c"]
    assert "One of them has fewer than 10 texts and comes last" in page


def test_where_all_classes_have_few_texts_the_worst_comes_first(classifier):
    report = report_of_predictions(classifier, [0, 0, 1, 1, 1], [0, 0, 1, 0, 0], ("a", "b"))
    page = render_report("x", report)
    assert re.findall(r"<tr>\s*<td>(?:<bdi>)?(\w+)", table_of(page, "sortable full scores")) == [
        "b",
        "a",
    ]
    assert "come last" not in page


def test_the_first_screen_is_not_repeated_below(classifier):
    """Neither that the model was tuned on these texts nor the calibration error is there twice."""
    split = split_of(["rain and snow", "soup salt"], [0, 1])
    page = render_report("x", report_on(classifier, split, name="validation"))
    assert page.count("tuned on these texts") == 1
    assert page.count("alibration error") == 1


def test_a_text_of_several_mistakes_says_how_many_more_there_are(classifier):
    split = split_of(["rain snow"] * 3, [0, 1, 0])
    page = render_report("x", report_on(classifier, split))
    assert "<br>and 2 more rows with this text" in page


def test_the_page_has_what_was_measured(classifier):
    """Numbers of the metrics, each class, each mistake."""
    split = split_of(["rain and snow", "ball goal team", "soup bread", HOSTILE, ""])
    evaluation = evaluate_split(classifier, split, name="test")
    report = Report(evaluation=evaluation, baseline_scores=BASELINE_SCORES | {"of_texts": 9000})

    page = render_report("a report", report)

    baseline = "<bdi>TF-IDF baseline (linear SVM, trained on 9 of 9,000 texts)</bdi></td>"
    assert f"{baseline}\n<td>1.0000" in page
    assert f"<td>{report.metrics.accuracy:.4f}" in page
    for name in classifier.label_names:
        assert f"<td><bdi>{name}</bdi></td>" in page

    num_wrong = len(evaluation.predictions.mistakes)
    assert len(evaluation.worst_mistakes) == num_wrong
    assert page.count(">f.csv</bdi><wbr>") == num_wrong
    count = f"{num_wrong} of 5 texts get another prediction than their label.\nAll are in\n"
    assert f'{count}<a href="mistakes.csv">' in page
    assert '(<a href="doubtful_labels.csv">' in page


def test_the_page_names_the_words_of_each_class(classifier):
    """They are in `report.json`, too; without a linear model there is no such section."""
    report = report_on(classifier, split_of([f"rain and snow {HOSTILE}"]))
    without_linear = Report(evaluation=replace(report.evaluation, top_features={}))

    page = render_report("x", report)

    section = page[page.index('id="words"') : page.index('id="confusion"')]
    for name in classifier.label_names:
        assert f"<td><bdi>{name}</bdi></td>" in section
        for ngram in report.to_dict()["top_features"][name][:3]:
            assert f'title="{ngram["weight"]:.2f}">' in section
    assert ">rain</bdi>" in section
    assert 'id="words"' not in render_report("x", without_linear)


def test_equal_reports_have_equal_pages(classifier):
    report = report_of(classifier)

    assert render_report("a report", report) == render_report("a report", report)


def test_the_page_runs_nothing_of_a_text(classifier):
    """No script but its own, no address of anything outside, no control characters."""
    split = split_of(["rain and snow", HOSTILE, "\x00\ud800\x1b[31m"])

    page = render_report("a report", report_on(classifier, split))

    assert page.count("<script") == 1
    assert not re.search(r"(src|href)=.?https?:", page)
    for character in page:
        assert character.isprintable() or character in "\n\t"


def test_a_mistake_with_a_label_that_never_occurs_in_training_is_on_the_page(classifier):
    texts = ["rain and snow", "ball goal team", "an opera"]
    split = split_of(texts, [2, 1, 3], unseen_names=("music",))

    report = report_on(classifier, split)

    (mistake,) = report.evaluation.worst_mistakes
    assert mistake.labels == ("music",)
    assert "<td><bdi>music</bdi></td>" in render_report("a report", report)


def test_a_page_without_mistakes_says_so(classifier):
    report = report_on(classifier, split_of(["rain and snow"], [2]))

    assert "There are none." in render_report("a report", report)
