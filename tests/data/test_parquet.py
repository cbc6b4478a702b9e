"""Parquet files: values are read exactly, in batches whose size is bounded in rows and in bytes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data import classes_of, load, refusal

from encoder_cls.data.reading import parquet
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.parquet import BATCH_BYTES, MAX_ROWS, rows_at_once
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows


def write_columns(columns: Mapping[str, object], features: object = None) -> str:
    """Write columns to `a.parquet`, with features as the `datasets` library keeps them."""
    table = pa.table(columns)
    if features:
        info = {"info": {"features": features}}
        table = table.replace_schema_metadata({b"huggingface": json.dumps(info).encode()})
    pq.write_table(table, "a.parquet")
    return "a.parquet"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"text": ["NA", " 007"], "label": ["x", "y"]},
            [("NA", "x"), (" 007", "y")],
        ),
        (
            {"text": ["a", "b"], "label": [10, 9]},
            [("a", "10"), ("b", "9")],
        ),
        (
            {"text": pa.array(["a"] * 2, "large_string"), "label": pa.array([1, 0], "int8")},
            [("a", "1"), ("a", "0")],
        ),
        (
            {"text": ["a", "b"], "label": pa.array(["x", "y"]).dictionary_encode()},
            [("a", "x"), ("b", "y")],
        ),
        (
            {"text": ["a", "b"], "label": pa.array([Decimal(1), Decimal(0)], pa.decimal128(38, 2))},
            [("a", "1"), ("b", "0")],
        ),
        (
            {"text": ["é".encode(), b"b"], "label": pa.array([b"x", b"y"]).dictionary_encode()},
            [("é", "x"), ("b", "y")],
        ),
    ],
    ids=["texts", "integers", "other widths", "dictionary", "decimals", "binary"],
)
def test_a_parquet_file_is_read_exactly(columns, expected):
    dataset = load(write_columns(columns))
    classes = classes_of(dataset, dataset.train)
    assert list(zip(dataset.train.texts, classes, strict=True)) == expected


def test_integers_have_the_names_that_the_datasets_library_keeps():
    features = {
        "text": {"dtype": "string"},
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
    }
    source = write_columns({"text": ["a", "b", "c"], "label": [1, 0, None]}, features)
    rows = read_rows(source, Columns(["text"], "label"), Reading())
    assert [row.label for row in rows] == ["pos", "neg", None]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"text": ["a"], "class": ["x"]},
            "no column 'label'; it has 'text', 'class'",
        ),
        (
            {"text": [b"a\xff"], "label": ["x"]},
            "column 'text' holds bytes",
        ),
        (
            {"text": ["a"], "label": [b"x\xff"]},
            "the label is bytes",
        ),
        (
            {"text": ["a", "b"], "label": [1, None]},
            "the label is empty",
        ),
        (
            {"text": pa.array([], pa.string()), "label": pa.array([], pa.int64())},
            "no rows",
        ),
        # pyarrow raises UnicodeDecodeError.
        (
            {"text": pa.array([b"a\xff"]).view(pa.utf8()), "label": ["x"]},
            "column 'text' cannot be read: 'utf-8' codec",
        ),
        # Python raises OverflowError.
        (
            {"text": ["a"], "label": pa.array([2**30], pa.date32())},
            "column 'label' cannot be read: ",
        ),
    ],
)
def test_a_bad_parquet_column_is_refused(columns, message):
    assert re.match(rf"a\.parquet(:\d)?: .*{message}", refusal(write_columns(columns)))


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (1711850400123456000, datetime(2024, 3, 31, 2, 0, 0, 123456)),
        (1711850400123456789, "2024-03-31 02:00:00.123456789"),
    ],
)
def test_times_in_nanoseconds_need_no_pandas(monkeypatch, nanoseconds, expected):
    """Where microseconds would lose digits, they are text."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    times = pa.array([nanoseconds]).cast(pa.timestamp("ns"))
    source = write_columns({"text": ["rain"], "at": times})

    (row,) = read_rows(source, Columns(("text",), every=True), Reading())

    assert row.record["at"] == expected


def test_a_row_that_cannot_be_read_is_left_out_if_bad_rows_are():
    texts = pa.array([b"a", b"caf\xe9", b"c"]).view(pa.utf8())
    source = write_columns({"text": texts, "label": ["x", "x", "y"]})
    assert refusal(source).startswith("a.parquet:2: column 'text' cannot be read")
    assert list(load(source, bad_rows="skip").train.texts) == ["a", "c"]


def write_texts(texts: Sequence[str]) -> None:
    write_columns({"text": pa.array(texts, "string")})


def read_texts() -> list[Row]:
    return list(read_rows("a.parquet", Columns(("text",)), Reading()))


@pytest.mark.parametrize(
    ("text_bytes", "expected"),
    [
        (10, MAX_ROWS),
        (1 << 20, BATCH_BYTES >> 20),
        (1 << 23, BATCH_BYTES >> 23),
    ],
)
def test_rows_that_are_read_at_once_are_fewer_where_they_are_long(text_bytes, expected):
    """The texts are distinct, since equal ones would be stored once."""
    write_texts([str(number).rjust(text_bytes, "x") for number in range(3)])

    num_rows = rows_at_once(pq.read_metadata("a.parquet"))

    assert num_rows == pytest.approx(expected, abs=1)


def test_a_file_without_rows_has_a_batch_size():
    write_texts([])
    assert rows_at_once(pq.read_metadata("a.parquet")) >= 1
    assert read_texts() == []


def test_long_rows_are_read_in_several_batches(monkeypatch):
    texts = [f"{number} ".ljust(1 << 16, "x") for number in range(40)]
    write_texts(texts)
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 18)

    rows = read_texts()

    assert [row.text for row in rows] == texts
    assert rows[-1].where == "a.parquet:40"
