"""A model folder in which another model takes the place of one: whenever the writer ends, there is a whole one."""

from __future__ import annotations

import copy

import pytest

from encoder_cls.inference import folder as model_files
from encoder_cls.inference import folder as serialization
from encoder_cls.inference.folder import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, load_classifier, save_classifier
from encoder_cls.system.files import remove_leftovers


def test_a_writer_that_is_killed_before_the_weights_leaves_the_former_model(classifier, tmp_path, monkeypatch):
    """Also where the new one has another config; once it is whole, nothing of the former is left."""
    other, third = copy.copy(classifier), copy.copy(classifier)
    other.text_columns, third.text_columns = ("another",), ("third",)
    save_classifier(classifier, tmp_path)
    real = serialization.write_file

    def killed_at_weights(path, content):
        if path.name == WEIGHTS_FILE:
            raise KeyboardInterrupt
        real(path, content)

    monkeypatch.setattr(serialization, "write_file", killed_at_weights)
    for model in (other, third):
        with pytest.raises(KeyboardInterrupt):
            save_classifier(model, tmp_path)
        remove_leftovers(tmp_path)  # as a resumed run does before it saves anything
        assert load_classifier(tmp_path).text_columns == classifier.text_columns
    monkeypatch.undo()
    save_classifier(other, tmp_path)
    assert load_classifier(tmp_path).text_columns == ("another",)
    assert {path.name for path in tmp_path.iterdir()} == {CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE}


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(classifier, tmp_path, monkeypatch):
    other = copy.copy(classifier)
    other.text_columns = ("another",)
    save_classifier(classifier, tmp_path)
    real, read = model_files.read_file, []

    def replaced_after_the_config(path, *, most_bytes):
        content = real(path, most_bytes=most_bytes)
        read.append(path.name)
        if read == [CONFIG_FILE]:
            save_classifier(other, tmp_path)
        return content

    monkeypatch.setattr(model_files, "read_file", replaced_after_the_config)
    assert load_classifier(tmp_path).text_columns == ("another",)
