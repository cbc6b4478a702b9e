"""The smallest number types of weights that change no prediction."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import FORMAT, load_classifier, save_classifier
from encoder_cls.errors import StoppedError
from encoder_cls.metrics.logits import softmax
from encoder_cls.system.stop import checking
from encoder_cls.training import final_model
from encoder_cls.training.final_model import MAX_PROBABILITY_CHANGE, compact, is_close

TEXTS = ["rain and snow today", "soup with salt", "ball goal team", "", "zzz qqq"]
LABELS = np.array([2, 0, 1, 0, 0])

FLOAT32 = {"encoder": "float32", "linear": "float32"}
FLOAT16 = {"encoder": "float16", "linear": "float16"}
INT8 = {"encoder": "int8", "linear": "int8"}


def dtypes_of(folder: Path) -> dict[str, str]:
    """Read the number types of a model folder's weights from the header of the file, by part."""
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    model = json.loads(header["__metadata__"][FORMAT])
    return model["dtypes"]


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(trained_run, tmp_path) -> Path:
    """A model folder in float32."""
    folder = tmp_path / "model"
    save_classifier(load_classifier(trained_run.path), folder)
    shutil.copy(trained_run.model / "README.md", folder)
    assert dtypes_of(folder) == FLOAT32
    return folder


def compact_folder(folder: Path) -> None:
    """Save the classifier of a folder in the smallest types that keep its predictions."""
    texts = load_classifier(folder).tokenize(TEXTS)
    compact(folder, texts, LABELS, device="cpu")


def test_a_finished_run_is_small(trained_run):
    assert dtypes_of(trained_run.model) == INT8


def probabilities_of(classifier: Classifier) -> np.ndarray:
    """Return the probabilities of the texts of these tests."""
    return softmax(classifier.logits(classifier.tokenize(TEXTS)))


def test_predictions_stay_what_they_were(folder):
    """Only the file of weights changes, and becomes smaller."""
    before = contents_of(folder)
    expected = probabilities_of(load_classifier(folder))

    compact_folder(folder)

    after = contents_of(folder)
    assert dtypes_of(folder) == INT8
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"model.safetensors"}
    assert len(after["model.safetensors"]) < 0.6 * len(before["model.safetensors"])
    probabilities = probabilities_of(load_classifier(folder))
    np.testing.assert_allclose(probabilities, expected, atol=MAX_PROBABILITY_CHANGE)


def test_small_weights_are_not_rounded_again(folder):
    compact_folder(folder)
    before = contents_of(folder)

    compact_folder(folder)

    assert contents_of(folder) == before


def spoil_types(monkeypatch, dtypes: set[str]) -> None:
    """Let weights of these types predict the opposite."""
    probabilities_in = final_model._probabilities

    def spoiled_probabilities(classifier, dtype, texts, **options):
        probabilities = probabilities_in(classifier, dtype, texts, **options)
        if dtype in dtypes:
            return 1 - probabilities
        return probabilities

    monkeypatch.setattr(final_model, "_probabilities", spoiled_probabilities)


def test_if_a_type_changes_a_prediction_the_next_larger_type_is_used(folder, monkeypatch):
    spoil_types(monkeypatch, {"int8"})

    compact_folder(folder)

    assert dtypes_of(folder) == FLOAT16


def test_if_all_small_types_change_a_prediction_nothing_is_written(folder, monkeypatch):
    before = contents_of(folder)
    spoil_types(monkeypatch, {"int8", "float16"})

    compact_folder(folder)

    assert dtypes_of(folder) == FLOAT32
    assert contents_of(folder) == before


def test_an_interrupted_choice_of_types_leaves_the_folder_as_it_is(folder):
    """A signal stops the comparison of the types before anything is written."""

    def stop() -> None:
        raise StoppedError("asked", signal_number=signal.SIGTERM)

    before = contents_of(folder)
    texts = load_classifier(folder).tokenize(TEXTS)

    with pytest.raises(StoppedError), checking(stop):
        compact(folder, texts, LABELS, device="cpu")

    assert contents_of(folder) == before


@pytest.mark.parametrize(
    ("num_texts", "change", "changed_predictions", "expected"),
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
def test_probabilities_are_close_or_not(num_texts, change, changed_predictions, expected):
    """No probability changes by more than 0.005; one prediction in 1,000 may become wrong."""
    exact = np.tile([0.7, 0.3], (num_texts, 1))
    exact[:changed_predictions] = [0.501, 0.499]
    rounded = exact + np.array([-change, change])
    labels = np.zeros(num_texts, dtype=np.int64)

    assert is_close(rounded, exact, labels) == expected
