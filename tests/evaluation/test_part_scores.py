"""What each part of a classifier scores alone, what the encoder adds, and in which words a person is told."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from encoder_cls.data.split import Split
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.scores import Comparison, macro_f1_interval, paired_interval, score_parts, wilson_interval
from encoder_cls.inference.classifier import Classifier

TEXTS = ["rain and snow", "ball goal team", "soup bread", "the of", "storm", "salt ball", "a goal"]


@pytest.fixture
def report(classifier) -> Report:
    labels = np.array([2, 1, 0, 0, 2, 0, 2])
    split = Split(texts=TEXTS, labels=labels, where=[f"f:{i}" for i in range(len(TEXTS))])
    return evaluate(classifier, split, name="test", reference=None)[0]


def one_hot(answers: list[int]) -> np.ndarray:
    return np.eye(3, dtype=np.float32)[answers]


def test_each_part_is_scored_by_its_own_answers():
    """By hand: of eight texts the sum gets six right, the linear one four, the encoder five."""
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    combined, linear, encoder = [0, 1, 2, 0, 1, 2, 1, 0], [0, 1, 2, 1, 0, 0, 0, 0], [0, 1, 2, 0, 1, 0, 1, 0]
    parts = {"encoder": one_hot(encoder), "linear": one_hot(linear)}
    scores, comparison = score_parts(one_hot(combined), parts, labels)
    assert {name: score.accuracy for name, score in scores.items()} == {
        "combined": 6 / 8,
        "linear": 4 / 8,
        "encoder": 5 / 8,
    }
    for name, answers in (("combined", combined), ("linear", linear), ("encoder", encoder)):
        assert scores[name].accuracy_interval == wilson_interval(round(8 * scores[name].accuracy), 8)
        assert scores[name].macro_f1 == pytest.approx(f1_score(labels, answers, average="macro"))
        assert scores[name].macro_f1_interval == macro_f1_interval(labels, np.array(answers))
    assert comparison == Comparison(combined_minus_linear=2 / 8, interval=paired_interval(3, 1, 8), is_sure=False)


@pytest.mark.parametrize(("better", "worse", "is_sure"), [(30, 3, True), (3, 30, True), (30, 28, False)])
def test_a_difference_is_sure_where_its_interval_is_on_one_side(better, worse, is_sure):
    """Whichever is the better one."""
    labels = np.zeros(100, dtype=np.int64)
    combined = np.repeat([0, 1, 0], [better, worse, 100 - better - worse])
    linear = np.repeat([1, 0, 0], [better, worse, 100 - better - worse])
    _, comparison = score_parts(one_hot(combined), {"encoder": one_hot(linear), "linear": one_hot(linear)}, labels)
    assert comparison.is_sure == is_sure
    assert comparison.combined_minus_linear == pytest.approx((better - worse) / 100)


def test_a_part_that_is_alone_is_compared_with_nothing():
    """Its scores are those of the classifier."""
    scores, comparison = score_parts(one_hot([0, 1]), {"linear": one_hot([0, 1])}, np.array([0, 0]))
    assert scores["combined"] == scores["linear"]
    assert scores.keys() == {"combined", "linear"}
    assert comparison is None


def test_parts_of_a_classifier_are_what_each_would_answer_alone(classifier, report):
    """As classifiers of one part."""
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
        assert report.parts[name].accuracy == np.mean(np.array(answers) == [2, 1, 0, 0, 2, 0, 2])
    assert report.parts["combined"].accuracy == report.metrics.accuracy
    assert report.parts["combined"].macro_f1 == report.metrics.macro_f1
    assert report.mixture_shares.keys() == {"encoder", "linear"}
    assert sum(report.mixture_shares.values()) == pytest.approx(1)


def test_the_json_has_the_keys_that_are_promised(report):
    """Intervals are lists of two numbers."""
    values = json.loads(json.dumps(report.to_dict()))
    assert values["parts"].keys() == {"combined", "linear", "encoder"}
    for part in values["parts"].values():
        assert part.keys() == {"accuracy", "accuracy_interval", "macro_f1", "macro_f1_interval"}
        low, high = part["accuracy_interval"]
        assert low <= part["accuracy"] <= high
    assert values["accuracy_interval"] == values["parts"]["combined"]["accuracy_interval"]
    assert values["comparison"].keys() == {"combined_minus_linear", "interval", "is_sure"}
    assert replace(report, comparison=None).to_dict()["comparison"] is None
