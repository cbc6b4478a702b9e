"""Parquet files are read in batches whose size is bounded in rows and in bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.parquet import BATCH_BYTES, MOST_ROWS, rows_at_once
from encoder_cls.data.sources import read_rows


@pytest.mark.parametrize(
    ("text_bytes", "expected"),
    [(10, MOST_ROWS), (1 << 20, BATCH_BYTES >> 20), (1 << 23, BATCH_BYTES >> 23)],
)
def test_rows_that_are_read_at_once_are_fewer_where_they_are_long(text_bytes, expected):
    """The sizes are those of distinct texts, which are stored once each."""
    num_texts = 3
    texts = [f"{number}".rjust(text_bytes, "x") for number in range(num_texts)]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), "a.parquet")
    found = rows_at_once(pyarrow.parquet.read_metadata("a.parquet"))
    assert found == pytest.approx(expected, abs=1)


def test_a_file_without_rows_has_a_batch_size():
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], "string")}), "a.parquet")
    assert rows_at_once(pyarrow.parquet.read_metadata("a.parquet")) >= 1
    assert [*read_rows("a.parquet", Columns(("text",)), Reading())] == []


def test_long_rows_are_read_in_several_batches(monkeypatch):
    texts = [f"{number} ".ljust(1 << 16, "x") for number in range(40)]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), "a.parquet")
    monkeypatch.setattr("encoder_cls.data.reading.parquet.BATCH_BYTES", 1 << 18)
    rows = [*read_rows("a.parquet", Columns(("text",)), Reading())]
    assert [row.text for row in rows] == texts
    assert rows[-1].where == f"{Path('a.parquet')}:40"
