"""The options of `predict`: what a folder of predictions records of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.request import NOT_RECORDED, Request
from encoder_cls.classifier.withholding import Withholding


def test_every_option_is_recorded_but_for_places_and_means():
    options = PredictionOptions(
        model=Path("runs/a"), top_k=3, withholding=Withholding(label_thresholds={"a": 0.5})
    )

    recorded = options.recorded()

    names = {field.name for field in fields(Request)}
    assert names >= NOT_RECORDED
    assert recorded.keys() == names - NOT_RECORDED | {"withholding"}
    assert recorded["top_k"] == 3
    assert recorded["withholding"]["label_thresholds"] == {"a": 0.5}
