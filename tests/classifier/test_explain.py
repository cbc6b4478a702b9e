"""Explanations: the weight of a word is what happens without it."""

from __future__ import annotations

import itertools
import math
import unicodedata

import numpy as np
import pytest
import torch
from support.tiny_encoder import tiny_model_config
from support.tokenizer import train_tokenizer

from encoder_cls.classifier.attention_maps import attention_maps
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import marked
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.sklearn import TextClassifier

TEXTS = [
    "rain and snow today",
    "a big soup with zzz",
    "Goal! goal; (goal)",
    "küche ball",
    "",
    "   ",
]


def log_odds(classifier, text: str, label: int) -> float:
    """The log odds of a class, by the number of the class."""
    probability = list(classifier.predict([text])[0].probabilities.values())[label]
    return math.log(probability / (1 - probability))


@pytest.mark.parametrize("label", [0, 2])
def test_a_weight_is_what_leaving_the_word_out_does(classifier, label):
    labels = [classifier.label_names[label]] * len(TEXTS)

    explanations = classifier.explain(TEXTS, labels=labels)

    for text, words in zip(TEXTS, explanations, strict=True):
        whole = log_odds(classifier, text, label)
        for word in words:
            assert text[word.start : word.end] == word.word
            without = log_odds(classifier, f"{text[: word.start]} {text[word.end :]}", label)
            assert word.weight == pytest.approx(whole - without, abs=1e-3)


def test_words_are_those_that_a_person_reads(classifier):
    (words,) = classifier.explain(["Goal! goal; (goal)"])

    assert [word.word for word in words] == ["Goal", "!", "goal", ";", "(", "goal", ")"]


def test_a_blank_text_has_no_words_to_explain(classifier):
    assert classifier.explain(["", "   "]) == [[], []]


@pytest.mark.parametrize("kind", ["word_level", "bpe"])
def test_neighbours_of_a_script_without_spaces_are_one_word(kind):
    """All joined tokens are evidence in one direction; their weight is that of leaving all out."""
    texts = []
    for number in range(20):
        for text in ("คืนเงิน ค่ะ", "ส่งของช้า ค่ะ", "คืนเงินให้ค่ะ", "ของยังไม่ส่ง"):
            texts.append(f"{text} {number}")
    estimator = TextClassifier(settings={"model.encoder": False, "tokenizer.type": kind})
    classifier = estimator.fit(texts, [1, 0] * 40).classifier_
    text = "ขอคืนเงิน ok"

    (words,) = classifier.explain([text], labels=classifier.label_names[1:])

    assert "".join(word.word for word in words) == text.replace(" ", "")
    most = max(words, key=lambda word: word.weight)
    assert "คืนเงิน" in most.word
    assert words[-1].word == "ok"

    whole = log_odds(classifier, text, 1)
    without = log_odds(classifier, f"{text[: most.start]} {text[most.end :]}", 1)
    assert most.weight == pytest.approx(whole - without, abs=1e-3)


@pytest.fixture(params=["word_piece", "bpe", "unigram"])
def cutting_classifier(request) -> Classifier:
    """A classifier that cuts words into several tokens, and reads 32 of them."""
    torch.manual_seed(0)
    config = tiny_model_config(max_seq_len=32, char_ngram_buckets=0)
    texts = ["abcd efgh abef cdgh"] * 3
    tokenizer = train_tokenizer(texts, TokenizerConfig(type=request.param, max_vocab_size=30))
    model = EncoderClassifier(config, vocab_size=tokenizer.get_vocab_size(), num_classes=2).eval()
    return Classifier(TorchEncoder(model, config), tokenizer, ["x", "y"], max_seq_len=32)


def test_parts_of_a_word_count_as_one(cutting_classifier):
    """A person reads words, not tokens."""
    (words,) = cutting_classifier.explain(["abgh, cdabef!"])

    assert [word.word for word in words] == ["abgh", ",", "cdabef", "!"]


def test_words_beyond_the_limit_have_no_weight(cutting_classifier):
    (words,) = cutting_classifier.explain(["abgh " * 99])

    assert 1 <= len(words) < 32
    assert words[0].start == 0


def test_attention_maps_are_those_of_the_model(classifier):
    architecture = classifier.encoder.architecture

    maps = attention_maps(classifier, "Goal! goal; (goal)")

    assert maps.tokens == ["[CLS]", "Goal", "!", "goal", ";", "(", "goal", ")"]
    assert maps.weights.shape == (architecture.num_layers, architecture.num_heads, 8, 8)
    np.testing.assert_allclose(maps.weights.sum(axis=-1), 1, atol=1e-5)


def test_a_blank_text_has_the_map_of_one_token(classifier):
    assert attention_maps(classifier, "").weights.shape[2:] == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "1\u00bd parcels, \u00bd a refund",
        "rain of \ufdfa",
        unicodedata.normalize("NFD", "o\u00f9 est mon caf\u00e9 rain"),
        unicodedata.normalize("NFD", "\ud55c\uad6d\uc5b4 rain"),
    ],
)
def test_words_are_disjoint_and_cover_whole_characters(classifier, text):
    """Normalization may make several words of a character, or one character of several."""
    (words,) = classifier.explain([text])

    assert "".join(piece for piece, _ in marked(text, words)) == text
    for before, word in itertools.pairwise(words):
        assert before.end <= word.start

    for word in words:
        assert word.word == text[word.start : word.end]
        if word.end < len(text):
            assert not unicodedata.combining(text[word.end])
