"""Several labels a text in predictions: JSON, lines for people, tables, pages and the server."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pyarrow.parquet
import pytest
from support.programs import succeed
from support.several_labels import TWO_LABELS, WORDS, csv_rows, json_objects, write_lines
from support.tables import read_table, write_table

from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.errors import EncoderClsError
from encoder_cls.serving.request_queue import Batcher
from encoder_cls.serving.requests import PredictRequest

# The keys of a prediction, in order.
KEYS = [
    "labels",
    "top",
    "truncated",
    "unknown_words",
    "answered_by",
    "unfamiliar",
]


@pytest.fixture
def predict_json(cli, linear_run):
    """A function that predicts texts, with options before them, and returns the JSON objects."""

    def run(*arguments: object) -> list[dict]:
        options = ["--model", linear_run.path, "--format", "jsonl"]
        outcome = succeed(cli, "predict", *options, *arguments)
        return json_objects(outcome.out)

    return run


def test_predict_gives_the_labels_that_reach_their_thresholds(predict_json, several):
    """They are in `top`, too, with the most probable one first."""
    (prediction,) = predict_json(TWO_LABELS)

    assert sorted(prediction["labels"]) == ["food", "sport"]
    assert [entry["label"] for entry in prediction["top"]] == prediction["labels"]

    (probabilities,) = several.predict_proba([TWO_LABELS])
    for name, probability, threshold in zip(
        several.label_names, probabilities, several.thresholds, strict=True
    ):
        is_predicted = name in prediction["labels"]
        assert is_predicted == (probability >= threshold)


def test_a_text_may_have_no_label(predict_json):
    """`top` has the most probable label all the same, except of a blank text."""
    without_label, blank = predict_json("the of and", "")

    assert without_label["labels"] == []
    assert len(without_label["top"]) == 1

    assert blank["labels"] == []
    assert blank["top"] == []
    assert blank["reason"] == "blank"


def test_predict_has_the_keys_of_several_labels(predict_json):
    usual, strange = predict_json("soup salt goal team of the n7", "zzz qqq xxx")

    assert list(usual) == KEYS
    assert not usual["unfamiliar"]
    assert strange["unfamiliar"]


def test_one_threshold_replaces_those_of_all_labels(predict_json):
    (prediction,) = predict_json("--threshold", 1e-9, TWO_LABELS)

    assert len(prediction["labels"]) == 3
    assert len(prediction["top"]) == 3


def test_texts_without_a_label_are_named_for_people(cli, linear_run):
    texts = [TWO_LABELS, "the of and", ""]

    outcome = succeed(cli, "predict", "--model", linear_run.path, "--explain", *texts)

    _, without_label, blank = outcome.out.splitlines()
    assert without_label.startswith("no ")
    assert blank.startswith("? ")
    assert "1 without a label, 1 blank" in outcome.err


def test_a_page_explains_texts_that_are_not_blank(cli, linear_run):
    texts = [TWO_LABELS, "the of and", ""]

    page = succeed(cli, "predict", "--model", linear_run.path, "--format", "html", *texts).out

    assert "runner-up" not in page
    assert page.count("(words for and against ") == 2


@pytest.fixture
def source() -> Path:
    """A file with a text of two labels and a text without a label."""
    path = Path("in.csv")
    write_lines(path, ["id,text", '1,"soup salt goal team"', "2,the of"])
    return path


def test_cells_of_csv_have_several_labels(cli, linear_run, source):
    """They are separated as `data.label_separator` can read them."""
    files = ["--input", source, "--output", "out.csv"]
    succeed(cli, "predict", "--model", linear_run.path, *files)

    first, second = csv_rows(Path("out.csv"))
    assert sorted(first["labels"].split("|")) == ["food", "sport"]
    assert len(first["probabilities"].split("|")) == 2
    assert second["labels"] == ""
    assert second["id"] == "2"


def test_parquet_has_lists_of_labels(cli, linear_run, source):
    files = ["--input", source, "--output", "out.parquet"]
    succeed(cli, "predict", "--model", linear_run.path, *files, "--top-k", 2)

    table = pyarrow.parquet.read_table("out.parquet").to_pydict()
    first, second = table["labels"]
    assert sorted(first) == ["food", "sport"]
    assert second == []
    assert table["label_1"][0] == first[0]


def test_a_server_predicts_as_predict_does(several):
    batcher = Batcher()
    request = PredictRequest(texts=["soup salt goal team", "the of"], explain=True)

    two_labels, none = batcher.submit(request, several).result(30)
    batcher.stop()

    assert sorted(two_labels.labels) == ["food", "sport"]
    assert sorted(two_labels.record["labels"]) == ["food", "sport"]
    assert list(none.labels) == []
    assert list(none.record["labels"]) == []

    # The words of the most probable label speak for it.
    best_label = two_labels.record["top"][0]["label"]
    for word in two_labels.record["explanation"]:
        if word["word"] in WORDS[best_label]:
            assert word["weight"] > 0.1


def test_an_explanation_is_of_the_label_alone(several):
    """Without a word, its log odds fall by the weight of the word."""
    (weights,) = several.explain(["soup goal team"], labels=["food"])
    soup = weights[0]

    logits = several.logits(several.tokenize(["soup goal team", "goal team"]))
    with_soup, without_soup = logits[:, several.label_names.index("food")]
    assert soup.weight == pytest.approx(with_soup - without_soup, abs=1e-4)


@pytest.mark.parametrize("thresholds", [(0.5, 0.5), (0.5, 0.5, 1.5), (0.5, float("nan"), 0.5)])
def test_malformed_thresholds_are_refused(several, tmp_path, thresholds):
    """There must be one for each label, and each must be a probability."""
    changed = copy.copy(several)
    changed.thresholds = thresholds
    save_classifier(changed, tmp_path / "bad")

    with pytest.raises(EncoderClsError, match="thresholds: invalid value"):
        load_classifier(tmp_path / "bad")


def test_thresholds_are_saved(several, tmp_path):
    save_classifier(several, tmp_path / "good")
    assert load_classifier(tmp_path / "good").thresholds == several.thresholds


def test_labels_fill_a_cell_of_the_input_as_training_reads_them(cli, linear_run):
    write_table("in.csv", [["text", "topics"], [TWO_LABELS, ""]])
    Path("in.jsonl").write_text(json.dumps({"text": TWO_LABELS}) + "\n")

    command = ["predict", "--model", linear_run.path, "--fill", "topics", "--input"]
    succeed(cli, *command, "in.csv", "--output", "out.csv")
    succeed(cli, *command, "in.jsonl", "--output", "out.jsonl")

    cell = read_table("out.csv")[1][1]
    assert sorted(cell.split("|")) == ["food", "sport"]
    assert json.loads(Path("out.jsonl").read_text())["topics"] == cell.split("|")
