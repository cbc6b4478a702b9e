"""CSV files in which labels are mended: each row leads back to its data, and the text is as it was read."""

from __future__ import annotations

import csv
import io
import json
import sys
from types import ModuleType

import numpy as np
import pytest

from encoder_cls.data.split import Split
from encoder_cls.evaluation.files import DOUBTFUL_LABELS, MISTAKES
from encoder_cls.evaluation.labels import COLUMNS, check_labels, label_rows, label_table, mistakes

NAMES = ("a", "b", "new")


def rows_of(content: bytes) -> list[dict[str, str]]:
    """As a program reads it that knows nothing of where it comes from."""
    assert content.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_each_row_leads_back_to_its_data():
    """Split, file and line; the text with its quotes and line ends, but no formula; the most doubtful first."""
    texts = ["=1+1", 'he said "no",\r\nthen; left\n', "天気 \N{GRINNING FACE}", "right"]
    split = Split(
        texts=texts, labels=np.array([0, 1, 2, 0]), where=["=f.csv:12", "c:/d.csv:3", "good/7.txt", "x/f.csv:13"]
    )
    logits = np.log(np.array([[0.4, 0.6], [0.9, 0.1], [0.3, 0.7], [0.9, 0.1]], dtype=np.float32))
    assert mistakes(split, logits).tolist() == [0, 1, 2]
    found = rows_of(b"".join(label_table(label_rows(split, logits, NAMES, mistakes(split, logits), name="test"))))
    assert tuple(found[0]) == COLUMNS
    assert [tuple(row.values()) for row in found] == [
        ("test", "good/7.txt", "", texts[2], "new", "b", "1.0000"),
        ("test", "c:/d.csv", "3", texts[1], "b", "a", "0.9000"),
        ("test", "'=f.csv", "12", "'=1+1", "a", "b", "0.6000"),
    ]


def test_without_mistakes_there_is_a_table_without_rows():
    """So that nobody takes an earlier one for it."""
    split = Split(texts=["x"], labels=np.array([0]), where=["f:1"])
    logits = np.array([[1, 0]], dtype=np.float32)
    assert rows_of(b"".join(label_table(label_rows(split, logits, NAMES, mistakes(split, logits), name="test")))) == []


def test_a_run_has_the_mistakes_of_its_predictions(trained_run):
    """The same texts as in `predictions.jsonl`, file and line apart, and the answer as what is suggested."""
    lines = (trained_run.eval / "predictions.jsonl").read_text("utf-8").splitlines()
    wrong = [row for row in map(json.loads, lines) if row["label"] != row["prediction"]]
    found = rows_of((trained_run.eval / MISTAKES).read_bytes())
    assert sorted(f"{row['file']}:{row['line']}" for row in found) == sorted(row["where"] for row in wrong)
    assert {(row["text"], row["label"], row["suggested"]) for row in found} == {
        (row["text"], row["label"], row["prediction"]) for row in wrong
    }


@pytest.fixture
def cleanlab(monkeypatch) -> None:
    """In place of cleanlab, which need not be installed: a label is doubtful where another class has 0.9."""
    package, module = ModuleType("cleanlab"), ModuleType("cleanlab.filter")
    module.find_label_issues = lambda labels, given, n_jobs: (
        (given.max(axis=1) > 0.9) & (given.argmax(axis=1) != labels)
    )
    monkeypatch.setitem(sys.modules, "cleanlab", package)
    monkeypatch.setitem(sys.modules, "cleanlab.filter", module)


def test_doubtful_labels_are_numbered_among_all_texts(cleanlab):
    """Labels without a probability are passed over, and do not shift the others."""
    probabilities = np.array([[0.5, 0.5, 0], [0.95, 0.05, 0], [0.02, 0.98, 0], [0.95, 0.05, 0]])
    assert check_labels(probabilities, np.array([3, 0, 0, 1])).doubtful == (2, 3)
    assert check_labels(probabilities, np.array([3, 0, 0, 0])).note == "cleanlab needs texts of two classes"


def test_without_cleanlab_there_is_a_reason(monkeypatch):
    """And a way to have it."""
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    found = check_labels(np.eye(2), np.array([0, 1]))
    assert found.doubtful is None
    assert "pip install 'encoder-cls[labels]'" in found.note


def test_doubtful_labels_have_a_file_while_they_are_checked(cleanlab, cli, run_copy, monkeypatch):
    """Written where they are; of an earlier check nothing is left where they are not."""
    assert cli("eval", run_copy.path).code == 0
    report = json.loads((run_copy.eval / "report.json").read_bytes())
    found = rows_of((run_copy.eval / DOUBTFUL_LABELS).read_bytes())
    assert len(found) == report["doubtful_labels"]
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    assert cli("eval", run_copy.path).code == 0
    assert not (run_copy.eval / DOUBTFUL_LABELS).exists()
    assert json.loads((run_copy.eval / "report.json").read_bytes())["doubtful_labels"] is None
