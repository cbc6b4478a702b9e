"""Evaluation of runs: reports that programs read, and the data that they are on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.reports import REFERENCE, split_of

from encoder_cls.evaluation import DOUBTFUL_LABELS
from encoder_cls.evaluation.report import evaluate

TOP_LEVEL = {"accuracy", "macro_f1", "ece", "num_examples", "per_class", "confusion_matrix", "linear_reference"}
TOP_LEVEL |= {"accuracy_interval", "macro_f1_interval", "parts", "comparison", "mixture_shares"}


def test_the_worst_errors_come_first(classifier):
    """Of 33 wrong labels, the 20 that the classifier was surest of, each with its file and line."""
    texts = [f"{word}{' of' * i}" for i in range(11) for word in ("rain snow", "soup salt", "ball goal")]
    wrong = np.array([0, 1, 2] * 11)  # küche, sport, weather: each is another's
    split = split_of(texts, wrong)
    report, _ = evaluate(classifier, split, name="wrong", reference=None)
    errors = report.worst_errors
    assert report.metrics.accuracy == 0
    assert [error.probability for error in errors] == sorted((error.probability for error in errors), reverse=True)
    assert len(errors) == 20
    everything = classifier.predict(texts)
    assert errors[0].probability == pytest.approx(max(prediction.probability for prediction in everything))
    for error in errors:
        index = int(error.where.removeprefix("f.csv:")) - 2
        assert error.text == texts[index]
        assert (error.labelled, error.answer) == ((classifier.label_names[wrong[index]],), everything[index].label)


def test_errors_are_explained_for_the_class_that_was_answered(classifier):
    """The words of a mistake, each with what it did."""
    split = split_of(["rain and snow"], classifier.label_names.index("sport"))
    report, _ = evaluate(classifier, split, name="x", reference=None)
    (error,) = report.worst_errors
    assert error.answer == "weather"
    assert [word.word for word in error.words] == ["rain", "and", "snow"]
    assert max(error.words, key=lambda word: word.weight).word in {"rain", "snow"}


def test_eval_prints_and_writes_json_as_contracted(cli, run_copy):
    """The keys that programs read are at the top level, of valid JSON, the same on stdout and in the file."""
    outcome = cli("eval", run_copy.path, "--json", "--output", "out/report.json")
    assert outcome.code == 0

    def no_constant(name):
        raise AssertionError(f"{name} is not JSON")

    report = json.loads(outcome.out, parse_constant=no_constant)
    assert report.keys() >= TOP_LEVEL
    assert json.loads(Path("out/report.json").read_bytes()) == report
    assert (report["split"], report["num_examples"]) == ("test", 15)
    assert report["per_class"].keys() == {"küche", "sport", "weather"}
    assert all(scores.keys() == {"precision", "recall", "f1", "support"} for scores in report["per_class"].values())
    assert np.sum(report["confusion_matrix"]) == 15
    assert report["linear_reference"].keys() == REFERENCE.keys()


def test_eval_repeats_the_final_report_of_the_training(cli, run_copy):
    """The same weights on the same texts: the same files."""
    names = ["confusion_matrix.png", DOUBTFUL_LABELS, "mistakes.csv", "predictions.jsonl", "report.html", "report.json"]
    before = {path.name: path.read_bytes() for path in run_copy.eval.iterdir()}
    assert sorted(before) == names
    for name in names:
        (run_copy.eval / name).unlink()
    outcome = cli("eval", run_copy.path)
    assert outcome.code == 0
    assert outcome.out.startswith("test: 15 examples\n")
    assert b"<title>tiny: report on test</title>" in before["report.html"]
    assert {path.name: path.read_bytes() for path in run_copy.eval.iterdir()} == before


def test_predictions_are_written_for_each_text(trained_run):
    """A line for each text of the split, in order, with its file and line, label and prediction."""
    rows = [json.loads(line) for line in (trained_run.eval / "predictions.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 15
    assert all(row.keys() == {"where", "text", "label", "prediction", "probability"} for row in rows)
    assert rows[0]["where"].endswith("test.csv:2")
    report = json.loads((trained_run.eval / "report.json").read_bytes())
    assert np.mean([row["label"] == row["prediction"] for row in rows]) == report["accuracy"]


def change_data(run, **values) -> None:
    config = yaml.safe_load(run.config_file.read_text(encoding="utf-8"))
    config["data"] |= values
    run.config_file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")


def test_eval_without_a_test_split_scores_validation(cli, run_copy):
    """The report says which split it is of."""
    change_data(run_copy, test=None)
    found = cli("eval", run_copy.path).out
    assert found.startswith("validation: 12 examples\n")
    assert "these texts also chose the weights" in found


@pytest.mark.parametrize("training_texts_gone", [False, True])
def test_eval_of_another_file_leaves_the_runs_own_report(cli, run_copy, training_texts_gone):
    """The `eval` folder is of the run's own data; without training texts there is only no TF-IDF baseline."""
    Path("other.csv").write_text("text,label\nrain and snow,weather\nsoup,sport\n", encoding="utf-8")
    if training_texts_gone:
        change_data(run_copy, train="gone.csv")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run_copy.eval.iterdir()}
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    report = json.loads(outcome.out)
    assert (report["split"], report["num_examples"], report["accuracy"]) == ("other.csv", 2, 0.5)
    assert (report["linear_reference"] is None) == training_texts_gone
    assert ("no TF-IDF baseline" in outcome.err) == training_texts_gone
    assert "wrote" not in outcome.err
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run_copy.eval.iterdir()} == before


def copied_training_texts(run, more: str) -> None:
    """Give the run a training file of its own, with some rows more."""
    train = Path(yaml.safe_load(run.config_file.read_text(encoding="utf-8"))["data"]["train"])
    Path("train.csv").write_text(train.read_text(encoding="utf-8") + more, encoding="utf-8")
    change_data(run, train="train.csv")


def test_eval_refuses_classes_that_have_changed_since(cli, run_copy):
    """Their numbers are others than the classifier's: neither scores nor a baseline would mean anything."""
    copied_training_texts(run_copy, "a flute,music\n")
    refused = cli("eval", run_copy.path)
    assert refused.code == 3
    assert "classes have changed" in refused.err
    Path("other.csv").write_text("text,label\nrain and snow,weather\nball and goal,sport\n", encoding="utf-8")
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    assert json.loads(outcome.out)["accuracy"] == 1
    assert json.loads(outcome.out)["linear_reference"] is None
    assert "classes have changed" in outcome.err


def test_eval_refuses_to_hold_out_of_other_texts(cli, run_copy):
    """Of a file that has grown, others would be held out than were in training; a test file is scored all the same."""
    change_data(run_copy, validation=None)
    copied_training_texts(run_copy, "more rain,weather\n")
    assert cli("eval", run_copy.path).code == 0
    change_data(run_copy, test=None)
    refused = cli("eval", run_copy.path)
    assert refused.code == 3
    assert "has changed since the run began" in refused.err


def test_a_folder_beside_a_config_is_no_run(cli, run_copy):
    """Only `model` belongs to the run around it, by whatever path it is named."""
    moved = run_copy.model.rename(run_copy.path / "mine")
    assert cli("eval", moved).code == 2
    moved.rename(run_copy.model)
    assert cli("eval", run_copy.model).out.startswith("test: 15 examples\n")


@pytest.mark.parametrize("others", ["batch_size: 3\n", "data: {train: x.csv}\nlr: 1\n", "- a\n", ": ["])
def test_a_model_beside_the_config_of_another_program_stands_by_itself(cli, run_copy, others):
    """Any program may have a config.yaml: neither eval nor predict takes it for the run's; eval needs data then."""
    moved = run_copy.model.rename(Path("model").absolute())
    Path("config.yaml").write_text(others)
    refused = cli("eval", moved)
    assert refused.code == 2
    assert "--data" in refused.err
    Path("other.csv").write_text("text,label\nrain and snow,weather\n", encoding="utf-8")
    assert cli("eval", moved, "--data", "other.csv").out.startswith("other.csv: 1 example\n")
    assert cli("predict", "--model", moved, "--input", "other.csv").code == 0


def test_nothing_in_a_report_steers_a_terminal(cli, run_copy):
    """Control characters of a text are escaped in JSON, and say the same when it is read."""
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
