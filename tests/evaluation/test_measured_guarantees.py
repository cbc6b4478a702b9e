"""Guarantees of a finished model: measured on held-out texts, kept in its folder, applied by predict."""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from encoder_cls.classifier.model_folder import load_classifier, save_classifier, save_measured
from encoder_cls.evaluation.held_out_predictions import Predictions
from encoder_cls.evaluation.measured_guarantees import measure_guarantees
from encoder_cls.metrics.logits import softmax
from encoder_cls.training import plan as training_plan
from encoder_cls.training.final_model import fit_guarantees

pytestmark = pytest.mark.usefixtures("bare_trainings")

WORDS = [
    ["soup", "bread", "salt", "pan"],
    ["ball", "goal", "team", "coach"],
    ["rain", "snow", "cloud", "wind"],
]
STRANGE = "qzx wvj pff hgk"


@pytest.fixture(scope="module")
def held_out() -> tuple[list[str], np.ndarray]:
    """Texts of two words of their class, of which each fifth has one word of another; the last text is blank."""
    draw = random.Random(5)
    texts, labels = [], []
    for number in range(240):
        label = draw.randrange(3)
        other = (label + (number % 5 == 0)) % 3
        words = [
            draw.choice(WORDS[label]),
            draw.choice(WORDS[other]),
            *draw.sample(["the", "a", "of", "big"], 2),
        ]
        texts.append(" ".join(draw.sample(words, 4)))
        labels.append(label)
    return [*texts, ""], np.array([*labels, 0])


def measure(classifier, folder, held_out) -> None:
    fit_guarantees(classifier, classifier.tokenize(held_out[0]), held_out[1])
    save_measured(classifier, folder)


@pytest.fixture(scope="module")
def folder(trained_run, held_out, tmp_path_factory) -> Path:
    """A model folder with guarantees."""
    folder = tmp_path_factory.mktemp("guaranteed") / "model"
    shutil.copytree(trained_run.model, folder)
    classifier = load_classifier(folder, device="cpu")
    measure(classifier, folder, held_out)
    return folder


def test_guarantees_are_in_the_header_alone(folder, trained_run, held_out):
    """Weights and answers stay; what is read is what was measured, without the blank text."""
    before, after = load_classifier(trained_run.model), load_classifier(folder)
    assert before.sha256 != after.sha256
    np.testing.assert_array_equal(
        before.predict_proba(held_out[0]), after.predict_proba(held_out[0])
    )
    assert after.guarantees.num_texts == 240
    # Of twelve validation texts.
    assert (before.guarantees.num_texts, before.familiarity) == (
        12,
        None,
    )
    again = load_classifier(folder)
    measure(again, folder, held_out)
    assert load_classifier(folder).sha256 == after.sha256


def test_guarantees_go_by_the_logits_of_another_classifier(folder, held_out, tmp_path):
    """As of one that was fitted without the texts: these all say the same class."""
    shutil.copytree(folder, tmp_path / "model")
    classifier = load_classifier(folder)
    logits = np.tile(np.array([9.0, 0, 0], dtype=np.float32), (241, 1))
    classifier.gate = 0.9  # from which the linear part alone is the answer
    texts = classifier.tokenize(held_out[0])
    _, numbers = classifier.part_logits_and_numbers(texts)
    earlier = [Predictions(np.arange(241), logits, numbers)]
    fit_guarantees(classifier, texts, held_out[1], earlier=earlier)
    save_measured(classifier, tmp_path / "model")
    assert load_classifier(tmp_path / "model").guarantees.right[0] == (held_out[1][:-1] == 0).sum()


def test_validation_rows_of_labels_that_training_never_shows_count(
    cli, held_out, blank_plots, monkeypatch
):
    """Guarantees are measured on them, too, though they choose no weights; they do not count as usual texts."""
    monkeypatch.setattr(training_plan, "MOST_LABELLED", 0)
    rows = [
        (text, "abc"[label]) for text, label in zip(held_out[0][:-1], held_out[1], strict=False)
    ]
    for name, more in (
        ("train", []),
        ("all", [(text, "d") for text, _ in rows[:12]]),
        ("known", []),
    ):
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows, *more])
    options = ("train", "--set", "data.train=train.csv", "--set", "model.encoder=false")
    for name in ("all", "known"):
        assert cli(*options, "--set", f"data.validation={name}.csv", "--run-dir", name).code == 0
    all_rows, known = load_classifier("all"), load_classifier("known")
    assert (all_rows.guarantees.num_texts, known.guarantees.num_texts) == (252, 240)
    assert np.array_equal(all_rows.guarantees.right, known.guarantees.right)
    assert all_rows.familiarity.to_json() == known.familiarity.to_json()
    outcome = cli("predict", "--model", "all", "--coverage", 0.98, "rain")
    assert (outcome.code, "the highest that can be is 0.948" in outcome.err) == (2, True), (
        outcome.err
    )


def test_predict_withholds_what_is_below_a_guarantee(cli, folder, held_out):
    """By the stored threshold; in each format, beside sets and flags; a line counts them."""
    guarantees = load_classifier(folder).guarantees
    threshold, set_threshold = (
        guarantees.precision_threshold(0.95),
        guarantees.coverage_threshold(0.9),
    )
    Path("in").mkdir()
    Path("in/a.csv").write_text(
        "text\n" + "".join(f"{text}\n" for text in held_out[0][:-1]) + f"{STRANGE}\n"
    )
    options = ["predict", "--model", folder, "--min-precision", 0.95, "--coverage", 0.9, "--input"]
    outcome = cli(*options, "in/a.csv", "--format", "jsonl")
    records = [json.loads(line) for line in outcome.out.splitlines()]
    for record in records:
        assert (record["label"] is not None) == (record["probability"] >= threshold)
        assert record["set"][0] == record["top"][0]["label"]
    assert list(records[0]) == [
        "label",
        "probability",
        "top",
        "set",
        "truncated",
        "unknown_words",
        "unfamiliar",
    ]
    assert [record["unfamiliar"] for record in records][-1] is True
    num_unfamiliar = sum(record["unfamiliar"] for record in records)
    assert num_unfamiliar <= 4
    withheld = sum(record["label"] is None for record in records)
    assert 5 < withheld < 60
    assert (
        f"{withheld} withheld (--min-precision 0.95: probability below {threshold:.3f})"
        in outcome.err
    )
    assert f"{num_unfamiliar} unfamiliar (unlike the training texts)" in outcome.err
    numpy = cli(*options, "in/a.csv", "--format", "jsonl", "--engine", "numpy")
    assert [json.loads(line)["set"] for line in numpy.out.splitlines()] == [
        record["set"] for record in records
    ]
    proba = load_classifier(folder).predict_proba(held_out[0][:-1])
    sizes = np.maximum(1, (proba >= set_threshold).sum(axis=1))
    assert [len(record["set"]) for record in records[:-1]] == sizes.tolist()
    last = cli(*options, "in/a.csv", "--format", "csv", "--no-keep-columns").out.splitlines()
    assert last[0] == "label,probability,set,truncated,unknown_words,unfamiliar,reason"
    assert last[-1].endswith(",true,")
    kept = cli(*options, "in/a.csv", "--format", "csv").out.splitlines()
    assert kept[0] == "text,label,probability,set,unfamiliar"
    assert kept[-1].endswith(",true")
    cli(*options, "in/", "--output", "out/", "--format", "parquet")
    assert pyarrow.parquet.read_table("out/a.parquet")["set"].to_pylist() == [
        record["set"] for record in records
    ]
    text = cli(*options, "in/a.csv").out.splitlines()[-1]
    assert "unlike the training texts" in text
    assert "set: " in text


def test_a_guarantee_that_cannot_be_given_is_one_line(cli, folder, run_copy):
    """Exit code 2 with the highest that can be; of an older model, what to do; two thresholds are one too many."""
    highest = load_classifier(folder).guarantees.highest_precision
    for arguments, message in (
        (
            ["--min-precision", 0.99],
            f"by its 240 held-out texts; the highest that can be is {highest:g}",
        ),
        (["--coverage", 0.999], "by its 240 held-out texts; the highest that can be is 0.995"),
        (["--min-precision", 0.9, "--threshold", 0.5], "not both"),
        *(
            ([option, "nan"], "nan is not in the range")
            for option in ("--threshold", "--coverage", "--min-precision")
        ),
    ):
        outcome = cli("predict", "--model", folder, *arguments, "rain")
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert message in outcome.err
    report = run_copy.eval / "report.json"
    report.write_text(json.dumps({**json.loads(report.read_text()), "suggested_threshold": 0.8765}))
    outcome = cli("predict", "--model", run_copy.path, "--min-precision", 0.999, "rain")
    assert "; its report suggests --threshold 0.876 for 95%, without a guarantee\n" in outcome.err

    report.write_text("[" * 100_000)
    outcome = cli("predict", "--model", run_copy.path, "--min-precision", 0.999, "rain")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "cannot be guaranteed" in outcome.err

    classifier = load_classifier(run_copy.path)
    classifier.guarantees = None
    save_classifier(classifier, run_copy.model)
    for option in ("--min-precision", "--coverage"):
        outcome = cli("predict", "--model", run_copy.path, option, 0.5, "rain")
        assert outcome.code == 2
        assert "train it again" in outcome.err


def test_a_report_measures_guarantees(folder, held_out):
    """On other texts than those they were made on; labels that training never showed are mistakes."""
    classifier = load_classifier(folder)
    probabilities = softmax(classifier.logits(classifier.tokenize(held_out[0][:-1])))
    kept = measure_guarantees(classifier.guarantees, probabilities, held_out[1][:-1])
    highest = classifier.guarantees.highest_precision
    predicted = probabilities.max(axis=1) >= kept.threshold
    assert kept.guaranteed_precision == min(0.95, highest)
    assert kept.answered_fraction == predicted.mean()
    assert kept.precision == (probabilities.argmax(axis=1) == held_out[1][:-1])[predicted].mean()
    assert kept.coverage >= 0.9
    first, second = kept.sentences()
    assert first.startswith(
        f"--min-precision {kept.guaranteed_precision:g}: guaranteed {kept.guaranteed_precision:g}"
    )
    assert f"got {kept.precision:.3f}, keeps {kept.answered_fraction:.0%} of" in first
    assert second.startswith("--coverage 0.9: guaranteed 0.9, got 0.9")
    unseen = measure_guarantees(classifier.guarantees, probabilities, np.full(240, 3))
    assert (unseen.precision, unseen.coverage) == (0, 0)
