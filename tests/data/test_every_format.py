"""What holds of every format in `FORMATS`. A new format needs a writer here, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.data import refusal, write
from support.excel import write_excel
from support.tables import read_table, write_table

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.formats import FORMATS, count_rows, format_of, header_of
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows

COLUMNS = ["text", "label", "number"]
# The labels are those that the trained run predicts, too.
ROWS = [
    ("rain and snow", "weather", 1),
    ("soup", "küche", 2),
    ("the team", "sport", 3),
]
TEXTS = [text for text, _, _ in ROWS]
LABELS = [label for _, label, _ in ROWS]


def write_csv(name: str) -> None:
    write_table(name, [COLUMNS, *ROWS])


def write_tsv(name: str) -> None:
    write_table(name, [COLUMNS, *ROWS], "\t")


def write_json_lines(name: str) -> None:
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in ROWS]
    write(name, "\n".join(lines))


def write_json(name: str) -> None:
    records = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    write(name, json.dumps(records))


def write_parquet(name: str) -> None:
    columns = [list(values) for values in zip(*ROWS, strict=True)]
    pyarrow.parquet.write_table(pyarrow.table(columns, names=COLUMNS), name)


def write_workbook(name: str) -> None:
    write_excel(name, COLUMNS, *ROWS)


def write_fasttext(name: str) -> None:
    lines = [f"__label__{label} {text}" for text, label, _ in ROWS]
    write(name, "\n".join(lines))


WRITERS: dict[str, Callable[[str], None]] = {
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".jsonl": write_json_lines,
    ".json": write_json,
    ".parquet": write_parquet,
    ".xlsx": write_workbook,
    ".ft": write_fasttext,
    ".txt": write_fasttext,
}

each_format = pytest.mark.parametrize(
    "file_format", FORMATS, ids=[file_format.ending for file_format in FORMATS]
)


def write_sample(file_format: Format) -> str:
    """Write the rows as a file of a format; text files have no numbers."""
    name = f"sample{file_format.ending}"
    WRITERS[file_format.ending](name)
    return name


@each_format
def test_the_ending_shows_the_format(file_format):
    assert format_of(Path(f"a{file_format.ending}")) is file_format
    assert format_of(Path(f"A{file_format.ending.upper()}")) is file_format


@each_format
def test_rows_have_their_texts_labels_and_places(file_format):
    source = write_sample(file_format)

    rows = list(read_rows(source, Columns(["text"], "label"), Reading()))

    assert [row.text for row in rows] == TEXTS
    assert [row.label for row in rows] == LABELS
    assert {row.where.file for row in rows} == {source}
    lines = [row.where.line for row in rows]
    assert lines == sorted(set(lines))


@each_format
def test_a_share_of_the_rows_has_their_texts_and_places(file_format):
    source = write_sample(file_format)
    all_rows = list(read_rows(source, Columns(["text"], "label"), Reading()))
    reading = Reading(fraction=0.5)

    rows = list(read_rows(source, Columns(["text"], "label"), reading))

    # With the seed of `Reading.random`, this share of three rows is the third row.
    assert rows == all_rows[2:]
    assert reading.notes.num_unread == 2


@each_format
def test_a_header_has_the_names_of_all_columns(file_format):
    names = header_of(Path(write_sample(file_format)), ["text"], Reading())

    if file_format.header is None:
        assert names == []
    else:
        assert names == COLUMNS


@each_format
def test_values_are_texts_where_a_format_has_only_texts(file_format):
    source = write_sample(file_format)

    values = []
    for row in read_rows(source, Columns(["text"], every=True), Reading()):
        values += row.record.values()

    assert all(isinstance(value, str) for value in values) == file_format.has_only_texts


@each_format
def test_progress_knows_the_last_line_where_rows_are_counted(file_format):
    source = write_sample(file_format)
    rows = list(read_rows(source, Columns(["text"]), Reading()))

    counted = count_rows([Path(source)])

    if file_format.count_rows is None:
        assert counted == {}
    else:
        assert counted == {source: rows[-1].where.line}


@each_format
def test_a_gzip_file_is_read_where_a_format_may_be_one(file_format):
    content = Path(write_sample(file_format)).read_bytes()
    source = write(f"packed{file_format.ending}.gz", gzip.compress(content, mtime=0))

    if not file_format.may_be_gzipped:
        assert refusal(source).startswith(f"{source}: unknown format; known: ")
        return

    rows = list(read_rows(source, Columns(["text"]), Reading()))
    assert [row.text for row in rows] == TEXTS
    assert count_rows([Path(source)]) == {}


@each_format
def test_predict_reads_the_texts(cli, trained_run, file_format):
    source = write_sample(file_format)

    options = ["--input", source, "--format", "jsonl"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0, outcome.err
    predictions = [json.loads(line) for line in outcome.out.splitlines()]
    assert [prediction["label"] for prediction in predictions] == LABELS


@each_format
def test_predictions_in_csv_keep_the_columns_of_spreadsheets(cli, trained_run, file_format):
    source = write_sample(file_format)

    outcome = cli("predict", "--model", trained_run.path, "--input", source, "--format", "csv")

    header, *rows = read_table(outcome.out.encode())
    assert len(rows) == len(ROWS)
    assert (header[: len(COLUMNS)] == COLUMNS) == file_format.is_spreadsheet


@each_format
def test_predictions_in_parquet_keep_all_values(cli, trained_run, file_format):
    source = write_sample(file_format)

    options = ["--input", source, "--keep-columns", "--output", "out.parquet"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0, outcome.err
    kept = pyarrow.parquet.read_table("out.parquet").to_pylist()
    records = [row.record for row in read_rows(source, Columns(["text"], every=True), Reading())]
    for row, record in zip(kept, records, strict=True):
        assert row.items() >= record.items()


@each_format
def test_predictions_in_parquet_may_keep_nothing(cli, trained_run, file_format):
    source = write_sample(file_format)

    options = ["--input", source, "--no-keep-columns", "--output", "out.parquet"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0, outcome.err
    predictions = pyarrow.parquet.read_table("out.parquet")
    assert predictions["label"].to_pylist() == LABELS
    assert "text" not in predictions.schema.names
