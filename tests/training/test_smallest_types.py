"""Small weights: as small as changes no answer."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from encoder_cls.classifier.model_folder import FORMAT, load_classifier, save_classifier
from encoder_cls.errors import StoppedError
from encoder_cls.metrics.logits import softmax
from encoder_cls.system.stop import checking
from encoder_cls.training import final_model
from encoder_cls.training.final_model import compact, is_close

TEXTS = ["rain and snow today", "soup with salt", "ball goal team", "", "zzz qqq"]
LABELS = np.array([2, 0, 1, 0, 0])
EXACT = {"encoder": "float32", "linear": "float32"}
SMALL = {"encoder": "int8", "linear": "int8"}


def dtypes_of(folder) -> dict[str, str]:
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"][FORMAT])["dtypes"]


@pytest.fixture
def folder(trained_run, tmp_path):
    """A model folder in float32."""
    save_classifier(load_classifier(trained_run.path), tmp_path / "model")
    shutil.copy(trained_run.model / "README.md", tmp_path / "model")
    return tmp_path / "model"


def compacted(folder) -> dict[str, str]:
    compact(folder, load_classifier(folder).tokenize(TEXTS), LABELS, device="cpu")
    return dtypes_of(folder)


def test_a_finished_run_is_small(trained_run):
    assert dtypes_of(trained_run.model) == SMALL


def test_predictions_stay_what_they_were(folder):
    """The folder is smaller, only its weights change, and it predicts the same."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    exact = load_classifier(folder)
    assert dtypes_of(folder) == EXACT
    assert compacted(folder) == SMALL
    assert compacted(folder) == SMALL  # it is not rounded once more
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in before if after[name] != before[name]} == {"model.safetensors"}
    assert len(after["model.safetensors"]) < 0.6 * len(before["model.safetensors"])
    found, expected = (
        softmax(it.logits(exact.tokenize(TEXTS))) for it in (load_classifier(folder), exact)
    )
    np.testing.assert_allclose(found, expected, atol=final_model.MOST_CHANGE)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ({"int8"}, {"encoder": "float16", "linear": "float16"}),
        ({"int8", "float16"}, EXACT),
    ],
    ids=["int8", "both"],
)
def test_a_type_that_changes_an_prediction_is_not_taken(folder, monkeypatch, refused, expected):
    """The next larger one is tried; at last everything stays as it is."""
    real = final_model._probabilities

    def wrong_if_refused(classifier, dtype, texts, **options):
        probabilities = real(classifier, dtype, texts, **options)
        return 1 - probabilities if dtype in refused else probabilities

    monkeypatch.setattr(final_model, "_probabilities", wrong_if_refused)
    before = (folder / "model.safetensors").read_bytes()
    assert compacted(folder) == expected
    is_unchanged = (folder / "model.safetensors").read_bytes() == before
    assert is_unchanged == (expected == EXACT)


def test_it_can_be_interrupted(folder):
    def stop():
        raise StoppedError("asked", signal_number=15)

    before = (folder / "model.safetensors").read_bytes()
    tokenized = load_classifier(folder).tokenize(TEXTS)
    with pytest.raises(StoppedError), checking(stop):
        compact(folder, tokenized, LABELS, device="cpu")
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("texts", "change", "changed_predictions", "expected"),
    [
        (10, 0.0, 0, True),
        (10, 0.004, 0, True),
        (10, 0.006, 0, False),
        (10, 0.004, 1, False),
        (2000, 0.004, 1, True),
        (2000, 0.004, 2, True),
        (2000, 0.004, 3, False),
        (2000, float("nan"), 0, False),
    ],
)
def test_probabilities_are_close_or_not(texts, change, changed_predictions, expected):
    """No probability moves by more than 0.005; of a thousand texts one in a thousand may turn wrong."""
    exact = np.tile([0.7, 0.3], (texts, 1))
    exact[:changed_predictions] = [0.501, 0.499]
    found = exact + np.array([-change, change])
    assert is_close(found, exact, np.zeros(texts, dtype=np.int64)) == expected
