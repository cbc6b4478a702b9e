"""`predict --sort probability`: the least probable predictions come first, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from support.excel import read_excel
from support.programs import assert_failed, succeed

from encoder_cls.bulk.sorted_rows import SortedRows
from encoder_cls.system import disk_arrays

TEXTS = ["rain and snow", "zzz", "", "rain ball soup", "soup", "rain ball", "zzz"]


@pytest.fixture
def by_probability(classifier) -> list[str]:
    """The ids of the texts in the order in which they should come: the blank one is the last."""
    predictions = classifier.predict(TEXTS)
    numbers = [number for number, text in enumerate(TEXTS) if text]
    numbers.sort(key=lambda number: (predictions[number].probability, number))
    return [str(number) for number in [*numbers, 2]]


@pytest.fixture
def table(monkeypatch) -> str:
    """A table of the texts, which are read in chunks of three."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 3)
    rows = [["id", "text"], *([number, text] for number, text in enumerate(TEXTS))]
    with Path("in.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return "in.csv"


def ids_of(output: str) -> list[str]:
    """The ids of predictions, in the order of the output."""
    if output.endswith(".xlsx"):
        _, *rows = read_excel(output)
        return [row[0] for row in rows]
    lines = Path(output).read_text("utf-8").splitlines()
    if output.endswith(".jsonl"):
        return [str(json.loads(line)["id"]) for line in lines]
    _, *rows = csv.reader(lines, delimiter="\t" if output.endswith(".tsv") else ",")
    return [row[0] for row in rows]


@pytest.mark.parametrize("output", ["out.csv", "out.tsv", "out.jsonl", "out.xlsx"])
def test_the_least_probable_predictions_come_first(cli, trained_run, table, by_probability, output):
    """Equal probabilities keep the order of the input."""
    command = ["predict", "--model", trained_run.path, "--input", table, "--output", output]

    succeed(cli, *command)
    assert ids_of(output) == [str(number) for number in range(len(TEXTS))]

    succeed(cli, *command, "--sort", "probability")
    assert ids_of(output) == by_probability


def test_printed_predictions_are_sorted_too(cli, trained_run):
    command = ["predict", "--model", trained_run.path, *TEXTS]

    unsorted = succeed(cli, *command).out.splitlines()
    printed = succeed(cli, *command, "--sort", "probability").out.splitlines()

    assert sorted(printed) == sorted(unsorted)
    assert printed != unsorted
    assert printed[-1] == "?  ''  (blank)"


def test_each_file_of_a_folder_is_sorted_by_itself(cli, trained_run, table, by_probability):
    command = ["predict", "--model", trained_run.path, "--input", table, "--output", "out/"]
    succeed(cli, *command)

    outcome = succeed(cli, *command, "--sort", "probability")

    assert "1 of 1 file written by this process" in outcome.err
    assert ids_of("out/in.jsonl") == by_probability


def test_parquet_is_not_sorted(cli, trained_run, table):
    command = ["predict", "--model", trained_run.path, "--input", table, "--sort", "probability"]

    outcome = cli(*command, "--output", "out.parquet")

    assert_failed(outcome, 2, "--sort: does not sort Parquet")


def test_more_rows_than_memory_holds_are_sorted(monkeypatch):
    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", 100)
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 50, 3000).astype(float)
    rows = [f"row {number} ".encode() * (number % 7) for number in range(len(keys))]

    sorted_rows = SortedRows()
    for start in range(0, len(rows), 1000):
        sorted_rows.add(rows[start : start + 1000], keys[start : start + 1000].tolist())
    read = []
    for chunk in sorted_rows.read(sorted_rows.order()):
        read += chunk

    numbers = sorted(range(len(rows)), key=lambda number: keys[number])
    assert read == [rows[number] for number in numbers]


def test_no_rows_are_sorted():
    sorted_rows = SortedRows()

    assert list(sorted_rows.read(sorted_rows.order())) == []
