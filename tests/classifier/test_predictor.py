"""A predictor: batches of any kind with their predictions, and a copy of it elsewhere."""

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
    texts = ["soup with salt", None, "goal of the team", "snow today"]
    table = pyarrow.table({"id": [4, 5, 6, 7], "text": texts})

    found = predictor(table)

    assert found.column_names == ["id", "text", "label", "probability", "reason"]
    assert found.select(["id", "text"]).equals(table)

    predictions = predictor.classifier.predict(TEXTS)
    labels = [prediction.label for prediction in predictions]
    probabilities = [prediction.probability for prediction in predictions]
    assert found["label"].to_pylist() == labels
    assert found["probability"].to_pylist() == probabilities
    assert found["reason"].to_pylist() == [None, "blank", None, None]


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """A batch with a column whose name is that of a prediction."""
    return {"text": np.array(TEXTS, dtype=object), "label": np.array([1, 2, 3, 4])}


def test_a_mapping_of_arrays_gives_a_mapping_of_arrays(predictor, arrays):
    found = predictor(arrays)

    assert list(found) == ["text", "label", "predicted_label", "probability", "reason"]
    assert found["label"] is arrays["label"]
    assert found["probability"].dtype == np.float64
    assert np.isnan(found["probability"]).tolist() == [False, True, False, False]


def test_frames_give_frames(predictor, arrays):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")

    (frame,) = predictor.frames([pandas.DataFrame(arrays)])

    predicted_labels = predictor(arrays)["predicted_label"]
    labels = [label for label in predicted_labels if label is not None]
    assert frame["predicted_label"].dropna().tolist() == labels
    assert frame["predicted_label"].isna().tolist() == [False, True, False, False]


def test_columns_have_equal_types_in_each_batch(predictor):
    """A batch without a row, or without a label, has them, too: engines join batches."""
    batches = []
    for texts in ([], [""], TEXTS):
        column = pyarrow.array(texts, pyarrow.string())
        batches.append(predictor(pyarrow.table({"text": column})))

    for batch in batches:
        assert batch.schema == batches[0].schema
    assert pyarrow.concat_tables(batches).num_rows == 5


@pytest.mark.parametrize("dtype", ["object", "string", "string[pyarrow]", "str"])
def test_frames_may_have_any_kind_of_null_and_equal_types_in_each_batch(predictor, dtype):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    batches = []
    for texts in (["soup with salt", None], [None, ""], []):
        column = pandas.array(texts, dtype=dtype)
        batches.append(predictor(pandas.DataFrame({"text": column})))

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
    table = predictor(pyarrow.record_batch({"text": TEXTS}))

    expected = predictor({"text": TEXTS})["label"].tolist()
    assert table["label"].to_pylist() == expected


def test_a_copy_is_made_of_the_name_of_the_model_alone(predictor):
    """What goes to a worker is small, and predicts the same."""
    content = pickle.dumps(predictor)
    copied = pickle.loads(content)  # noqa: S301 - our own

    assert len(content) < 1000
    batch = {"text": TEXTS}
    assert copied(batch)["label"].tolist() == predictor(batch)["label"].tolist()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"body": TEXTS}, "no column 'text', which the model reads; columns: body"),
        ({0: TEXTS, 1: TEXTS}, "no column 'text', which the model reads; columns: 0, 1"),
        ({"text": ["a", 7]}, "column 'text' has int '7', where a text"),
    ],
    ids=["another name", "numbers as names", "a number as text"],
)
def test_what_is_no_text_is_named(predictor, batch, message):
    with pytest.raises(DataError, match=message):
        predictor(batch)
