"""Answers beside the columns of the input, in every format that has columns; and Parquet files."""

from __future__ import annotations

import json
import os
import re
import sys
import tracemalloc
from pathlib import Path
from threading import Thread

import pyarrow
import pyarrow.parquet
import pytest
from support.programs import assert_failed
from support.tables import read_table, write_table

from encoder_cls.classifier.model_folder import load_classifier, save_classifier

ROWS = [["7", "rain and snow", "a,b"], ["8", 'soup\r\nwith "salt"\n', ""], ["", "the team", "é"]]
LABELS = ["weather", "küche", "sport"]
COUNTS = re.compile(r"of \d+ texts?: [1-9].*")


def predict(cli, run, source: str, *more: object) -> bytes:
    """What `predict` prints, and the same as what it writes into a file."""
    command = ["predict", "--model", run.path, "--input", source, *more]
    printed = cli(*command)
    assert printed.code == 0
    assert [line for line in printed.err.splitlines() if not COUNTS.fullmatch(line)] == []

    assert cli(*command, "--output", "written.out").code == 0
    content = Path("written.out").read_bytes()
    assert printed.out.encode() == content
    return content


def test_csv_of_csv_keeps_all_columns_in_place(cli, trained_run):
    """Any characters stay as they are, and label and probability come behind them."""
    # Also characters that a format, a terminal or a spreadsheet could take for its own.
    odd = [
        ['"', "the ball", "=1"],
        ["\0\x1b[2J\x85", "the goal", "\r"],
        ["\t ", "the team", "\ufeff,\n\n"],
    ]
    write_table("in.csv", [["id", "text", "note"], *ROWS, *odd])
    header, *rows = read_table(predict(cli, trained_run, "in.csv", "--format", "csv"))
    assert header == ["id", "text", "note", "label", "probability"]
    assert [row[:3] for row in rows] == [*ROWS, *odd]
    assert [row[3] for row in rows] == [*LABELS, "sport", "sport", "sport"]
    assert all(0 < float(row[4]) <= 1 for row in rows)

    header, *rows = read_table(
        predict(cli, trained_run, "in.csv", "--format", "csv", "--top-k", 2, "--explain")
    )
    assert header[3:] == ["label", "probability", "label_2", "probability_2", "explanation"]
    assert {len(row) for row in rows} == {8}


def test_a_terminal_is_not_steered_by_columns(cli, trained_run, monkeypatch):
    write_table("in.csv", [["text", "note"], ["rain", "\x1b[2J\n"]])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    options = ["--format", "csv", "--keep-columns"]
    shown = cli("predict", "--model", trained_run.path, "--input", "in.csv", *options).out
    assert shown.splitlines()[1].startswith("rain,\\x1b[2J\\n,weather,")


def test_without_the_columns_there_is_the_id_alone(cli, trained_run):
    """As in the other formats, where columns are kept when that is asked for."""
    write_table("in.csv", [["id", "text", "note"], *ROWS])
    header = ["id", "label", "probability", "truncated", "unknown_words", "unfamiliar", "reason"]
    in_csv = predict(cli, trained_run, "in.csv", "--format", "csv", "--no-keep-columns")
    assert read_table(in_csv)[0] == header

    in_tsv = predict(cli, trained_run, "in.csv", "--format", "tsv").decode()
    assert in_tsv.split("\n")[0].split("\t") == header


def test_columns_of_equal_names_are_all_kept(cli, trained_run):
    """A spreadsheet may have columns without a name, or with the name of an answer's."""
    write_table(
        "in.csv", [["text", "", "", "label", "label", ".1"], ["rain", "a", "b", "c", "d", "e"]]
    )
    header, row = read_table(predict(cli, trained_run, "in.csv", "--format", "csv"))
    assert header == ["text", "", ".2", "label", "label.1", ".1", "predicted_label", "probability"]
    assert row[:7] == ["rain", "a", "b", "c", "d", "e", "weather"]


def test_files_with_other_columns_have_empty_fields_in_one_table(cli, trained_run):
    """A table without rows has columns, too."""
    write_table("a1.csv", [["text", "x"], ["rain", "1"]])
    write_table("a2.csv", [["y", "text"]])
    write_table("a3.csv", [["z", "text"], ["3", "soup"]])
    table = read_table(predict(cli, trained_run, "a*.csv", "--format", "csv"))
    assert [row[:4] for row in table] == [
        ["text", "x", "y", "z"],
        ["rain", "1", "", ""],
        ["soup", "", "", "3"],
    ]
    assert predict(cli, trained_run, "a2.csv", "--format", "csv") == b"y,text,label,probability\n"


def test_json_lines_keep_their_values(cli, trained_run):
    """Of any type, each row its own columns; names of the answer are called alike in all rows."""
    rows = [
        {"text": "rain", "n": 1, "list": [1, {"a": None}]},
        {"top": "x", "text": "soup", "id": 5, "n": "\ud800"},
    ]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = predict(cli, trained_run, "in.jsonl", "--format", "jsonl", "--keep-columns")
    found = [json.loads(line) for line in content.splitlines()]
    of_prediction = ["label", "probability", "predicted_top", "truncated", "unknown_words"]
    assert [list(record) for record in found] == [[*row, *of_prediction] for row in rows]
    assert all(record.items() >= row.items() for record, row in zip(found, rows, strict=True))


def test_tabs_and_line_breaks_are_escaped_where_tsv_cannot_hold_them(cli, trained_run):
    write_table("in.csv", [["text", "note"], ["rain\nsnow", "a\tb"]])
    content = predict(cli, trained_run, "in.csv", "--format", "tsv", "--keep-columns")
    lines = content.decode().splitlines()
    assert lines[0] == "text\tnote\tlabel\tprobability"
    assert lines[1].startswith("rain\\nsnow\ta\\tb\tweather\t")


def test_what_can_be_read_but_once_has_the_columns_of_its_first_rows(cli, trained_run):
    for second, code in (('{"text": "soup", "x": 2}', 0), ('{"text": "soup", "y": 2}', 3)):
        Path("pipe.jsonl").unlink(missing_ok=True)
        os.mkfifo("pipe.jsonl")
        rows = '{"text": "rain", "x": 1}\n' * 4096 + second + "\n"
        writer = Thread(target=Path("pipe.jsonl").write_text, args=[rows], daemon=True)
        writer.start()
        options = ["--input", "pipe.jsonl", "--format", "csv", "--keep-columns"]
        outcome = cli("predict", "--model", trained_run.path, *options, "--output", "out.csv")
        assert outcome.code == code, outcome.err
        writer.join()
    assert "column 'y' is not in the first rows" in outcome.err


def table_of(cli, run, *arguments: object) -> pyarrow.Table:
    outcome = cli("predict", "--model", run.path, *arguments, "--output", "out.parquet")
    assert outcome.code == 0
    assert outcome.out == ""
    assert COUNTS.sub("", outcome.err).strip() == ""
    return pyarrow.parquet.read_table("out.parquet")


def test_parquet_has_types(cli, trained_run):
    """Labels are texts, withheld ones null, probabilities numbers, words a list."""
    table = table_of(
        cli, trained_run, "rain and snow", "zzz", "--top-k", 2, "--threshold", 0.9, "--explain"
    )
    assert [f"{field.name} {field.type}" for field in table.schema][:-1] == [
        "label string",
        "probability double",
        "label_2 string",
        "probability_2 double",
        "truncated bool",
        "unknown_words int64",
        "unfamiliar bool",
        "reason string",
    ]
    rain, zzz = table.to_pylist()
    assert (zzz["label"], zzz["unknown_words"]) == (None, 1)
    assert [word["word"] for word in rain["explanation"]] == ["rain", "and", "snow"]


def test_parquet_keeps_the_columns_of_parquet_as_they_are(cli, trained_run, monkeypatch):
    """All types, those that Python does not know too, across files, row groups and chunks."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 4)
    monkeypatch.setattr("encoder_cls.bulk.parquet_format.BATCH_ROWS", 3)
    monkeypatch.setattr("encoder_cls.bulk.parquet_format.MOST_ROWS", 8)
    numbers = list(range(10))
    times = pyarrow.array(
        [number * 1_000_000_000 + 1 for number in numbers], pyarrow.timestamp("us", "UTC")
    )
    first = pyarrow.table(
        {"text": ["rain"] * 10, "when": times, "n": pyarrow.array(numbers, pyarrow.uint8())}
    )
    second = pyarrow.table(
        {"n": pyarrow.array([300], pyarrow.int32()), "text": ["soup"], "label": [b"x"]}
    )
    pyarrow.parquet.write_table(first, "a1.parquet")
    pyarrow.parquet.write_table(second, "a2.parquet")
    table = table_of(cli, trained_run, "--input", "a*.parquet", "--keep-columns")
    assert table.schema.names == ["text", "when", "n", "label", "predicted_label", "probability"]
    assert table.schema.field("when").type == times.type
    assert table["when"].to_pylist() == [*times.to_pylist(), None]
    assert table["n"].to_pylist() == [*numbers, 300]
    assert table["label"].to_pylist() == [*[None] * 10, b"x"]
    assert table["predicted_label"].to_pylist() == [*["weather"] * 10, "küche"]


def test_parquet_of_json_lines_has_the_types_of_all_rows(cli, trained_run):
    """Numbers stay numbers; what is of several types, or of none that columns have, is text."""
    rows = [
        {
            "text": "rain",
            "i": 1,
            "f": 1,
            "b": True,
            "mixed": 1,
            "list": [1],
            "large": 1 << 70,
            "s": "\ud800",
        },
        {"text": "soup", "i": None, "f": 0.5, "mixed": "x", "none": None, "id": "a"},
    ]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = table_of(cli, trained_run, "--input", "in.jsonl", "--keep-columns")
    types = {field.name: str(field.type) for field in table.schema}
    assert [types[name] for name in ("i", "f", "b")] == ["int64", "double", "bool"]
    assert {types[name] for name in ("mixed", "list", "large", "none", "id", "s")} == {"string"}
    assert table["mixed"].to_pylist() == ["1", "x"]
    assert [table[name][0].as_py() for name in ("list", "large", "s")] == [
        "[1]",
        str(1 << 70),
        "\\ud800",
    ]


def test_parquet_without_the_columns_has_the_id(cli, trained_run):
    Path("in.jsonl").write_text('{"text": "rain", "id": 7, "x": 1}\n{"text": "soup"}\n')
    table = table_of(cli, trained_run, "--input", "in.jsonl")
    assert table.schema.names == [
        "id",
        "label",
        "probability",
        "truncated",
        "unknown_words",
        "unfamiliar",
        "reason",
    ]
    assert table["id"].to_pylist() == [7, None]
    Path("in.jsonl").write_text("")
    assert table_of(cli, trained_run, "--input", "in.jsonl").num_rows == 0


@pytest.mark.parametrize(
    "arguments", [["rain", "--output", "a.parquet"], ["--input", "in.parquet"]]
)
def test_where_pyarrow_is_missing_it_is_named(cli, trained_run, monkeypatch, arguments):
    Path("in.parquet").touch()
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    assert_failed(
        cli("predict", "--model", trained_run.path, *arguments), 2, "pip install pyarrow\n"
    )


@pytest.fixture
def cascade(trained_run) -> None:
    """A model folder `cascade`, whose linear part is sure of the text `soup` only."""
    classifier = load_classifier(trained_run.path)
    logits = classifier.linear.logits(classifier.tokenize(["soup", "zzz"]))
    classifier.gate = float(classifier.task.probabilities(logits).max(axis=1).mean())
    save_classifier(classifier, Path("cascade"))


@pytest.mark.usefixtures("cascade")
@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet"])
@pytest.mark.parametrize("kept", [True, False])
def test_with_a_cascade_a_table_has_the_part_that_predicted(cli, trained_run, name, kept):
    write_table("in.csv", [["text"], ["soup"], ["zzz"]])
    options = (
        "--input",
        "in.csv",
        "--keep-columns" if kept else "--no-keep-columns",
        "--output",
        name,
    )
    for model, expected in (("cascade", ["linear", "both"]), (trained_run.path, None)):
        assert cli("predict", "--model", model, *options).code == 0
        if name == "out.parquet":
            columns = pyarrow.parquet.read_table(name).to_pydict()
        else:
            header, *rows = read_table(name, "\t" if name == "out.tsv" else ",")
            columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
        assert columns.get("answered_by") == expected


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_input(cli, trained_run, monkeypatch, ending):
    """Four times as many rows need as much at once: nothing is kept of what has been answered."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 16)
    monkeypatch.setattr("encoder_cls.bulk.parquet_format.MOST_ROWS", 32)
    peaks = []
    for number in (32, 32, 128):  # the first fills what is kept for good
        write_table(
            "in.csv", [["text", "note"], *([f"rain {row}", "x" * 10_000] for row in range(number))]
        )
        tracemalloc.start()
        options = (
            "--input",
            "in.csv",
            "--keep-columns",
            "--output",
            f"out.{ending}",
            "--engine",
            "numpy",
        )
        outcome = cli("predict", "--model", trained_run.path, *options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert outcome.code == 0
    assert peaks[2] - peaks[1] < 200_000, peaks  # of 0.9 MB more of notes
