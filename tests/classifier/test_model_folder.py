"""The one file of a model folder that is read, and its copies for people."""

from __future__ import annotations

import copy
import json

import pytest
import safetensors

from encoder_cls.classifier import model_folder as folder_module
from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import (
    CONFIG_FILE,
    FORMAT,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    load_classifier,
    save_classifier,
)
from encoder_cls.errors import EncoderClsError


@pytest.mark.parametrize("last", [WEIGHTS_FILE, CONFIG_FILE, TOKENIZER_FILE])
def test_a_writer_that_is_killed_leaves_one_whole_model(classifier, tmp_path, monkeypatch, last):
    """The one before as long as the weights are not replaced, then the new one, whatever its copies say."""
    other = copy.copy(classifier)
    other.text_format = TextFormat(columns=("another",))
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
    assert load_classifier(tmp_path).text_format == expected.text_format


def test_the_copies_have_the_values_of_the_model(classifier, tmp_path):
    other = copy.copy(classifier)
    other.text_format = TextFormat(columns=("another",))
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
