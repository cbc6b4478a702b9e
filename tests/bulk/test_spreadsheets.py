"""Answers beside the rows of files as spreadsheets save them, and what is said of texts that get none."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet
import pytest
from support.programs import assert_failed, setting
from support.tables import read_table, write_table

from encoder_cls.bulk.chunk_classifier import ChunkClassifier
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier

ROWS = [
    ["id", "text", "note"],
    ["1", "rain and snow", "a;b"],
    ["2", "big\r\nsoup with salt", 'é "x"'],
]
LABELS = ["weather", "küche"]
MARK = b"\xef\xbb\xbf"


def predictions(rows: list[list[str]]) -> list[list[str]]:
    return [row[:-1] for row in rows]  # without the probabilities


EXPECTED = [
    [*ROWS[0], "label"],
    *([*row, label] for row, label in zip(ROWS[1:], LABELS, strict=True)),
]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("folder", [True, False])
def test_the_separator_and_the_mark_are_kept(cli, trained_run, separator, mark, folder):
    """So that the program that saved the file opens the answers; in a folder of parts alike."""
    Path("parts").mkdir()
    source = write_table(
        "parts/in.csv", ROWS, separator=separator, encoding="utf-8-sig" if mark else "utf-8"
    )
    named = (
        ["--input", "parts", "--output", "out/"]
        if folder
        else ["--input", source, "--output", "out/in.csv"]
    )
    outcome = cli("predict", "--model", trained_run.path, *named, "--format", "csv")
    assert (outcome.code, outcome.out) == (0, "")
    note = f"{source}: read with {separator!r} between its fields, as its header has it (data.delimiter)\n"
    assert outcome.err.count(note) == (separator != ",")
    assert predictions(read_table("out/in.csv", separator)) == EXPECTED
    assert Path("out/in.csv").read_bytes().startswith(MARK) == mark


def test_the_model_remembers_how_files_were_read(cli, trained_run, tmp_path):
    """In another folder and another file; `--set` reads one otherwise, and UTF-8 is known by itself."""
    classifier = load_classifier(trained_run.path)
    classifier.text_format = TextFormat(delimiter=";", encoding="windows-1252")
    save_classifier(classifier, tmp_path / "model")
    command = ["predict", "--model", "model", "--output", "out.csv", "--input"]

    outcome = cli(*command, write_table("in.csv", ROWS, separator=";", encoding="windows-1252"))
    assert (outcome.code, outcome.err) == (0, "")
    assert predictions(read_table("out.csv", ";")) == EXPECTED
    # No spreadsheet would take it for Windows-1252.
    assert Path("out.csv").read_bytes().startswith(MARK)

    outcome = cli(*command, write_table("in.csv", ROWS))
    assert outcome.code == 0
    assert outcome.err.splitlines() == [
        "in.csv: read as UTF-8, which it seems to be, not as windows-1252 as in training",
        "in.csv: read with ',' between its fields, as its header has it (data.delimiter)",
    ]
    assert predictions(read_table("out.csv", ",")) == EXPECTED

    options = setting("data.encoding=utf-16", "data.delimiter=tab")
    outcome = cli(
        *command, write_table("in.csv", ROWS, separator="\t", encoding="utf-16"), *options
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert predictions(read_table("out.csv", "\t")) == EXPECTED


def test_training_keeps_how_files_were_read_with_the_model(cli, trained_run, blank_plots):
    """From a file in Windows-1252 with semicolons, which is then predicted and evaluated without a word about it."""
    rows = list(csv.reader((trained_run.path.parent / "train.csv").read_text("utf-8").splitlines()))
    write_table("data.csv", rows, ";", "windows-1252")
    values = [
        "data.train=data.csv",
        "data.validation=null",
        "data.test=null",
        "data.encoding=windows-1252",
    ]
    config = trained_run.path.parent / "tiny.yaml"
    options = setting(*values, "data.delimiter=;", "train.epochs=1")
    assert cli("train", "--config", config, *options, "--run-dir", "run").code == 0
    assert cli("predict", "--model", "run", "--input", "data.csv", "--output", "out.csv").err == ""
    assert [row[1] for row in read_table("out.csv", ";")] == [row[1] for row in rows]
    (warning,) = cli("eval", "run", "--data", "data.csv").err.splitlines()
    assert "are among the training texts" in warning
    assert_failed(cli("eval", trained_run.path, "--data", "data.csv"), 3, "data.csv:2: not UTF-8")
    assert (
        cli(
            "eval", trained_run.path, "--data", "data.csv", "--set", "data.encoding=windows-1252"
        ).code
        == 0
    )


def test_predictions_for_excel_files_are_csv_that_excel_opens(cli, trained_run):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["id", "text", "n"], [1, "rain", 2.5], [2, "soup", None]]:
        book.active.append(row)
    book.save("in.xlsx")
    outcome = cli(
        "predict", "--model", trained_run.path, "--input", "in.xlsx", "--output", "out.csv"
    )
    assert (outcome.code, outcome.err) == (0, "")
    expected = [
        ["id", "text", "n", "label"],
        ["1", "rain", "2.5", "weather"],
        ["2", "soup", "", "küche"],
    ]
    assert predictions(read_table("out.csv", ",")) == expected
    assert Path("out.csv").read_bytes().startswith(MARK)


@pytest.mark.parametrize("name", ["a.xlsx", "a.json", "a.answers", "A.XLS"])
def test_an_output_of_an_unknown_ending_is_refused(cli, trained_run, name):
    """Before any work, with the endings that there are; a format that is named may have any ending."""
    command = ["predict", "--model", trained_run.path, "rain", "--output", name]
    outcome = cli(*command)
    assert outcome.code == 2
    for part in (
        f"--output {name}: no format is known by the ending .",
        ".jsonl, .tsv, .csv, .html, .parquet",
        ".txt",
    ):
        assert part in outcome.err
    assert not Path(name).exists()
    assert cli(*command, "--format", "jsonl").code == 0
    assert json.loads(Path(name).read_text())["label"] == "weather"


@pytest.mark.parametrize("output", ["out.csv", "out.jsonl", "out.parquet", "out/", None])
def test_bad_rows_can_be_left_out(cli, trained_run, output):
    """Counted once with the first places; without the option the first one ends the work."""
    Path("in.csv").write_bytes(b"id,text\n1,rain\n2,soup,x\n3,caf\xe9\n4,ball\n")
    command = [
        "predict",
        "--model",
        trained_run.path,
        "--input",
        "in.csv",
        *(["--output", output] if output else []),
    ]
    assert_failed(
        cli(*command), 3, "in.csv:3: 3 fields where the header has 2; ", "--bad-rows skip"
    )
    outcome = cli(*command, "--bad-rows", "skip")
    assert outcome.code == 0
    lines = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert lines == [
        "warning: rows of in.csv that cannot be read, which are left out: 2 (in.csv:3, in.csv:4); "
        "the first: 3 fields where the header has 2"
    ]
    if output == "out.csv":
        assert [row[0] for row in read_table("out.csv", ",")] == ["id", "1", "4"]
    if output == "out/":
        assert json.loads(Path("out/_parts/in.json").read_text())["rows"] == 2


def test_parquet_with_bad_rows_keeps_columns_beside_their_predictions(cli, trained_run):
    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["rain", None, "soup"], "n": [1, 2, 3]}), "in.parquet"
    )
    command = [
        "predict",
        "--model",
        trained_run.path,
        "--input",
        "in.parquet",
        "--output",
        "out.parquet",
    ]
    assert cli(*command, "--keep-columns").code == 3
    assert cli(*command, "--keep-columns", "--bad-rows", "skip").code == 0
    found = pyarrow.parquet.read_table("out.parquet").to_pylist()
    assert [(row["text"], row["n"], row["label"]) for row in found] == [
        ("rain", 1, "weather"),
        ("soup", 3, "küche"),
    ]


def test_a_blank_text_gets_no_label_in_any_format(cli, trained_run):
    Path("in.csv").write_text("id,text\n1,rain\n2, \n")
    command = [
        "predict",
        "--model",
        trained_run.path,
        "--input",
        "in.csv",
        "--top-k",
        2,
        "--explain",
        "--format",
    ]
    found = {
        it: cli(*command, it).out.splitlines() for it in ("text", "jsonl", "tsv", "csv", "html")
    }
    assert found["text"][1] == "?  ' '  (blank)"
    rain, blank = map(json.loads, found["jsonl"])
    assert "reason" not in rain
    assert [*blank.items()][1:4] == [("label", None), ("probability", None), ("top", [])]
    assert blank["reason"] == "blank"
    assert found["tsv"][2] == "2\t\t\t\t\tfalse\t0\t\tblank\t"
    assert found["csv"][2] == "2, ,,,,,"  # beside its columns, where everybody sees why
    assert "<td><bdi>?</bdi></td><td>blank</td>" in "".join(found["html"])
    assert cli(*command[:-1], "--output", "out.parquet").code == 0
    row = pyarrow.parquet.read_table("out.parquet").to_pylist()[1]
    assert (row["label"], row["probability"], row["probability_2"], row["reason"]) == (
        None,
        None,
        None,
        "blank",
    )
    assert cli("predict", "--model", trained_run.path, " ", "--attention", "maps.html").code == 0
    assert "blank: " in Path("maps.html").read_text()


@pytest.mark.parametrize("output", [None, "out.jsonl", "out.html", "out.parquet", "out/"])
def test_predict_ends_with_counts(cli, trained_run, output):
    """Of what a person may not expect, each with its number; of several files together."""
    Path("parts").mkdir()
    Path("parts/a.txt").write_text("rain snow wind\n\nzzz the rain qqq\n")
    Path("parts/b.txt").write_text("rain " * 40 + "\nof\n")
    command = ["predict", "--model", trained_run.path, "--input", "parts", "--threshold", 0.9]
    outcome = cli(*command, *(["--output", output] if output else []))
    assert outcome.code == 0
    counts = re.search(
        r"^of 5 texts: 1 truncated \(longer than 16 tokens\), (\d) withheld .*$",
        outcome.err,
        re.MULTILINE,
    )
    assert "(--threshold 0.9), 1 blank, 1 with unknown words" in counts[0]
    assert output or outcome.out.count("? 0.") == int(counts[1])


def test_where_there_is_nothing_to_count_no_line_comes(cli, trained_run, classifier):
    Path("in.txt").write_text("rain and snow\n")
    assert cli("predict", "--model", trained_run.path, "--input", "in.txt").err == ""
    assert cli("predict", "--model", trained_run.path, "zzz").err == ""
    assert (
        cli("predict", "--model", trained_run.path, "zzz", "rain").err
        == "of 2 texts: 1 with unknown words\n"
    )
    assert ChunkClassifier(classifier, PredictionOptions()).summary() is None


def test_a_truncated_text_has_its_length(cli, trained_run):
    """Beyond what is kept of it, too; of a very long one, that it is longer than what is counted."""
    lines = [
        cli("predict", "--model", trained_run.path, "rain " * count).out
        for count in (6000, 300_000)
    ]
    assert lines[0].endswith("(16 of 6,001 tokens)\n")
    assert lines[1].endswith("(16 of more than 200,001 tokens)\n")


def test_many_truncated_training_texts_are_warned_of(cli, trained_run):
    config = trained_run.path.parent / "tiny.yaml"
    for length, number in ((2, 1), (16, 0)):
        outcome = cli(
            "train", "--config", config, "--set", f"model.max_seq_len={length}", "--dry-run"
        )
        warning = "warning: 100.0% of the training texts are longer than the 2 tokens "
        assert (outcome.err.count("model.max_seq_len"), outcome.err.count(warning)) == (
            number,
            number,
        )
