"""What `predict` reads: texts given here, and files of every kind."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.predictions import predictions_for, texts_of
from support.programs import assert_failed, succeed

from encoder_cls.bulk.input_texts import InputTexts
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier

TEXTS = ["rain and snow today", "a big soup with salt", "the team and the ball"]
LABELS = ["weather", "küche", "sport"]


def predicted_records(cli, run, *arguments: object) -> list[dict[str, object]]:
    """The predictions for an input, from JSON lines."""
    outcome = succeed(cli, "predict", "--model", run.path, *arguments, "--format", "jsonl")
    return [json.loads(line) for line in outcome.out.splitlines()]


# Texts on the command line


def test_the_error_for_a_text_that_starts_with_a_dash_names_the_remedy(cli, trained_run):
    refused = cli("predict", "--model", trained_run.path, "-5 degrees")
    assert_failed(refused, 2, "write -- before a text that starts with a dash")

    succeed(cli, "predict", "--model", trained_run.path, "--", "-5 degrees")


def test_no_precision_at_all_withholds_nothing(cli, trained_run):
    options = ["--model", trained_run.path, "--min-precision", "0"]
    outcome = succeed(cli, "predict", *options, "rain", "the ball")
    assert "withheld" not in outcome.err


def test_numpy_has_one_thread_also_for_files(cli, trained_run, monkeypatch):
    """Threads that wait in busy loops would take the time of other programs."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    Path("a.txt").write_text("rain\n")

    cli("predict", "--model", trained_run.path, "--input", "a.txt")

    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


# Files


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("a.csv", "id,body\n07,{}\n8,{}\n,{}\n", ["07", "8", ""]),
        ("a.tsv", "id\tbody\n07\t{}\n8\t{}\n\t{}\n", ["07", "8", ""]),
        (
            "a.jsonl",
            '{{"body": "{}", "id": 7}}\n'
            '{{"id": "08", "body": "{}"}}\n'
            '{{"id": "é", "body": "{}"}}\n',
            [7, "08", "é"],
        ),
    ],
)
def test_the_column_of_the_text_and_the_ids_of_a_file_are_read(
    cli, trained_run, name, content, ids
):
    Path(name).write_text(content.format(*TEXTS), "utf-8")

    records = predicted_records(cli, trained_run, "--input", name, "--text-column", "body")

    assert [record["label"] for record in records] == LABELS
    assert [record["id"] for record in records] == ids
    assert all(next(iter(record)) == "id" for record in records)


@pytest.mark.parametrize("row_id", [7, datetime.datetime(2024, 1, 2), b"\x01"])
def test_an_id_in_parquet_may_be_a_time_or_bytes(cli, trained_run, row_id):
    pyarrow.parquet.write_table(pyarrow.table({"body": TEXTS, "id": [row_id] * 3}), "a.parquet")

    records = predicted_records(cli, trained_run, "--input", "a.parquet", "--text-column", "body")

    assert [record["label"] for record in records] == LABELS
    assert all(next(iter(record)) == "id" for record in records)


def test_the_lines_of_a_text_file_have_no_ids(cli, trained_run):
    Path("a.txt").write_text("\n".join(TEXTS), "utf-8")

    records = predicted_records(cli, trained_run, "--input", "a.txt")

    assert [record["label"] for record in records] == LABELS
    assert not any("id" in record for record in records)


def test_texts_are_in_the_columns_of_the_training_unless_others_are_named(
    cli, trained_run, tmp_path
):
    """The model folder records the columns."""
    trained = load_classifier(trained_run.path)
    trained.text_format = TextFormat(columns=("title", "body"))
    save_classifier(trained, tmp_path / "model")
    Path("a.csv").write_text("title,body,text\nrain,snow,soup\n", "utf-8")
    command = ["predict", "--input", "a.csv", "--model"]

    assert cli(*command, "model").out.startswith("weather")

    named = ["--text-column", "text", "--text-column", "body"]
    assert "'soup snow'" in cli(*command, "model", *named).out

    # The other model was trained on the column "text".
    assert cli(*command, trained_run.path).out.startswith("küche")


def test_labels_are_removed_from_the_lines_of_ft_files_only(classifier):
    """Both kinds of files keep empty lines; hidden files are not read."""
    Path("parts").mkdir()
    for name in ("1.txt", "2.ft", "._1.txt"):
        content = "__label__a __label__b rain\n\n__label__a\nsnow\n"
        Path("parts", name).write_text(content, "utf-8")

    assert texts_of(classifier, "parts") == [
        # Of the .txt file.
        "__label__a __label__b rain",
        "",
        "__label__a",
        "snow",
        # Of the .ft file.
        "rain",
        "",
        "",
        "snow",
    ]


@pytest.mark.parametrize(("name", "num_warnings"), [("test.ft", 0), ("test.txt", 1)])
def test_labels_that_are_read_as_text_are_warned_of(
    cli, trained_run, monkeypatch, name, num_warnings
):
    """The labels of a file of fastText would change the predictions for its texts."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 1)
    Path(name).write_text("__label__weather rain and snow\n" * 2)

    outcome = succeed(cli, "predict", "--model", trained_run.path, "--input", name)

    warning = f"warning: {name}: the labels of fastText's lines are read as text"
    assert outcome.err.count(warning) == num_warnings


def test_many_lines_keep_their_order(classifier, monkeypatch):
    """Within a chunk texts are sorted by length, and the predictions are sorted back."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 100)
    lines = []
    expected_labels = []
    for number in range(150):
        text = TEXTS[number % 3]
        lines.append(text + " of" * (number % 7))
        expected_labels.append(LABELS[number % 3])
    Path("texts.txt").write_text("\n".join(lines))

    chunks = list(InputTexts(Request(source="texts.txt"), classifier).chunks())
    assert [len(chunk) for chunk in chunks] == [100, 50]

    labels = []
    options = PredictionOptions(output_format="jsonl")
    for chunk in chunks:
        for line in predictions_for(classifier, chunk, options).splitlines():
            labels.append(json.loads(line)["label"])
    assert labels == expected_labels


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_malformed_row_ends_the_work_and_nothing_is_written(
    cli, trained_run, monkeypatch, ending
):
    """The file that was there before stays."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 4)
    Path("rows.csv").write_text("text\n" + "rain\n" * 16 + "rain,snow\n")
    output = Path(f"predictions.{ending}")
    output.write_text("old")

    options = ["--input", "rows.csv", "--output", output]
    refused = cli("predict", "--model", trained_run.path, *options)

    assert_failed(refused, 3, "rows.csv:18: 2 fields")
    assert output.read_text() == "old"
    assert sorted(path.name for path in Path().iterdir()) == [output.name, "rows.csv"]


def test_a_stream_without_a_format_is_named(cli, trained_run):
    os.mkfifo("pipe")
    refused = cli("predict", "--model", trained_run.path, "--input", "pipe")
    assert_failed(refused, 2, "--input -.csv < pipe")
