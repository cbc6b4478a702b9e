"""`encoder-cls compare`: the files of runs side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.programs import assert_failed

from encoder_cls.classifier.classifier import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.run.compare import summarize
from encoder_cls.run.run_folder import RunDir

REPORT = "eval/report.json"


@pytest.fixture
def other(run_copy) -> RunDir:
    """A second run, with other settings, an interval in its report, and a name of its own."""
    run = RunDir(Path(shutil.copytree(run_copy.path, "runs/other")))
    config = run.config_file.read_text("utf-8")
    run.config_file.write_text(
        config.replace("name: tiny", "name: other").replace("d_model: 16", "d_model: 32"), "utf-8"
    )
    report = json.loads((run.path / REPORT).read_text("utf-8"))
    report |= {"accuracy": 0.5, "accuracy_interval": [0.25, 0.75]}
    (run.path / REPORT).write_text(json.dumps(report), "utf-8")
    return run


def test_runs_are_compared_in_a_table(cli, run_copy, other):
    """Each has a line, and then each setting that differs; the same texts need no warning."""
    outcome = cli("compare", "runs/tiny", "runs/other")
    assert outcome.code == 0
    assert outcome.err == ""

    lines = outcome.out.splitlines()
    report = json.loads((run_copy.path / REPORT).read_text("utf-8"))
    assert lines[1].split()[:2] == ["runs/tiny", f"{report['accuracy']:.4f}"]
    assert lines[2].split()[:5] == ["runs/other", "0.5000", "0.2500", "to", "0.7500"]
    assert " MB" in lines[1]
    assert len({len(line) for line in lines[:3]}) == 1

    head, *settings = lines[4:]
    assert head.split() == ["settings", "that", "differ", "runs/tiny", "runs/other"]
    assert [line.split() for line in settings] == [["model.d_model", "16", "32"]]


def test_a_folder_means_the_runs_inside(cli, run_copy, other):
    Path("runs/notes").mkdir()
    assert cli("compare", "runs").out == cli("compare", "runs/other", "runs/tiny").out
    assert "runs/notes: no run" in cli("compare", "runs/notes").err


def test_programs_get_json(cli, run_copy, other):
    found = json.loads(cli("compare", "runs/tiny", "runs/other", "--json").out)
    report = json.loads((run_copy.path / REPORT).read_text("utf-8"))
    tiny, other_run = found["runs"]

    assert found["differing_settings"] == ["model.d_model"]
    for key in ("accuracy", "macro_f1", "ece", "num_examples", "split"):
        assert tiny[key] == report[key]
    assert tiny["model_bytes"] == sum(file.stat().st_size for file in run_copy.model.iterdir())
    assert tiny["parameters"] > 1000

    assert other_run["run"] == "runs/other"
    assert other_run["accuracy_interval"] == [0.25, 0.75]
    assert other_run["settings"]["model.d_model"] == 32
    assert tiny["data_sha256"] is not None
    assert tiny["data_sha256"] == other_run["data_sha256"]


def change_prediction(run: RunDir, key: str) -> None:
    path = run.eval / "predictions.jsonl"
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    records[3][key] += "x"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


@pytest.mark.parametrize("changed", ["text", "number"])
def test_a_warning_says_that_the_texts_differ(cli, run_copy, other, changed):
    num_examples = 15
    if changed == "text":
        change_prediction(other, "text")
    else:
        num_examples = 9
        report = json.loads((other.path / REPORT).read_text("utf-8"))
        report["num_examples"] = num_examples
        (other.path / REPORT).write_text(json.dumps(report), "utf-8")

    outcome = cli("compare", "runs/tiny", "runs/other")
    assert outcome.code == 0
    assert outcome.err == (
        "warning: the runs were scored on different texts, so their scores do not compare "
        f"(runs/tiny: 15 of test; runs/other: {num_examples} of test)\n"
    )


def test_a_warning_says_that_labels_differ(cli, run_copy, other):
    """Labels may have been corrected between two runs."""
    change_prediction(other, "label")

    outcome = cli("compare", "runs/tiny", "runs/other")
    assert outcome.code == 0
    assert outcome.err == (
        "warning: some labels of the scored texts differ, as after corrections; encoder-cls eval "
        "runs/other --against runs/tiny scores both by the labels of the first\n"
    )


def test_a_run_without_a_report_is_shown_with_a_warning(cli, run_copy, other):
    shutil.rmtree(other.eval)

    outcome = cli("compare", "runs/tiny", "runs/other")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: runs/other: no report yet; ")
    assert outcome.out.splitlines()[2].split()[:5] == ["runs/other", "-", "-", "-", "-"]


def test_a_folder_without_runs_is_refused(cli, run_copy):
    Path("empty").mkdir()
    assert_failed(cli("compare", "runs/tiny", "empty"), 2, "error: empty: no run")


@pytest.mark.parametrize("content", ["[]", "[" * 100_000])
def test_a_file_that_is_no_report_is_refused(cli, run_copy, content):
    (run_copy.path / REPORT).write_text(content)
    assert_failed(cli("compare", "runs/tiny"), 1, "report.json: no report; write it again")


def test_pauses_are_no_training_time(run_copy):
    """A run that was stopped for a night and went on took as long as both parts."""
    rows = [json.loads(line) for line in run_copy.metrics_file.read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        row["time"] = 1000.0 + 2 * number
        if number > 4:
            row["time"] += 36_000
    lines = [json.dumps(row) for row in rows]
    run_copy.metrics_file.write_text("\n".join([*lines, '{"half']), "utf-8")

    assert summarize(run_copy.path)["seconds"] == pytest.approx(2 * (len(rows) - 2))


def test_a_run_that_ended_without_its_encoder_has_no_parameters(run_copy):
    """An encoder was trained, and the linear model alone is the model."""
    assert summarize(run_copy.path)["parameters"] > 1000

    classifier = load_classifier(run_copy.path)
    classifier.encoder = None
    classifier.mixture = Mixture()
    save_classifier(classifier, run_copy.model)
    assert summarize(run_copy.path)["parameters"] is None
