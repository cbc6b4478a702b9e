"""What is said of the accuracy rests on texts that were drawn at random."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from encoder_cls import AccuracyEstimate, drawn_rank, estimate_accuracy
from encoder_cls.extras.label.estimates import (
    acceptance,
    accuracy_line,
    estimate,
    labels_per_hour,
    outlook_line,
    random_sample,
)
from encoder_cls.extras.label.label_table import LabelledText
from encoder_cls.extras.label.pool_model import Fit

START = datetime.fromisoformat("2026-01-01T10:00:00+00:00")


def fit_with(is_right: list[bool], *, error_factor: float | None = None) -> Fit:
    empty = np.zeros((0, 3))
    return Fit(empty, empty, empty, [], np.array(is_right), error_factor, seconds=1.0)


def rows_by_rank(hows: str) -> list[LabelledText]:
    """Rows in the order of their ranks: r for random, s for suggested."""
    keys = sorted((f"key {number}" for number in range(len(hows))), key=drawn_rank)
    names = {"r": "random", "s": "suggested"}
    return [LabelledText(key, "", "a", how=names[how]) for key, how in zip(keys, hows, strict=True)]


def test_the_sample_has_suggested_texts_that_would_have_been_drawn():
    assert random_sample(rows_by_rank("rsrss")) == [0, 1, 2]
    assert random_sample(rows_by_rank("ss")) == []


def test_an_estimate_needs_three_texts_of_the_random_sample():
    fit = fit_with([True] * 8 + [False] * 2, error_factor=0.75)
    assert estimate(fit, range(10)) == estimate_accuracy(fit.is_right, error_factor=0.75)
    assert estimate(fit, range(2)) is None


def test_the_line_says_how_often_it_is_right():
    found = AccuracyEstimate(100, 0.78, 0.701, 0.84, 0.83)
    expected = "right on about 78% of new texts (70 to 84)"
    assert accuracy_line(found) == f"{expected}, with twice the labels about 83%"
    assert accuracy_line(found._replace(with_twice=None)) == expected


def labelled_every(seconds: float, count: int) -> list[LabelledText]:
    rows = []
    for number in range(count):
        time = (START + timedelta(seconds=number * seconds)).isoformat()
        rows.append(LabelledText("k", "", "a", labelled_at=time))
    return rows


def test_the_speed_leaves_out_breaks():
    before = labelled_every(10, 10)
    after = [row._replace(labelled_at=row.labelled_at.replace("T10", "T12")) for row in before]
    assert labels_per_hour([*before, *after]) == 360
    assert labels_per_hour(before[:3]) is None
    assert labels_per_hour([LabelledText("k", "", "a", labelled_at="by hand")] * 9) is None


def test_the_outlook_says_when_to_stop():
    rows = labelled_every(10, 10)
    found = AccuracyEstimate(360, 0.8, 0.7, 0.9, 0.84)
    assert outlook_line(found, rows) == (
        "another hour (about 360 labels) would bring about 4 points"
    )
    assert "a good time to train" in outlook_line(found._replace(with_twice=0.801), rows)
    assert outlook_line(found._replace(with_twice=None), rows) == ""


def test_guesses_are_counted_apart():
    rows = [
        LabelledText("1", "", "a", how="random", guess="b"),
        LabelledText("2", "", "a", how="random", guess=""),
        LabelledText("3", "", "a", how="suggested", guess="a"),
    ]
    assert acceptance(rows, is_random=True) == (0, 1)
    assert acceptance(rows, is_random=False) == (1, 1)
