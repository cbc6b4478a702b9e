"""A run is scored on its own validation rows by what it answered before it learned from them, and on nothing else so."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training import plan as training_plan
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots")
NEW = [(f"new words {number}", "xy"[number % 2]) for number in range(12)]
LINEAR = ["model.encoder=false", "data.validation_fraction=0.25"]


def write(name: str, rows: list[tuple[str, str]]) -> None:
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def random_rows() -> list[tuple[str, str]]:
    """Texts whose labels mean nothing: right answers to them are learned by heart."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    rows = []
    for number in range(160):
        text = " ".join([*draw.choices(words, k=5), f"only{number}"])
        rows.append((text, draw.choice("xy")))
    return rows


def trained(name: str, *overrides: str, from_run: Path | None = None):
    config = load_config(None, [*LINEAR, *overrides], from_run=from_run)
    setup = prepare(config)
    train(setup, RunDir(Path(name)), device=torch.device("cpu"))
    return setup


@pytest.fixture(params=["plain", "few_labels"])
def learned(request, monkeypatch):
    """The data of the run `a`, whose linear model was fitted again with the validation texts."""
    if request.param == "plain":
        monkeypatch.setattr(training_plan, "MOST_LABELLED", 0)
    write("a.csv", random_rows())
    setup = trained("a", "data.train=a.csv")
    assert setup.plan.linear_fit == request.param
    return setup.dataset


def kept_logits() -> np.ndarray:
    return HeldOutPredictions.read(RunDir(Path("a")).held_out_predictions).validation.logits


def predicted_accuracy(cli, file: str) -> float:
    """The share of right answers of `predict` to a file."""
    outcome = cli("predict", "--model", "a", "--input", file, "--format", "jsonl")
    predictions = [json.loads(line)["label"] for line in outcome.out.splitlines()]
    with Path(file).open(newline="") as opened:
        labels = [row["label"] for row in csv.DictReader(opened)]
    return np.mean(
        [label == prediction for label, prediction in zip(labels, predictions, strict=True)]
    )


def write_validation(dataset, name: str) -> None:
    """The validation texts of a run as a file of their own."""
    names = [dataset.label_names[label] for label in dataset.validation.labels]
    write(name, [*zip(dataset.validation.texts, names, strict=True)][::-1])


def test_a_run_is_scored_on_its_own_validation_rows_by_its_earlier_predictions(cli, learned):
    """By its report, `eval`, the comparison of another run with it, and a review; it answers as it has learned."""
    validation = learned.validation
    is_right = kept_logits().argmax(axis=1) == validation.labels
    model = load_classifier(Path("a"))
    predictions = model.logits(model.tokenize(validation.texts)).argmax(axis=1)
    assert (predictions == validation.labels).mean() > is_right.mean() + 0.2

    written = json.loads(Path("a/eval/report.json").read_text())
    outcome = cli("eval", "a", "--against", "a", "--json")
    report = json.loads(outcome.out)
    assert written["accuracy"] == report["accuracy"] == pytest.approx(is_right.mean())
    assert report["against"]["accuracy"] == report["accuracy"]
    assert report["against"]["only_other"] == report["against"]["only_this"] == 0
    assert "among the training texts" not in outcome.err

    rows = json.loads(cli("review", "a", "--json").out)["rows"]
    listed = {row["text"] for row in rows if row["split"] == "validation"}
    wrong = zip(validation.texts, is_right, strict=True)
    assert listed == {text for text, right in wrong if not right}


def test_a_file_is_scored_as_it_is_predicted(cli, learned):
    """Also one of texts that equal validation texts; it is warned that they were learned from."""
    write_validation(learned, "same.csv")
    outcome = cli("eval", "a", "--data", "same.csv", "--json")
    assert json.loads(outcome.out)["accuracy"] == predicted_accuracy(cli, "same.csv")
    assert "40 of 40 texts of same.csv are among the training texts" in outcome.err

    outcome = cli("eval", "a", "--data", "same.csv", "--against", "a", "--json")
    report = json.loads(outcome.out)
    assert report["against"]["accuracy"] == report["accuracy"]


@pytest.mark.parametrize("most_labelled", [0, 2000])
def test_the_test_score_is_that_of_what_is_predicted(cli, monkeypatch, most_labelled):
    """Also where test texts equal training or validation texts, which is warned of."""
    monkeypatch.setattr(training_plan, "MOST_LABELLED", most_labelled)
    rows = random_rows()
    write("a.csv", rows[:120])
    write("test.csv", rows[60:])
    setup = trained("a", "data.train=a.csv", "data.test=test.csv")
    assert any("60 of 100 test texts are training texts, too" in it for it in setup.warnings())

    written = json.loads(Path("a/eval/report.json").read_text())
    outcome = cli("eval", "a", "--json")
    predicted = predicted_accuracy(cli, "test.csv")
    assert written["accuracy"] == json.loads(outcome.out)["accuracy"] == predicted
    assert "60 of 100 texts of test are among the training texts" in outcome.err


def test_a_continued_run_is_compared_with_what_the_base_run_predicted_before(learned):
    """Else each answer that the base run has learned by heart would be lost."""
    write("b.csv", NEW)
    trained("b", "data.train=b.csv", from_run=Path("a"))
    base = json.loads(Path("b/eval/report.json").read_text())["former"]
    assert base["split"] == "validation"
    assert base["accuracy"] == (kept_logits().argmax(axis=1) == learned.validation.labels).mean()


def test_earlier_predictions_for_other_texts_are_refused(cli, learned):
    """Where the held-out texts have changed, and the checkpoints, which would show it, are gone."""
    for file in Path("a/checkpoints").glob("*/state.json"):
        file.unlink()
    rows = random_rows()
    write("a.csv", [(f"{text} changed", label) for text, label in rows])
    outcome = cli("eval", "a")
    assert outcome.code == 3
    assert "the texts that the run held out for validation have changed" in outcome.err


def test_a_damaged_table_is_named_before_a_run_goes_on(cli, learned):
    """What it holds is needed at the end of that run; a changed number is noticed as well as a missing one."""
    file = RunDir(Path("a")).held_out_predictions
    content = file.read_bytes()
    write("b.csv", NEW)

    changed = bytearray(content)
    changed[-3] ^= 1
    for damaged, message in (
        (content[:-9], "cannot be read .*; train again"),
        (bytes(changed), "has changed since it was written; train again"),
        (safetensors.numpy.save({}), "cannot be read .*; train again"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(
            EncoderClsError, match=f"^a/held_out_predictions.safetensors: {message}$"
        ):
            trained("b", "data.train=b.csv", from_run=Path("a"))
        outcome = cli("eval", "a")
        assert (outcome.code, outcome.err.count("\n")) == (1, 1), outcome.err
