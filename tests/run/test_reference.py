"""What a run keeps of its held-out texts, to compare later texts with."""

from __future__ import annotations

import numpy as np
import pytest
from support.topics import labelled_texts

from encoder_cls import read_reference
from encoder_cls.errors import EncoderClsError


def test_a_training_keeps_figures_of_its_held_out_texts(trained_run, classifier):
    """The file has no word of a text."""
    texts, labels = zip(*labelled_texts(4, seed=1), strict=True)
    probabilities = classifier.predict_proba(texts)
    names = np.array(classifier.label_names)[probabilities.argmax(axis=1)]

    reference = read_reference(trained_run.model)

    assert reference.prediction_probabilities == pytest.approx(probabilities.max(axis=1))
    assert reference.mean_probabilities == pytest.approx(probabilities.mean(axis=0))
    assert reference.is_right.tolist() == (names == labels).tolist()
    assert reference.num_predicted.tolist() == [
        (names == name).sum() for name in classifier.label_names
    ]
    assert reference.num_words.tolist() == [5] * 12
    assert reference.unknown_words.tolist() == [0] * 12
    assert reference.group_column is None

    content = trained_run.reference.read_bytes()
    assert not any(
        word.encode() in content for text in texts for word in text.split() if len(word) > 3
    )


def test_a_damaged_reference_is_named(run_copy):
    run_copy.reference.write_bytes(run_copy.reference.read_bytes()[:-1])
    with pytest.raises(EncoderClsError, match=r"reference.safetensors: cannot be read"):
        read_reference(run_copy.path)


def test_words_that_are_not_in_the_vocabulary_are_listed(classifier):
    text = "Rain, zebra and the Zebra quagga"
    assert classifier.unknown_words(text) == [",", "zebra", "zebra", "quagga"]
    (prediction,) = classifier.predict([text])
    assert (prediction.num_words, prediction.unknown_words) == (7, 4)
