"""Parquet files are read in batches whose size is bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
import pyarrow.parquet
import pytest

from encoder_cls.data.reading import parquet
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.parquet import BATCH_BYTES, MOST_ROWS, rows_at_once
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows


def write_texts(texts: Sequence[str]) -> None:
    """Write texts to `a.parquet`."""
    column = pyarrow.array(texts, "string")
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), "a.parquet")


def read_texts() -> list[Row]:
    return list(read_rows("a.parquet", Columns(("text",)), Reading()))


@pytest.mark.parametrize(
    ("text_bytes", "expected"),
    [
        (10, MOST_ROWS),
        (1 << 20, BATCH_BYTES >> 20),
        (1 << 23, BATCH_BYTES >> 23),
    ],
)
def test_rows_that_are_read_at_once_are_fewer_where_they_are_long(text_bytes, expected):
    """The texts are distinct, since equal ones would be stored once."""
    write_texts([str(number).rjust(text_bytes, "x") for number in range(3)])

    num_rows = rows_at_once(pyarrow.parquet.read_metadata("a.parquet"))

    assert num_rows == pytest.approx(expected, abs=1)


def test_a_file_without_rows_has_a_batch_size():
    write_texts([])
    assert rows_at_once(pyarrow.parquet.read_metadata("a.parquet")) >= 1
    assert read_texts() == []


def test_long_rows_are_read_in_several_batches(monkeypatch):
    texts = [f"{number} ".ljust(1 << 16, "x") for number in range(40)]
    write_texts(texts)
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 18)

    rows = read_texts()

    assert [row.text for row in rows] == texts
    assert rows[-1].where == "a.parquet:40"
