"""The classifier: what it predicts, with one part or with both, and what it flags."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from support.classifiers import WORDS, labels_of, linear_alone, new_classifier, with_linear

from encoder_cls.classifier.attention_maps import attention_maps
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError
from encoder_cls.metrics.logits import softmax

TEXTS = ["rain and snow today", "", "a big soup with zzz", "ball " * 40]


def test_a_blank_text_has_no_label(classifier):
    texts = ["", " \t\n\u00a0", "\u3000"]
    for prediction in classifier.predict(texts):
        assert prediction.reason == "blank"
        assert prediction.label is None
        assert prediction.probability is None
        assert prediction.label_from(0.0) is None


def test_a_label_is_withheld_below_a_threshold(classifier):
    (prediction,) = classifier.predict(["rain"])

    assert prediction.reason is None
    assert prediction.label_from(0.0) == "weather"
    assert prediction.label_from(1.0) is None


def test_predictions_have_the_probabilities_of_all_classes(classifier):
    texts = ["", "rain", "\u3000"]

    found = [list(prediction.probabilities.values()) for prediction in classifier.predict(texts)]

    assert found == classifier.predict_proba(texts).tolist()


@pytest.mark.parametrize(
    ("text", "truncated", "unknown_words"),
    [
        ("", False, 0),
        ("rain " * 15, False, 0),
        ("rain " * 16, True, 0),
        ("zzz rain yyy", False, 2),
        ("x" * 2000, True, 1),
    ],
)
def test_what_is_not_read_is_flagged(classifier, text, truncated, unknown_words):
    (prediction,) = classifier.predict([text])

    assert prediction.truncated == truncated
    assert prediction.unknown_words == unknown_words


@pytest.mark.parametrize("num_classes", [2, 3])
def test_logits_are_a_weighted_sum_of_both_parts(num_classes):
    names = ["weather", "food", "sport"][:num_classes]
    classifier = with_linear(names)
    texts = classifier.tokenize(TEXTS)

    logits = classifier.logits(texts)

    expected = 0.5 * classifier.encoder.logits(texts) + 3 * classifier.linear.logits(texts)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), softmax(expected), rtol=1e-4)
    assert labels_of(classifier, WORDS[:num_classes]) == names


def test_a_linear_model_alone_has_no_vectors_and_no_attention():
    alone = linear_alone(["weather", "food", "sport"])

    with pytest.raises(ConfigError, match="no encoder"):
        alone.embed(["rain"])
    with pytest.raises(ConfigError, match="no encoder"):
        attention_maps(alone, "rain")


def pickled_copy(classifier: Classifier) -> Classifier:
    """A copy that was pickled and read again."""
    return pickle.loads(pickle.dumps(classifier))  # noqa: S301 - its own


@pytest.mark.parametrize("make_copy", [copy.deepcopy, pickled_copy])
@pytest.mark.parametrize("kind", ["word_level", "bpe"])
def test_a_copy_predicts_the_same(make_copy, kind):
    """The names of special tokens stay ordinary characters of a text."""
    original = new_classifier(["a", "b"], texts=["rain [ PAD ]", "snow"], kind=kind)
    texts = ["[PAD]", "rain [CLS] [MASK]", "snow"]

    copied = make_copy(original)

    assert copied.predict(texts) == original.predict(texts)
    found = copied.tokenize(texts)
    expected = original.tokenize(texts)
    assert found.input_ids().tolist() == expected.input_ids().tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()
