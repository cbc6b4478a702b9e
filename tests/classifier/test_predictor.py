"""A predictor: batches of any kind with their answers, and a copy of it elsewhere."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow
import pytest

from encoder_cls import Predictor
from encoder_cls.errors import DataError

TEXTS = ["soup with salt", "", "goal of the team", "snow today"]


@pytest.fixture(scope="module")
def predictor(trained_run) -> Predictor:
    return Predictor(str(trained_run.path))


def test_predictions_are_beside_the_columns_of_a_table(predictor):
    table = pyarrow.table(
        {"id": [4, 5, 6, 7], "text": ["soup with salt", None, "goal of the team", "snow today"]}
    )
    found = predictor(table)
    assert found.column_names == ["id", "text", "label", "probability", "reason"]
    assert found.select(["id", "text"]).equals(table)
    expected = predictor.classifier.predict(TEXTS)
    assert found["label"].to_pylist() == [prediction.label for prediction in expected]
    assert found["probability"].to_pylist() == [prediction.probability for prediction in expected]
    assert found["reason"].to_pylist() == [None, "blank", None, None]


def test_a_mapping_of_arrays_and_a_frame_give_results_of_their_kind(predictor):
    batch = {"text": np.array(TEXTS, dtype=object), "label": np.array([1, 2, 3, 4])}
    found = predictor(batch)
    assert list(found) == ["text", "label", "predicted_label", "probability", "reason"]
    assert found["label"] is batch["label"]
    assert found["probability"].dtype == np.float64
    assert np.isnan(found["probability"]).tolist() == [False, True, False, False]

    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    (frame,) = predictor.frames([pandas.DataFrame(batch)])
    labels = [label for label in found["predicted_label"] if label is not None]
    assert frame["predicted_label"].dropna().tolist() == labels
    assert frame["predicted_label"].isna().tolist() == [False, True, False, False]


def test_columns_have_equal_types_in_each_batch(predictor):
    """A batch without a row, or without an answer, has them, too: engines join batches."""
    batches = [
        predictor(pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())}))
        for texts in ([], [""], TEXTS)
    ]
    assert batches[0].schema == batches[1].schema == batches[2].schema
    assert pyarrow.concat_tables(batches).num_rows == 5


@pytest.mark.parametrize("dtype", ["object", "string", "string[pyarrow]", "str"])
def test_frames_may_have_any_kind_of_null_and_equal_types_in_each_batch(predictor, dtype):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    batches = [
        predictor(pandas.DataFrame({"text": pandas.array(texts, dtype=dtype)}))
        for texts in (["soup with salt", None], [None, ""], [])
    ]
    assert batches[0]["reason"].tolist() == [None, "blank"]
    assert batches[1]["label"].isna().all()
    expected = [np.dtype(object), np.dtype(np.float64), np.dtype(object)]
    for batch in batches:
        assert batch.dtypes.iloc[1:].tolist() == expected


def test_columns_may_have_the_names_of_methods(predictor):
    """What a batch is does not depend on its columns."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    others = {"column_names": [1], "append_column": [2], "assign": [3], "index": [4], 5: [6]}
    frame = pandas.DataFrame({"text": ["soup with salt"], **others}, index=["to_pylist"])
    found = predictor(frame)
    assert list(found) == [*frame, "label", "probability", "reason"]
    assert found["label"].tolist() == predictor({"text": ["soup with salt"]})["label"].tolist()


def test_a_record_batch_gives_a_table(predictor):
    batch = pyarrow.record_batch({"text": TEXTS})
    assert predictor(batch)["label"].to_pylist() == predictor({"text": TEXTS})["label"].tolist()


def test_a_copy_is_made_of_the_name_of_the_model_alone(predictor):
    """What goes to a worker is small, and answers the same."""
    content = pickle.dumps(predictor)
    assert len(content) < 1000
    batch = {"text": TEXTS}
    copy = pickle.loads(content)  # noqa: S301 - our own
    assert copy(batch)["label"].tolist() == predictor(batch)["label"].tolist()


def test_what_is_no_text_is_named(predictor):
    with pytest.raises(DataError, match="no column 'text', which the model reads; there are body"):
        predictor({"body": TEXTS})
    with pytest.raises(DataError, match="no column 'text', which the model reads; there are 0, 1"):
        predictor({0: TEXTS, 1: TEXTS})
    with pytest.raises(DataError, match="column 'text' has int '7', where a text"):
        predictor({"text": ["a", 7]})
