"""Predictions beside the columns of the input, in every format with columns; and Parquet files."""

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

HEADER = ["id", "text", "note"]
ROWS = [
    ["7", "rain and snow", "a,b"],
    ["8", 'soup\r\nwith "salt"\n', ""],
    ["", "the team", "é"],
]
LABELS = ["weather", "küche", "sport"]
# Characters that a format, a terminal or a spreadsheet could take for its own.
ODD_ROWS = [
    ['"', "the ball", "=1"],
    ["\0\x1b[2J\x85", "the goal", "\r"],
    ["\t ", "the team", "\ufeff,\n\n"],
]

# The line that counts unexpected predictions.
COUNTS = re.compile(r"of \d+ texts?: [1-9].*")


def write_json_lines(name: str, rows: list[dict]) -> None:
    with Path(name).open("w") as file:
        for row in rows:
            file.write(f"{json.dumps(row)}\n")


def predict(cli, run, source: str, *options: object) -> bytes:
    """What `predict` prints, which is also what it writes into a file."""
    command = ["predict", "--model", run.path, "--input", source, *options]

    printed = cli(*command)
    assert printed.code == 0
    for line in printed.err.splitlines():
        assert COUNTS.fullmatch(line)

    assert cli(*command, "--output", "written.out").code == 0
    content = Path("written.out").read_bytes()
    assert printed.out.encode() == content
    return content


def test_csv_of_csv_keeps_all_columns_in_place(cli, trained_run):
    """Any characters stay as they are, and label and probability come behind them."""
    write_table("in.csv", [HEADER, *ROWS, *ODD_ROWS])

    header, *rows = read_table(predict(cli, trained_run, "in.csv", "--format", "csv"))

    assert header == [*HEADER, "label", "probability"]
    assert [row[:3] for row in rows] == [*ROWS, *ODD_ROWS]
    assert [row[3] for row in rows] == [*LABELS, "sport", "sport", "sport"]
    assert all(0 < float(row[4]) <= 1 for row in rows)


def test_further_classes_and_words_have_columns_behind_those(cli, trained_run):
    write_table("in.csv", [HEADER, *ROWS, *ODD_ROWS])

    options = ["--format", "csv", "--top-k", 2, "--explain"]
    header, *rows = read_table(predict(cli, trained_run, "in.csv", *options))

    assert header[3:] == ["label", "probability", "label_2", "probability_2", "explanation"]
    assert {len(row) for row in rows} == {8}


def test_further_classes_are_named_after_the_predicted_label(cli, trained_run):
    """Beside the input's own label, `label_2` would look like another true label."""
    write_table("in.csv", [["text", "label"], ["rain", "weather"]])

    header, *_ = read_table(predict(cli, trained_run, "in.csv", "--format", "csv", "--top-k", 2))

    columns = ["text", "label", "predicted_label", "probability", "predicted_label_2"]
    assert header == [*columns, "probability_2"]


def test_a_terminal_is_not_steered_by_columns(cli, trained_run, monkeypatch):
    write_table("in.csv", [["text", "note"], ["rain", "\x1b[2J\n"]])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    options = ["--input", "in.csv", "--format", "csv", "--keep-columns"]
    shown = cli("predict", "--model", trained_run.path, *options).out

    assert shown.splitlines()[1].startswith("rain,\\x1b[2J\\n,weather,")


def test_without_the_columns_there_is_the_id_alone(cli, trained_run):
    """By default, other formats than CSV keep no more."""
    write_table("in.csv", [HEADER, *ROWS])
    expected = ["id", "label", "probability", "truncated", "unknown_words", "unfamiliar", "reason"]

    in_csv = predict(cli, trained_run, "in.csv", "--format", "csv", "--no-keep-columns")
    assert read_table(in_csv)[0] == expected

    in_tsv = predict(cli, trained_run, "in.csv", "--format", "tsv")
    header, _, _ = in_tsv.decode().partition("\n")
    assert header.split("\t") == expected


def test_columns_of_equal_names_are_all_kept(cli, trained_run):
    """A spreadsheet may have columns without a name, or with the name of a new column."""
    header = ["text", "", "", "label", "label", ".1"]
    row = ["rain", "a", "b", "c", "d", "e"]
    write_table("in.csv", [header, row])

    found_header, found_row = read_table(predict(cli, trained_run, "in.csv", "--format", "csv"))

    kept = ["text", "", ".2", "label", "label.1", ".1"]
    assert found_header == [*kept, "predicted_label", "probability"]
    assert found_row[:7] == [*row, "weather"]


def test_files_with_other_columns_have_empty_fields_in_one_table(cli, trained_run):
    write_table("a1.csv", [["text", "x"], ["rain", "1"]])
    write_table("a2.csv", [["y", "text"]])
    write_table("a3.csv", [["z", "text"], ["3", "soup"]])

    table = read_table(predict(cli, trained_run, "a*.csv", "--format", "csv"))

    assert [row[:4] for row in table] == [
        ["text", "x", "y", "z"],
        ["rain", "1", "", ""],
        ["soup", "", "", "3"],
    ]


def test_a_table_without_rows_keeps_its_columns(cli, trained_run):
    write_table("in.csv", [["y", "text"]])

    assert predict(cli, trained_run, "in.csv", "--format", "csv") == b"y,text,label,probability\n"


def test_json_lines_keep_their_values(cli, trained_run):
    """They have any type, and each row has its own columns; new keys are equal in all rows."""
    rows = [
        {"text": "rain", "n": 1, "list": [1, {"a": None}]},
        {"top": "x", "text": "soup", "id": 5, "n": "\ud800"},
    ]
    write_json_lines("in.jsonl", rows)

    content = predict(cli, trained_run, "in.jsonl", "--format", "jsonl", "--keep-columns")

    records = [json.loads(line) for line in content.splitlines()]
    new_keys = ["label", "probability", "predicted_top", "truncated", "unknown_words"]
    for record, row in zip(records, rows, strict=True):
        assert list(record) == [*row, *new_keys]
        assert record.items() >= row.items()


def test_tabs_and_line_breaks_are_escaped_where_tsv_cannot_hold_them(cli, trained_run):
    write_table("in.csv", [["text", "note"], ["rain\nsnow", "a\tb"]])

    content = predict(cli, trained_run, "in.csv", "--format", "tsv", "--keep-columns")

    header, row = content.decode().splitlines()
    assert header == "text\tnote\tlabel\tprobability"
    assert row.startswith("rain\\nsnow\ta\\tb\tweather\t")


@pytest.mark.parametrize(
    ("late_row", "code", "message"),
    [
        ('{"text": "soup", "x": 2}', 0, ""),
        ('{"text": "soup", "y": 2}', 3, "column 'y' is not in the first rows"),
    ],
)
def test_a_pipe_has_the_columns_of_its_first_rows(
    cli, trained_run, monkeypatch, late_row, code, message
):
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 4)
    os.mkfifo("pipe.jsonl")
    lines = '{"text": "rain", "x": 1}\n' * 4 + f"{late_row}\n"
    writer = Thread(target=Path("pipe.jsonl").write_text, args=[lines], daemon=True)
    writer.start()

    options = ["--input", "pipe.jsonl", "--format", "csv", "--keep-columns", "--output", "out.csv"]
    outcome = cli("predict", "--model", trained_run.path, *options)
    writer.join()

    assert outcome.code == code, outcome.err
    assert message in outcome.err


def predict_parquet(cli, run, *arguments: object) -> pyarrow.Table:
    outcome = cli("predict", "--model", run.path, *arguments, "--output", "out.parquet")

    assert outcome.code == 0
    assert outcome.out == ""
    assert COUNTS.sub("", outcome.err).strip() == ""
    return pyarrow.parquet.read_table("out.parquet")


def types_of(table: pyarrow.Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


def test_parquet_has_types(cli, trained_run):
    """Labels are texts, withheld ones null, probabilities numbers, words a list."""
    options = ["--top-k", 2, "--threshold", 0.9, "--explain"]
    table = predict_parquet(cli, trained_run, "rain and snow", "zzz", *options)

    types = types_of(table)
    assert types.pop("explanation").startswith("list<")
    assert types == {
        "label": "string",
        "probability": "double",
        "label_2": "string",
        "probability_2": "double",
        "truncated": "bool",
        "unknown_words": "int64",
        "unfamiliar": "bool",
        "reason": "string",
    }
    assert table.schema.names == [*types, "explanation"]

    known, unknown = table.to_pylist()
    assert unknown["label"] is None
    assert unknown["unknown_words"] == 1
    assert [word["word"] for word in known["explanation"]] == ["rain", "and", "snow"]


def test_parquet_keeps_the_columns_of_parquet_as_they_are(cli, trained_run, monkeypatch):
    """They keep their types, also across files, row groups and chunks."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 4)
    monkeypatch.setattr("encoder_cls.bulk.parquet_format.BATCH_ROWS", 3)
    monkeypatch.setattr("encoder_cls.bulk.parquet_format.MAX_ROWS", 8)
    numbers = list(range(10))
    microseconds = [number * 1_000_000_000 + 1 for number in numbers]
    times = pyarrow.array(microseconds, pyarrow.timestamp("us", "UTC"))
    first_columns = {
        "text": ["rain"] * 10,
        "when": times,
        "n": pyarrow.array(numbers, pyarrow.uint8()),
    }
    second_columns = {
        "n": pyarrow.array([300], pyarrow.int32()),
        "text": ["soup"],
        "label": [b"x"],
    }
    pyarrow.parquet.write_table(pyarrow.table(first_columns), "a1.parquet")
    pyarrow.parquet.write_table(pyarrow.table(second_columns), "a2.parquet")

    table = predict_parquet(cli, trained_run, "--input", "a*.parquet", "--keep-columns")

    assert table.schema.names == ["text", "when", "n", "label", "predicted_label", "probability"]
    assert table.schema.field("when").type == times.type
    assert table["when"].to_pylist() == [*times.to_pylist(), None]
    assert table["n"].to_pylist() == [*numbers, 300]
    assert table["label"].to_pylist() == [*[None] * 10, b"x"]
    assert table["predicted_label"].to_pylist() == [*["weather"] * 10, "küche"]


def write_values_in_two_files(column: str, first: pyarrow.Array, second: pyarrow.Array) -> None:
    for name, values in [("a1.parquet", first), ("a2.parquet", second)]:
        texts = ["rain"] * len(values)
        pyarrow.parquet.write_table(pyarrow.table({"text": texts, column: values}), name)


FIRST_VALUES = pyarrow.array([1, 2])
# Values of a second file, with the type and the values of both files in one column.
OTHER_TYPES = {
    "fractions": (pyarrow.array([1.5]), "double", [1.0, 2.0, 1.5]),
    "texts": (pyarrow.array(["x"]), "string", ["1", "2", "x"]),
    "large integers": (pyarrow.array([1 << 63], "uint64"), "string", ["1", "2", str(1 << 63)]),
}


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_where_bad_rows_are_skipped_kept_columns_have_the_types_of_all_files(
    cli, trained_run, monkeypatch, kind
):
    """Columns are not copied then: there may be fewer predictions than rows."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 2)
    other_values, expected_type, expected_values = OTHER_TYPES[kind]
    write_values_in_two_files("n", FIRST_VALUES, other_values)

    options = ["--keep-columns", "--bad-rows", "skip"]
    table = predict_parquet(cli, trained_run, "--input", "a*.parquet", *options)

    assert types_of(table)["n"] == expected_type
    assert table["n"].to_pylist() == expected_values


@pytest.mark.parametrize("kind", ["texts", "large integers"])
def test_ids_have_the_types_of_all_files(cli, trained_run, monkeypatch, kind):
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 2)
    other_values, expected_type, expected_values = OTHER_TYPES[kind]
    write_values_in_two_files("id", FIRST_VALUES, other_values)

    table = predict_parquet(cli, trained_run, "--input", "a*.parquet")

    assert types_of(table)["id"] == expected_type
    assert table["id"].to_pylist() == expected_values


def test_parquet_of_json_lines_has_the_types_of_all_rows(cli, trained_run):
    """Numbers stay numbers; a column of several types, or of none that Parquet has, is text."""
    first_row = {
        "text": "rain",
        "i": 1,
        "f": 1,
        "b": True,
        "mixed": 1,
        "list": [1],
        "large": 1 << 70,
        "s": "\ud800",
    }
    second_row = {"text": "soup", "i": None, "f": 0.5, "mixed": "x", "none": None, "id": "a"}
    write_json_lines("in.jsonl", [first_row, second_row])

    table = predict_parquet(cli, trained_run, "--input", "in.jsonl", "--keep-columns")

    types = types_of(table)
    assert types["i"] == "int64"
    assert types["f"] == "double"
    assert types["b"] == "bool"
    for name in ("mixed", "list", "large", "none", "id", "s"):
        assert types[name] == "string"

    stored_row, _ = table.to_pylist()
    assert table["mixed"].to_pylist() == ["1", "x"]
    assert stored_row["list"] == "[1]"
    assert stored_row["large"] == str(1 << 70)
    assert stored_row["s"] == "\\ud800"


@pytest.mark.parametrize("late_value", ["1.5", '"x"', str(1 << 63), "true"])
def test_types_that_a_pipe_shows_late_are_refused(cli, trained_run, monkeypatch, late_value):
    """The first rows have chosen the type of the column; a value is never cut to fit it."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 4)
    os.mkfifo("pipe.jsonl")
    first_lines = '{"text": "rain", "n": 1}\n' * 4
    late_line = f'{{"text": "soup", "n": {late_value}}}\n'
    content = first_lines + late_line
    writer = Thread(target=Path("pipe.jsonl").write_text, args=[content], daemon=True)
    writer.start()

    options = ["--input", "pipe.jsonl", "--keep-columns", "--output", "out.parquet"]
    outcome = cli("predict", "--model", trained_run.path, *options)
    writer.join()

    assert_failed(outcome, 3, "column 'n' has values of other types than in the first rows")
    assert not Path("out.parquet").exists()


def test_parquet_without_the_columns_has_the_id(cli, trained_run):
    write_json_lines("in.jsonl", [{"text": "rain", "id": 7, "x": 1}, {"text": "soup"}])

    table = predict_parquet(cli, trained_run, "--input", "in.jsonl")

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


def test_parquet_of_no_texts_has_no_rows(cli, trained_run):
    Path("in.jsonl").write_text("")

    assert predict_parquet(cli, trained_run, "--input", "in.jsonl").num_rows == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["rain", "--output", "a.parquet"],
        ["--input", "in.parquet"],
    ],
)
def test_where_pyarrow_is_missing_it_is_named(cli, trained_run, monkeypatch, arguments):
    Path("in.parquet").touch()
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)

    outcome = cli("predict", "--model", trained_run.path, *arguments)

    assert_failed(outcome, 2, "pip install pyarrow\n")


@pytest.fixture
def cascade(trained_run) -> None:
    """A model folder `cascade`, whose linear part is sure of the text `soup` only."""
    classifier = load_classifier(trained_run.path)
    logits = classifier.linear.logits(classifier.tokenize(["soup", "zzz"]))
    highest_probabilities = classifier.task.probabilities(logits).max(axis=1)
    classifier.gate = float(highest_probabilities.mean())
    save_classifier(classifier, Path("cascade"))


def column_of(table: str, name: str) -> list[str] | None:
    """The values of a column of a file; None if there is no such column."""
    if table.endswith(".parquet"):
        return pyarrow.parquet.read_table(table).to_pydict().get(name)

    separator = "\t" if table.endswith(".tsv") else ","
    header, *rows = read_table(table, separator)
    if name not in header:
        return None
    return [row[header.index(name)] for row in rows]


@pytest.mark.usefixtures("cascade")
@pytest.mark.parametrize("output", ["out.csv", "out.tsv", "out.parquet"])
@pytest.mark.parametrize("option", ["--keep-columns", "--no-keep-columns"])
def test_with_a_cascade_a_table_has_the_part_that_predicted(cli, trained_run, output, option):
    write_table("in.csv", [["text"], ["soup"], ["zzz"]])
    options = ["--input", "in.csv", option, "--output", output]

    assert cli("predict", "--model", "cascade", *options).code == 0
    assert column_of(output, "answered_by") == ["linear", "both"]

    assert cli("predict", "--model", trained_run.path, *options).code == 0
    assert column_of(output, "answered_by") is None


@pytest.mark.parametrize("output", ["out.csv", pytest.param("out.parquet", marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_input(cli, trained_run, monkeypatch, output):
    """Four times as many rows need as much at once: nothing is kept of what is classified."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 16)
    monkeypatch.setattr("encoder_cls.bulk.parquet_format.MAX_ROWS", 32)
    options = ["--input", "in.csv", "--keep-columns", "--output", output, "--engine", "numpy"]

    def peak(num_rows: int) -> int:
        """The most memory that is in use at once, in bytes."""
        rows = [[f"rain {number}", "x" * 10_000] for number in range(num_rows)]
        write_table("in.csv", [["text", "note"], *rows])

        tracemalloc.start()
        outcome = cli("predict", "--model", trained_run.path, *options)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert outcome.code == 0
        return most

    peak(32)  # fills what is kept for good
    peak_of_few = peak(32)
    peak_of_many = peak(128)

    # The further notes take 0.9 MB.
    assert peak_of_many - peak_of_few < 200_000
