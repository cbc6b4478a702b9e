"""Validation texts whose labels the linear classifier has learned are scored by what it answered before."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.run.run_folder import RunDir, ValidationLogits, classifier_to_score
from encoder_cls.training import plan as training_plan
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots")
NEW = [(f"new words {number}", "xy"[number % 2]) for number in range(12)]
LINEAR = ["model.encoder=false", "data.validation_fraction=0.25"]


def write(name: str, rows: list[tuple[str, str]]) -> None:
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def trained(name: str, *overrides: str, from_run: Path | None = None):
    config = load_config(None, [*LINEAR, *overrides], from_run=from_run)
    setup = prepare(config)
    for _ in train(setup, RunDir(Path(name)), device=torch.device("cpu")):
        pass
    return setup


@pytest.fixture
def learned(monkeypatch):
    """The data of the run `a`, whose labels mean nothing: right answers to validation texts are learned by heart."""
    monkeypatch.setattr(training_plan, "MOST_LABELLED", 0)
    draw = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    write(
        "a.csv",
        [
            (" ".join([*draw.choices(words, k=5), f"only{i}"]), draw.choice("xy"))
            for i in range(160)
        ],
    )
    return trained("a", "data.train=a.csv").dataset


def test_what_scores_goes_by_the_logits_from_before(cli, learned):
    """The report, another run's comparison with it, a file of the same texts, and a review; predictions do not."""
    validation, kept = (
        learned.validation,
        ValidationLogits.read(RunDir(Path("a")).validation_logits).logits,
    )
    is_right = kept.argmax(axis=1) == validation.labels
    model, scored = load_classifier(Path("a")), classifier_to_score(Path("a"))
    texts = model.tokenize(validation.texts)
    assert np.array_equal(scored.part_logits(texts)["linear"], kept)
    assert np.array_equal(scored.logits(texts), model.logits(texts))
    assert (model.logits(texts).argmax(axis=1) == validation.labels).mean() > is_right.mean() + 0.2

    outcome = cli("eval", "a", "--against", "a", "--json")
    report = json.loads(outcome.out)
    assert report["accuracy"] == report["against"]["accuracy"] == pytest.approx(is_right.mean())
    assert report["against"]["only_other"] == report["against"]["only_this"] == 0

    names = [learned.label_names[label] for label in validation.labels]
    write("same.csv", [*zip(validation.texts, names, strict=True)][::-1])
    assert (
        json.loads(cli("eval", "a", "--data", "same.csv", "--json").out)["accuracy"]
        == report["accuracy"]
    )

    rows = json.loads(cli("review", "a", "--json").out)["rows"]
    listed = {row["text"] for row in rows if row["split"] == "validation"}
    assert listed == {
        text for text, right in zip(validation.texts, is_right, strict=True) if not right
    }


def test_a_run_that_goes_on_is_compared_with_what_the_base_run_answered_before(learned):
    """Else each answer that the base run has learned by heart would be lost."""
    write("b.csv", NEW)
    trained("b", "data.train=b.csv", from_run=Path("a"))
    base = json.loads(Path("b/eval/report.json").read_text())["former"]
    kept = ValidationLogits.read(RunDir(Path("a")).validation_logits).logits
    assert base["split"] == "validation"
    assert base["accuracy"] == (kept.argmax(axis=1) == learned.validation.labels).mean()


def test_a_damaged_file_is_named_before_a_run_goes_on(learned):
    """What it holds is needed at the end of that run."""
    file = RunDir(Path("a")).validation_logits
    file.write_bytes(file.read_bytes()[:-9])
    write("b.csv", NEW)
    for read in (
        lambda: classifier_to_score(Path("a")),
        lambda: trained("b", "data.train=b.csv", from_run=Path("a")),
    ):
        with pytest.raises(
            EncoderClsError,
            match=r"^a/validation_logits.safetensors: cannot be read .*; train again$",
        ):
            read()
