"""Which texts to label next: uncertain ones, unlike each other, each once, always the same."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.programs import assert_failed
from support.tables import read_table, write_table

from encoder_cls.bulk.suggestions import choose, suggest
from encoder_cls.data.reading.rows import Row

SURE = [
    "rain and snow today",
    "cloud and storm today",
    "the team and the ball",
    "a big soup with salt",
]
UNSURE = ["soup ball", "rain ball of the day", "the coach and the bread", "zzz"]
COLUMNS = ["text", "label", "suggested", "probability", "file", "line"]


@pytest.fixture
def pool() -> Path:
    """Rows of which some are equal but for case and white space, and one is blank."""
    texts = [*SURE, *UNSURE, "Soup  BALL", "", *SURE]
    return Path(write_table("pool.csv", [["text"], *([text] for text in texts)]))


def unit(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32) / np.linalg.norm(numbers)


def suggested_texts(classifier, chunks, number: int) -> list[str]:
    return [suggestion.row.text for suggestion in suggest(classifier, chunks, number)]


def records_of(lines: str) -> list[dict]:
    return [json.loads(line) for line in lines.splitlines()]


def test_the_next_text_is_uncertain_and_unlike_those_before():
    """A near copy of a chosen text is never chosen; a text half alike comes after those that are not."""
    vectors = np.stack([unit(1, 0, 0), unit(1, 0.1, 0), unit(1, 0.9, 0), unit(0, 0, 1)])
    uncertainty = np.array([0.9, 0.89, 0.8, 0.5])
    assert choose(uncertainty, vectors, 4) == [0, 3, 2]
    # The middle one of three that are alike comes first.
    assert choose(uncertainty, vectors, 2) == [1, 3]
    assert choose(np.array([0.01, 0.01, 0.01, 0.9]), vectors, 1) == [3]


def test_no_near_copies_are_suggested(classifier):
    near = {"qwert zuiop asdfg hjkly yxcvb", "qwert zuiop asdfg hjkly yxcvbs"}
    rows = [Row(text) for text in [*SURE, *near]]
    assert len(near & set(suggested_texts(classifier, [rows], 4))) == 1


def test_small_chunks_have_the_suggestions_of_a_large_one(classifier):
    rows = [Row(text) for text in [*SURE, *UNSURE, *SURE, ""]]
    texts = suggested_texts(classifier, [rows], 3)
    assert set(texts) <= set(UNSURE)
    assert len(set(texts)) == 3

    small_chunks = [[row] for row in rows]
    assert suggested_texts(classifier, small_chunks, 3) == texts
    assert suggest(classifier, [], 3) == []


def test_a_table_is_printed_to_be_filled_in(cli, trained_run, pool):
    """File and line lead back to the data; the label is empty, the answer and its probability beside it."""
    outcome = cli("suggest", trained_run.path, "--input", pool, "--n", 3)
    assert (outcome.code, outcome.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert list(rows[0]) == COLUMNS
    assert len(rows) == 3

    lines = pool.read_text().splitlines()
    for row in rows:
        assert row["file"] == "pool.csv"
        assert row["text"] == lines[int(row["line"]) - 1]
        assert row["label"] == ""
        assert row["text"] in UNSURE

        prediction = cli("predict", "--model", trained_run.path, "--format", "jsonl", row["text"])
        predicted = json.loads(prediction.out)
        assert row["suggested"] == predicted["label"]
        assert row["probability"] == f"{predicted['probability']:.6f}"


def test_a_file_has_the_suggestions_that_are_printed(cli, trained_run, pool):
    arguments = ["--input", pool, "--n", 3]
    printed = cli("suggest", trained_run.path, *arguments).out
    outcome = cli("suggest", trained_run.model, *arguments, "--output", "next.csv")
    assert outcome.out == ""
    assert outcome.err.startswith("wrote next.csv: 3 texts to label")
    assert Path("next.csv").read_text() == printed


def test_json_has_the_suggestions_of_the_table(cli, trained_run, pool):
    table = cli("suggest", trained_run.path, "--input", pool, "--n", 3).out
    records = records_of(cli("suggest", trained_run.path, "--input", pool, "--json").out)
    assert list(records[0]) == COLUMNS
    assert records[0]["label"] is None

    rows = list(csv.DictReader(io.StringIO(table)))
    assert [record["text"] for record in records[:3]] == [row["text"] for row in rows]
    different = {" ".join(record["text"].lower().split()) for record in records}
    assert len(different) == len(records) <= 8


def test_a_table_is_safe_to_show_and_to_open(cli, trained_run, monkeypatch):
    """A terminal gets no control characters, a spreadsheet no formulas that it did not have; else texts stay."""
    texts = ['=HYPERLINK("a")', "rain\x1b[2J\x9b\n soup", "-1"]
    write_table("pool.csv", [["text"], *([text] for text in texts)])
    Path("pool.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for source, formula in (("pool.csv", texts[0]), ("pool.jsonl", f"'{texts[0]}")):
        cli("suggest", trained_run.path, "--input", source, "--output", "next.csv")
        assert {row[0] for row in read_table("next.csv")[1:]} == {formula, *texts[1:]}

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = cli("suggest", trained_run.path, "--input", "pool.csv").out
    assert len(shown.splitlines()) == 4
    assert shown.replace("\n", "").isprintable()


def test_what_is_filled_in_is_data_like_the_input(cli, trained_run):
    """Separator, mark and columns are the input's, ids and an empty label among them; so both are read together."""
    rows = [["id", "label", "text", "topic"]]
    for number, text in enumerate([*SURE, *UNSURE]):
        rows.append([f"0{number}", "", text, "x; y"])
    write_table("pool.csv", rows, ";", "utf-8-sig")

    arguments = ["--input", "pool.csv", "--n", 9, "--output", "next.csv"]
    assert cli("suggest", trained_run.path, *arguments).code == 0
    assert Path("next.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    header, *suggested = read_table("next.csv", ";")
    assert header == ["id", "text", "topic", "label", "suggested", "probability", "file", "line"]
    for id_, text, topic, *_ in suggested:
        assert [id_, "", text, topic] in rows

    filled_in = [header]
    for row in suggested:
        filled_in.append([*row[:3], row[4], *row[4:]])
    write_table("next.csv", filled_in, ";", "utf-8-sig")
    config = trained_run.path.parent / "tiny.yaml"
    outcome = cli("train", "--config", config, "--set", "data.train=next.csv", "--dry-run")
    assert f"data: {len(suggested)} training" in outcome.err


def test_rows_of_a_spreadsheet_are_named_beside_lines(cli, trained_run):
    """Only where they differ: a text before has a line feed."""
    Path("pool.csv").write_text('text\n"soup\nball"\nzzz\n')
    command = ["suggest", trained_run.path, "--input", "pool.csv"]
    assert cli(*command, "--output", "next.csv").code == 0
    header, *rows = read_table("next.csv")
    assert header[-2:] == ["line", "row"]
    assert {row[0]: row[-2:] for row in rows} == {"soup\nball": ["2", "2"], "zzz": ["4", "3"]}

    records = records_of(cli(*command, "--json").out)
    assert {record["text"]: record.get("row") for record in records} == {
        "soup\nball": None,
        "zzz": 3,
    }


def test_fewer_texts_than_are_wanted_are_warned_of(cli, trained_run, pool):
    outcome = cli("suggest", trained_run.path, "--input", pool, "--n", 100)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: pool.csv: has only ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--input", "gone.csv"], 3, "no such file"),
        (["--input", "-"], 2, "--input: names no file"),
        (["--input", "pool.csv", "--output", "pool.csv"], 2, "is a file that is read"),
        (["--input", "pool.csv", "--output", "next.xlsx"], 2, "known: .csv and .jsonl"),
        (["--input", "pool.csv", "--text-column", "body"], 3, "no column 'body'"),
    ],
)
@pytest.mark.usefixtures("pool")
def test_what_cannot_be_is_refused(cli, trained_run, arguments, code, message):
    assert_failed(cli("suggest", trained_run.path, *arguments), code, message)
