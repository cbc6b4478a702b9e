"""Scores of classifiers and their parts: intervals of other libraries and of known cases, and sentences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import f1_score
from support.reports import split_of

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.evaluation.intervals import (
    Comparison,
    compare_answers,
    macro_f1_interval,
    micro_f1_interval,
    paired_interval,
    score_parts,
    wilson_interval,
)
from encoder_cls.evaluation.report import evaluate
from encoder_cls.metrics.classification import ClassCounts

LABELS = np.arange(200) % 3
TEXTS = ["rain and snow", "ball goal team", "soup bread", "the of", "storm", "salt ball", "a goal"]


@pytest.mark.parametrize(
    ("right", "total"), [(0, 1), (0, 10), (10, 10), (7, 9), (352, 374), (1, 100_000)]
)
def test_the_interval_of_a_fraction_is_scipy_s(right, total):
    """Wilson's; the fraction is always within."""
    low, high = wilson_interval(right, total)
    assert (low, high) == pytest.approx(
        tuple(binomtest(right, total).proportion_ci(method="wilson")), abs=1e-6
    )
    assert 0 <= low <= right / total <= high <= 1


def test_the_interval_of_a_difference_by_hand():
    """Agresti and Min: half a text more in each of the four cells."""
    low, high = paired_interval(9, 3, 98)
    center, spread = 0.06, 1.959964 * np.sqrt(13 - 36 / 100) / 100
    assert (low, high) == pytest.approx((center - spread, center + spread))
    assert paired_interval(3, 9, 98) == pytest.approx((-high, -low))
    assert paired_interval(0, 0, 10**6) == pytest.approx((0, 0), abs=1e-5)


def example(texts: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    labels = random.integers(0, classes, texts)
    return labels, np.where(
        random.random(texts) < 0.8, labels, random.integers(0, classes + 1, texts)
    )


def test_the_interval_of_macro_f1_is_that_of_texts_drawn_again():
    """As a plain bootstrap of rows, scored by scikit-learn, within what 1,000 samples leave to chance."""
    labels, predictions = example(300, 11)
    draws = np.random.default_rng(2).integers(0, 300, (200, 300))
    scores = [
        f1_score(labels[rows], predictions[rows], average="macro", zero_division=0)
        for rows in draws
    ]
    expected = np.quantile(scores, [0.025, 0.975])
    found = macro_f1_interval(labels, predictions)
    assert found == pytest.approx(expected, abs=0.15 * (expected[1] - expected[0]))
    assert macro_f1_interval(labels, predictions) == found
    assert macro_f1_interval(labels, labels) == (1, 1)


def test_the_interval_of_micro_f1_is_that_of_texts_drawn_again():
    """About two standard errors of a bootstrap wide; equal answers differ by nothing."""
    random = np.random.default_rng(0)
    labels = (random.random((300, 5)) < [0.4, 0.2, 0.05, 0, 0.02]).astype(np.int8)
    answers = labels + random.normal(size=(300, 5)) > 0.8
    drawn = [random.integers(300, size=300) for _ in range(300)]
    expected = np.quantile(
        [ClassCounts.of(answers[rows], labels[rows]).micro_f1 for rows in drawn], [0.025, 0.975]
    )
    assert micro_f1_interval(labels, answers) == pytest.approx(expected, abs=0.01)
    assert micro_f1_interval(labels, answers, answers) == (0, 0)
    parts, comparison = score_parts(
        {"combined": answers, "linear": ~answers, "encoder": answers}, labels
    )
    assert comparison.is_sure
    assert score_parts({"combined": ~answers, "linear": answers, "encoder": answers}, labels)[
        1
    ].is_sure
    assert (
        comparison.combined_minus_linear
        == parts["combined"]["micro_f1"] - parts["linear"]["micro_f1"]
        > 0.3
    )


def test_each_part_is_scored_by_its_own_answers():
    """By hand: of eight texts the sum gets six right, the linear one four, the encoder five."""
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    combined, linear, encoder = (
        [0, 1, 2, 0, 1, 2, 1, 0],
        [0, 1, 2, 1, 0, 0, 0, 0],
        [0, 1, 2, 0, 1, 0, 1, 0],
    )
    answers_of = {
        "combined": np.array(combined),
        "linear": np.array(linear),
        "encoder": np.array(encoder),
    }
    scores, comparison = score_parts(answers_of, labels)
    assert {name: 8 * score["accuracy"] for name, score in scores.items()} == {
        "combined": 6,
        "linear": 4,
        "encoder": 5,
    }
    for name, answers in answers_of.items():
        assert scores[name]["accuracy_interval"] == wilson_interval(
            round(8 * scores[name]["accuracy"]), 8
        )
        assert scores[name]["macro_f1"] == pytest.approx(f1_score(labels, answers, average="macro"))
        assert scores[name]["macro_f1_interval"] == macro_f1_interval(labels, answers)
    assert comparison == Comparison(
        combined_minus_linear=2 / 8, interval=paired_interval(3, 1, 8), is_sure=False
    )
    del answers_of["encoder"]
    assert score_parts(answers_of, labels)[1] is None


def test_parts_of_a_classifier_answer_as_each_would_alone(classifier):
    labels = [2, 1, 0, 0, 2, 0, 2]
    report = evaluate(classifier, split_of(TEXTS, labels), name="test")
    assert list(report.parts) == ["combined", "linear", "encoder"]
    for name in ("linear", "encoder"):
        alone = Classifier(
            classifier.encoder if name == "encoder" else None,
            classifier.tokenizer,
            classifier.label_names,
            max_seq_len=classifier.max_seq_len,
            linear=classifier.linear if name == "linear" else None,
        )
        answers = [classifier.label_names.index(it.label) for it in alone.predict(TEXTS)]
        assert report.parts[name]["accuracy"] == np.mean(np.array(answers) == labels)
    assert (report.scores["accuracy"], report.scores["macro_f1"]) == (
        report.metrics.accuracy,
        report.metrics.macro_f1,
    )
    assert sum(report.mixture_shares.values()) == pytest.approx(1)


def answers(right: int, *, skip: int = 0) -> np.ndarray:
    """Answers of which so many are right, from the text with this number on."""
    found = (LABELS + 1) % 3
    found[skip : skip + right] = LABELS[skip : skip + right]
    return found


def test_the_numbers_are_those_of_the_texts_on_which_one_is_right():
    """By hand: the other alone is right 20 times, the first 5; p of a fair coin that shows 5, or 20, or further out."""
    this, other = answers(100), answers(115, skip=5)
    found = compare_answers(LABELS, this, other, run="b")
    assert (found.only_this, found.only_other) == (5, 20)
    assert found.accuracy_difference == pytest.approx(15 / 200)
    assert found.scores["accuracy"] == pytest.approx(115 / 200)
    assert found.p_value == pytest.approx(2 * 68406 / 2**25)  # sum of C(25, k), k up to 5
    low, high = found.accuracy_difference_interval
    assert 0 < low < 15 / 200 < high
    of_both = [f1_score(LABELS, it, average="macro") for it in (this, other)]
    assert found.macro_f1_difference == pytest.approx(of_both[1] - of_both[0])
    low, high = found.macro_f1_difference_interval
    assert low < found.macro_f1_difference < high
    keys = {"run", "accuracy", "accuracy_interval", "macro_f1", "accuracy_difference", "p_value"}
    assert found.to_dict().keys() >= keys


def test_sentences_follow_the_interval():
    """Better, worse, or no sure difference; a worse one has the signs of what it is worse by."""
    this, other = answers(100), answers(115, skip=5)
    better, worse = (
        compare_answers(LABELS, *pair, run="b").sentences()
        for pair in ((this, other), (other, this))
    )
    assert better[0].startswith("b is better by 7.5 points of accuracy, 95% interval 2.")
    assert worse[0].startswith("b is worse by 7.5 points of accuracy, 95% interval 2.")
    assert "20 texts it alone gets right, 5 it alone gets wrong" in better[0]
    assert "p = 0.004" in better[0]
    assert better[1].startswith("b is better by ")
    unsure, same = (
        compare_answers(LABELS, this, answers(right), run="b").sentences() for right in (101, 100)
    )
    assert unsure[0].startswith(
        "no sure difference: b is better by 0.5 points of accuracy, 95% interval -"
    )
    assert same[0].startswith("no sure difference: 0.0 points of accuracy, 95% interval -")
    assert "p = 1.000" in same[0]


def test_pairs_show_more_than_two_intervals():
    """The interval of a difference of like answers is narrower than either's own; of equal answers it is nothing."""
    labels, first = example(400, 4)
    second = np.where(np.random.default_rng(1).random(400) < 0.03, labels, first)
    low, high = macro_f1_interval(labels, second, first)
    own_low, own_high = macro_f1_interval(labels, first)
    assert high - low < (own_high - own_low) / 2
    assert macro_f1_interval(labels, first, first) == (0, 0)
    assert macro_f1_interval(labels, first, second) == pytest.approx((-high, -low), abs=0.003)
