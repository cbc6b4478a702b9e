"""Metrics are compared with other ways to compute the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from encoder_cls.metrics.classification import MAX_CONFUSED, CalibrationBins, compute_metrics
from encoder_cls.metrics.logits import sigmoid, softmax
from encoder_cls.metrics.precision_recall import ClassCounts, average_precisions, best_f1_threshold

NAMES = ("a", "b", "c", "d", "e")

# The labels of a multi-label task: one that no text has, and one that has no logit.
LABEL_NAMES = ("a", "b", "c", "never", "unseen")
# The thresholds of the labels that have a logit.
THRESHOLDS = (0.5, 0.3, 0.6, 0.9)


def random_case() -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of 200 texts. The last class is neither a label nor a prediction."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(200, 5)).astype(np.float32)
    logits[:, 4] = -20
    noise = random.normal(scale=0.9, size=(200, 5))
    return logits, (logits + noise).argmax(axis=1)


def test_metrics_agree_with_scikit_learn():
    """A class that does not occur does not count in macro-F1."""
    logits, labels = random_case()
    predictions = logits.argmax(axis=1)

    metrics = compute_metrics(logits, labels, NAMES)

    accuracy = sklearn_metrics.accuracy_score(labels, predictions)
    macro_f1 = sklearn_metrics.f1_score(labels, predictions, average="macro")
    loss = sklearn_metrics.log_loss(labels, softmax(logits), labels=range(5))
    matrix = sklearn_metrics.confusion_matrix(labels, predictions, labels=range(5))
    assert metrics.num_examples == 200
    assert metrics.accuracy == pytest.approx(accuracy)
    assert metrics.macro_f1 == pytest.approx(macro_f1)
    assert metrics.loss == pytest.approx(loss)
    assert metrics.confusion_matrix == matrix.tolist()


def test_scores_of_classes_agree_with_scikit_learn():
    logits, labels = random_case()
    predictions = logits.argmax(axis=1)

    metrics = compute_metrics(logits, labels, NAMES)

    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(5), zero_division=0
    )
    assert list(metrics.per_class) == list(NAMES)
    for number, name in enumerate(NAMES[:4]):
        scores = metrics.per_class[name]
        assert scores.support == support[number] > 0
        assert scores.precision == pytest.approx(precision[number])
        assert scores.recall == pytest.approx(recall[number])
        assert scores.f1 == pytest.approx(f1[number])


def test_a_class_without_examples_has_no_scores():
    logits, labels = random_case()

    scores = compute_metrics(logits, labels, NAMES).per_class["e"]

    assert scores.support == 0
    assert scores.precision is None
    assert scores.recall is None
    assert scores.f1 is None


@pytest.mark.parametrize(
    ("confidence", "correct", "expected"),
    [
        ([1, 1], [True, True], 0),
        ([0.95, 0.95], [True, False], 0.45),
        ([1, 1, 0.5], [True, True, False], 0.5 / 3),
        ([0.9, 0.6], [False, True], 0.65),
        ([1, 0.95], [False, True], 0.475),
    ],
)
def test_the_calibration_error_of_known_cases(confidence, correct, expected):
    """A confidence of 1 belongs to the last bin. Opposite gaps in different bins do not cancel."""
    bins = CalibrationBins.of(np.array(confidence), np.array(correct))

    assert bins.expected_error == pytest.approx(expected)


def test_the_most_confused_classes_come_first():
    """Only mistakes are listed. Of equally frequent ones, the lower class number comes first."""
    matrix = np.array([[9, 2, 0], [7, 1, 0], [2, 3, 4]])
    every_label, every_prediction = np.indices(matrix.shape).reshape(2, -1)
    labels = every_label.repeat(matrix.ravel())
    predictions = every_prediction.repeat(matrix.ravel())
    logits = np.eye(3, dtype=np.float32)[predictions]

    metrics = compute_metrics(logits, labels, ("x", "y", "z"))

    found = [(pair.label, pair.prediction, pair.count) for pair in metrics.most_confused]
    assert found == [("y", "x", 7), ("z", "y", 3), ("x", "y", 2), ("z", "x", 2)]


def test_at_most_the_maximum_number_of_confused_classes_is_listed():
    labels = np.arange(MAX_CONFUSED + 6)
    logits = np.eye(len(labels), dtype=np.float32)[labels[::-1]]
    names = [str(label) for label in labels]

    metrics = compute_metrics(logits, labels, names)

    assert len(metrics.most_confused) == MAX_CONFUSED


def test_labels_that_training_never_showed_are_mistakes_without_a_probability():
    """Such labels count in accuracy and have a recall of 0; loss and calibration ignore them."""
    logits, labels = random_case()
    all_logits = np.vstack([logits, logits[:20]])
    all_labels = np.append(labels, [5] * 15 + [6] * 5)

    known = compute_metrics(logits, labels, NAMES)
    metrics = compute_metrics(all_logits, all_labels, (*NAMES, "x", "y"))

    assert metrics.num_examples == 220
    assert metrics.accuracy == pytest.approx(known.accuracy * 200 / 220)
    assert metrics.loss == known.loss
    assert metrics.ece == known.ece
    assert metrics.calibration == known.calibration

    assert known.unseen_labels == {}
    assert metrics.unseen_labels == {"x": 15, "y": 5}
    assert metrics.per_class["x"].recall == 0
    assert metrics.per_class["x"].support == 15
    assert np.sum(metrics.confusion_matrix, axis=1)[5:].tolist() == [15, 5]


@pytest.fixture(scope="module")
def multi_label_case() -> tuple[np.ndarray, np.ndarray]:
    """Logits of four classes, some of them equal, and labels of five for 300 texts."""
    random = np.random.default_rng(0)
    labels = (random.random((300, 5)) < [0.4, 0.2, 0.05, 0, 0.02]).astype(np.int8)
    noise = random.normal(size=(300, 4))
    logits = (labels[:, :4] * 2 - 1 + noise).round(1).astype(np.float32)
    return logits, labels


def test_multi_label_metrics_agree_with_scikit_learn(multi_label_case):
    """Macro scores are means over the labels that some text has."""
    logits, labels = multi_label_case

    metrics = compute_metrics(logits, labels, LABEL_NAMES, THRESHOLDS)

    # A label without a logit is missed in each text.
    is_given = sigmoid(logits) >= THRESHOLDS
    never_given = np.zeros((300, 1), dtype=bool)
    predictions = np.hstack([is_given, never_given])
    occurring = [0, 1, 2, 4]
    micro_f1 = sklearn_metrics.f1_score(labels, predictions, average="micro")
    macro_f1 = sklearn_metrics.f1_score(
        labels[:, occurring], predictions[:, occurring], average="macro"
    )
    samples_f1 = sklearn_metrics.f1_score(labels, predictions, average="samples", zero_division=1)
    loss_of_a_label = sklearn_metrics.log_loss(labels[:, :4].ravel(), sigmoid(logits).ravel())
    assert metrics.micro_f1 == pytest.approx(micro_f1)
    assert metrics.macro_f1 == pytest.approx(macro_f1)
    assert metrics.samples_f1 == pytest.approx(samples_f1)
    assert metrics.subset_accuracy == pytest.approx((predictions == labels).all(axis=1).mean())
    assert metrics.loss == pytest.approx(4 * loss_of_a_label)
    assert metrics.labels_per_text == pytest.approx(labels.sum(axis=1).mean())
    assert metrics.predicted_per_text == pytest.approx(predictions.sum(axis=1).mean())
    assert metrics.unseen_labels == {"unseen": labels[:, 4].sum()}


def test_average_precisions_agree_with_scikit_learn(multi_label_case):
    """The average precision of a label without a logit is 0."""
    logits, labels = multi_label_case
    expected = []
    for label in range(3):
        precision = sklearn_metrics.average_precision_score(labels[:, label], logits[:, label])
        expected.append(precision)

    found = average_precisions(logits.astype(float), labels[:, :4])

    assert found[:3] == pytest.approx(expected)
    assert np.isnan(found[3])

    metrics = compute_metrics(logits, labels, LABEL_NAMES, THRESHOLDS)
    assert metrics.mean_average_precision == pytest.approx(np.mean([*expected, 0]))


def test_labels_without_examples_or_logits_have_no_scores(multi_label_case):
    logits, labels = multi_label_case

    scores = compute_metrics(logits, labels, LABEL_NAMES, THRESHOLDS).per_class

    assert scores["c"].threshold == 0.6
    assert scores["never"].threshold == 0.9
    assert scores["never"].support == 0
    assert scores["never"].average_precision is None
    assert scores["never"].f1 is None
    assert scores["unseen"].threshold is None
    assert scores["unseen"].f1 == 0


def test_texts_without_labels_are_correct_if_none_are_predicted():
    """All scores are defined even if no text has a label or gets one."""
    logits = np.full((3, 2), -5, np.float32)

    metrics = compute_metrics(logits, np.zeros((3, 2)), ("a", "b"), (0.5, 0.5))

    assert metrics.samples_f1 == 1
    assert metrics.subset_accuracy == 1
    assert metrics.micro_f1 == 0
    assert metrics.macro_f1 == 0
    assert metrics.mean_average_precision == 0
    assert metrics.ece == 0


def test_no_threshold_has_a_better_f1_than_the_best(multi_label_case):
    """The best threshold is compared with all distinct scores as thresholds."""
    logits, labels = multi_label_case
    scores = logits[:, 1].astype(float)
    targets = labels[:, 1]

    threshold = best_f1_threshold(scores, targets)

    found = ClassCounts.of((scores >= threshold)[:, None], targets[:, None]).micro_f1
    best = max(sklearn_metrics.f1_score(targets, scores >= score) for score in np.unique(scores))
    assert found == pytest.approx(best)


def test_the_best_threshold_is_0_without_positive_targets(multi_label_case):
    logits, _ = multi_label_case

    assert best_f1_threshold(logits[:, 1].astype(float), np.zeros(300)) == 0
