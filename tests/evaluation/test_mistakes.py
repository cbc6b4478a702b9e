"""Mistakes, doubtful labels, and the CSV files in which labels are corrected."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from support.reports import split_of

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation import report
from encoder_cls.evaluation.files import DOUBTFUL_LABELS, MISTAKES
from encoder_cls.evaluation.mistakes import Answered, doubtful_rows, label_tables
from encoder_cls.evaluation.report import evaluate

NAMES = ("a", "b", "new")


def test_the_worst_errors_come_first(classifier):
    """Of 33 wrong labels, the 20 that the classifier was surest of, each with its file and line."""
    texts = [
        f"{word}{' of' * i}" for i in range(11) for word in ("rain snow", "soup salt", "ball goal")
    ]
    wrong = np.array([0, 1, 2] * 11)  # küche, sport, weather: each is another's
    split = split_of(texts, wrong)
    errors = evaluate(classifier, split, name="wrong").worst_errors
    assert len(errors) == 20
    assert [error.probability for error in errors] == sorted(
        (error.probability for error in errors), reverse=True
    )
    everything = classifier.predict(texts)
    assert errors[0].probability == pytest.approx(
        max(prediction.probability for prediction in everything)
    )
    for error in errors:
        index = int(error.where.removeprefix("f.csv:")) - 2
        assert error.text == texts[index]
        assert (error.labelled, error.answer) == (
            (classifier.label_names[wrong[index]],),
            everything[index].label,
        )


def test_errors_are_explained_for_the_class_that_was_answered(classifier, monkeypatch):
    """As many as there is time for."""
    split = split_of(["rain and snow"] * 2, classifier.label_names.index("sport"))
    monkeypatch.setattr(
        report, "MOST_EXPLAINED_TOKENS", 17
    )  # of a text with its 4 tokens it reads 16
    error, other = evaluate(classifier, split, name="x").worst_errors
    assert error.answer == "weather"
    assert [word.word for word in error.words] == ["rain", "and", "snow"]
    assert max(error.words, key=lambda word: word.weight).word in {"rain", "snow"}
    assert other.words == ()


def rows_of(content: bytes) -> list[dict[str, str]]:
    """As a program reads it that knows nothing of where it comes from."""
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_each_row_leads_back_to_its_data():
    """Split, file and line; the text with its quotes and line ends, but no formula; the most doubtful first."""
    texts = ["=1+1", 'he said "no",\r\nthen; left\n', "天気 \N{GRINNING FACE}", "right"]
    split = Split(
        texts=texts,
        labels=np.array([0, 1, 2, 0]),
        where=["=f.csv:12", "c:/d.csv:3", "good/7.txt", "x/f.csv:13"],
    )
    logits = np.log(np.array([[0.4, 0.6], [0.9, 0.1], [0.3, 0.7], [0.9, 0.1]], dtype=np.float32))
    answered = Answered(name="test", split=split, logits=logits, label_names=NAMES)
    assert answered.mistakes.tolist() == [0, 1, 2]
    data = DataConfig(train="gone.csv")
    mistakes, none = label_tables(answered.label_rows(answered.mistakes), [], data=data)
    content = b"".join(mistakes)
    assert content.startswith(b"\xef\xbb\xbf")
    found = rows_of(content)
    assert list(found[0]) == ["text", "label", "suggested", "score", "split", "file", "line"]
    assert [tuple(row.values()) for row in found] == [
        (texts[2], "new", "b", "1.0000", "test", "good/7.txt", ""),
        (texts[1], "b", "a", "0.9000", "test", "c:/d.csv", "3"),
        ("'=1+1", "a", "b", "0.6000", "test", "'=f.csv", "12"),
    ]
    assert rows_of(b"".join(none)) == []


def test_a_run_has_the_mistakes_of_its_predictions_and_its_doubtful_labels(trained_run):
    """The same texts as in `predictions.jsonl`, file and line apart, and the answer as what is suggested."""
    answers = [
        json.loads(line)
        for line in (trained_run.eval / "predictions.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(answers) == 15
    assert list(answers[0]) == ["where", "text", "label", "prediction", "probability"]
    wrong = [row for row in answers if row["label"] != row["prediction"]]
    found = rows_of((trained_run.eval / MISTAKES).read_bytes())
    assert sorted(f"{row['file']}:{row['line']}" for row in found) == sorted(
        row["where"] for row in wrong
    )
    assert {(row["text"], row["label"], row["suggested"]) for row in found} == {
        (row["text"], row["label"], row["prediction"]) for row in wrong
    }
    scores = json.loads((trained_run.eval / "report.json").read_bytes())
    assert 1 - len(wrong) / 15 == pytest.approx(scores["accuracy"])
    assert (
        len(rows_of((trained_run.eval / DOUBTFUL_LABELS).read_bytes())) == scores["doubtful_labels"]
    )


def test_doubtful_labels_are_those_with_a_surer_answer():
    """As many as are wrong by estimate; labels without a probability are passed over, and do not shift the others."""
    sure, unsure = [0.95, 0.05, 0], [0.45, 0.55, 0]
    probabilities = np.array([unsure, *[sure] * 9, *[[0.05, 0.95, 0]] * 9, sure, unsure])
    labels = np.array([3, *[0] * 9, *[1] * 9, 1, 0])
    assert doubtful_rows(probabilities, labels) == (19,)
    assert doubtful_rows(np.eye(3), np.arange(3)) == ()


def test_a_doubtful_label_of_several_is_of_its_text():
    probabilities = np.array([[0.95, 0.05]] * 9 + [[0.05, 0.95]] * 9 + [[0.02, 0.98]])
    labels = np.array([[1, 0, 0]] * 9 + [[0, 1, 1]] * 9 + [[1, 1, 0]], dtype=np.int8)
    assert doubtful_rows(probabilities, labels) == (18,)
    assert doubtful_rows(probabilities[:18], labels[:18]) == ()
