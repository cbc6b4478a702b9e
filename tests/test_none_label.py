"""A class that stands for none of the others: it is learned, and never answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.fixtures import Outcome
from support.small_runs import WITHOUT_TECHNIQUES
from support.tables import read_table, write_table
from support.topics import labelled_texts

from encoder_cls import load_classifier
from encoder_cls.classifier.guarantees import AnsweredTexts
from encoder_cls.evaluation.none_of_these import auroc

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")
NONE = "weather"
A_TEXT_OF_NONE = "rain snow cloud"
A_TEXT_OF_SPORT = "ball goal team"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose class `weather` stands for none of the others."""
    return tmp_path_factory.mktemp("none")


@pytest.fixture
def run(
    cli: Callable[..., Outcome], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """A function that runs a command on the run, which is trained when it is first used."""
    monkeypatch.chdir(folder)
    if not Path("run").exists():
        for name, seed in {"train": 0, "test": 1}.items():
            write_table(f"{name}.csv", [("text", "label"), *labelled_texts(100, seed=seed)])
        assert _train(cli, "run", f"data.none_label={NONE}").code == 0
    return cli


def _train(cli: Callable[..., Outcome], run_dir: str, *settings: str) -> Outcome:
    every = [
        "data.train=train.csv",
        "data.test=test.csv",
        "data.validation_fraction=0.3",
        "model.encoder=false",
        *WITHOUT_TECHNIQUES,
        *settings,
    ]
    arguments = [part for setting in every for part in ("--set", setting)]
    return cli("train", *arguments, "--run-dir", run_dir)


def test_a_text_of_none_gets_no_label_but_a_reason(run):
    """The class is neither among the most probable ones nor in a set."""
    options = ["--model", "run", "--top-k", "5", "--coverage", "0.8"]
    outcome = run("predict", *options, "--format", "jsonl", A_TEXT_OF_NONE, A_TEXT_OF_SPORT)
    none, sport = map(json.loads, outcome.out.splitlines())

    assert (none["label"], none["probability"], none["reason"]) == (None, None, "none")
    assert none["top"] == none["set"] == []
    assert sport["label"] == "sport"
    assert "reason" not in sport
    assert NONE not in sport["set"] + [entry["label"] for entry in sport["top"]]
    assert "1 of none of the classes" in outcome.err


def test_a_table_has_an_empty_label(run):
    write_table("new.csv", [("text",), (A_TEXT_OF_NONE,), (A_TEXT_OF_SPORT,)])
    assert run("predict", "--model", "run", "--input", "new.csv", "--output", "out.csv").code == 0

    names, *rows = read_table("out.csv")
    assert [row[names.index("label")] for row in rows] == ["", "sport"]

    options = ["--model", "run", "--input", "new.csv", "--output", "top.csv", "--top-k", "9"]
    assert run("predict", *options).code == 0
    # Of three classes, one is never among the most probable ones.
    names, *rows = read_table("top.csv")
    assert [name for name in names if name.startswith("label")] == ["label", "label_2"]


def test_the_report_counts_none_apart(run):
    """It tells how many texts of none get no class, and how many others."""
    report = json.loads(Path("run/eval/report.json").read_text())

    assert report["none"]["label"] == NONE
    assert report["none"]["num_examples"] == report["per_class"][NONE]["support"]
    assert report["none"]["recall"] == report["per_class"][NONE]["recall"]
    assert report["none"]["auroc"] > 0.9
    assert report["none"]["unfamiliar_auroc"] is not None
    assert "none of the classes (weather" in run("eval", "run").out


def test_words_of_an_explanation_speak_for_none(run):
    (words,) = load_classifier("run").explain([A_TEXT_OF_NONE])
    assert {"rain", "snow", "cloud"} & set(words.words_for())


def test_a_name_of_no_class_is_refused(run, cli):
    outcome = _train(cli, "other", "data.none_label=wether")
    assert outcome.code == 2
    assert "data.none_label: no text of train has the label 'wether'" in outcome.err


def test_texts_of_several_labels_need_no_such_class(run, cli):
    outcome = _train(cli, "several", f"data.none_label={NONE}", "data.label_separator=|")
    assert outcome.code == 2
    assert "data.none_label: texts may have several labels" in outcome.err


def test_guarantees_are_of_answered_texts():
    """A text without an answer does not count; a text of none is wrong if it gets a class."""
    probabilities = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.2, 0.1, 0.7], [0.1, 0.2, 0.7]])
    answered = AnsweredTexts.of(probabilities, np.array([0, 0, 1, 2]), none_number=1)

    assert answered.rows.tolist() == [0, 2, 3]
    assert answered.probabilities.tolist() == [[0.6, 0.1], [0.2, 0.7], [0.1, 0.7]]
    assert answered.labels.tolist()[0] == 0
    assert answered.labels.tolist()[1] > 1
    assert answered.labels.tolist()[2] == 1


def test_auroc_counts_equal_scores_half():
    scores = np.array([0.1, 0.5, 0.5, 0.9])
    assert auroc(scores, np.array([False, False, True, True])) == pytest.approx(0.875)
