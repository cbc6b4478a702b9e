"""Mistakes, doubtful labels, and the CSV files in which labels are corrected."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from support.reports import split_of

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Split
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.evaluation import mistakes as mistakes_module
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.file_names import (
    DOUBTFUL_LABELS,
    MISTAKES,
    PREDICTIONS,
    REPORT_JSON,
)
from encoder_cls.evaluation.label_tables import label_tables
from encoder_cls.evaluation.mistakes import Mistake, surest_mistakes
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.evaluation.split_predictions import SplitPredictions


def test_the_most_confident_mistakes_come_first(classifier):
    """Of 33 wrong labels, the 20 with the surest predictions, each with its file and line."""
    texts = []
    for number in range(11):
        for words in ("rain snow", "soup salt", "ball goal"):
            texts.append(words + " of" * number)
    # The numbers of küche, sport, weather: each label is that of another text.
    labels = np.array([0, 1, 2] * 11)

    mistakes = evaluate_split(classifier, split_of(texts, labels), name="wrong").worst_mistakes

    assert len(mistakes) == 20
    probabilities = [mistake.probability for mistake in mistakes]
    assert probabilities == sorted(probabilities, reverse=True)

    predictions = classifier.predict(texts)
    highest = max(prediction.probability for prediction in predictions)
    assert probabilities[0] == pytest.approx(highest)

    for mistake in mistakes:
        row = int(mistake.where.removeprefix("f.csv:")) - 2
        assert mistake.text == texts[row]
        assert mistake.labels == (classifier.label_names[labels[row]],)
        assert mistake.prediction == predictions[row].label


def test_wrong_and_missed_labels_take_turns():
    """Missed labels are surer here; of both kinds there are ten, the surest first."""
    labels = np.zeros((40, 2), dtype=np.int8)
    labels[:20, 0] = 1
    # The first label is missed in 20 texts, the second is given wrongly in 20 others.
    logits = np.full((40, 2), -9, dtype=np.float32)
    logits[:20, 0] = -4 + np.arange(20) / 100
    logits[20:, 1] = 1 + np.arange(20) / 100
    predictions = SplitPredictions(
        name="test",
        split=split_of([f"text {number}" for number in range(40)], labels),
        logits=logits,
        label_names=("a", "b"),
        thresholds=(0.5, 0.5),
    )

    worst = surest_mistakes(predictions)

    assert worst[:10] == [(row, 0) for row in range(10)]
    assert worst[10:] == [(row, 1) for row in range(39, 29, -1)]


def test_each_text_is_shown_once_among_the_mistakes(classifier):
    """It has the number of its rows; the texts after it move up."""
    texts = ["rain snow"] * 25 + ["soup salt", "ball goal"]
    # The numbers of küche, sport, weather: each label is that of another text.
    labels = np.array([0, 1] * 12 + [0, 1, 0])

    mistakes = evaluate_split(classifier, split_of(texts, labels), name="wrong").worst_mistakes

    rows_of_texts = {mistake.text: mistake.num_rows for mistake in mistakes}
    assert rows_of_texts == {"rain snow": 25, "soup salt": 1, "ball goal": 1}
    assert len(mistakes) == 3


def test_each_text_is_shown_once_among_wrong_and_missed_labels():
    labels = np.array([[1, 0], [1, 0], [0, 0]], dtype=np.int8)
    logits = np.array([[-5, 4], [-5, 4], [-9, 3]], dtype=np.float32)
    predictions = SplitPredictions(
        name="test",
        split=split_of(["x", "x", "y"], labels),
        logits=logits,
        label_names=("a", "b"),
        thresholds=(0.5, 0.5),
    )
    assert surest_mistakes(predictions) == [(0, 0), (2, 1)]


def test_mistakes_are_explained_for_the_predicted_class(classifier, monkeypatch):
    """As many are explained as there is time for: a text with 4 tokens is read 4 times."""
    monkeypatch.setattr(mistakes_module, "MAX_EXPLAINED_TOKENS", 17)
    split = split_of(["rain and snow", "snow and rain"], classifier.label_names.index("sport"))

    first, second = evaluate_split(classifier, split, name="x").worst_mistakes

    assert first.prediction == "weather"
    assert {word.word for word in first.words} == {"rain", "and", "snow"}
    strongest = max(first.words, key=lambda word: word.weight)
    assert strongest.word in {"rain", "snow"}
    assert second.words == ()


def test_a_mistake_says_what_it_is_by_task():
    """It is a wrong prediction, or with several labels a missed or a given one."""
    wrong = Mistake(
        text="x",
        where="f.csv:2",
        labels=("a",),
        predictions=("b",),
        prediction="b",
        is_missed=None,
        probability=0.9,
        likely_mislabelled=False,
        words=(),
    )
    missed = replace(wrong, predictions=(), prediction="a", is_missed=True)
    given = replace(missed, is_missed=False)

    assert wrong.kind == ""
    values = wrong.to_dict()
    assert values["label"] == "a"
    assert values["prediction"] == "b"

    assert missed.kind == "missed"
    values = missed.to_dict()
    assert values["labels"] == ("a",)
    assert values["predictions"] == ()
    assert values["is_missed"]

    assert given.kind == "given"


def rows_of(content: bytes) -> list[dict[str, str]]:
    """The rows of a CSV file, as any program reads it."""
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_each_row_leads_back_to_its_data():
    """It has split, file and line; the most doubtful row comes first; texts are as they are."""
    texts = ["=1+1", 'he said "no",\r\nthen; left\n', "天気 \N{GRINNING FACE}", "right"]
    split = Split(
        texts=texts,
        labels=np.array([0, 1, 2, 0]),
        where=["=f.csv:12", "c:/d.csv:3", "good/7.txt", "x/f.csv:13"],
    )
    probabilities = np.array([[0.4, 0.6], [0.9, 0.1], [0.3, 0.7], [0.9, 0.1]])
    predictions = SplitPredictions(
        name="test",
        split=split,
        logits=np.log(probabilities).astype(np.float32),
        label_names=("a", "b", "new"),
    )
    assert predictions.mistakes.tolist() == [0, 1, 2]

    rows = predictions.label_rows(predictions.mistakes)
    mistakes, none = label_tables(rows, [], data=DataConfig(train="gone.csv"))

    content = b"".join(mistakes)
    assert content.startswith(b"\xef\xbb\xbf")
    found = rows_of(content)
    columns = ["text", "label", "suggested", "score", "split", "file", "line"]
    assert list(found[0]) == [*columns, "label_in_data", "key"]

    keys = [key_of_text(text) for text in texts]
    assert [tuple(row.values()) for row in found] == [
        (texts[2], "new", "b", "1.0000", "test", "good/7.txt", "", "new", keys[2]),
        (texts[1], "b", "a", "0.9000", "test", "c:/d.csv", "3", "b", keys[1]),
        ("=1+1", "a", "b", "0.6000", "test", "=f.csv", "12", "a", keys[0]),
    ]
    assert rows_of(b"".join(none)) == []


def test_texts_with_several_labels_have_their_columns_of_corrections():
    split = Split(texts=["one"], labels=np.array([[1, 0]], dtype=np.int8), where=["a.jsonl:1"])
    predictions = SplitPredictions(
        name="test",
        split=split,
        logits=np.array([[-1.0, 1.0]], dtype=np.float32),
        label_names=("a", "b"),
        thresholds=(0.5, 0.5),
    )

    rows = predictions.label_rows(predictions.mistakes)
    (table,) = label_tables(rows, data=DataConfig(train="gone.jsonl"))

    (row,) = rows_of(b"".join(table))
    assert list(row)[-2:] == ["label_in_data", "key"]
    assert row["label"] == row["label_in_data"] == "a"
    assert row["suggested"] == "b"
    assert row["key"] == key_of_text("one")


def test_a_run_has_the_mistakes_of_its_predictions_and_its_doubtful_labels(trained_run):
    """The texts are those of `predictions.jsonl`, with the prediction as what is suggested."""
    lines = (trained_run.eval / PREDICTIONS).read_text("utf-8").splitlines()
    predictions = [json.loads(line) for line in lines]
    assert len(predictions) == 15
    assert list(predictions[0]) == ["where", "text", "label", "prediction", "probability"]

    expected = set()
    for row in predictions:
        if row["label"] != row["prediction"]:
            expected.add((row["where"], row["text"], row["label"], row["prediction"]))

    found = set()
    for row in rows_of((trained_run.eval / MISTAKES).read_bytes()):
        where = f"{row['file']}:{row['line']}"
        found.add((where, row["text"], row["label"], row["suggested"]))
    assert found == expected

    report = json.loads((trained_run.eval / REPORT_JSON).read_bytes())
    assert report["accuracy"] == pytest.approx(1 - len(expected) / 15)

    doubtful = rows_of((trained_run.eval / DOUBTFUL_LABELS).read_bytes())
    assert len(doubtful) == report["doubtful_labels"]


def test_doubtful_labels_are_those_with_a_surer_prediction():
    """They are as many as are wrong by estimate; labels without a probability are passed over."""
    sure = [0.95, 0.05, 0]
    unsure = [0.45, 0.55, 0]
    other = [0.05, 0.95, 0]
    probabilities = np.array([unsure, *[sure] * 9, *[other] * 9, sure, unsure])
    labels = np.array([3, *[0] * 9, *[1] * 9, 1, 0])

    assert doubtful_rows(probabilities, labels) == (19,)
    assert doubtful_rows(np.eye(3), np.arange(3)) == ()


def test_a_doubtful_label_among_several_makes_its_text_doubtful():
    first = [0.95, 0.05]
    second = [0.05, 0.95]
    probabilities = np.array([first] * 9 + [second] * 9 + [[0.02, 0.98]])
    labels = np.array([[1, 0, 0]] * 9 + [[0, 1, 1]] * 9 + [[1, 1, 0]], dtype=np.int8)

    assert doubtful_rows(probabilities, labels) == (18,)
    assert doubtful_rows(probabilities[:18], labels[:18]) == ()
