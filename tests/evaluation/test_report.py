"""Reports: thresholds that keep what they promise, and HTML in which nothing of a stranger's runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.data.split import Split
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.metrics import CALIBRATION_BINS, calibration_bins
from encoder_cls.evaluation.page import render_report
from encoder_cls.evaluation.report import FEWEST_ANSWERS, WANTED_ACCURACY, suggest_threshold
from encoder_cls.inference.task import softmax

HOSTILE = '<script>document.title="x"</script><img src=x onerror="alert(1)">"&\'{{ 7 * 7 }}'

REFERENCE = {"accuracy": 1.0, "macro_f1": 1.0, "texts": 7, "of_texts": 9000, "features": 5, "of_features": 5}
REFERENCE |= {"accuracy_interval": (0.4, 0.8), "macro_f1_interval": (0.4, 0.8)}


def split_of(classifier, texts, label=0) -> Split:
    labels = np.full(len(texts), label)
    return Split(texts=texts, labels=labels, where=[f"file.csv:{number}" for number in range(len(texts))])


@settings(deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(0.2, 1) | st.sampled_from([0.25, 0.5, 0.9996, 1.0]), st.sampled_from([True] * 9 + [False])),
        min_size=15,
    )
)
def test_the_suggested_threshold_is_the_lowest_that_keeps_its_promise(answers):
    """Compared with trying every one that can be shown; as it is shown, it is kept to, and leaves an answer."""
    confidence, correct = np.array([c for c, _ in answers]), np.array([right for _, right in answers])
    found = suggest_threshold(confidence, correct)
    answered = [(step / 1000, correct[confidence >= step / 1000]) for step in range(1000)]
    keeping = [step for step, right in answered if len(right) >= FEWEST_ANSWERS and right.mean() >= WANTED_ACCURACY]
    assert found == (keeping[0] if keeping else None)
    assert found is None or float(f"{found:.3f}") == found


def test_bins_of_calibration_count_every_answer():
    """By hand: the bin of each confidence, their means, their right ones."""
    confidence, correct = np.array([0.01, 0.5, 0.51, 1.0]), np.array([False, True, False, True])
    bins = calibration_bins(confidence, correct)
    middle = int(0.5 * CALIBRATION_BINS)
    assert sum(bins.texts) == 4
    assert (bins.texts[0], bins.texts[middle], bins.texts[-1]) == (1, 2, 1)
    assert bins.accuracy[middle] == 0.5
    assert bins.confidence[middle] == pytest.approx(0.505)


def test_a_report_says_what_was_measured(classifier):
    """Numbers of the metrics, each class, each mistake, and no address of anything outside the page."""
    texts = ["rain and snow", "ball goal team", "soup bread", HOSTILE, "\x00\ud800\x1b[31m", ""]
    split = split_of(classifier, texts)
    report, logits = evaluate(classifier, split, name="test", reference=REFERENCE)
    page = render_report("a report", report, split, logits)
    assert "A linear model on TF-IDF, trained on 7 of 9,000 texts: 100.0% (40.0 to 80.0%)." in page
    assert f"{report.metrics.accuracy:.1%}" in page
    assert all(f"<td>{name}</td>" in page for name in classifier.label_names)
    assert page.count("<script") == 1
    assert not re.search(r"(src|href)=.?https?:", page)
    assert all(c.isprintable() or c in "\n\t" for c in page)
    wrong = (softmax(logits).argmax(axis=1) != 0).sum()
    assert len(report.worst_errors) == wrong
    assert page.count("file.csv:") == wrong
    assert f'{wrong} of 6 texts get another answer than their label. All are in <a href="mistakes.csv">' in page
    assert render_report("a report", report, split, logits) == page


def test_a_report_without_mistakes_or_of_one_text_can_be_drawn(classifier):
    """All right, or a single text: there is a page all the same."""
    label = classifier.label_names.index("weather")
    split = split_of(classifier, ["rain and snow and wind"], label)
    report, logits = evaluate(classifier, split, name="x", reference=None)
    assert report.worst_errors == []
    assert "There are none." in render_report("a report", report, split, logits)


def test_errors_are_explained_for_the_class_that_was_answered(classifier):
    """The words of a mistake, each with what it did."""
    label = classifier.label_names.index("sport")
    split = split_of(classifier, ["rain and snow"], label)
    report, _ = evaluate(classifier, split, name="x", reference=None)
    (error,) = report.worst_errors
    assert error.prediction == "weather"
    assert [word.word for word in error.words] == ["rain", "and", "snow"]
    assert max(error.words, key=lambda word: word.weight).word in {"rain", "snow"}


def test_a_text_whose_label_training_never_showed_stands_in_the_report(classifier):
    """It is a mistake like another, its label named, and the page says what it counts in."""
    texts = ["rain and snow", "ball goal team", "an opera"]
    split = Split(texts=texts, labels=np.array([2, 1, 3]), where=["f:1", "f:2", "f:3"], unseen_names=("music",))
    report, logits = evaluate(classifier, split, name="test", reference=REFERENCE)
    assert report.metrics.accuracy == pytest.approx(2 / 3)
    assert [error.label for error in report.worst_errors] == ["music"]
    page = render_report("a report", report, split, logits)
    assert "<td>music</td>" in page
    assert "1 text has a label that never occurs in the training data" in page
