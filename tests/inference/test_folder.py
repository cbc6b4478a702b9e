"""The one file of a model folder that is read, and its copies for people."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors

from encoder_cls.classifier import model_folder as folder_module
from encoder_cls.classifier.model_folder import (
    CONFIG_FILE,
    FORMAT,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    load_classifier,
    save_classifier,
)
from encoder_cls.errors import EncoderClsError

FORMAT_8 = Path(__file__).parent / "format_8"


@pytest.mark.parametrize("last", [WEIGHTS_FILE, CONFIG_FILE, TOKENIZER_FILE])
def test_a_writer_that_is_killed_leaves_one_whole_model(classifier, tmp_path, monkeypatch, last):
    """The one before as long as the weights are not replaced, then the new one, whatever its copies say."""
    other = copy.copy(classifier)
    other.text_columns = ("another",)
    save_classifier(classifier, tmp_path)
    (tmp_path / TOKENIZER_FILE).unlink()  # so that it is written again
    real = folder_module.write_file

    def killed(path, content):
        if path.name == last:
            raise KeyboardInterrupt
        real(path, content)

    monkeypatch.setattr(folder_module, "write_file", killed)
    with pytest.raises(KeyboardInterrupt):
        save_classifier(other, tmp_path)
    expected = classifier if last == WEIGHTS_FILE else other
    assert load_classifier(tmp_path).text_columns == expected.text_columns


def test_the_copies_have_the_values_of_the_model(classifier, tmp_path):
    other = copy.copy(classifier)
    other.text_columns = ("another",)
    for model in (classifier, other):
        save_classifier(model, tmp_path)
        with safetensors.safe_open(tmp_path / WEIGHTS_FILE, "np") as file:
            header = json.loads(file.metadata()[FORMAT])
        assert header["config"] == json.loads((tmp_path / CONFIG_FILE).read_bytes())
        assert json.loads(header["tokenizer"]) == json.loads(
            (tmp_path / TOKENIZER_FILE).read_bytes()
        )


def test_a_file_larger_than_its_weights_is_refused_by_its_head(classifier, tmp_path, monkeypatch):
    """A forged file of some GB would fill the memory."""
    save_classifier(classifier, tmp_path)
    with (tmp_path / WEIGHTS_FILE).open("ab") as file:
        file.truncate(1 << 34)
    monkeypatch.setattr(folder_module, "_read_whole", lambda *_: pytest.fail("read"))
    with pytest.raises(EncoderClsError, match="is larger than the weights"):
        load_classifier(tmp_path)


def test_models_of_format_8_are_read():
    probabilities = load_classifier(FORMAT_8, engine="numpy").predict_proba(
        ["rain and snow", "the ball"]
    )
    expected = [
        [0.0147006296, 0.0154616988, 0.9698376716],
        [0.0346707417, 0.9325613589, 0.0327678994],
    ]
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)


@pytest.mark.parametrize("damaged", [CONFIG_FILE, TOKENIZER_FILE])
def test_files_of_format_8_must_belong_together(tmp_path, damaged):
    shutil.copytree(FORMAT_8, tmp_path / "model")
    content = (tmp_path / "model" / damaged).read_bytes()
    (tmp_path / "model" / damaged).write_bytes(content + b" ")
    with pytest.raises(EncoderClsError, match="do not belong together"):
        load_classifier(tmp_path / "model")
