"""Guarantees of a finished model.

They are measured on held-out texts, kept in the model folder, and applied by predict.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from encoder_cls.classifier.model_folder import load_classifier, save_classifier, save_measurements
from encoder_cls.evaluation.held_out_predictions import LinearPredictions
from encoder_cls.evaluation.measured_guarantees import measure_guarantees
from encoder_cls.metrics.logits import softmax
from encoder_cls.training import plan as training_plan
from encoder_cls.training.final_model import predict_held_out, with_guarantees

pytestmark = pytest.mark.usefixtures("bare_trainings")

WORDS = [
    ["soup", "bread", "salt", "pan"],
    ["ball", "goal", "team", "coach"],
    ["rain", "snow", "cloud", "wind"],
]
STRANGE = "qzx wvj pff hgk"


@pytest.fixture(scope="module")
def held_out() -> tuple[list[str], np.ndarray]:
    """Texts with two words of their class, and their labels; the last text is blank.

    Each fifth text has one word of another class.
    """
    draw = random.Random(5)
    texts = []
    labels = []
    for number in range(240):
        label = draw.randrange(3)
        other = label
        if number % 5 == 0:
            other = (label + 1) % 3

        words = [draw.choice(WORDS[label]), draw.choice(WORDS[other])]
        words += draw.sample(["the", "a", "of", "big"], 2)
        texts.append(" ".join(draw.sample(words, 4)))
        labels.append(label)
    return [*texts, ""], np.array([*labels, 0])


def measure(classifier, folder, held_out) -> None:
    """Fit the guarantees of a classifier on held-out texts, and save them in its folder."""
    texts, labels = held_out
    groups = np.arange(len(labels))
    held_out = predict_held_out(classifier, classifier.tokenize(texts), labels, groups)
    measured = with_guarantees(classifier, held_out)
    save_measurements(measured, folder)


@pytest.fixture(scope="module")
def folder(trained_run, held_out, tmp_path_factory) -> Path:
    """A model folder with guarantees."""
    folder = tmp_path_factory.mktemp("guaranteed") / "model"
    shutil.copytree(trained_run.model, folder)
    classifier = load_classifier(folder, device="cpu")
    measure(classifier, folder, held_out)
    return folder


def test_guarantees_are_in_the_header_alone(folder, trained_run, held_out):
    """Weights and predictions stay; the guarantees are those of all texts but the blank one."""
    texts, _ = held_out
    before = load_classifier(trained_run.model)
    after = load_classifier(folder)

    assert before.sha256 != after.sha256
    np.testing.assert_array_equal(before.predict_proba(texts), after.predict_proba(texts))
    assert after.guarantees.num_texts == 240

    # The run itself has twelve validation texts.
    assert before.guarantees.num_texts == 12
    assert before.familiarity is None


def test_equal_guarantees_give_an_equal_file(folder, held_out):
    classifier = load_classifier(folder)

    measure(classifier, folder, held_out)

    assert load_classifier(folder).sha256 == classifier.sha256


def test_guarantees_go_by_the_logits_of_another_classifier(folder, held_out, tmp_path):
    """The other classifier predicts the first class for all texts, in place of the linear model."""
    shutil.copytree(folder, tmp_path / "model")
    texts, labels = held_out
    classifier = load_classifier(folder)
    # The linear part alone predicts from this probability on.
    classifier.gate = 0.9
    tokenized = classifier.tokenize(texts)
    _, features = classifier.part_logits_and_familiarity(tokenized)
    logits = np.tile(np.array([9.0, 0, 0], dtype=np.float32), (241, 1))
    predictions = [LinearPredictions(np.arange(241), logits, features)]

    predicted = predict_held_out(
        classifier, tokenized, labels, np.arange(len(labels)), linear_predictions=predictions
    )
    measured = with_guarantees(classifier, predicted)
    save_measurements(measured, tmp_path / "model")

    guarantees = load_classifier(tmp_path / "model").guarantees
    assert guarantees.num_correct[0] == (labels[:-1] == 0).sum()


@pytest.mark.slow
@pytest.mark.usefixtures("blank_plots", "usual_c")
def test_validation_rows_of_labels_that_training_never_shows_count(cli, held_out, monkeypatch):
    """They count as mistakes in guarantees, but not as held-out texts in familiarity."""
    monkeypatch.setattr(training_plan, "MAX_LABELLED", 0)
    texts, labels = held_out
    rows = []
    for number, (text, label) in enumerate(zip(texts[:-1], labels[:-1], strict=True)):
        # A word of its own makes each text different.
        own_word = f"{number:b}".replace("0", "q").replace("1", "z")
        rows.append((f"{text} {own_word}", "abc"[label]))
    unseen_rows = [(text, "d") for text, _ in rows[:12]]

    # Train has the validation texts with one more word.
    train = [(f"{text} more", label) for text, label in rows]
    contents = {"train": train, "known": rows, "all": [*rows, *unseen_rows]}
    for name, content in contents.items():
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *content])

    options = ("train", "--set", "data.train=train.csv", "--set", "model.encoder=false")
    for name in ("all", "known"):
        validation = f"data.validation={name}.csv"
        assert cli(*options, "--set", validation, "--run-dir", name).code == 0

    with_unseen = load_classifier("all")
    known = load_classifier("known")
    assert with_unseen.guarantees.num_texts == 252
    assert known.guarantees.num_texts == 240
    assert np.array_equal(with_unseen.guarantees.num_correct, known.guarantees.num_correct)
    assert with_unseen.familiarity.to_json() == known.familiarity.to_json()

    outcome = cli("predict", "--model", "all", "--coverage", 0.98, "rain")
    assert outcome.code == 2
    assert "the highest that can be is 0.948" in outcome.err


@pytest.fixture
def predict(cli, folder, held_out):
    """A function that predicts the held-out texts, and a strange one, with both guarantees."""
    texts, _ = held_out
    Path("in").mkdir()
    lines = ["text", *texts[:-1], STRANGE]
    Path("in/a.csv").write_text("".join(f"{line}\n" for line in lines))

    def predicted(source: str, *options: object):
        guarantees = ["--min-precision", 0.95, "--coverage", 0.9]
        return cli("predict", "--model", folder, *guarantees, "--input", source, *options)

    return predicted


def records_of(outcome) -> list[dict]:
    """The lines of JSON of an outcome."""
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_predict_withholds_what_is_below_a_guaranteed_precision(predict, folder):
    """The stored threshold is applied, and a message counts the withheld predictions."""
    outcome = predict("in/a.csv", "--format", "jsonl")

    threshold = load_classifier(folder).guarantees.precision_threshold(0.95)
    records = records_of(outcome)
    for record in records:
        assert (record["label"] is not None) == (record["probability"] >= threshold)

    num_withheld = sum(record["label"] is None for record in records)
    assert 5 < num_withheld < 60
    reason = f"(--min-precision 0.95: probability below {threshold:.3f})"
    assert f"{num_withheld} withheld {reason}" in outcome.err


def test_predict_flags_unfamiliar_texts(predict):
    outcome = predict("in/a.csv", "--format", "jsonl")

    flags = [record["unfamiliar"] for record in records_of(outcome)]
    assert flags[-1] is True
    assert sum(flags) <= 4
    assert f"{sum(flags)} unfamiliar (unlike the training texts)" in outcome.err


def test_predict_gives_sets_for_a_guaranteed_coverage(predict, folder, held_out):
    """A set contains the classes that reach a threshold, and always the most probable class."""
    texts, _ = held_out
    outcome = predict("in/a.csv", "--format", "jsonl")
    by_numpy = predict("in/a.csv", "--format", "jsonl", "--engine", "numpy")

    classifier = load_classifier(folder)
    set_threshold = classifier.guarantees.coverage_threshold(0.9)
    is_in_set = classifier.predict_proba(texts[:-1]) >= set_threshold
    sizes = np.maximum(1, is_in_set.sum(axis=1))

    records = records_of(outcome)
    assert [len(record["set"]) for record in records[:-1]] == sizes.tolist()
    for record in records:
        assert record["set"][0] == record["top"][0]["label"]

    sets = [record["set"] for record in records]
    assert [record["set"] for record in records_of(by_numpy)] == sets


def test_every_format_has_sets_and_flags(predict):
    records = records_of(predict("in/a.csv", "--format", "jsonl"))
    assert list(records[0]) == [
        "label",
        "probability",
        "top",
        "set",
        "truncated",
        "unknown_words",
        "unfamiliar",
    ]

    bare = predict("in/a.csv", "--format", "csv", "--no-keep-columns").out.splitlines()
    assert bare[0] == "label,probability,set,truncated,unknown_words,unfamiliar,reason"
    assert bare[-1].endswith(",true,")

    kept = predict("in/a.csv", "--format", "csv").out.splitlines()
    assert kept[0] == "text,label,probability,set,unfamiliar"
    assert kept[-1].endswith(",true")

    predict("in/", "--output", "out/", "--format", "parquet")
    sets = [record["set"] for record in records]
    assert pyarrow.parquet.read_table("out/a.parquet")["set"].to_pylist() == sets

    last_line = predict("in/a.csv").out.splitlines()[-1]
    assert "unlike the training texts" in last_line
    assert "set: " in last_line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--coverage", 0.999],
            "by its 240 independent held-out texts; the highest that can be is 0.995",
        ),
        (["--min-precision", 0.9, "--threshold", 0.5], "not both"),
        (["--threshold", "nan"], "less than or equal to 1"),
        (["--coverage", "nan"], "less than or equal to 1"),
        (["--min-precision", "nan"], "less than or equal to 1"),
    ],
)
def test_a_guarantee_that_cannot_be_given_is_one_line(cli, folder, options, message):
    refused = cli("predict", "--model", folder, *options, "rain")

    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.count("\n") == 1
    assert message in refused.err


def test_a_precision_that_cannot_be_guaranteed_names_the_highest(cli, folder):
    highest = load_classifier(folder).guarantees.highest_precision

    refused = cli("predict", "--model", folder, "--min-precision", 0.99, "rain")

    assert refused.code == 2
    assert (
        f"by its 240 independent held-out texts; the highest that can be is {highest:g}"
        in refused.err
    )
    assert refused.err.count("\n") == 1


def test_a_precision_that_cannot_be_guaranteed_names_the_threshold_of_the_report(cli, run_copy):
    file = run_copy.eval / "report.json"
    report = json.loads(file.read_text()) | {"suggested_threshold": 0.8765}
    file.write_text(json.dumps(report))

    refused = cli("predict", "--model", run_copy.path, "--min-precision", 0.999, "rain")

    suggestion = "its report suggests --threshold 0.876 for 95%, without a guarantee"
    assert f"; {suggestion}\n" in refused.err


def test_a_damaged_report_suggests_no_threshold(cli, run_copy):
    (run_copy.eval / "report.json").write_text("[" * 100_000)

    refused = cli("predict", "--model", run_copy.path, "--min-precision", 0.999, "rain")

    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "cannot be guaranteed" in refused.err


@pytest.mark.parametrize("option", ["--min-precision", "--coverage"])
def test_a_model_without_guarantees_says_what_to_do(cli, run_copy, option):
    classifier = load_classifier(run_copy.path)
    classifier.guarantees = None
    save_classifier(classifier, run_copy.model)

    refused = cli("predict", "--model", run_copy.path, option, 0.5, "rain")

    assert refused.code == 2
    assert "train it again" in refused.err


def test_a_report_measures_guarantees(folder, held_out):
    """Here they are measured on the texts that they were fitted to, so that the result is known."""
    texts, labels = held_out
    classifier = load_classifier(folder)
    probabilities = softmax(classifier.logits(classifier.tokenize(texts[:-1])))

    measured = measure_guarantees(classifier.guarantees, probabilities, labels[:-1])

    is_kept = probabilities.max(axis=1) >= measured.threshold
    is_right = probabilities.argmax(axis=1) == labels[:-1]
    highest = classifier.guarantees.highest_precision
    assert measured.guaranteed_precision == min(0.95, highest)
    assert measured.answered_fraction == is_kept.mean()
    assert measured.precision == is_right[is_kept].mean()
    assert measured.coverage >= 0.9

    first, second = measured.sentences()
    guaranteed = f"{measured.guaranteed_precision:g}"
    assert first.startswith(f"--min-precision {guaranteed}: guaranteed {guaranteed}")
    kept = f"{measured.answered_fraction:.0%} of the predictions"
    assert f"got {measured.precision:.3f}, keeps {kept}" in first
    assert second.startswith("--coverage 0.9: guaranteed 0.9, got 0.9")


def test_labels_that_training_never_showed_fail_every_guarantee(folder, held_out):
    texts, _ = held_out
    classifier = load_classifier(folder)
    probabilities = softmax(classifier.logits(classifier.tokenize(texts[:-1])))

    measured = measure_guarantees(classifier.guarantees, probabilities, np.full(240, 3))

    assert measured.precision == 0
    assert measured.coverage == 0
