"""`encoder-cls eval`: what it scores, prints, writes and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.programs import assert_failed, hashes
from support.reports import BASELINE_SCORES

from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation.files import CHANGED_PREDICTIONS, DOUBTFUL_LABELS, REPORT_FILES

TOP_LEVEL = {
    "accuracy",
    "macro_f1",
    "ece",
    "num_examples",
    "per_class",
    "confusion_matrix",
    "linear_reference",
}
TOP_LEVEL |= {"accuracy_interval", "macro_f1_interval", "parts", "comparison", "mixture_shares"}
pytestmark = pytest.mark.usefixtures("blank_plots")


def test_eval_prints_and_writes_json_as_contracted(cli, run_copy):
    """What programs read is at the top level of valid JSON, equal on stdout and in the file."""
    outcome = cli("eval", run_copy.path, "--json", "--output", "out/report.json")
    assert outcome.code == 0
    written = [name for name in REPORT_FILES if (run_copy.eval / name).exists()]
    assert f"wrote {run_copy.eval}: {', '.join(written)}\n" in outcome.err
    assert "wrote out/report.json" in outcome.err

    def no_constant(name):
        raise AssertionError(f"{name} is not JSON")

    report = json.loads(outcome.out, parse_constant=no_constant)
    assert report.keys() >= TOP_LEVEL
    assert json.loads(Path("out/report.json").read_bytes()) == report
    assert (report["split"], report["num_examples"]) == ("test", 15)
    assert report["per_class"].keys() == {"küche", "sport", "weather"}
    assert all(
        scores.keys() == {"precision", "recall", "f1", "support"}
        for scores in report["per_class"].values()
    )
    assert np.sum(report["confusion_matrix"]) == 15
    assert report["linear_reference"].keys() == BASELINE_SCORES.keys()
    assert report["comparison"].keys() == {"combined_minus_linear", "interval", "is_sure"}
    for part in report["parts"].values():
        assert part.keys() == {"accuracy", "accuracy_interval", "macro_f1", "macro_f1_interval"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_eval_repeats_the_final_report_of_the_training(cli, run_copy, monkeypatch):
    monkeypatch.undo()  # the picture as well
    before = contents(run_copy.eval)
    assert set(before) == set(REPORT_FILES) - {CHANGED_PREDICTIONS}
    for name in before:
        (run_copy.eval / name).unlink()
    outcome = cli("eval", run_copy.path)
    assert outcome.code == 0
    assert outcome.out.startswith("test: 15 examples\n")
    assert b"<title>tiny: report on test</title>" in before["report.html"]
    assert contents(run_copy.eval) == before


def change_data(run, **values) -> None:
    config = yaml.safe_load(run.config_file.read_text(encoding="utf-8"))
    config["data"] |= values
    run.config_file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")


def test_eval_without_a_test_split_scores_validation(cli, run_copy):
    change_data(run_copy, test=None)
    assert cli("eval", run_copy.path).out.startswith("validation: 12 examples\n")


@pytest.mark.parametrize("training_texts_gone", [False, True])
def test_eval_of_another_file_leaves_the_runs_own_report(cli, run_copy, training_texts_gone):
    """Where the training texts are gone, nothing but the baseline is missing."""
    Path("other.csv").write_text(
        "text,label\nrain and snow,weather\nsoup,sport\n", encoding="utf-8"
    )
    if training_texts_gone:
        change_data(run_copy, train="gone.csv")
    before = contents(run_copy.eval)
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    report = json.loads(outcome.out)
    assert (report["split"], report["num_examples"], report["accuracy"]) == ("other.csv", 2, 0.5)
    assert (report["linear_reference"] is None) == training_texts_gone
    assert ("no TF-IDF baseline" in outcome.err) == training_texts_gone
    assert "wrote" not in outcome.err
    assert contents(run_copy.eval) == before


def copied_training_texts(run, more: str) -> None:
    """Give the run a training file of its own, with some rows more."""
    train = Path(yaml.safe_load(run.config_file.read_text(encoding="utf-8"))["data"]["train"])
    Path("train.csv").write_text(train.read_text(encoding="utf-8") + more, encoding="utf-8")
    change_data(run, train="train.csv")


def test_eval_refuses_classes_that_have_changed_since(cli, run_copy):
    """Their numbers differ from the classifier's, so that no score would mean anything."""
    copied_training_texts(run_copy, "a flute,music\n")
    assert_failed(cli("eval", run_copy.path), 3, "classes have changed")
    Path("other.csv").write_text(
        "text,label\nrain and snow,weather\nball and goal,sport\n", encoding="utf-8"
    )
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    found = json.loads(outcome.out)
    assert (found["accuracy"], found["linear_reference"]) == (1, None)
    assert "classes have changed" in outcome.err


def test_eval_refuses_to_hold_out_of_other_texts(cli, run_copy):
    """Of a file that has grown, other texts would be held out; a test file is still scored."""
    change_data(run_copy, validation=None)
    copied_training_texts(run_copy, "more rain,weather\n")
    assert cli("eval", run_copy.path).code == 0
    change_data(run_copy, test=None)
    assert_failed(cli("eval", run_copy.path), 3, "has changed since the run began")


def test_a_folder_beside_a_config_is_no_run(cli, run_copy):
    """Only `model` belongs to the run around it, by whatever path it is named."""
    moved = run_copy.model.rename(run_copy.path / "mine")
    assert cli("eval", moved).code == 2
    moved.rename(run_copy.model)
    assert cli("eval", run_copy.model).out.startswith("test: 15 examples\n")


@pytest.mark.parametrize("others", ["data: {train: x.csv}\nlr: 1\n", ": ["])
def test_the_config_of_another_program_beside_a_model_is_not_its_runs(cli, run_copy, others):
    """Any program may have a config.yaml: neither eval nor predict takes it for the run's."""
    moved = run_copy.model.rename(Path("model").absolute())
    Path("config.yaml").write_text(others)
    assert_failed(cli("eval", moved), 2, "--data")
    Path("other.csv").write_text("text,label\nrain and snow,weather\n", encoding="utf-8")
    assert cli("eval", moved, "--data", "other.csv").out.startswith("other.csv: 1 example\n")
    assert cli("predict", "--model", moved, "--input", "other.csv").code == 0


def test_nothing_in_a_report_steers_a_terminal(cli, run_copy):
    """Control characters of a text are escaped in JSON, and restored when it is read."""
    text = "rain \x85\x9b31m \u202e and snow"
    Path("other.csv").write_text(f"text,label\n{text},sport\n", encoding="utf-8")
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    assert outcome.out.replace("\n", "").isprintable()
    assert json.loads(outcome.out)["worst_errors"][0]["text"] == text
    change_data(run_copy, test="other.csv")
    assert cli("eval", run_copy.path).code == 0
    (line,) = (run_copy.eval / "predictions.jsonl").read_text("utf-8").splitlines()
    assert line.isprintable()
    assert json.loads(line)["text"] == text


@pytest.mark.parametrize("of", ["run", "model"])
def test_a_report_of_any_data_has_all_its_files(cli, run_copy, of):
    """It has page, JSON, predictions and picture; the run's own report stays."""
    data = Path(run_copy.load_config().data.test)
    shutil.copytree(run_copy.model, "alone")
    before = contents(run_copy.eval)
    outcome = cli(
        "eval",
        run_copy.path if of == "run" else "alone",
        "--data",
        data,
        "--report",
        "new/report",
        "--json",
    )
    assert outcome.code == 0, outcome.err
    assert "wrote new/report: " in outcome.err
    assert {it.name for it in Path("new/report").iterdir()} | {
        DOUBTFUL_LABELS,
        CHANGED_PREDICTIONS,
    } == {*REPORT_FILES}
    assert json.loads(Path("new/report/report.json").read_text("utf-8")) == json.loads(outcome.out)
    assert len(Path("new/report/predictions.jsonl").read_text("utf-8").splitlines()) == 15
    assert contents(run_copy.eval) == before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--report", "RUN/eval"], "is a part of"),
        (["--report", "new", "--output", "new/report.json"], "two outputs"),
        (["--report", "a file"], "is not a folder"),
        (["--report", "here", "--data", "here"], "is among what is read"),
    ],
)
def test_a_report_is_written_over_nothing_that_is_read(cli, run_copy, arguments, named):
    """Nor twice, and not into what is no folder: code 2 before any work."""
    Path("a file").write_text("mine")
    Path("here").mkdir()
    Path("here/data.csv").write_text("text,label\nrain,weather\n")
    before = hashes(Path())
    arguments = [word.replace("RUN", str(run_copy.path)) for word in arguments]
    assert_failed(cli("eval", run_copy.path, *arguments), 2, named)
    assert hashes(Path()) == before


def test_a_folder_that_is_refused_is_an_error_where_it_was_asked_for(cli, run_copy, monkeypatch):
    """For the run's own a warning is enough: what was asked for is printed."""

    def refuse(*_arguments, **_options):
        raise EncoderClsError("report.html: cannot write: No space left on device")

    monkeypatch.setattr("encoder_cls.run.evaluate.write_report", refuse)
    outcome = cli("eval", run_copy.path)
    assert (outcome.code, outcome.err) == (
        0,
        "warning: report.html: cannot write: No space left on device\n",
    )
    assert outcome.out.startswith("test: 15 examples")
    outcome = cli("eval", run_copy.path, "--report", "new")
    assert (outcome.code, outcome.err) == (
        1,
        "error: report.html: cannot write: No space left on device\n",
    )


def test_to_score_the_training_texts_is_warned_of(cli, run_copy):
    """By what is in the file, not by its name; a file of other texts is scored without a word."""
    data, seen = run_copy.load_config().data, "are among the training texts"
    shutil.copy(data.train, "copy.csv")
    warned = cli("eval", run_copy.path, "--data", "copy.csv", "--against", run_copy.path).err
    assert f"72 of 72 texts of copy.csv {seen}" in warned
    assert f"72 of 72 texts of --against {run_copy.path} {seen}" in warned
    assert "among the training texts" not in cli("eval", run_copy.path, "--data", data.test).err


@pytest.mark.parametrize("of", ["run", "model"])
def test_other_columns_and_spellings_can_be_named(cli, run_copy, of):
    """The error of a missing column has the setting that names it."""
    rows = [
        line.split(",")
        for line in Path(run_copy.load_config().data.test).read_text("utf-8").splitlines()[1:]
    ]
    Path("other.csv").write_text(
        "body,kind\n" + "".join(f"{text}, {label.upper()}\n" for text, label in rows), "utf-8"
    )
    shutil.copytree(run_copy.model, "alone")
    arguments = ["eval", run_copy.path if of == "run" else "alone", "--data", "other.csv", "--json"]
    for key, column in (("text_column", "body"), ("label_column", "kind")):
        refused = cli(*arguments)
        assert_failed(
            refused, 3, f"no column '{key[:-7]}'; it has 'body', 'kind'", f"--set data.{key}=NAME"
        )
        assert "--text-column" not in refused.err
        arguments += ["--set", f"data.{key}={column}"]
    assert_failed(cli(*arguments), 3, "' KÜCHE' never occurs in train")
    scored = cli(*arguments, "--set", "data.fold_labels=true")
    expected = json.loads(cli("eval", run_copy.path, "--json").out)
    assert (scored.code, json.loads(scored.out)["accuracy"]) == (0, expected["accuracy"])
    assert_failed(
        cli(*arguments, "--set", "data.fold_labels=maybe"),
        2,
        "data.fold_labels: ",
        "(found 'maybe')",
    )
    assert_failed(
        cli(*arguments, "--set", "data.label_column=body"), 2, "'body' is in text_column, too"
    )
    Path("other.csv").write_text(
        "body,text\n" + "".join(f"{text},{label}\n" for text, label in rows), "utf-8"
    )
    save_with("of bodies", text_format=TextFormat(columns=("body",)))
    assert (
        cli("eval", "of bodies", "--data", "other.csv", "--set", "data.label_column=text").code == 0
    )


def save_with(folder: str, **values: object) -> None:
    """A model folder of the trained run with other values."""
    classifier = load_classifier("runs/tiny")
    vars(classifier).update(values)
    save_classifier(classifier, Path(folder))


def test_another_classifier_predicts_the_same_texts(cli, run_copy):
    """Its classes may differ or be in another order: answers are compared by name."""
    save_with("other", label_names=("weather", "a new one", "küche"))
    report = json.loads(cli("eval", run_copy.path, "--against", "other", "--json").out)
    scored = [
        json.loads(line)
        for line in (run_copy.eval / "predictions.jsonl").read_text("utf-8").splitlines()
    ]
    predictions = [
        it.label for it in load_classifier("other").predict([it["text"] for it in scored])
    ]
    right = np.mean(
        [prediction == it["label"] for prediction, it in zip(predictions, scored, strict=True)]
    )
    assert right < report["accuracy"]
    assert report["against"]["accuracy"] == pytest.approx(right)
    assert report["against"]["accuracy_difference"] == pytest.approx(right - report["accuracy"])
    assert "against" not in json.loads((run_copy.eval / "report.json").read_text("utf-8"))
    (run_copy.eval / "report.html").write_text("mine")
    outcome = cli("eval", run_copy.path, "--against", "other", "--report", "new")
    assert (run_copy.eval / "report.html").read_text() == "mine"
    assert "other is worse by" in outcome.out
    assert "Other is worse by" in Path("new/report.html").read_text("utf-8")
    assert json.loads(Path("new/report.json").read_text("utf-8"))["against"] == report["against"]


def test_classifiers_without_a_class_in_common_are_not_compared(cli, run_copy):
    save_with("other", label_names=("x", "y", "z"))
    refused = cli("eval", run_copy.path, "--against", "other")
    assert_failed(refused, 2, "--against other: knows none of the classes that are scored")
