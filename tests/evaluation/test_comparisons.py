"""Scores of parts, and paired comparisons: numbers known by hand, and their sentences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score
from support.reports import split_of

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.evaluation.changes_since_base import ChangedPrediction, ChangesSinceBase
from encoder_cls.evaluation.comparisons import (
    PartComparison,
    compare_predictions,
    score_parts,
)
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.metrics.intervals import macro_f1_interval, paired_interval, wilson_interval
from encoder_cls.metrics.row_groups import RowGroups

LABELS = np.arange(200) % 3
TEXTS = ["rain and snow", "ball goal team", "soup bread", "the of", "storm", "salt ball", "a goal"]


def test_each_part_is_scored_by_its_own_predictions():
    """Of eight texts, both together get six right, the linear model four, the encoder five."""
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    predictions = {
        "combined": np.array([0, 1, 2, 0, 1, 2, 1, 0]),
        "linear": np.array([0, 1, 2, 1, 0, 0, 0, 0]),
        "encoder": np.array([0, 1, 2, 0, 1, 0, 1, 0]),
    }

    scores, comparison = score_parts(predictions, labels, RowGroups.single(len(labels)))

    for part, num_right in (("combined", 6), ("linear", 4), ("encoder", 5)):
        macro_f1 = f1_score(labels, predictions[part], average="macro")
        assert scores[part]["accuracy"] == num_right / 8
        assert scores[part]["accuracy_interval"] == wilson_interval(num_right, 8)
        assert scores[part]["macro_f1"] == pytest.approx(macro_f1)
        assert scores[part]["macro_f1_interval"] == macro_f1_interval(
            labels, predictions[part], RowGroups.single(8)
        )

    # Three texts are right only together, one only with the linear model alone.
    assert comparison == PartComparison(
        combined_minus_linear=2 / 8, interval=paired_interval(3, 1, 8), is_sure=False
    )


def test_one_part_alone_is_not_compared():
    labels = np.array([0, 1, 2])

    _, comparison = score_parts(
        {"combined": labels, "linear": labels}, labels, RowGroups.single(len(labels))
    )

    assert comparison is None


def test_parts_with_several_labels_are_compared_by_micro_f1():
    """A difference is sure in both directions."""
    random = np.random.default_rng(0)
    labels = (random.random((300, 5)) < [0.4, 0.2, 0.05, 0, 0.02]).astype(np.int8)
    good = labels + random.normal(size=(300, 5)) > 0.8

    scores, better = score_parts(
        {"combined": good, "linear": ~good, "encoder": good}, labels, RowGroups.single(len(labels))
    )
    difference = scores["combined"]["micro_f1"] - scores["linear"]["micro_f1"]
    assert better.combined_minus_linear == difference > 0.3
    assert better.is_sure

    _, worse = score_parts(
        {"combined": ~good, "linear": good, "encoder": good}, labels, RowGroups.single(len(labels))
    )
    assert worse.combined_minus_linear == -difference
    assert worse.is_sure


def test_parts_of_a_classifier_predict_as_each_would_alone(classifier):
    labels = [2, 1, 0, 0, 2, 0, 2]
    evaluation = evaluate_split(classifier, split_of(TEXTS, labels), name="test")
    assert list(evaluation.parts) == ["combined", "linear", "encoder"]

    for part in ("linear", "encoder"):
        alone = Classifier(
            None,
            classifier.tokenizer,
            classifier.label_names,
            max_seq_len=classifier.max_seq_len,
        )
        setattr(alone, part, getattr(classifier, part))
        predictions = alone.predict(TEXTS)
        classes = [classifier.label_names.index(prediction.label) for prediction in predictions]
        assert evaluation.parts[part]["accuracy"] == np.mean(np.array(classes) == labels)

    assert evaluation.scores["accuracy"] == evaluation.metrics.accuracy
    assert evaluation.scores["macro_f1"] == evaluation.metrics.macro_f1
    assert sum(evaluation.mixture_shares.values()) == pytest.approx(1)


def predictions_right_on(num_right: int, *, first: int = 0) -> np.ndarray:
    """Predictions that are correct for `num_right` texts from the text `first` on."""
    predictions = (LABELS + 1) % 3
    predictions[first : first + num_right] = LABELS[first : first + num_right]
    return predictions


def test_a_comparison_counts_the_texts_on_which_one_alone_is_right():
    """The other classifier alone is right on 20 texts, the report's classifier alone on 5."""
    this = predictions_right_on(100)
    other = predictions_right_on(115, first=5)
    found = compare_predictions(LABELS, this, other, RowGroups.single(len(LABELS)), run="b")

    assert found.only_this == 5
    assert found.only_other == 20
    assert found.difference == pytest.approx(15 / 200)
    assert found.scores["accuracy"] == pytest.approx(115 / 200)

    # Of 25 tosses of a fair coin, 5 or fewer heads or tails: 68406 is the sum of C(25, 0..5).
    assert found.p_value == pytest.approx(2 * 68406 / 2**25)

    low, high = found.difference_interval
    assert 0 < low < 15 / 200 < high

    other_macro_f1 = f1_score(LABELS, other, average="macro")
    this_macro_f1 = f1_score(LABELS, this, average="macro")
    assert found.macro_f1_difference == pytest.approx(other_macro_f1 - this_macro_f1)
    low, high = found.macro_f1_difference_interval
    assert low < found.macro_f1_difference < high

    keys = {"run", "accuracy", "accuracy_interval", "macro_f1", "accuracy_difference", "p_value"}
    assert found.to_dict().keys() >= keys


def test_equal_predictions_have_a_p_value_of_1():
    predictions = predictions_right_on(100)
    assert (
        compare_predictions(
            LABELS, predictions, predictions, RowGroups.single(len(LABELS)), run="b"
        ).p_value
        == 1
    )


def test_a_comparison_says_which_classifier_is_better():
    """If the other classifier is worse, the difference and its interval change their signs."""
    this = predictions_right_on(100)
    other = predictions_right_on(115, first=5)

    accuracy, macro_f1 = compare_predictions(
        LABELS, this, other, RowGroups.single(len(LABELS)), run="b"
    ).sentences()
    assert accuracy.startswith("b is better by 7.5 points of accuracy, 95% interval 2.")
    assert "p = 0.004; it alone is right on 20 texts, wrong on 5" in accuracy
    assert macro_f1.startswith("b is better by ")

    accuracy, _ = compare_predictions(
        LABELS, other, this, RowGroups.single(len(LABELS)), run="b"
    ).sentences()
    assert accuracy.startswith("b is worse by 7.5 points of accuracy, 95% interval 2.")


def test_a_comparison_says_where_a_difference_is_not_sure():
    this = predictions_right_on(100)

    accuracy, _ = compare_predictions(
        LABELS, this, predictions_right_on(101), RowGroups.single(len(LABELS)), run="b"
    ).sentences()
    expected = "no sure difference: b is better by 0.5 points of accuracy, 95% interval -"
    assert accuracy.startswith(expected)

    accuracy, _ = compare_predictions(
        LABELS, this, this, RowGroups.single(len(LABELS)), run="b"
    ).sentences()
    assert accuracy.startswith("no sure difference: 0.0 points of accuracy, 95% interval -")
    assert "p = 1.000" in accuracy


def test_several_labels_are_compared_by_micro_f1_and_whole_texts():
    """A label that only the other classifier knows is a column of its predictions alone."""
    random = np.random.default_rng(0)
    labels = random.random((300, 3)) < [0.5, 0.3, 0.1]
    this = labels ^ (random.random(labels.shape) < 0.2)
    other = np.pad(labels, ((0, 0), (0, 1)))
    other[:10, 3] = True

    found = compare_predictions(labels, this, other, RowGroups.single(len(labels)), run="b")

    is_right = (this == labels).all(axis=1)
    assert found.only_other == (~is_right[10:]).sum()
    assert found.only_this == is_right[:10].sum()

    num_labels = labels.sum()
    assert found.scores["micro_f1"] == pytest.approx(2 * num_labels / (2 * num_labels + 10))
    this_micro_f1 = f1_score(labels, this, average="micro")
    assert found.difference == pytest.approx(found.scores["micro_f1"] - this_micro_f1)

    values = found.to_dict()
    assert values["micro_f1_difference"] == found.difference
    assert "accuracy_difference" not in values

    micro_f1, macro_f1 = found.sentences()
    assert "points of micro-F1" in micro_f1
    assert "(randomization test: p < 0.001; it alone is right in all labels on " in micro_f1
    assert "points of macro-F1" in macro_f1


def test_changed_predictions_are_counted_by_what_became_of_them():
    """They are fixed, broken or wrong in both. The classes whose recall fell are named."""
    changed = [
        ChangedPrediction(where="f.csv:2", text="x", label="a", before="b", now="a"),
        ChangedPrediction(where="f.csv:3", text="y", label="a", before="a", now="b"),
        ChangedPrediction(where="f.csv:4", text="z", label="a", before="c", now="b"),
        ChangedPrediction(where="f.csv:5", text="z", label="c", before="a", now="c"),
    ]
    predictions = ChangesSinceBase(
        split="test",
        num_texts=2000,
        comparison=compare_predictions(
            LABELS, LABELS, LABELS, RowGroups.single(len(LABELS)), run="runs/base"
        ),
        changed=changed,
        lost_recall={f"class {number}": (0.9, 0.5) for number in range(6)},
    )
    changes, accuracy, recall = predictions.sentences()

    expected = "4 predictions differ: 2 fixed, 1 broken, 1 wrong in both"
    assert changes == f"on 2,000 texts of the test split of runs/base, {expected}"
    assert accuracy.startswith("no sure difference: ")
    assert recall.startswith("recall fell: class 0 0.900 to 0.500, class 1 ")
    assert recall.endswith("class 4 0.900 to 0.500, …")
