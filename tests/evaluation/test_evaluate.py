"""Evaluation: every number against another way to compute it, and reports that people and programs read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn import metrics as reference

from encoder_cls.data.split import Split
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.metrics import (
    LARGEST_MATRIX,
    MIN_PROBABILITY,
    MOST_CONFUSED,
    ClassMetrics,
    Metrics,
    calibration_bins,
    compute_metrics,
    expected_calibration_error,
    most_confused,
)
from encoder_cls.evaluation.page import render_report
from encoder_cls.evaluation.report import Report, report_text
from encoder_cls.evaluation.scores import PartScores
from encoder_cls.inference.task import softmax

NAMES = ("a", "b", "c", "d", "e")
TOP_LEVEL = {"accuracy", "macro_f1", "ece", "num_examples", "per_class", "confusion_matrix", "linear_reference"}
TOP_LEVEL |= {"accuracy_interval", "macro_f1_interval", "parts", "comparison", "mixture_shares"}


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of 200 texts, often right; the last class never occurs and is never predicted."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(200, 5)).astype(np.float32)
    logits[:, 4] = -20
    return logits, (logits + draw.normal(scale=0.9, size=(200, 5))).argmax(axis=1)


def scores_of(accuracy: float) -> PartScores:
    interval = (accuracy - 0.125, accuracy + 0.125)
    return PartScores(accuracy=accuracy, accuracy_interval=interval, macro_f1=0.5, macro_f1_interval=(0.25, 0.75))


def report_of(matrix, *, names=NAMES, accuracy=0.5, reference=None) -> Report:
    per_class = dict.fromkeys(names, ClassMetrics(precision=0.5, recall=0.5, f1=0.5, support=1))
    bins = calibration_bins(np.array([0.5, 0.7]), np.array([False, True]))
    numbers = {"num_examples": 2, "accuracy": accuracy, "macro_f1": 0.5, "loss": 1.0, "ece": 0.1}
    return Report(
        split="test",
        label_names=tuple(names),
        metrics=Metrics(
            **numbers,
            per_class=per_class,
            calibration=bins,
            confusion_matrix=matrix,
            most_confused=[],
            unseen_labels={},
        ),
        parts={"combined": scores_of(accuracy), "encoder": scores_of(accuracy)},
        comparison=None,
        mixture_shares={"encoder": 1.0},
        linear_reference=reference,
        suggested_threshold=None,
        answered_fraction=1.0,
        worst_errors=[],
        truncated_fraction=0.0,
        unknown_fraction=0.0,
    )


def reference_of(**values) -> dict[str, object]:
    numbers = {"accuracy": 0.5, "macro_f1": 0.5, "texts": 9, "of_texts": 9, "features": 7, "of_features": 7}
    return numbers | {"accuracy_interval": (0.4, 0.8), "macro_f1_interval": (0.4, 0.8)} | values


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("seed", range(3))
def test_metrics_agree_with_scikit_learn(seed):
    """Each number is what scikit-learn finds by itself; a class that does not occur leaves macro-F1 alone."""
    logits, labels = random_case(seed)
    metrics, predictions = compute_metrics(logits, labels, NAMES), logits.argmax(axis=1)
    assert metrics.num_examples == 200
    assert metrics.accuracy == pytest.approx(reference.accuracy_score(labels, predictions))
    assert metrics.macro_f1 == pytest.approx(reference.f1_score(labels, predictions, average="macro"))
    assert metrics.loss == pytest.approx(reference.log_loss(labels, softmax(logits), labels=range(5)))
    assert metrics.confusion_matrix == reference.confusion_matrix(labels, predictions, labels=range(5)).tolist()
    assert list(metrics.per_class) == list(NAMES)
    for number, scores in enumerate(metrics.per_class.values()):
        truth, found = labels == number, predictions == number
        assert scores.support == truth.sum()
        for score, value in (("precision", scores.precision), ("recall", scores.recall), ("f1", scores.f1)):
            expected = getattr(reference, f"{score}_score")(truth, found, zero_division=0)
            assert value == (pytest.approx(expected) if truth.any() else None)


def test_rows_of_the_confusion_matrix_are_labels():
    """Three texts of class a, one of them taken for b."""
    logits = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert compute_metrics(logits, np.array([0, 0, 0]), ("a", "b")).confusion_matrix == [[2, 1], [0, 0]]


def test_the_loss_of_a_certain_mistake_is_finite():
    """A probability that underflows to 0 costs much, not infinitely much: as in calibration."""
    metrics = compute_metrics(np.array([[2000, 0]], dtype=np.float32), np.array([1]), ("a", "b"))
    assert metrics.loss == pytest.approx(-np.log(MIN_PROBABILITY))


@pytest.mark.parametrize("seed", range(3))
def test_the_calibration_error_agrees_with_a_plain_loop(seed):
    """Fifteen bins of equal width, each weighted by its size."""
    logits, labels = random_case(seed)
    probabilities = softmax(logits)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    expected = 0.0
    for number in range(15):
        members = [
            i for i, c in enumerate(confidence) if number / 15 <= c < (number + 1) / 15 or (number == 14 and c == 1)
        ]
        if members:
            gap = np.mean([correct[i] for i in members]) - np.mean([confidence[i] for i in members])
            expected += len(members) / len(labels) * abs(gap)
    assert compute_metrics(logits, labels, NAMES).ece == pytest.approx(expected)


@pytest.mark.parametrize(
    ("confidence", "correct", "expected"),
    [
        ([1, 1], [True, True], 0),
        ([0.95, 0.95], [True, False], 0.45),
        ([1, 1, 0.5], [True, True, False], 0.5 / 3),
        ([0.9, 0.6], [False, True], 0.65),
        ([1, 0.95], [False, True], 0.475),
    ],
)
def test_the_calibration_error_of_known_cases(confidence, correct, expected):
    """Certainty belongs to the last bin; gaps of opposite sign in different bins do not cancel."""
    assert expected_calibration_error(calibration_bins(np.array(confidence), np.array(correct))) == pytest.approx(
        expected
    )


def test_the_worst_errors_come_first(classifier):
    """Of 33 wrong labels, the 20 that the classifier was surest of, each with its file and line."""
    texts = [f"{word}{' of' * i}" for i in range(11) for word in ("rain snow", "soup salt", "ball goal")]
    wrong = np.array([0, 1, 2] * 11)  # küche, sport, weather: each is another's
    split = Split(texts=texts, labels=wrong, where=[f"file:{i}" for i in range(33)])
    report, _ = evaluate(classifier, split, name="wrong", reference=None)
    errors = report.worst_errors
    assert report.metrics.accuracy == 0
    assert [error.probability for error in errors] == sorted((error.probability for error in errors), reverse=True)
    assert len(errors) == 20
    everything = classifier.predict(texts)
    assert errors[0].probability == pytest.approx(max(prediction.probability for prediction in everything))
    for error in errors:
        index = int(error.where.removeprefix("file:"))
        assert error.text == texts[index]
        assert (error.label, error.prediction) == (classifier.label_names[wrong[index]], everything[index].label)


def test_the_most_confused_classes_are_found():
    """Mistakes only, the most frequent first, of equals the first class first; no more than are named."""
    matrix = np.array([[9, 2, 0], [7, 1, 0], [2, 3, 4]])
    labels, predictions = (part.repeat(matrix.ravel()) for part in np.indices(matrix.shape).reshape(2, -1))
    found = [(it.label, it.prediction, it.count) for it in most_confused(labels, predictions, ("x", "y", "z"))]
    assert found == [("y", "x", 7), ("z", "y", 3), ("x", "y", 2), ("z", "x", 2)]
    many = np.arange(MOST_CONFUSED + 5)
    assert len(most_confused(many, many[::-1] + len(many), [str(i) for i in range(2 * len(many))])) == MOST_CONFUSED


def test_labels_that_training_never_showed_are_mistakes_without_a_probability():
    """They count in accuracy, have a recall of 0, and change neither the loss nor the calibration error."""
    logits, labels = random_case(0)
    known = compute_metrics(logits, labels, NAMES)
    metrics = compute_metrics(
        np.vstack([logits, logits[:20]]), np.append(labels, [5] * 15 + [6] * 5), (*NAMES, "x", "y")
    )
    assert metrics.num_examples == 220
    assert metrics.accuracy == pytest.approx(known.accuracy * 200 / 220)
    assert (metrics.loss, metrics.ece, metrics.calibration) == (known.loss, known.ece, known.calibration)
    assert metrics.unseen_labels == {"x": 15, "y": 5}
    assert (metrics.per_class["x"].recall, metrics.per_class["x"].support) == (0, 15)
    assert np.sum(metrics.confusion_matrix, axis=1)[5:].tolist() == [15, 5]
    assert known.unseen_labels == {}


@pytest.mark.parametrize(("classes", "drawn"), [(LARGEST_MATRIX, True), (LARGEST_MATRIX + 1, False)])
def test_the_report_of_many_classes_names_the_confused_pairs_instead_of_a_matrix(classifier, classes, drawn):
    """A matrix of a thousand classes had a million cells: 65 MB that nobody could read."""
    names = tuple(f"class {number}" for number in range(classes))
    labels = np.arange(classes)
    logits = np.eye(classes, dtype=np.float32)[(labels + (labels % 2)) % classes] * 9
    metrics = compute_metrics(logits, labels, names)
    report = replace(report_of(None, names=names), metrics=metrics, label_names=names)
    page = render_report("many", report, Split(texts=["x"] * classes, labels=labels, where=[""] * classes), logits)
    assert (metrics.confusion_matrix is not None) == drawn
    assert ('<table class="sortable matrix"' in page) == drawn
    assert ("class 1, taken for class 2: 1" in page) == drawn
    assert (f"{classes} classes are more than the {LARGEST_MATRIX}" in page) != drawn
    assert len(page) < 1_500_000
    assert {"label": "class 1", "prediction": "class 2", "count": 1} in report.to_dict()["most_confused"]


# ---------------------------------------------------------------- reports


@pytest.mark.parametrize(
    ("accuracy", "linear", "words"),
    [
        (0.5, 0.6, ["accuracy 0.6000", "more accurate here; a linear model alone: --set model.encoder=false"]),
        (0.6, 0.6, ["accuracy 0.6000"]),
        (0.5, None, ["linear reference: none"]),
    ],
)
def test_the_report_says_when_the_linear_model_is_better(accuracy, linear, words):
    """Whoever would do better without this program is told so, and nobody else."""
    numbers = None if linear is None else reference_of(accuracy=linear)
    text = report_text(report_of(np.eye(5, dtype=int).tolist(), accuracy=accuracy, reference=numbers))
    assert all(word in text for word in words)
    assert ("more accurate" in text) == (linear is not None and linear > accuracy)


def test_the_report_says_what_a_threshold_does():
    """Of how many texts there would still be an answer; nothing where none is needed, or none is known."""
    matrix = np.eye(5, dtype=int).tolist()
    found = report_text(replace(report_of(matrix), suggested_threshold=0.9961, answered_fraction=0.66))
    assert "answers from probability 0.996 up (--threshold), 66% of all, are right 95% of the time" in found
    for none in (None, 0.0):
        assert "--threshold" not in report_text(replace(report_of(matrix), suggested_threshold=none))


def test_only_a_report_on_validation_texts_says_what_else_they_did():
    """They are not new to the classifier as those of a test split or another file are."""
    for split in ("validation", "test", "some.csv"):
        text = report_text(replace(report_of(np.eye(5, dtype=int).tolist()), split=split))
        assert ("chose the weights" in text) == (split == "validation")


def test_the_report_says_of_how_many_texts_the_linear_model_is():
    """Where it was not trained on all of them or on all their features, and only there."""
    cases = (
        ({"texts": 2000, "of_texts": 30_000}, "(TF-IDF, linear SVM, trained on 2,000 of 30,000 texts)"),
        ({"features": 5, "of_features": 9}, "SVM, trained on 5 of 9 features)"),
        ({"texts": 1, "features": 5, "of_features": 8}, "SVM, trained on 1 of 9 texts and 5 of 8 features)"),
        ({}, "linear SVM):"),
    )
    for values, words in cases:
        assert words in report_text(report_of(np.eye(5, dtype=int).tolist(), reference=reference_of(**values)))


def test_the_report_tells_of_labels_that_training_never_showed():
    """How many texts, which labels, and what follows; nothing where there are none."""
    report = report_of(np.eye(5, dtype=int).tolist())
    assert "never occur" not in report_text(report)
    unseen = replace(report, metrics=replace(report.metrics, unseen_labels={"x\x1b": 15, "y": 5}))
    assert "20 texts have labels that never occur in the training data ('x\\x1b', 'y')" in report_text(unseen)


@pytest.mark.parametrize(("classes", "table"), [(3, True), (100, False)])
def test_the_report_fits_a_terminal(classes, table):
    """A line for each class; the confusion matrix only where it fits; no control character of a class name."""
    names = [f"{number}\x1b[2J\u202e" for number in range(classes)]
    text = report_text(report_of(np.ones((classes, classes), dtype=int).tolist(), names=names))
    assert ("confusion matrix (rows" in text) == table
    assert ("no matrix here: 100 classes are more than" in text) != table
    assert sum(line.endswith("       1") for line in text.splitlines()) >= classes
    assert text.replace("\n", "").isprintable()


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
    assert report["linear_reference"].keys() == reference_of().keys()


def test_eval_repeats_the_final_report_of_the_training(cli, run_copy):
    """The same weights on the same texts: the same five files."""
    names = ["confusion_matrix.png", "mistakes.csv", "predictions.jsonl", "report.html", "report.json"]
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
    assert cli("eval", run_copy.path).out.startswith("validation: 12 examples\n  these texts also chose the weights")


@pytest.mark.parametrize("training_texts_gone", [False, True])
def test_eval_of_another_file_leaves_the_runs_own_report(cli, run_copy, training_texts_gone):
    """The `eval` folder is of the run's own data; without training texts there is only no linear reference."""
    Path("other.csv").write_text("text,label\nrain and snow,weather\nsoup,sport\n", encoding="utf-8")
    if training_texts_gone:
        change_data(run_copy, train="gone.csv")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run_copy.eval.iterdir()}
    outcome = cli("eval", run_copy.path, "--data", "other.csv", "--json")
    report = json.loads(outcome.out)
    assert (report["split"], report["num_examples"], report["accuracy"]) == ("other.csv", 2, 0.5)
    assert (report["linear_reference"] is None) == training_texts_gone
    assert ("no linear reference" in outcome.err) == training_texts_gone
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run_copy.eval.iterdir()} == before


def copied_training_texts(run, more: str) -> None:
    """Give the run a training file of its own, with some rows more."""
    train = Path(yaml.safe_load(run.config_file.read_text(encoding="utf-8"))["data"]["train"])
    Path("train.csv").write_text(train.read_text(encoding="utf-8") + more, encoding="utf-8")
    change_data(run, train="train.csv")


def test_eval_refuses_classes_that_have_changed_since(cli, run_copy):
    """Their numbers are others than the classifier's: neither scores nor a linear reference would mean anything."""
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
    """Any program may have a config.yaml: neither eval nor predict takes it for the run's."""
    moved = run_copy.model.rename(Path("model").absolute())
    Path("config.yaml").write_text(others)
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


def test_eval_of_a_model_folder_needs_data(cli, run_copy):
    """A model that was moved away from its run can still be scored."""
    moved = run_copy.model.rename(Path("moved"))
    refused = cli("eval", moved)
    assert refused.code == 2
    assert "--data" in refused.err
    Path("other.csv").write_text("text,label\nrain and snow,weather\n", encoding="utf-8")
    assert cli("eval", moved, "--data", "other.csv").out.startswith("other.csv: 1 example\n")


def test_eval_of_a_run_that_cannot_be_written_still_reports(cli, run_copy):
    """A run on a read-only disk can be scored; that its folder stays as it was is a warning."""
    for path in run_copy.eval.iterdir():
        path.unlink()
    run_copy.eval.rmdir()
    run_copy.eval.write_text("a file, so that nothing can be written below")
    outcome = cli("eval", run_copy.path)
    assert outcome.code == 0
    assert outcome.out.startswith("test: 15 examples\n")
    assert "cannot write" in outcome.err
