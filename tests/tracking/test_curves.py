"""The curves that TensorBoard shows, and in which order."""

from __future__ import annotations

import re

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from encoder_cls.tracking.metric_log import ACCURACY, LOSS, TAGS, picture_group, scalar_tag


def in_order_of_cards(tags: list[str]) -> list[str]:
    """As TensorBoard's Time series has them: a slash or an underscore is before any letter (`compareTagNames`)."""
    return sorted(tags, key=lambda tag: re.sub("[/_]", "\0", tag))


def test_cards_begin_with_what_tells_whether_a_run_learns(trained_run):
    """The scores of combined, encoder and linear, then both losses."""
    tags = EventAccumulator(str(trained_run.path)).Reload().Tags()
    cards = in_order_of_cards([*tags["scalars"], *tags["images"], *tags["histograms"]])
    assert cards[:5] == [
        *(f"{ACCURACY}/{name}" for name in ("combined", "encoder", "linear")),
        *(f"{LOSS}/{name}" for name in ("train", "validation")),
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
