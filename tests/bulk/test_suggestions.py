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


@pytest.fixture
def pool() -> Path:
    """Rows of which some are equal but for case and white space, and one is blank."""
    texts = [*SURE, *UNSURE, "Soup  BALL", "", *SURE]
    return Path(write_table("pool.csv", [["text"], *([text] for text in texts)]))


def unit(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32) / np.linalg.norm(numbers)


def test_the_next_text_is_uncertain_and_unlike_those_before():
    """A near copy of a chosen text is never chosen; a text half alike comes after those that are not."""
    vectors = np.stack([unit(1, 0, 0), unit(1, 0.1, 0), unit(1, 0.9, 0), unit(0, 0, 1)])
    assert choose(np.array([0.9, 0.89, 0.8, 0.5]), vectors, 4) == [0, 3, 2]
    # The middle one of three that are alike.
    assert choose(np.array([0.9, 0.89, 0.8, 0.5]), vectors, 2) == [
        1,
        3,
    ]
    assert choose(np.array([0.01, 0.01, 0.01, 0.9]), vectors, 1) == [3]


def test_no_near_copies_are_chosen_and_small_chunks_find_the_same(classifier):
    near = {"qwert zuiop asdfg hjkly yxcvb", "qwert zuiop asdfg hjkly yxcvbs"}
    rows = [Row(text) for text in [*SURE, *near]]
    assert len(near & {it.row.text for it in suggest(classifier, [rows], 4)}) == 1
    rows = [Row(text) for text in [*SURE, *UNSURE, *SURE, ""]]
    whole = [it.row.text for it in suggest(classifier, [rows], 3)]
    assert [it.row.text for it in suggest(classifier, [[row] for row in rows], 3)] == whole
    assert set(whole) <= set(UNSURE)
    assert len(set(whole)) == 3
    assert suggest(classifier, [], 3) == []


def test_a_table_is_printed_to_be_filled_in(cli, trained_run, pool):
    """File and line lead back to the data; the label is empty, the answer and its probability beside it."""
    outcome = cli("suggest", trained_run.path, "--input", pool, "--n", 3)
    assert (outcome.code, outcome.err) == (0, "")
    columns = ["text", "label", "suggested", "probability", "file", "line"]
    rows = [*csv.DictReader(io.StringIO(outcome.out))]
    assert (list(rows[0]), len(rows)) == (columns, 3)
    lines = pool.read_text().splitlines()
    for row in rows:
        assert (row["file"], lines[int(row["line"]) - 1], row["label"]) == (
            "pool.csv",
            row["text"],
            "",
        )
        assert row["text"] in UNSURE
        predicted = json.loads(
            cli("predict", "--model", trained_run.path, "--format", "jsonl", row["text"]).out
        )
        assert (row["suggested"], row["probability"]) == (
            predicted["label"],
            f"{predicted['probability']:.6f}",
        )
    again = cli("suggest", trained_run.model, "--input", pool, "--n", 3, "--output", "next.csv")
    assert (again.out, again.err.startswith("wrote next.csv: 3 texts to label")) == ("", True)
    assert Path("next.csv").read_text() == outcome.out
    found = [
        json.loads(line)
        for line in cli("suggest", trained_run.path, "--input", pool, "--json").out.splitlines()
    ]
    assert [it["text"] for it in found[:3]] == [row["text"] for row in rows]
    assert len({" ".join(it["text"].lower().split()) for it in found}) == len(found) <= 8
    assert (list(found[0]), found[0]["label"]) == (columns, None)


def test_a_table_is_safe_to_show_and_to_open(cli, trained_run, monkeypatch):
    """A terminal gets no control characters, a spreadsheet no formulas that it did not have; else texts stay."""
    texts = ['=HYPERLINK("a")', "rain\x1b[2J\x9b\n soup", "-1"]
    write_table("pool.csv", [["text"], *([text] for text in texts)])
    Path("pool.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for source, first in (("pool.csv", texts[0]), ("pool.jsonl", f"'{texts[0]}")):
        cli("suggest", trained_run.path, "--input", source, "--output", "next.csv")
        assert {text for text, *_ in read_table("next.csv")[1:]} == {first, *texts[1:]}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = cli("suggest", trained_run.path, "--input", "pool.csv").out
    assert len(shown.splitlines()) == 4
    assert shown.replace("\n", "").isprintable()


def test_what_is_filled_in_is_data_like_the_input(cli, trained_run):
    """Separator, mark and columns are the input's, ids and an empty label among them; so both are read together."""
    rows = [
        ["id", "label", "text", "topic"],
        *([f"0{n}", "", it, "x; y"] for n, it in enumerate([*SURE, *UNSURE])),
    ]
    write_table("pool.csv", rows, ";", "utf-8-sig")
    assert (
        cli(
            "suggest", trained_run.path, "--input", "pool.csv", "--n", 9, "--output", "next.csv"
        ).code
        == 0
    )
    assert Path("next.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    header, *found = read_table("next.csv", ";")
    assert header == ["id", "text", "topic", "label", "suggested", "probability", "file", "line"]
    assert {(id_, "", text, topic) for id_, text, topic, *_ in found} <= set(map(tuple, rows))
    filled_in = [header, *([*row[:3], row[4], *row[4:]] for row in found)]
    write_table("next.csv", filled_in, ";", "utf-8-sig")
    config = trained_run.path.parent / "tiny.yaml"
    outcome = cli("train", "--config", config, "--set", "data.train=next.csv", "--dry-run")
    assert f"data: {len(found)} training" in outcome.err


def test_rows_of_a_spreadsheet_are_named_beside_lines(cli, trained_run):
    """Only where they differ: a text before has a line feed."""
    Path("pool.csv").write_text('text\n"soup\nball"\nzzz\n')
    assert cli("suggest", trained_run.path, "--input", "pool.csv", "--output", "next.csv").code == 0
    header, *rows = read_table("next.csv")
    assert header[-2:] == ["line", "row"]
    assert {row[0]: row[-2:] for row in rows} == {"soup\nball": ["2", "2"], "zzz": ["4", "3"]}
    lines = cli("suggest", trained_run.path, "--input", "pool.csv", "--json").out.splitlines()
    assert {row["text"]: row.get("row") for row in map(json.loads, lines)} == {
        "soup\nball": None,
        "zzz": 3,
    }


def test_fewer_texts_than_are_wanted_are_warned_of(cli, trained_run, pool):
    outcome = cli("suggest", trained_run.path, "--input", pool, "--n", 100)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: pool.csv: has only ")
    for arguments, code, message in (
        (["--input", "gone.csv"], 3, "no such file"),
        (["--input", "-"], 2, "--input: names no file"),
        (["--input", pool, "--output", pool], 2, "is a file that is read"),
        (["--input", pool, "--output", "next.xlsx"], 2, "known: .csv and .jsonl"),
        (["--input", pool, "--text-column", "body"], 3, "no column 'body'"),
    ):
        assert_failed(cli("suggest", trained_run.path, *arguments), code, message)
