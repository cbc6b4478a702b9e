"""Several labels a text in reports and comparisons: `eval`, `eval --against`, `train --from`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.browser import needs_axe, violations
from support.programs import assert_failed, succeed
from support.several_labels import (
    csv_rows,
    json_objects,
    labelled_texts,
    trained,
    write_json_lines,
    write_lines,
)

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.run.run_folder import RunDir

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")

EVAL_KEYS = [
    "task",
    "micro_f1",
    "macro_f1",
    "samples_f1",
    "subset_accuracy",
    "mean_average_precision",
    "num_examples",
]


def eval_report(cli, run: RunDir, *options: object) -> dict:
    """What `eval --json` prints of a run."""
    return json.loads(succeed(cli, "eval", run.path, *options, "--json").out)


@needs_axe
def test_the_report_of_several_labels_is_accessible(cli, linear_run, browser):
    succeed(cli, "eval", linear_run.path)
    with browser.opened((linear_run.eval / "report.html").as_uri()) as page:
        assert violations(page) == []


def test_eval_has_the_measures_of_several_labels(cli, linear_run):
    """There is no accuracy, and each label has a threshold."""
    report = eval_report(cli, linear_run)

    assert set(EVAL_KEYS) < set(report)
    assert "accuracy" not in report
    assert "confusion_matrix" not in report
    assert report["task"] == "multi-label"
    assert report["num_examples"] == 60
    for measured in report["per_class"].values():
        assert 0 < measured["threshold"] < 1


def test_eval_scores_the_model_and_the_baseline_by_micro_f1(cli, linear_run):
    report = eval_report(cli, linear_run)

    micro_f1 = report["micro_f1"]
    assert micro_f1 > 0.9
    combined = report["parts"]["combined"]
    assert combined["micro_f1"] == micro_f1
    low, high = combined["micro_f1_interval"]
    assert low <= micro_f1 <= high

    baseline = report["linear_reference"]
    assert set(baseline) >= {"micro_f1", "macro_f1", "mean_average_precision"}
    assert baseline["micro_f1"] > 0.8


def test_people_are_shown_the_share_of_right_texts_and_the_micro_f1(cli, linear_run):
    report = eval_report(cli, linear_run)
    micro_f1 = report["micro_f1"]

    printed = succeed(cli, "eval", linear_run.path).out

    assert "accuracy" not in printed
    assert f"micro-F1 {micro_f1:.4f}" in printed
    assert f"micro-F1 {micro_f1:.4f}" in linear_run.model_card.read_text()

    page = (linear_run.eval / "report.html").read_text()
    assert f'<b class="big">{report["subset_accuracy"]:.0%}</b>' in page
    assert f"<td>{micro_f1:.4f}" in page


def test_the_files_of_a_report_have_the_labels_of_each_text(cli, linear_run):
    report = eval_report(cli, linear_run)

    predictions = json_objects((linear_run.eval / "predictions.jsonl").read_text())
    is_correct = []
    for record in predictions:
        is_correct.append(set(record["labels"]) == set(record["predictions"]))
    assert np.mean(is_correct) == pytest.approx(report["subset_accuracy"])

    mistakes = csv_rows(linear_run.eval / "mistakes.csv")
    assert len(mistakes) == is_correct.count(False)
    assert not (linear_run.eval / "confusion_matrix.png").exists()


def test_the_report_of_a_table_invites_to_correct_its_labels(cli, linear_run):
    shutil.copytree(linear_run.model, "model")
    write_lines(Path("test.csv"), ["text,label", "soup with salt,sport"])

    options = ["--data", "test.csv", "--set", "data.label_separator=;", "--report", "scored"]
    succeed(cli, "eval", "model", *options)

    page = Path("scored", "report.html").read_text()
    assert "to correct labels in a spreadsheet" in page
    (mistake,) = csv_rows(Path("scored", "mistakes.csv"))
    assert mistake["label"] == "sport"
    assert mistake["suggested"] == "food"
    assert mistake["key"] == key_of_text("soup with salt")


def test_a_copied_model_scores_a_table_whose_cells_have_several_labels(cli, linear_run):
    """The table has the texts of the run's test split, so the scores are equal."""
    shutil.copytree(linear_run.model, "model")
    lines = ["text,label"]
    for text, labels in labelled_texts(60, seed=1):
        lines.append(f"{text},{';'.join(labels)}")
    write_lines(Path("test.csv"), lines)

    options = ["--data", "test.csv", "--set", "data.label_separator=;", "--json"]
    outcome = succeed(cli, "eval", "model", *options)

    expected = json.loads((linear_run.eval / "report.json").read_text())
    assert json.loads(outcome.out)["micro_f1"] == expected["micro_f1"]


@pytest.mark.parametrize("cell", ["", "food;sport"])
def test_a_cell_that_is_no_label_names_the_separator_s_setting(cli, linear_run, cell):
    shutil.copytree(linear_run.model, "model")
    write_lines(Path("test.csv"), ["text,label", f"a,{cell}"])

    refused = cli("eval", "model", "--data", "test.csv")

    assert_failed(refused, 3, "--set data.label_separator='|'")


def test_a_missing_column_does_not_name_the_separator_s_setting(cli, linear_run):
    shutil.copytree(linear_run.model, "model")
    write_lines(Path("test.csv"), ["text,tags", "a,food"])

    refused = cli("eval", "model", "--data", "test.csv")

    assert "no column 'label'; it has 'text', 'tags'" in refused.err
    assert "label_separator" not in refused.err


def test_eval_against_another_run_compares_micro_f1(cli, linear_run, tmp_path):
    """The other model knows one label fewer, so it never predicts this label."""
    texts = []
    for text, labels in labelled_texts(120, seed=2):
        known_labels = [label for label in labels if label != "weather"]
        texts.append((text, known_labels))
    other = trained(tmp_path, texts)

    report = eval_report(cli, linear_run, "--against", other.path)

    against = report["against"]
    difference = against["micro_f1"] - report["micro_f1"]
    assert against["micro_f1_difference"] == pytest.approx(difference)
    low, high = against["micro_f1_difference_interval"]
    assert low <= difference <= high < 0
    assert against["p_value"] < 0.05
    assert "macro_f1_difference_interval" in against

    printed = succeed(cli, "eval", linear_run.path, "--against", other.path).out
    assert "randomization test: p" in printed


def test_a_model_of_one_label_a_text_is_not_compared(cli, linear_run, trained_run):
    refused = cli("eval", linear_run.path, "--against", trained_run.path)
    assert_failed(refused, 2, "may predict several labels a text, and", "predicts one")


def test_a_run_continues_with_a_new_label_and_is_compared_with_its_base_run(cli, linear_run):
    """The base run never predicts the new label, which no text of its test split has."""
    new_texts = []
    for text, labels in labelled_texts(80, seed=5):
        new_texts.append((f"{text} drum", [*labels, "music"]))
    source = write_json_lines(Path("new.jsonl"), new_texts)

    options = ["--from", linear_run.path, "--set", f"data.train={source}", "--run-dir", "new"]
    printed = succeed(cli, "train", *options).out

    run = RunDir(Path("new"))
    assert "music" in load_classifier(run.path).label_names
    former = json.loads((run.eval / "report.json").read_text())["former"]
    assert former["texts"] == 60
    assert "micro_f1_difference" in former
    assert len(csv_rows(run.eval / "changed_predictions.csv")) == former["changed"]
    assert "predictions differ: " in printed
    assert "randomization test" in printed
