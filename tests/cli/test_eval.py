"""`encoder-cls eval`: what it scores, prints, writes and refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.programs import assert_failed, hashes, succeed
from support.reports import BASELINE_SCORES

from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation.file_names import (
    CHANGED_PREDICTIONS,
    DOUBTFUL_LABELS,
    REPORT_FILES,
)
from encoder_cls.run.run_folder import RunDir

pytestmark = pytest.mark.usefixtures("blank_plots")


def json_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """The content of each file of a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def change_data(run: RunDir, **values: object) -> None:
    """Change values of `data` in the config of a run."""
    config = yaml.safe_load(run.config_file.read_text(encoding="utf-8"))
    config["data"] |= values
    run.config_file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")


def copy_training_texts(run: RunDir, *, more: str) -> None:
    """Give the run a training file of its own, which has more rows."""
    train = Path(run.load_config().data.train)
    Path("train.csv").write_text(train.read_text(encoding="utf-8") + more, encoding="utf-8")
    change_data(run, train="train.csv")


def write_texts(name: str, *rows: str) -> None:
    """Write a CSV file of texts with labels."""
    Path(name).write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")


def save_with(folder: str, **values: object) -> None:
    """Save the model of the trained run with other values."""
    classifier = load_classifier("runs/tiny")
    vars(classifier).update(values)
    save_classifier(classifier, Path(folder))


# What is printed and written

KEYS_OF_REPORT = {
    "accuracy",
    "accuracy_interval",
    "macro_f1",
    "macro_f1_interval",
    "ece",
    "num_examples",
    "per_class",
    "confusion_matrix",
    "parts",
    "comparison",
    "mixture_shares",
    "linear_reference",
}


def test_eval_prints_and_writes_json_as_contracted(cli, run_copy):
    """What programs read is at the top level."""
    outcome = succeed(cli, "eval", run_copy.path, "--json", "--output", "out/report.json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    report = json.loads(outcome.out, parse_constant=refuse)
    assert json.loads(Path("out/report.json").read_bytes()) == report

    assert report.keys() >= KEYS_OF_REPORT
    assert report["split"] == "test"
    assert report["num_examples"] == 15
    assert np.sum(report["confusion_matrix"]) == 15
    assert report["linear_reference"].keys() == BASELINE_SCORES.keys()
    assert report["comparison"].keys() == {"combined_minus_linear", "interval", "is_sure"}

    assert report["per_class"].keys() == {"küche", "sport", "weather"}
    for scores in report["per_class"].values():
        assert scores.keys() == {"precision", "recall", "f1", "support"}
    for part in report["parts"].values():
        assert part.keys() == {"accuracy", "accuracy_interval", "macro_f1", "macro_f1_interval"}


def test_eval_notes_which_files_it_has_written(cli, run_copy):
    outcome = succeed(cli, "eval", run_copy.path, "--output", "out/report.json")

    written = [name for name in REPORT_FILES if (run_copy.eval / name).exists()]
    assert f"wrote {run_copy.eval}: {', '.join(written)}\n" in outcome.err
    assert "wrote out/report.json" in outcome.err


def test_eval_repeats_the_final_report_of_the_training(cli, run_copy, monkeypatch):
    # Draw the pictures, too.
    monkeypatch.undo()
    before = contents(run_copy.eval)
    assert set(before) == set(REPORT_FILES) - {CHANGED_PREDICTIONS}
    assert b"<title>tiny: report on test</title>" in before["report.html"]
    for name in before:
        (run_copy.eval / name).unlink()

    outcome = succeed(cli, "eval", run_copy.path)

    assert outcome.out.startswith("test: 15 examples\n")
    assert contents(run_copy.eval) == before


def test_eval_without_a_test_split_scores_validation(cli, run_copy):
    change_data(run_copy, test=None)
    assert cli("eval", run_copy.path).out.startswith("validation: 12 examples\n")


def test_nothing_in_a_report_steers_a_terminal(cli, run_copy):
    """Control characters of a text are escaped in JSON, and restored when it is read."""
    text = "rain \x85\x9b31m \u202e and snow"
    write_texts("other.csv", f"{text},sport")

    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    assert outcome.out.replace("\n", "").isprintable()
    assert json.loads(outcome.out)["worst_errors"][0]["text"] == text

    change_data(run_copy, test="other.csv")
    succeed(cli, "eval", run_copy.path)
    (line,) = (run_copy.eval / "predictions.jsonl").read_text("utf-8").splitlines()
    assert line.isprintable()
    assert json.loads(line)["text"] == text


@pytest.fixture
def refused_writes(monkeypatch) -> str:
    """The disk refuses to write a report; this is its message."""
    message = "report.html: cannot write: No space left on device"

    def refuse(*_arguments, **_options):
        raise EncoderClsError(message)

    monkeypatch.setattr("encoder_cls.run.evaluate.write_report", refuse)
    return message


def test_a_run_whose_own_report_cannot_be_written_is_scored(cli, run_copy, refused_writes):
    outcome = succeed(cli, "eval", run_copy.path)
    assert outcome.out.startswith("test: 15 examples")
    assert outcome.err == f"warning: {refused_writes}\n"


def test_a_wanted_report_that_cannot_be_written_is_an_error(cli, run_copy, refused_writes):
    outcome = cli("eval", run_copy.path, "--report", "new")
    assert outcome.code == 1
    assert outcome.err == f"error: {refused_writes}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "RUN/eval"], "is a part of"),
        (["--report", "new", "--output", "new/report.json"], "two outputs"),
        (["--report", "a file"], "is not a folder"),
        (["--report", "here", "--data", "here"], "is in a folder that is read"),
    ],
)
def test_an_output_that_would_replace_something_is_refused_before_any_work(
    cli, run_copy, arguments, message
):
    Path("a file").write_text("mine")
    Path("here").mkdir()
    write_texts("here/data.csv", "rain,weather")
    before = hashes(Path())

    arguments = [word.replace("RUN", str(run_copy.path)) for word in arguments]
    refused = cli("eval", run_copy.path, *arguments)

    assert_failed(refused, 2, message)
    assert hashes(Path()) == before


# The run's data, and other data


def test_eval_of_another_file_leaves_the_runs_own_report(cli, run_copy):
    write_texts("other.csv", "rain and snow,weather", "soup,sport")
    before = contents(run_copy.eval)

    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")

    report = json.loads(outcome.out)
    assert report["split"] == "other.csv"
    assert report["num_examples"] == 2
    assert report["accuracy"] == 0.5
    assert report["linear_reference"] is not None
    assert "no TF-IDF baseline" not in outcome.err
    assert "wrote" not in outcome.err
    assert contents(run_copy.eval) == before


def test_without_the_training_texts_only_the_baseline_is_missing(cli, run_copy):
    write_texts("other.csv", "rain and snow,weather", "soup,sport")
    change_data(run_copy, train="gone.csv")
    before = contents(run_copy.eval)

    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")

    report = json.loads(outcome.out)
    assert report["accuracy"] == 0.5
    assert report["linear_reference"] is None
    assert "no TF-IDF baseline" in outcome.err
    assert "wrote" not in outcome.err
    assert contents(run_copy.eval) == before


def test_eval_refuses_classes_that_have_changed_since(cli, run_copy):
    """The numbers of the classes are no longer those of the classifier."""
    copy_training_texts(run_copy, more="a flute,music\n")
    assert_failed(cli("eval", run_copy.path), 3, "classes have changed")

    # Other data can be scored, but has no baseline.
    write_texts("other.csv", "rain and snow,weather", "ball and goal,sport")
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    report = json.loads(outcome.out)
    assert report["accuracy"] == 1
    assert report["linear_reference"] is None
    assert "classes have changed" in outcome.err


def test_eval_refuses_to_hold_out_of_other_texts(cli, run_copy):
    """Of a file that has grown, other texts would be held out. A test file is still scored."""
    change_data(run_copy, validation=None)
    copy_training_texts(run_copy, more="more rain,weather\n")
    succeed(cli, "eval", run_copy.path)

    change_data(run_copy, test=None)
    assert_failed(cli("eval", run_copy.path), 3, "has changed since the run began")


@pytest.mark.parametrize("is_run", [True, False], ids=["run", "model folder"])
def test_a_report_of_any_data_has_all_its_files(cli, run_copy, is_run):
    """The run's own report stays."""
    shutil.copytree(run_copy.model, "alone")
    model = run_copy.path if is_run else "alone"
    test_file = run_copy.load_config().data.test
    before = contents(run_copy.eval)

    options = ["--data", test_file, "--report", "new/report", "--json"]
    outcome = succeed(cli, "eval", model, *options)

    assert "wrote new/report: " in outcome.err
    report = Path("new/report")
    not_of_other_data = {DOUBTFUL_LABELS, CHANGED_PREDICTIONS}
    assert set(contents(report)) | not_of_other_data == set(REPORT_FILES)
    assert json.loads((report / "report.json").read_text("utf-8")) == json.loads(outcome.out)
    assert len(json_lines(report / "predictions.jsonl")) == 15

    assert contents(run_copy.eval) == before


def test_to_score_the_training_texts_is_warned_of(cli, run_copy):
    """The texts themselves are compared, not the names of files."""
    data = run_copy.load_config().data
    shutil.copy(data.train, "copy.csv")

    options = ["--data", "copy.csv", "--against", run_copy.path]
    warnings = cli("eval", run_copy.path, *options).err

    assert "72 of 72 texts of copy.csv are among the training texts" in warnings
    of_other = f"72 of 72 texts of --against {run_copy.path} are among the training texts"
    assert of_other in warnings

    warnings = cli("eval", run_copy.path, "--data", data.test).err
    assert "among the training texts" not in warnings


# Folders without a run


def test_a_folder_beside_a_config_is_no_run(cli, run_copy):
    """Only `model` belongs to the run around it, by whatever path it is named."""
    moved = run_copy.model.rename(run_copy.path / "mine")
    assert cli("eval", moved).code == 2

    moved.rename(run_copy.model)
    assert cli("eval", run_copy.model).out.startswith("test: 15 examples\n")


@pytest.mark.parametrize("content", ["data: {train: x.csv}\nlr: 1\n", ": ["])
def test_the_config_of_another_program_beside_a_model_is_not_its_runs(cli, run_copy, content):
    """Any program may have a file of the name config.yaml."""
    moved = run_copy.model.rename(Path("model").absolute())
    Path("config.yaml").write_text(content)
    write_texts("other.csv", "rain and snow,weather")

    assert_failed(cli("eval", moved), 2, "--data")
    scored = cli("eval", moved, "--data", "other.csv")
    assert scored.out.startswith("other.csv: 1 example\n")
    succeed(cli, "predict", "--model", moved, "--input", "other.csv")


# How other data is read


def write_other_form(run: RunDir, name: str) -> None:
    """Write the test texts with other names of columns, and other spellings of labels."""
    _, *lines = Path(run.load_config().data.test).read_text("utf-8").splitlines()
    rows = ["body,kind"]
    for line in lines:
        text, label = line.split(",")
        rows.append(f"{text}, {label.upper()}")
    Path(name).write_text("\n".join([*rows, ""]), "utf-8")


@pytest.mark.parametrize("is_run", [True, False], ids=["run", "model folder"])
def test_other_columns_and_spellings_can_be_named(cli, run_copy, is_run):
    """The error of a missing column has the setting that names it."""
    write_other_form(run_copy, "other.csv")
    shutil.copytree(run_copy.model, "alone")
    model = run_copy.path if is_run else "alone"
    command = ["eval", model, "--data", "other.csv", "--json"]

    refused = cli(*command)
    missing = "no column 'text'; it has 'body', 'kind'"
    assert_failed(refused, 3, missing, "--set data.text_column=NAME")
    # That is an option of predict.
    assert "--text-column" not in refused.err

    command += ["--set", "data.text_column=body"]
    missing = "no column 'label'; it has 'body', 'kind'"
    assert_failed(cli(*command), 3, missing, "--set data.label_column=NAME")

    command += ["--set", "data.label_column=kind"]
    assert_failed(cli(*command), 3, "' KÜCHE' never occurs in train")

    scored = succeed(cli, *command, "--set", "data.fold_labels=true")
    report = json.loads(cli("eval", run_copy.path, "--json").out)
    assert json.loads(scored.out)["accuracy"] == report["accuracy"]


def test_settings_of_other_data_are_checked(cli, run_copy):
    write_other_form(run_copy, "other.csv")
    command = ["eval", run_copy.path, "--data", "other.csv", "--set", "data.text_column=body"]

    refused = cli(*command, "--set", "data.fold_labels=maybe")
    assert_failed(refused, 2, "data.fold_labels: ", "(found 'maybe')")

    refused = cli(*command, "--set", "data.label_column=body")
    assert_failed(refused, 2, "'body' is also in text_column")


def test_a_column_of_texts_in_training_may_be_one_of_labels(cli, run_copy):
    """The model records the columns of its texts, here another one."""
    Path("other.csv").write_text("body,text\nrain and snow,weather\n", "utf-8")
    save_with("of bodies", text_format=TextFormat(columns=("body",)))

    options = ["--data", "other.csv", "--set", "data.label_column=text"]
    succeed(cli, "eval", "of bodies", *options)


# Another classifier


def test_another_classifier_predicts_the_same_texts(cli, run_copy):
    """Its classes may differ or be in another order: predictions are compared by name."""
    save_with("other", label_names=("weather", "a new one", "küche"))

    report = json.loads(cli("eval", run_copy.path, "--against", "other", "--json").out)

    scored = json_lines(run_copy.eval / "predictions.jsonl")
    predictions = load_classifier("other").predict([row["text"] for row in scored])
    is_correct = []
    for row, prediction in zip(scored, predictions, strict=True):
        is_correct.append(prediction.label == row["label"])
    accuracy = np.mean(is_correct)

    assert accuracy < report["accuracy"]
    assert report["against"]["accuracy"] == pytest.approx(accuracy)
    difference = accuracy - report["accuracy"]
    assert report["against"]["accuracy_difference"] == pytest.approx(difference)

    # The run's own report does not have the comparison.
    assert "against" not in json.loads((run_copy.eval / "report.json").read_text("utf-8"))


def test_a_comparison_is_in_the_text_and_in_all_files_of_a_report(cli, run_copy):
    save_with("other", label_names=("weather", "a new one", "küche"))
    printed = json.loads(cli("eval", run_copy.path, "--against", "other", "--json").out)
    (run_copy.eval / "report.html").write_text("mine")

    outcome = cli("eval", run_copy.path, "--against", "other", "--report", "new")

    assert "other is worse by" in outcome.out
    assert "Other is worse by" in Path("new/report.html").read_text("utf-8")
    written = json.loads(Path("new/report.json").read_text("utf-8"))
    assert written["against"] == printed["against"]
    assert (run_copy.eval / "report.html").read_text() == "mine"


def test_a_model_that_is_surely_worse_can_fail(cli, run_copy):
    """The report is printed and written all the same; a model that is no worse ends with 0."""
    # A model that takes each class for another one.
    first, *others = load_classifier(run_copy.path).label_names
    save_with("other", label_names=(*others, first))
    test = str(run_copy.load_config().data.test)
    options = ["--data", test, "--against", run_copy.path, "--output", "report.json"]

    worse = cli("eval", "other", *options, "--fail-if-worse", "--quiet")

    assert worse.code == 5
    assert "accuracy" in worse.out
    assert json.loads(Path("report.json").read_text("utf-8"))["against"]["p_value"] < 0.05
    error = worse.err.splitlines()[-1]
    assert re.match(r"error: other is worse: .*runs/tiny is better by [\d.]+ points of acc", error)

    assert cli("eval", "other", *options).code == 0
    assert cli("eval", run_copy.path, "--against", "other", "--fail-if-worse").code == 0
    assert cli("eval", run_copy.path, "--against", run_copy.path, "--fail-if-worse").code == 0
    assert_failed(cli("eval", run_copy.path, "--fail-if-worse"), 2, "name a run with --against")


def test_a_quiet_command_writes_only_results_warnings_and_errors(cli, run_copy):
    noted = cli("eval", run_copy.path)
    quiet = cli("eval", run_copy.path, "--quiet")

    assert "wrote " in noted.err
    assert quiet.err == ""
    assert quiet.out == noted.out
    assert cli("--quiet", "eval", run_copy.path).err == ""

    test = str(run_copy.load_config().data.train)
    warned = cli("eval", run_copy.path, "--data", test, "--quiet")
    assert warned.err
    assert all(line.startswith("warning: ") for line in warned.err.splitlines())


def test_classifiers_without_a_class_in_common_are_not_compared(cli, run_copy):
    save_with("other", label_names=("x", "y", "z"))
    refused = cli("eval", run_copy.path, "--against", "other")
    assert_failed(refused, 2, "--against other: its classes (", "are none of those that are scored")
