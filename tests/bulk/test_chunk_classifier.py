"""A chunk of rows that goes to another process arrives with all that its predictions show."""

from __future__ import annotations

import pickle

from encoder_cls.bulk.chunk_classifier import Job
from encoder_cls.bulk.json_format import JsonFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row

FORMAT = JsonFormat(PredictionOptions(output_format="jsonl"), {})


def sent(job: Job) -> Job:
    """A job as another process receives it."""
    return pickle.loads(pickle.dumps(job))  # noqa: S301 - it was pickled here


def test_rows_keep_text_id_and_columns_and_the_last_one_its_location():
    rows = [
        Row("first", id=7, where=SourceLocation("a.csv", 2), record={"text": "first", "id": 7}),
        Row("second", where=SourceLocation("a.csv", 3, 2)),
    ]

    job = sent(Job(FORMAT, rows, explained=True))

    assert job.explained
    assert job.chunk[0] == Row("first", id=7, record={"text": "first", "id": 7})
    assert job.chunk[1] == rows[1]
    assert job.chunk[1].where.line == 3
    assert job.chunk[1].where.row == 2


def test_a_chunk_may_be_empty():
    assert sent(Job(FORMAT, [], explained=False)).chunk == []
