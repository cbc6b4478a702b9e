"""Classes whose texts the classifier cannot tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.evaluation.indistinct_classes import indistinct_classes, indistinct_sentences
from encoder_cls.metrics.classification import Metrics, compute_metrics

NAMES = ["Überweisung", "Ueberweisung", "Mahnung"]


def metrics_of(confusion: list[list[int]]) -> Metrics:
    """The metrics of predictions with these numbers of texts, by label and by prediction."""
    labels = []
    predictions = []
    for label, row in enumerate(confusion):
        for prediction, count in enumerate(row):
            labels += [label] * count
            predictions += [prediction] * count
    logits = 9.0 * np.eye(len(confusion))[predictions]
    names = [*NAMES, *map(str, range(3, len(confusion)))]
    return compute_metrics(logits, np.array(labels), names)


# Numbers of texts by label (rows) and by prediction.
RARE_SPELLING = [
    [90, 0, 2],
    [3, 0, 0],
    [1, 0, 50],
]
EQUALLY_FREQUENT_SPELLINGS = [
    [20, 18, 2],
    [21, 19, 0],
    [0, 0, 50],
]
ORDINARY_CONFUSION = [
    [60, 40, 0],
    [10, 90, 0],
    [0, 0, 50],
]
TWO_TEXTS = [
    [90, 0, 2],
    [2, 0, 0],
    [1, 0, 50],
]
# As in the rare spelling, but among 40 classes.
AMONG_MANY = np.diag([90, 0, *[50] * 38]).tolist()
AMONG_MANY[1][0] = 3


# One label for nearly all texts, as of a model that has learned nothing.
ONE_LABEL_FOR_ALL = [
    [30, 1, 1],
    [29, 2, 1],
    [28, 1, 3],
]


@pytest.mark.parametrize(
    ("confusion", "pairs"),
    [
        # A rare spelling is always taken for the frequent one.
        (RARE_SPELLING, [("Ueberweisung", "Überweisung", 3)]),
        # The choice between two spellings is a coin's.
        (EQUALLY_FREQUENT_SPELLINGS, [("Ueberweisung", "Überweisung", 21)]),
        (ORDINARY_CONFUSION, []),
        (TWO_TEXTS, []),
        (AMONG_MANY, []),
        (ONE_LABEL_FOR_ALL, []),
    ],
)
def test_texts_of_such_a_class_are_labelled_as_those_of_the_other(confusion, pairs):
    found = indistinct_classes(metrics_of(confusion))
    assert [(pair.label, pair.prediction, pair.count) for pair in found] == pairs


def test_copies_of_a_text_are_one_text():
    assert indistinct_classes(metrics_of(RARE_SPELLING), independent=1 / 3) == []


def test_they_are_named_with_the_setting_that_joins_them():
    [sentence] = indistinct_sentences(metrics_of(RARE_SPELLING))
    assert sentence == (
        "texts of 'Ueberweisung' cannot be told from those of 'Überweisung' (3 of 3 are taken for "
        "it): if both are one class, train with --set "
        """'data.label_map={"Ueberweisung": "Überweisung"}'; else label more of them"""
    )
