"""`encoder-cls drift`: later texts beside the held-out texts of a run."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.browser import HOSTILE, needs_axe, violations
from support.programs import assert_failed
from support.tables import write_table
from support.topics import TOPICS, labelled_texts

from encoder_cls.classifier.model_folder import save_classifier
from encoder_cls.extras.drift import predicted_texts
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.run.reference import Reference, read_reference
from encoder_cls.run.run_folder import RunDir

# Shares of the classes that are far from equal ones.
SHIFTED = (6, 1, 1)


def later_texts(number: int, *, seed: int, weights=(1, 1, 1)) -> list[tuple[str, str]]:
    """Texts of one to three words of a topic and of one to five fillers, with their labels."""
    draw = random.Random(seed)
    texts: dict[str, list[str]] = {label: [] for label in TOPICS}
    for text, label in labelled_texts(number, seed=seed, fillers_per_text=5):
        words = text.split()
        kept = words[: draw.randint(1, 3)] + words[3 : 3 + draw.randint(1, 5)]
        texts[label].append(" ".join(kept))
    labels = draw.choices(list(TOPICS), weights, k=number)
    return [(texts[label].pop(), label) for label in labels]


def write_texts(rows, *columns: str) -> str:
    """Write a table of texts, by default without labels."""
    if not columns:
        columns = ("text",)
        rows = [[text] for text, _ in rows]
    return write_table("later.csv", [columns, *rows])


@pytest.fixture(scope="module")
def run(trained_run, classifier, tmp_path_factory) -> RunDir:
    """A copy of the trained run, as if it had held out 600 texts."""
    run = RunDir(shutil.copytree(trained_run.path, tmp_path_factory.mktemp("drift") / "tiny"))
    keep_reference(run, classifier, later_texts(600, seed=1))
    return run


def keep_reference(run, classifier, rows) -> None:
    """Write the reference of a run that has held out these rows."""
    texts, labels = zip(*rows, strict=True)
    predictions = classifier.predict(texts)
    predicted = [prediction.all_labels for prediction in predictions]
    counts = Counter(chain.from_iterable(predicted))
    Reference(
        num_predicted=np.array([counts[name] for name in classifier.label_names]),
        mean_probabilities=classifier.predict_proba(texts).mean(axis=0),
        prediction_probabilities=np.array([each.prediction_probability for each in predictions]),
        is_right=np.array(
            [each == (label,) for each, label in zip(predicted, labels, strict=True)]
        ),
        num_words=np.array([each.num_words for each in predictions]),
        unknown_words=np.array([each.unknown_words for each in predictions], dtype=np.int32),
        is_unfamiliar=np.zeros(0, dtype=bool),
        groups=np.arange(len(rows)),
    ).write(run.reference)


@pytest.fixture
def drift_of(cli, run):
    """A function that compares rows with the held-out texts, and returns the JSON."""

    def compare(rows, *columns: str, options=()) -> dict:
        outcome = cli("drift", run.path, "--input", write_texts(rows, *columns), "--json", *options)
        assert outcome.code == 0, outcome
        return json.loads(outcome.out)

    return compare


def alarms(found: dict) -> list[str]:
    """The figures of which there is an alarm."""
    figures = [name for name, values in found["figures"].items() if values["is_alarm"]]
    classes = [name for name, values in found["classes"].items() if values["is_alarm"]]
    return [*figures, *sorted(classes)]


def test_texts_of_the_same_kind_have_not_drifted(cli, run):
    source = write_texts(later_texts(400, seed=2))

    outcome = cli(
        "drift", run.path, "--input", source, "--fail-if-drifted", "--output", "drift.html"
    )

    assert outcome.code == 0
    assert "No drift: " in Path("drift.html").read_text(encoding="utf-8")
    first, second, *_ = outcome.out.splitlines()
    assert first == f"later.csv: 400 texts beside 600 held-out texts of {run.path}"
    assert second.startswith("No drift: ")


def test_other_shares_of_classes_are_found_and_corrected_for(drift_of):
    found = drift_of(later_texts(400, seed=3, weights=SHIFTED))

    assert alarms(found) == ["classes", "küche", "sport", "weather"]
    assert found["verdict"] == "drift"
    assert not found["is_guess"]
    assert found["classes"]["küche"]["texts"] > 250


def test_new_words_are_found_and_listed_the_most_frequent_first(drift_of):
    rows = [
        (f"{text} zebra" + " quagga" * (number % 2), "")
        for number, (text, _) in enumerate(later_texts(400, seed=4))
    ]

    found = drift_of(rows)

    assert "unknown_words" in alarms(found)
    assert found["is_guess"]
    assert found["unknown_words"] == {"zebra": 400, "quagga": 200}


def test_drift_of_a_month_alone_is_said(cli, run):
    rows = [(text, "2026-01-31") for text, _ in later_texts(2000, seed=15)]
    rows += [(text, "2026-08-01") for text, _ in later_texts(100, seed=16, weights=SHIFTED)]
    source = write_texts(rows, "text", "written")

    outcome = cli("drift", run.path, "--input", source, "--by", "written", "--fail-if-drifted")

    assert outcome.code == 7
    assert "Drift in 2026-08, but not in all texts together." in outcome.out


def test_longer_texts_are_found(drift_of):
    rows = [(f"{text} of the and a with", "") for text, _ in later_texts(400, seed=5)]
    assert "length" in alarms(drift_of(rows))


def test_few_texts_cannot_tell(cli, run):
    source = write_texts(later_texts(30, seed=6))

    outcome = cli("drift", run.path, "--input", source)

    assert "Too few texts to tell: with 30 of them beside 600 held-out ones" in outcome.out
    assert "18 percentage points" in outcome.out


def test_drift_has_an_exit_code_of_its_own(cli, run):
    source = write_texts(later_texts(400, seed=3, weights=SHIFTED))

    outcome = cli("drift", run.path, "--input", source, "--fail-if-drifted")

    assert outcome.code == 7
    assert "class küche: " in outcome.out
    assert outcome.err.startswith("error: later.csv: its texts differ")


def test_labels_are_used_where_there_are_some(drift_of):
    """Labels that the model does not know are mistakes, and listed."""
    rows = later_texts(400, seed=7)
    rows = [(text, label if number < 90 else "") for number, (text, label) in enumerate(rows)]
    rows = [(text, "art" if number < 30 else label) for number, (text, label) in enumerate(rows)]

    found = drift_of(rows, "text", "label")

    assert found["measured"]["labelled_texts"] == 90
    assert 0.5 < found["measured"]["accuracy"] <= 2 / 3
    assert found["unknown_labels"] == {"art": 30}
    assert "accuracy" in alarms(found)


def test_labels_of_another_kind_are_not_used(drift_of):
    found = drift_of([(text, "art") for text, _ in later_texts(200, seed=8)], "text", "label")
    assert found["measured"] is None
    assert found["unknown_labels"] == {"art": 200}


def test_rows_of_a_group_count_as_one(cli, run, tmp_path):
    """Each of three customers has written a hundred texts of one class."""
    grouped = RunDir(shutil.copytree(run.path, tmp_path / "grouped"))
    config = yaml.safe_load(grouped.config_file.read_text())
    config["data"]["group_column"] = "customer"
    grouped.config_file.write_text(yaml.safe_dump(config))
    rows = []
    for number, (text, _) in enumerate(later_texts(300, seed=9, weights=(1, 0, 0))):
        rows.append((text, number % 3))

    outcome = cli("drift", grouped.path, "--input", write_texts(rows, "text", "customer"), "--json")

    found = json.loads(outcome.out)
    assert found["independent_texts"] == 3
    assert found["classes"]["küche"]["now"] > 0.9
    assert found["verdict"] == "too few to tell"


def test_equal_texts_count_as_one(drift_of):
    found = drift_of([("rain and snow", "")] * 300)
    assert found["texts"] == 300
    assert found["independent_texts"] == 1


def test_texts_are_compared_by_week_or_month(drift_of):
    """In the last month there are other shares of classes."""
    usual = [(text, "2026-04-30") for text, _ in later_texts(300, seed=10)]
    usual += [(text, "31.05.2026") for text, _ in later_texts(300, seed=11)]
    shifted = later_texts(300, seed=12, weights=SHIFTED)
    rows = [*[(text, "2026-09-01 12:00") for text, _ in shifted], *usual, ("soup", "")]

    found = drift_of(rows, "text", "written", options=["--by", "written"])

    verdicts = {name: values["verdict"] for name, values in found["periods"].items()}
    assert verdicts == {"2026-04": "no drift", "2026-05": "no drift", "2026-09": "drift"}
    assert found["has_drifted"]
    assert found["texts"] == 901

    first = date(2026, 6, 29)
    rows = [
        (text, first + timedelta(days=7 * (number % 2))) for number, (text, _) in enumerate(usual)
    ]
    found = drift_of(rows, "text", "written", options=["--by", "written"])
    assert list(found["periods"]) == ["2026-06-29", "2026-07-06"]


@pytest.mark.parametrize(
    ("cell", "named"),
    [("3/4/2026", "3/4/2026"), ("soon", "soon"), ("", "is empty in each row")],
)
def test_a_bad_date_is_named(cli, run, cell, named):
    source = write_texts([("rain", cell)], "text", "written")
    outcome = cli("drift", run.path, "--input", source, "--by", "written")
    assert_failed(outcome, 3, "later.csv", "written", named)


def test_a_missing_column_of_dates_is_named(cli, run):
    source = write_texts([("rain", "")], "text", "label")
    outcome = cli("drift", run.path, "--input", source, "--by", "written")
    assert_failed(outcome, 3, "later.csv:2: no column 'written'; it has 'text', 'label'")


def test_a_run_without_its_reference_is_refused(cli, run_copy, trained_run, tmp_path):
    source = write_texts([("rain", "")])
    of_two_classes = replace(read_reference(run_copy.path), num_predicted=np.array([4, 5]))
    of_two_classes.write(run_copy.reference)
    outcome = cli("drift", run_copy.path, "--input", source)
    assert_failed(outcome, 2, "runs/tiny: its reference is of a model with other classes")

    run_copy.reference.unlink()
    outcome = cli("drift", run_copy.path, "--input", source)
    assert_failed(outcome, 2, "runs/tiny: has no reference.safetensors", "train again")

    model = shutil.copytree(trained_run.model, tmp_path / "copied")
    outcome = cli("drift", model, "--input", source)
    assert_failed(outcome, 2, "copied: not the folder of a run")


def test_texts_with_several_labels_are_compared_label_by_label(cli, run_copy, classifier):
    several = replace(classifier, task=MULTI_LABEL, guarantees=None)
    save_classifier(several, run_copy.model)
    rows = later_texts(300, seed=14)
    keep_reference(run_copy, several, rows)

    lines = [{"text": f"{text} rain", "label": [label, "weather"]} for text, label in rows[:150]]
    lines += [{"text": text, "label": []} for text, label in rows[150:160]]
    lines += [{"text": text, "label": None} for text, label in rows[160:]]
    Path("later.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = cli("drift", run_copy.path, "--input", "later.jsonl", "--json")

    found = json.loads(outcome.out)
    assert "classes" not in found["figures"]
    assert found["measured"]["labelled_texts"] == 160
    assert "weather" in alarms(found)


def test_texts_of_no_class_count_by_the_class_that_stands_for_it(cli, run, classifier, tmp_path):
    with_none = RunDir(shutil.copytree(run.path, tmp_path / "none"))
    save_classifier(replace(classifier, none_label="sport"), with_none.model)
    source = write_texts(later_texts(400, seed=2), "text", "label")

    outcome = cli("drift", with_none.path, "--input", source, "--json")

    found = json.loads(outcome.out)
    assert found["verdict"] == "no drift"
    assert found["classes"]["sport"]["texts"] > 100
    assert found["measured"]["accuracy"] > 0.9


def test_memory_does_not_grow_with_the_texts(drift_of, monkeypatch):
    """Of many texts, some are drawn, and of many new words, the rare ones are left out."""
    monkeypatch.setattr(predicted_texts, "MAX_SAMPLED_TEXTS", 150)
    monkeypatch.setattr(predicted_texts, "MAX_WORDS", 20)
    monkeypatch.setattr(predicted_texts, "ROWS_AT_ONCE", 7)
    rows = []
    for number, (text, _) in enumerate(later_texts(400, seed=3, weights=SHIFTED)):
        rows.append((f"{text} zebra z{number}", ""))

    found = drift_of(rows)

    assert len(found["unknown_words"]) <= 20
    assert next(iter(found["unknown_words"].items())) == ("zebra", 400)
    assert found["classes"]["küche"]["texts"] > 200


@needs_axe
def test_the_page_is_accessible_and_runs_nothing_of_a_text(cli, run, browser):
    rows = [(HOSTILE, "2026-01-05")]
    rows += [(text, "2026-01-12") for text, _ in later_texts(150, seed=13)]
    source = write_texts(rows, "text", "written")

    outcome = cli("drift", run.path, "--input", source, "--by", "written", "--output", "drift.html")

    assert outcome.code == 0
    with browser.opened(Path("drift.html").resolve().as_uri()) as page:
        assert page.run("document.title") == "The texts of later.csv"
        assert page.run("document.querySelectorAll('svg.chart path').length") > 1
        assert "zebra" in page.run("document.body.innerText")
        assert violations(page) == []
