"""What TensorBoard shows first, and which curves are drawn together."""

from __future__ import annotations

import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from encoder_cls.tracking.metric_log import ACCURACY, LOSS, TAGS, Curves, picture_group, scalar_tag


def in_order_of_cards(tags: list[str]) -> list[str]:
    """As TensorBoard's Time series has them: a slash or an underscore is before any letter (`compareTagNames`)."""
    return sorted(tags, key=lambda tag: re.sub("[/_]", "\0", tag))


def row(step: int, split: str, **values: float) -> dict:
    return {"step": step, "split": split, "time": 1.0 + step, **values}


def test_cards_begin_with_what_tells_whether_a_run_learns(trained_run):
    """The scores of combined, encoder and linear, then both losses; each behind a picture of them together."""
    tags = EventAccumulator(str(trained_run.path)).Reload().Tags()
    cards = in_order_of_cards([*tags["scalars"], *tags["images"], *tags["histograms"]])
    assert cards[:7] == [
        *(f"{ACCURACY}/{name}" for name in ("all", "combined", "encoder", "linear")),
        *(f"{LOSS}/{name}" for name in ("all", "train", "validation")),
    ]
    assert in_order_of_cards(list(TAGS.values()))[:5] == list(TAGS.values())[:5]


def test_no_card_has_a_single_dot(trained_run):
    """What is known once is text, or beside the settings; a curve has several points, of increasing steps."""
    events = EventAccumulator(str(trained_run.path)).Reload()
    assert len(events.Tags()["scalars"]) > 8
    for tag in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) > 1
        assert steps == sorted(set(steps))


def test_what_nobody_looks_at_is_no_curve():
    """Nor is a split's result, or an axis; names of classes cannot be taken for others."""
    assert scalar_tag("train", "padding_fraction") is None
    assert scalar_tag("validation", "epoch") is None
    assert scalar_tag("test", "accuracy") is None
    assert scalar_tag("pretraining/validation", "f1/a") is None
    assert scalar_tag("validation", "f1/accuracy") == "validation F1/accuracy"
    assert picture_group("best_validation") == picture_group("test").replace("test", "validation") != "validation"


def test_curves_that_belong_together_are_told_apart():
    """Each with its name, in a colour of its own; of equal points nothing is drawn twice."""
    curves = Curves()
    for step in (5, 10):
        curves.add(row(step, "train", loss=1 / step, grad_norm=1.0))
        scores = {"accuracy": 0.5, "encoder_accuracy": 0.25, "linear_accuracy": 0.125}
        curves.add(row(step, "validation", loss=2 / step, **scores))
    drawn = curves.drawn()
    assert curves.step == 10
    assert set(drawn) == {f"{ACCURACY}/all", f"{LOSS}/all"}
    for name, expected in (
        (f"{LOSS}/all", {"train": [0.2, 0.1], "validation": [0.4, 0.2]}),
        (f"{ACCURACY}/all", {"combined": [0.5] * 2, "encoder": [0.25] * 2, "linear": [0.125] * 2}),
    ):
        (axes,) = drawn[name].axes
        assert {line.get_label(): list(line.get_ydata()) for line in axes.lines} == expected
        assert [text.get_text() for text in axes.get_legend().get_texts()] == sorted(expected)
        assert len({line.get_color() for line in axes.lines}) == len(expected)
    assert curves.drawn() == {}


@pytest.mark.parametrize("steps", [(), (5,)])
def test_of_less_than_two_points_there_is_no_picture(steps):
    """A point is no curve; and a single curve needs no picture to be compared in."""
    curves = Curves()
    for step in steps:
        curves.add(row(step, "train", loss=1.0))
        curves.add(row(step, "validation", loss=1.0, accuracy=0.5))
    curves.add(row(7, "validation", accuracy=0.5))
    curves.add(row(8, "validation", accuracy=0.5))
    assert curves.drawn() == {}
