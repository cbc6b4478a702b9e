"""Several labels a text: guaranteed precision of labels and of whole texts, and coverage."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet
import pytest
from support.programs import assert_failed, succeed
from support.several_labels import (
    TWO_LABELS,
    csv_rows,
    json_objects,
    labelled_texts,
    trained,
    write_json_lines,
    write_lines,
)
from support.tables import read_table

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.run.run_folder import RunDir

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")


@pytest.fixture(scope="module")
def sure_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run with 300 validation texts; the words of food say nothing about its labels."""
    folder = tmp_path_factory.mktemp("sure")
    draw = random.Random(0)
    validation = []
    for number, (text, labels) in enumerate(labelled_texts(300, seed=3)):
        kept = []
        for label in labels:
            if label != "food" or draw.random() < 0.65:
                kept.append(label)
        # A word of its own makes each text different, also from the texts of train.
        own_word = f"{number:b}".replace("0", "q").replace("1", "z")
        validation.append((f"{text} {own_word}", kept))
    test = labelled_texts(60, seed=1)

    settings = {
        "data.validation": str(write_json_lines(folder / "validation.jsonl", validation)),
        "data.test": str(write_json_lines(folder / "test.jsonl", test)),
    }
    return trained(folder, labelled_texts(240, seed=0), **settings)


def test_a_precision_is_guaranteed_for_each_label(cli, sure_run):
    """A label that cannot have the precision is withheld from all texts."""
    command = ["predict", "--model", sure_run.path, "--format", "jsonl"]
    texts = [TWO_LABELS, "rain and snow", "the of and"]

    outcome = succeed(cli, *command, "--min-precision", 0.9, *texts)

    two, weather, none = json_objects(outcome.out)
    assert two["labels"] == ["sport"]
    assert two["withheld_labels"] == ["food"]
    assert weather["labels"] == ["weather"]
    assert weather["withheld_labels"] == []
    assert none["labels"] == []
    assert none["withheld_labels"] == []

    note = "--min-precision 0.9: guaranteed for 2 of 3 labels ('sport', 'weather')"
    assert f"{note}; other labels are withheld" in outcome.err
    assert "1 with withheld labels (--min-precision 0.9)" in outcome.err


def test_a_lower_precision_is_guaranteed_for_all_labels(cli, sure_run):
    command = ["predict", "--model", sure_run.path, "--format", "jsonl"]

    outcome = succeed(cli, *command, "--min-precision", 0.3, TWO_LABELS)

    (two,) = json_objects(outcome.out)
    assert sorted(two["labels"]) == ["food", "sport"]
    assert "guaranteed for" not in outcome.err


@pytest.fixture
def whole_texts(sure_run) -> list[object]:
    """A command that guarantees a precision of whole texts."""
    return ["predict", "--model", sure_run.path, "--min-precision", 0.81, "--whole-texts"]


# Of these texts, the first one is withheld; the third has no label, and the last no words.
TEXTS = [TWO_LABELS, "rain and snow", "the of and", ""]


def test_a_precision_is_guaranteed_for_whole_texts(cli, whole_texts):
    """Withheld texts have no list of labels; a text may surely have no label."""
    outcome = succeed(cli, *whole_texts, "--format", "jsonl", *TEXTS)

    two, weather, none, blank = json_objects(outcome.out)
    assert two["labels"] is None
    assert sorted(two["withheld_labels"]) == ["food", "sport"]
    assert two["probability"] < weather["probability"]
    assert weather["labels"] == ["weather"]
    assert weather["withheld_labels"] == []
    assert none["labels"] == []
    assert blank["labels"] == []
    assert blank["withheld_labels"] == []
    assert "1 withheld (--whole-texts --min-precision 0.81: probability below 0." in outcome.err


def test_people_see_which_whole_texts_are_withheld(cli, whole_texts):
    lines = succeed(cli, *whole_texts, *TEXTS).out.splitlines()

    assert lines[0].startswith("?  0.")
    assert lines[1].startswith("weather ")


def test_a_table_marks_withheld_texts_and_names_their_labels(cli, whole_texts):
    """The labels have the order that they have in JSON."""
    two, *_ = json_objects(succeed(cli, *whole_texts, "--format", "jsonl", *TEXTS).out)

    printed = succeed(cli, *whole_texts, "--format", "csv", *TEXTS).out

    header, *rows = read_table(printed.encode())
    withheld = [row[header.index("withheld")] for row in rows]
    assert withheld == ["true", "false", "false", "false"]
    withheld_labels = [row[header.index("withheld_labels")] for row in rows]
    assert withheld_labels == ["|".join(two["withheld_labels"]), "", "", ""]


def test_people_see_which_labels_are_withheld(cli, sure_run):
    """A line for people names the withheld labels, beside kept labels and in their place."""
    command = ["predict", "--model", sure_run.path, "--min-precision", 0.9]
    texts = [TWO_LABELS, "soup with salt", "the of and"]

    two, food, none = succeed(cli, *command, *texts).out.splitlines()

    assert two.startswith("sport 0.")
    assert "(withheld: food 0." in two
    assert food.startswith("?  'soup with salt'  (withheld: food 0.")
    assert none.startswith("no label  'the of and'")
    assert "withheld" not in none

    page = succeed(cli, *command, "--format", "html", *texts).out
    assert page.count("withheld: food 0.") == 2


@pytest.fixture
def predicted_file(cli, sure_run):
    """A function that predicts two texts into a file with this ending, and returns the file."""

    def predict(ending: str) -> Path:
        write_lines(Path("texts.csv"), ["text", f'"{TWO_LABELS}"', "rain and snow"])
        output = Path(f"predictions{ending}")
        command = ["predict", "--model", sure_run.path, "--min-precision", 0.9]
        succeed(cli, *command, "--input", "texts.csv", "--output", output)
        return output

    return predict


def test_csv_has_a_column_of_withheld_labels(predicted_file):
    rows = csv_rows(predicted_file(".csv"))
    assert [row["withheld_labels"] for row in rows] == ["food", ""]


def test_parquet_has_a_column_of_lists_of_withheld_labels(predicted_file):
    table = pyarrow.parquet.read_table(predicted_file(".parquet"))
    assert table["withheld_labels"].to_pylist() == [["food"], []]


def test_sets_have_all_labels_of_as_many_texts_as_guaranteed(cli, sure_run):
    texts = []
    label_sets = []
    for text, labels in labelled_texts(60, seed=1):
        texts.append(text)
        label_sets.append(set(labels))

    options = ["--format", "jsonl", "--coverage", 0.9]
    outcome = succeed(cli, "predict", "--model", sure_run.path, *options, *texts)

    num_covered = 0
    for record, labels in zip(json_objects(outcome.out), label_sets, strict=True):
        if labels <= set(record["set"]):
            num_covered += 1
    assert num_covered >= 0.85 * 60


def test_a_report_says_what_can_be_guaranteed(cli, sure_run):
    printed = succeed(cli, "eval", sure_run.path, "--json").out

    report = json.loads(printed)["guarantees"]
    assert report["guaranteed_precision"] > 0.5
    assert 0 <= report["answered_fraction"] <= 1
    assert report["coverage"] > 0.85

    of_labels = report["labels"]
    highest = of_labels["highest_precisions"]
    assert highest["food"] < 0.75 < 0.9 < highest["sport"]
    assert of_labels["num_labels"] == 2
    assert of_labels["precision"] > 0.9
    assert 0 < of_labels["answered_fraction"] < 1


def test_a_validation_text_with_a_label_that_training_never_shows_counts(tmp_path):
    validation = [*labelled_texts(40, seed=3), ("soup of the odd", ["food", "odd"])]
    source = write_json_lines(tmp_path / "validation.jsonl", validation)

    run = trained(tmp_path, labelled_texts(80, seed=0), **{"data.validation": str(source)})

    classifier = load_classifier(run.path)
    assert "odd" not in classifier.label_names
    # Two of the 41 texts have the same words, so they count as one.
    assert classifier.guarantees.num_texts == 40


def test_people_read_in_a_report_what_can_be_guaranteed(cli, sure_run):
    printed = succeed(cli, "eval", sure_run.path).out

    assert "each label: --min-precision 0.95: guaranteed for 2 of 3 labels, got " in printed
    assert "whole texts: --whole-texts --min-precision 0." in printed
    assert "whole texts: --coverage 0.9: guaranteed 0.9, got " in printed


def test_a_precision_that_cannot_be_guaranteed_of_any_label_is_refused(cli, linear_run):
    """A run with few held-out texts guarantees little."""
    refused = cli("predict", "text", "--model", linear_run.path, "--min-precision", "0.999")
    assert_failed(refused, 2, "--min-precision 0.999: cannot be guaranteed", "the highest that can")


def test_whole_texts_need_a_precision(cli, linear_run):
    refused = cli("predict", "text", "--model", linear_run.path, "--whole-texts")
    assert_failed(refused, 2, "--whole-texts: needs --min-precision")


def test_whole_texts_need_a_model_of_several_labels(cli, trained_run):
    options = ["--whole-texts", "--min-precision", "0.1"]
    refused = cli("predict", "text", "--model", trained_run.path, *options)
    assert_failed(refused, 2, "--whole-texts: is for models that predict several labels a text")
