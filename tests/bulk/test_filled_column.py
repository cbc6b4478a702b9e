"""`predict --fill COLUMN`: answers in the empty cells of a column that the next training reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.excel import read_excel, write_excel
from support.programs import assert_failed, succeed
from support.tables import read_table, write_table

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows

NAMES = ["no", "text", "topic"]
ROWS = [["1", "rain and snow", ""], ["2", "soup", "lunch"], ["3", " ", ""]]
# A label that a person has given stays, and a blank text has none.
FILLED = [["1", "rain and snow", "weather"], ["2", "soup", "lunch"], ["3", " ", ""]]


def fill(cli, run, *options: object) -> None:
    succeed(cli, "predict", "--model", run.path, "--fill", "topic", *options)


def test_the_answers_are_in_the_column_that_a_training_reads(cli, trained_run):
    """It is so each month, also where the sheet has a title above its table."""
    rows = [[cell.strip() or None for cell in row] for row in ROWS]
    write_excel("in.xlsx", ["June"], [], NAMES, *rows, title="June")

    fill(cli, trained_run, "--input", "in.xlsx", "--output", "out.xlsx")

    header, *filled = read_excel("out.xlsx")
    assert header[:5] == [*NAMES, "label", "probability"]
    assert [row[2] for row in filled] == ["weather", "lunch", None]
    labelled = read_rows("out.xlsx", Columns(["text"], "topic"), Reading())
    assert [row.label for row in labelled] == ["weather", "lunch", None]


@pytest.mark.parametrize(("ending", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_tables_are_filled(cli, trained_run, ending, separator):
    source = write_table(f"in{ending}", [NAMES, *ROWS], separator)

    fill(cli, trained_run, "--input", source, "--output", f"out{ending}")

    assert [row[:3] for row in read_table(f"out{ending}", separator)] == [NAMES, *FILLED]


def test_objects_are_filled_also_where_they_lack_the_key(cli, trained_run):
    lines = [{"text": "soup"}, {"text": "rain", "topic": None}, {"text": "rain", "topic": "old"}]
    Path("in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    fill(cli, trained_run, "--input", "in.jsonl", "--output", "out.jsonl")

    filled = [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]
    assert [line["topic"] for line in filled] == ["küche", "weather", "old"]


def test_a_withheld_label_leaves_its_cell_empty(cli, trained_run):
    write_table("in.csv", [NAMES, *ROWS])

    options = ["--input", "in.csv", "--output", "out.csv", "--threshold", 1]
    fill(cli, trained_run, *options)

    assert [row[2] for row in read_table("out.csv")] == ["topic", "", "lunch", ""]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--output", "o.csv", "--fill", "class"],
            "--fill: no column 'class' in the input; it has",
        ),
        (
            ["--output", "o.csv", "--fill", "no", "--no-keep-columns"],
            "--no-keep-columns leaves out",
        ),
        (["--output", "o.parquet", "--fill", "topic"], "--fill: does not fill columns of Parquet"),
        (["--output", "o.txt", "--fill", "topic"], "--fill: the format text has no columns"),
    ],
)
def test_a_column_that_cannot_be_filled_is_refused(cli, trained_run, options, message):
    write_table("in.csv", [NAMES, *ROWS])
    outcome = cli("predict", "--model", trained_run.path, "--input", "in.csv", *options)
    assert_failed(outcome, 2, message)
