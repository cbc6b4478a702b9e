"""What differs between tasks with one label a text and with several."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL

# The probabilities of three classes for three texts.
PROBABILITIES = np.array([[0.5, 0.3, 0.2], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]])
THRESHOLDS = (0.4, 0.5, 0.1)


@pytest.mark.parametrize("task", [SINGLE_LABEL, MULTI_LABEL])
def test_a_task_is_the_same_object_in_another_process(task):
    assert copy.deepcopy(task) is task  # which copies as `pickle` does


def test_a_single_label_is_predicted_with_its_probability():
    predictions = SINGLE_LABEL.predictions(PROBABILITIES, ())
    assert predictions.tolist() == [0, 1, 2]

    probabilities = SINGLE_LABEL.prediction_probabilities(PROBABILITIES, predictions)
    assert probabilities.tolist() == [0.5, 0.9, 0.6]
    uncertainty = SINGLE_LABEL.uncertainty(PROBABILITIES, predictions)
    assert uncertainty == pytest.approx([0.8, 0.2, 0.6])


def test_several_labels_have_the_probability_that_all_decisions_are_right():
    """The labels above their thresholds count with their probabilities, the others with 1 - p."""
    predictions = MULTI_LABEL.predictions(PROBABILITIES, THRESHOLDS)
    assert predictions.tolist() == [[True, False, True], [False, True, False], [False, False, True]]

    expected = [0.5 * 0.7 * 0.2, 0.9 * 0.9 * 1.0, 0.8 * 0.8 * 0.6]
    probabilities = MULTI_LABEL.prediction_probabilities(PROBABILITIES, predictions)
    assert probabilities == pytest.approx(expected)
    uncertainty = MULTI_LABEL.uncertainty(PROBABILITIES, predictions)
    assert uncertainty == pytest.approx([1 - probability for probability in expected])


def test_a_text_is_correct_only_with_exactly_its_labels():
    labels = np.array(
        [
            [1, 0, 1],
            [0, 1, 1],
            [0, 0, 0],
        ]
    )
    predictions = np.array(
        [
            [True, False, True],
            [False, True, False],
            [True, False, False],
        ]
    )
    assert MULTI_LABEL.are_correct(predictions, labels).tolist() == [True, False, False]

    labels = np.array([1, 2])
    predictions = np.array([1, 0])
    assert SINGLE_LABEL.are_correct(predictions, labels).tolist() == [True, False]


def test_a_text_with_an_unknown_label_is_not_correct():
    """The unknown label has a column after those of the predictions."""
    labels = np.array(
        [
            [1, 0, 0],
            [1, 0, 1],
        ]
    )
    predictions = np.array([[True, False]] * 2)
    assert MULTI_LABEL.are_correct(predictions, labels).tolist() == [True, False]


def test_the_least_probable_label_of_a_text_counts():
    """A text without labels has none that is improbable; a label without a column is unknown."""
    labels = np.array(
        [
            [1, 0, 1, 0],
            [0, 0, 0, 0],
            [0, 0, 1, 1],
        ]
    )
    probabilities = MULTI_LABEL.label_probabilities(PROBABILITIES, labels)
    assert probabilities.tolist() == [0.2, 1.0, 0.0]
    assert MULTI_LABEL.are_known(labels, 3).tolist() == [True, True, False]

    probabilities = SINGLE_LABEL.label_probabilities(PROBABILITIES, np.array([1, 1, 3]))
    assert probabilities.tolist() == [0.3, 0.9, 0.0]
    assert SINGLE_LABEL.are_known(np.array([1, 1, 3]), 3).tolist() == [True, True, False]


def test_a_set_of_labels_has_all_that_are_probable_enough():
    """That of a single label always has the most probable one; of several, it may be empty."""
    probable = [[True, True, False], [False, True, False], [False, False, True]]
    assert SINGLE_LABEL.label_sets(PROBABILITIES, 0.3).tolist() == probable
    assert MULTI_LABEL.label_sets(PROBABILITIES, 0.3).tolist() == probable

    best = [[True, False, False], [False, True, False], [False, False, True]]
    assert SINGLE_LABEL.label_sets(PROBABILITIES, 0.95).tolist() == best
    assert not MULTI_LABEL.label_sets(PROBABILITIES, 0.95).any()
