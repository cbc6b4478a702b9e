"""What `encoder-cls eval` writes, where, and what it says of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.programs import assert_failed

from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation import CHANGED_ANSWERS, DOUBTFUL_LABELS, REPORT_FILES
from encoder_cls.tracking.run_dir import RunDir

pytestmark = pytest.mark.usefixtures("blank_plots")


def test_what_is_written_is_said(cli, run_copy):
    """The run's own report is announced, and a file that was asked for."""
    outcome = cli("eval", run_copy.path, "--output", "report.json")
    assert outcome.code == 0
    written = [name for name in REPORT_FILES if (run_copy.eval / name).exists()]
    assert f"wrote {run_copy.eval}: {', '.join(written)}\n" in outcome.err
    assert "wrote report.json" in outcome.err


@pytest.mark.parametrize("of", ["run", "model"])
def test_a_report_of_any_data_has_all_its_files(cli, run_copy, of):
    """Page, JSON, predictions and picture, in a folder that need not be there; the run's own report stays."""
    data = Path(run_copy.load_config().data.test)
    shutil.copytree(run_copy.model, "alone")
    before = {path.name: path.read_bytes() for path in run_copy.eval.iterdir()}
    outcome = cli("eval", run_copy.path if of == "run" else "alone", "--data", data, "--report", "new/report", "--json")
    assert outcome.code == 0, outcome.err
    assert "wrote new/report: " in outcome.err
    assert {path.name for path in Path("new/report").iterdir()} | {DOUBTFUL_LABELS, CHANGED_ANSWERS} == set(
        REPORT_FILES
    )
    assert json.loads(Path("new/report/report.json").read_text("utf-8")) == json.loads(outcome.out)
    assert len(Path("new/report/predictions.jsonl").read_text("utf-8").splitlines()) == 15
    assert {path.name: path.read_bytes() for path in run_copy.eval.iterdir()} == before


def test_with_a_folder_of_its_own_the_runs_report_stays(cli, run_copy):
    (run_copy.eval / "report.html").write_text("mine")
    assert cli("eval", run_copy.path, "--report", "elsewhere").code == 0
    assert (run_copy.eval / "report.html").read_text() == "mine"
    assert Path("elsewhere/report.html").is_file()


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
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert_failed(
        cli("eval", run_copy.path, *(word.replace("RUN", str(run_copy.path)) for word in arguments)), 2, named
    )
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_a_folder_that_is_refused_is_an_error_where_it_was_asked_for(cli, run_copy, monkeypatch):
    """For the run's own a warning is enough: what was asked for is printed."""

    def refuse(*_arguments, **_options):
        raise EncoderClsError("report.html: cannot write: No space left on device")

    monkeypatch.setattr("encoder_cls.runs.evaluate.write_report", refuse)
    outcome = cli("eval", run_copy.path)
    assert (outcome.code, outcome.err) == (0, "warning: report.html: cannot write: No space left on device\n")
    assert outcome.out.startswith("test: 15 examples")
    outcome = cli("eval", run_copy.path, "--report", "new")
    assert (outcome.code, outcome.err) == (1, "error: report.html: cannot write: No space left on device\n")


def test_to_score_the_training_texts_is_warned_of(cli, run_copy):
    """By what is in the file, not by its name; a file of other texts is scored without a word."""
    data = run_copy.load_config().data
    shutil.copy(data.train, "copy.csv")
    for source in (data.train, "copy.csv"):
        assert (
            f"72 of 72 texts of {source} are among the training texts"
            in cli("eval", run_copy.path, "--data", source).err
        )
    assert "among the training texts" not in cli("eval", run_copy.path, "--data", data.test).err
    assert RunDir(run_copy.path).is_finished()


@pytest.mark.parametrize("of", ["run", "model"])
def test_other_columns_and_spellings_can_be_named(cli, run_copy, of):
    """The error of a missing column has the setting that names it."""
    rows = [line.split(",") for line in Path(run_copy.load_config().data.test).read_text("utf-8").splitlines()[1:]]
    header, lines = "body,kind\n", (f"{text}, {label.upper()}\n" for text, label in rows)
    Path("other.csv").write_text(header + "".join(lines), "utf-8")
    shutil.copytree(run_copy.model, "alone")
    arguments = ["eval", run_copy.path if of == "run" else "alone", "--data", "other.csv", "--json"]
    for key, column in (("text_column", "body"), ("label_column", "kind")):
        refused = cli(*arguments)
        assert_failed(refused, 3, f"no column '{key[:-7]}'; it has 'body', 'kind'", f"--set data.{key}=NAME")
        assert "--text-column" not in refused.err
        arguments += ["--set", f"data.{key}={column}"]
    assert_failed(cli(*arguments), 3, "' KÜCHE' never occurs in train")
    scored = cli(*arguments, "--set", "data.fold_labels=true")
    assert scored.code == 0, scored.err
    expected = json.loads(cli("eval", run_copy.path, "--json").out)
    assert json.loads(scored.out)["accuracy"] == expected["accuracy"]
    assert_failed(cli(*arguments, "--set", "data.fold_labels=yes"), 2, "'yes' is neither true nor false")


def test_another_classifier_answers_the_same_texts(cli, run_copy):
    """Also one with other classes, in another order: answers are compared by name; the run's own report is as ever."""
    folder = Path("other")
    folder.mkdir()
    rows = [line.split(",") for line in Path(run_copy.load_config().data.train).read_text("utf-8").splitlines()[1:]]
    names = {"küche": "küche", "sport": "a new one", "weather": "weather"}
    (folder / "train.csv").write_text("text,label\n" + "".join(f"{text},{names[it]}\n" for text, it in rows), "utf-8")
    (folder / "c.yaml").write_text(f"data: {{train: {folder / 'train.csv'}}}\nmodel: {{encoder: false}}", "utf-8")
    assert cli("train", folder / "c.yaml").code == 0
    outcome = cli("eval", run_copy.path, "--against", "runs/c", "--json")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    scored = [json.loads(line) for line in (run_copy.eval / "predictions.jsonl").read_text("utf-8").splitlines()]
    answered = cli("predict", "--model", "runs/c", "--format", "jsonl", *(it["text"] for it in scored)).out
    of_other = [json.loads(line)["label"] for line in answered.splitlines()]
    labels = [it["label"] for it in scored]
    right = sum(map(str.__eq__, of_other, labels)) / len(labels)
    assert 0.3 < right < 0.8
    assert report["against"]["accuracy"] == pytest.approx(right)
    assert report["against"]["accuracy_difference"] == pytest.approx(right - report["accuracy"])
    assert "against" not in json.loads((run_copy.eval / "report.json").read_text("utf-8"))
    outcome = cli("eval", run_copy.path, "--against", "runs/c", "--report", "new")
    assert "runs/c is worse by" in outcome.out
    assert "Runs/c is worse by" in Path("new/report.html").read_text("utf-8")
    assert json.loads(Path("new/report.json").read_text("utf-8"))["against"] == report["against"]


def test_a_comparison_that_says_nothing_is_refused_or_warned_of(cli, run_copy):
    """No class in common: code 2; the other was trained on these texts: a warning."""
    test = Path(run_copy.load_config().data.test)
    Path("c.yaml").write_text(f"data: {{train: {test}, validation: {test}}}\nmodel: {{encoder: false}}", "utf-8")
    assert cli("train", "c.yaml").code == 0
    outcome = cli("eval", run_copy.path, "--against", "runs/c")
    assert "warning: 15 of 15 texts of --against runs/c are among the training texts" in outcome.err
    Path("d.csv").write_text("text,label\n" + "".join(f"text {i},{'xy'[i % 2]}\n" for i in range(20)))
    Path("d.yaml").write_text("data: {train: d.csv}\nmodel: {encoder: false}", "utf-8")
    assert cli("train", "d.yaml").code == 0
    assert_failed(
        cli("eval", run_copy.path, "--against", "runs/d"),
        2,
        "--against runs/d: knows none of the classes that are scored",
    )
