"""Held-out predictions: they score a run on validation texts that its final fit includes.

All other texts are scored as the final model predicts them.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from support.blank_plots import PLOTS, blank_plot
from support.usual_c import trying_usual_c_alone

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.evaluation.held_out_predictions import (
    HeldOutPredictions,
    ValidationPredictions,
    held_out_part_logits,
)
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training import plan as training_plan
from encoder_cls.training.prepare import prepare
from encoder_cls.training.run_warnings import run_warnings
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")
NEW = [(f"new words {number}", "xy"[number % 2]) for number in range(12)]
LINEAR = ["model.encoder=false", "data.validation_fraction=0.25"]


def write(name: str, rows: list[tuple[str, str]]) -> None:
    """Write texts and labels as CSV."""
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def random_rows() -> list[tuple[str, str]]:
    """Texts with random labels; only a model that has learned from them predicts them correctly."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    rows = []
    for number in range(160):
        text = " ".join([*draw.choices(words, k=5), f"only{number}"])
        rows.append((text, draw.choice("xy")))
    return rows


def trained(name: str, *overrides: str, from_run: Path | None = None):
    """Train a linear model in the folder with this name, and return how it was prepared."""
    config = load_config(None, [*LINEAR, *overrides], from_run=from_run)
    setup = prepare(config)
    train(setup, RunDir(Path(name)), device=torch.device("cpu"))
    return setup


@pytest.fixture(scope="module", params=["plain", "few_labels"])
def run_once(request, tmp_path_factory):
    """The kind of the linear model, the folder of a run `a` with its data, and what was prepared.

    The linear model was fitted again with the validation texts.
    """
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch, trying_usual_c_alone():
        patch.chdir(folder)
        for name in PLOTS:
            patch.setattr(matplotlib_figures, name, blank_plot)
        if request.param == "plain":
            patch.setattr(training_plan, "MAX_LABELLED", 0)
        write("a.csv", random_rows())
        return request.param, folder, trained("a", "data.train=a.csv")


@pytest.fixture
def learned(run_once, monkeypatch):
    """The data of a copy of the run `a`."""
    kind, folder, setup = run_once
    assert setup.plan.linear_fit == kind
    if kind == "plain":
        monkeypatch.setattr(training_plan, "MAX_LABELLED", 0)

    shutil.copytree(folder, Path(), dirs_exist_ok=True)
    for name in ("config.yaml", "sources.json"):
        file = Path("a", name)
        file.write_text(file.read_text().replace(str(folder), str(Path.cwd())))
    return setup.dataset


def are_held_out_correct(dataset) -> np.ndarray:
    """Whether each held-out prediction for a validation text of the run `a` is correct."""
    held_out = HeldOutPredictions.of_run(RunDir(Path("a")).held_out_predictions)
    return held_out.validation.logits.argmax(axis=1) == dataset.validation.labels


def predicted_accuracy(cli, file: str) -> float:
    """The fraction of correct predictions of `predict` for a file."""
    outcome = cli("predict", "--model", "a", "--input", file, "--format", "jsonl")
    predictions = [json.loads(line)["label"] for line in outcome.out.splitlines()]
    with Path(file).open(newline="") as opened:
        labels = [row["label"] for row in csv.DictReader(opened)]
    return np.mean(np.array(predictions) == np.array(labels))


def write_validation(dataset, name: str) -> None:
    """Write the validation texts of a run, in reverse order, as a file of their own."""
    validation = dataset.validation
    rows = []
    for text, label in zip(validation.texts, validation.labels, strict=True):
        rows.append((text, dataset.label_names[label]))
    write(name, rows[::-1])


def test_the_final_model_knows_its_validation_texts_by_heart(learned):
    """Scored by the predictions of the final model, a run would seem too good."""
    validation = learned.validation
    model = load_classifier(Path("a"))

    predictions = model.logits(model.tokenize(validation.texts)).argmax(axis=1)

    accuracy = (predictions == validation.labels).mean()
    assert accuracy > are_held_out_correct(learned).mean() + 0.2


def test_familiarity_is_measured_before_the_final_fit(learned):
    run = RunDir(Path("a"))
    classifier = load_classifier(run.model)
    validation = learned.validation
    known = ValidationPredictions.of_run(run.held_out_predictions, classifier, validation)
    tokenized = classifier.tokenize(validation.texts)

    _, found = held_out_part_logits(classifier, validation, tokenized, known, with_familiarity=True)
    np.testing.assert_array_equal(found, known.predictions.familiarity_features)
    _, found = held_out_part_logits(classifier, validation, tokenized, None, with_familiarity=True)
    assert not np.allclose(found, known.predictions.familiarity_features)


def test_a_report_and_a_comparison_use_the_held_out_predictions(cli, learned):
    accuracy = are_held_out_correct(learned).mean()

    written = json.loads(Path("a/eval/report.json").read_text())
    outcome = cli("eval", "a", "--against", "a", "--json")

    report = json.loads(outcome.out)
    assert written["accuracy"] == pytest.approx(accuracy)
    assert report["accuracy"] == written["accuracy"]
    assert report["against"]["accuracy"] == report["accuracy"]
    assert report["against"]["only_other"] == 0
    assert report["against"]["only_this"] == 0
    assert "among the training texts" not in outcome.err


def test_a_review_lists_the_wrong_held_out_predictions(cli, learned):
    rows = json.loads(cli("review", "a", "--json").out)["rows"]

    listed = {row["text"] for row in rows if row["split"] == "validation"}
    expected = set()
    for text, is_right in zip(learned.validation.texts, are_held_out_correct(learned), strict=True):
        if not is_right:
            expected.add(text)
    assert listed == expected


def test_a_file_is_scored_as_it_is_predicted(cli, learned):
    """A warning says that the model has learned from texts of the file, here validation texts."""
    write_validation(learned, "same.csv")

    outcome = cli("eval", "a", "--data", "same.csv", "--json")
    assert json.loads(outcome.out)["accuracy"] == predicted_accuracy(cli, "same.csv")
    assert "40 of 40 texts of same.csv are among the training texts" in outcome.err

    outcome = cli("eval", "a", "--data", "same.csv", "--against", "a", "--json")
    report = json.loads(outcome.out)
    assert report["against"]["accuracy"] == report["accuracy"]


@pytest.mark.parametrize("most_labelled", [0, 2000])
def test_the_test_score_is_that_of_the_final_model(cli, monkeypatch, most_labelled):
    """A warning says that test texts equal training or validation texts."""
    monkeypatch.setattr(training_plan, "MAX_LABELLED", most_labelled)
    rows = random_rows()
    write("a.csv", rows[:120])
    write("test.csv", rows[60:])

    setup = trained("a", "data.train=a.csv", "data.test=test.csv")
    outcome = cli("eval", "a", "--json")

    warnings = "\n".join(str(warning) for warning in run_warnings(setup))
    assert "60 of 100 test texts are among the training texts, too" in warnings
    assert "60 of 100 texts of test are among the training texts" in outcome.err

    written = json.loads(Path("a/eval/report.json").read_text())
    accuracy = predicted_accuracy(cli, "test.csv")
    assert written["accuracy"] == accuracy
    assert json.loads(outcome.out)["accuracy"] == accuracy


def test_a_continued_run_is_compared_with_the_held_out_predictions_of_its_base_run(learned):
    """The base run knows its validation texts by heart, and would otherwise seem better."""
    write("b.csv", NEW)

    trained("b", "data.train=b.csv", from_run=Path("a"))

    base = json.loads(Path("b/eval/report.json").read_text())["former"]
    assert base["split"] == "validation"
    assert base["accuracy"] == are_held_out_correct(learned).mean()


def test_held_out_predictions_for_other_texts_are_refused(cli, learned):
    """The held-out texts have changed, and the checkpoints, which would show it, are gone."""
    for file in Path("a/checkpoints").glob("*/state.json"):
        file.unlink()
    changed_rows = [(f"{text} changed", label) for text, label in random_rows()]
    write("a.csv", changed_rows)

    outcome = cli("eval", "a")

    assert outcome.code == 3
    assert "the texts that the run held out for validation have changed" in outcome.err


def test_a_damaged_file_is_reported_before_a_run_is_continued(cli, learned):
    """The file is needed only at the end of the new run. A single changed bit is noticed."""
    file = RunDir(Path("a")).held_out_predictions
    content = file.read_bytes()
    with_another_number = bytearray(content)
    with_another_number[-3] ^= 1
    write("b.csv", NEW)

    for damaged, message in (
        (content[:-9], "cannot be read .*; train again"),
        (bytes(with_another_number), "has changed since it was written; train again"),
        (safetensors.numpy.save({}), "cannot be read .*; train again"),
    ):
        file.write_bytes(damaged)

        expected = f"^a/held_out_predictions.safetensors: {message}$"
        with pytest.raises(EncoderClsError, match=expected):
            trained("b", "data.train=b.csv", from_run=Path("a"))

        outcome = cli("eval", "a")
        assert outcome.code == 1
        assert outcome.err.count("\n") == 1
