"""Weights of rows (`data.weight_column`) count in every fit of the linear model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.small_runs import COLOURS, WITH_LINEAR, make_config, write_data

from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare


def contradicting_file(folder: Path) -> Path:
    """Each text with its colour, of weight 9, and twice with the next colour, of weight 1."""
    lines = ["text,label,sure"]
    for line in write_data(folder, texts=60).read_text().splitlines()[1:]:
        text, colour = line.split(",")
        next_colour = COLOURS[(COLOURS.index(colour) + 1) % len(COLOURS)]
        lines.append(f"{text},{colour},9")
        lines += 2 * [f"{text},{next_colour},1"]
    path = folder / "contradicting.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("linear_fit", "refits"),
    [
        ("few_labels", True),
        ("few_labels", False),
        ("plain", True),
        ("plain", False),
        ("stream", False),
    ],
)
def test_of_contradicting_labels_the_heavier_one_is_learned(tmp_path, linear_fit, refits):
    """By each kind of fit, with the validation texts and without them."""
    data = {
        "train": str(contradicting_file(tmp_path)),
        "validation": None,
        "weight_column": "sure",
    }
    prepared = prepare(make_config(tmp_path, data=data, **WITH_LINEAR))
    plan = replace(prepared.plan, linear_fit=linear_fit, refits_on_validation=refits)

    fitted = fit_linear_classifier(replace(prepared, plan=plan))

    texts = [f"w1 {colour} end" for colour in COLOURS]
    predictions = [prediction.label for prediction in fitted.classifier.predict(texts)]
    assert predictions == COLOURS


def test_without_weights_no_text_counts_more(tmp_path):
    prepared = prepare(make_config(tmp_path))

    assert prepared.text_weights is None
    weights = np.ones(len(prepared.dataset.train), dtype=np.float32)
    equal = replace(prepared.dataset, train=replace(prepared.dataset.train, weights=weights))
    assert replace(prepared, dataset=equal).text_weights is None
