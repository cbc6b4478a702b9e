"""The model of a pool learns from labels, predicts all texts, and suggests other texts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.topics import labelled_texts

from encoder_cls import load_classifier
from encoder_cls.extras.label.pool_model import Fit, Labels, PoolModel, has_enough, top_classes

TEXTS = labelled_texts(30, seed=5)
TOPICS = sorted({topic for _, topic in TEXTS})
LABELLED = tuple(range(24))


def labels_of(rows: tuple[int, ...]) -> Labels:
    """The labels of some texts; the numbers of the classes in the session are 5, 6 and 7."""
    return Labels(
        texts=rows,
        labels=tuple((TEXTS[row][1],) for row in rows),
        class_names=tuple(TOPICS),
        class_numbers=(5, 6, 7),
        is_multi_label=False,
    )


def new_model() -> PoolModel:
    texts = [text for text, _ in TEXTS]
    return PoolModel(texts, len(texts))


@pytest.fixture(scope="module")
def fit() -> Fit:
    return new_model()(labels_of(LABELLED))


def test_the_pool_is_predicted(fit):
    predicted = [TOPICS[number - 5] for number in fit.top_classes[:, 0]]
    is_right = [label == topic for label, (_, topic) in zip(predicted, TEXTS, strict=True)]
    assert np.mean(is_right) > 0.9
    assert (np.diff(fit.top_probabilities, axis=1) <= 0).all()
    assert (fit.num_predicted == 1).all()
    assert len(fit.is_right) == len(LABELLED)
    assert fit.is_right.mean() > 0.7


def test_suggestions_are_other_texts(fit):
    assert len(fit.suggestions) == len(set(fit.suggestions)) > 10
    assert not set(fit.suggestions) & set(LABELLED)
    assert max(fit.suggestions) < len(TEXTS)


def test_equal_labels_give_an_equal_fit(fit):
    """So a killed session continues with the same texts."""
    again = new_model()(labels_of(LABELLED))
    assert again.suggestions == fit.suggestions
    assert (again.top_probabilities == fit.top_probabilities).all()


def test_the_first_suggestions_have_all_topics():
    suggestions = new_model()(None)
    assert {TEXTS[index][1] for index in suggestions[:6]} == set(TOPICS)


def test_several_labels_a_text_are_learned():
    pairs = []
    labels = []
    for (first, topic), (second, other) in pairwise(TEXTS):
        pairs.append(f"{first} {second}")
        labels.append(tuple(sorted({topic, other})))
    model = PoolModel(pairs, len(pairs))
    fit = model(
        Labels(
            texts=tuple(range(30)),
            labels=tuple(labels[:30]),
            class_names=tuple(TOPICS),
            class_numbers=(0, 1, 2),
            is_multi_label=True,
        )
    )

    num_right = 0
    for row, expected in enumerate(labels):
        given = fit.top_classes[row, : fit.num_predicted[row]]
        num_right += {TOPICS[number] for number in given} == set(expected)
    assert num_right > 0.8 * len(labels)


def test_a_trained_model_predicts_the_pool(trained_run):
    fit = new_model()(trained_run.path)

    predictions = load_classifier(trained_run.path).predict([text for text, _ in TEXTS])
    assert [TOPICS[number] for number in fit.top_classes[:, 0]] == [
        prediction.label for prediction in predictions
    ]
    for probabilities, prediction in zip(fit.top_probabilities, predictions, strict=True):
        expected = [probability for _, probability in prediction.top(3)]
        np.testing.assert_allclose(probabilities, expected, rtol=1e-5)


def test_predicted_labels_come_before_more_probable_ones():
    """The labels of a trained model have thresholds of their own."""
    probabilities = np.array(
        [
            [0.45, 0.3, 0.1, 0.02],
            [0.9, 0.8, 0.7, 0.6],
            [0.1, 0.2, 0.3, 0.0],
        ]
    )
    predictions = probabilities >= np.array([0.5, 0.25, 0.5, 0.5])

    top, num_predicted = top_classes(probabilities, predictions)

    assert top[:, :3].tolist() == [[1, 0, 2], [0, 1, 2], [2, 1, 0]]
    assert num_predicted.tolist() == [1, 4, 0]
    # All labels that are predicted are listed.
    assert top[1].tolist() == [0, 1, 2, 3]


def test_one_class_is_not_enough():
    one_label = Labels(
        texts=(0,),
        labels=(("a",),),
        class_names=("a",),
        class_numbers=(0,),
        is_multi_label=False,
    )

    assert not has_enough(one_label)
    assert has_enough(one_label._replace(is_multi_label=True))
