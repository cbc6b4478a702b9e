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
    probability = list(classifier.predict([text])[0].probabilities.values())[label]
    return math.log(probability / (1 - probability))


@pytest.mark.parametrize("label", [0, 2])
def test_a_weight_is_what_leaving_the_word_out_does(classifier, label):
    explained = classifier.explain(TEXTS, labels=[classifier.label_names[label]] * len(TEXTS))
    for text, words in zip(TEXTS, explained, strict=True):
        for word in words:
            assert text[word.start : word.end] == word.word
            without = log_odds(classifier, text[: word.start] + " " + text[word.end :], label)
            assert word.weight == pytest.approx(
                log_odds(classifier, text, label) - without, abs=1e-3
            )


def test_words_are_those_that_a_person_reads(classifier):
    found = [[word.word for word in words] for words in classifier.explain(TEXTS)]
    assert found[2] == ["Goal", "!", "goal", ";", "(", "goal", ")"]
    assert found[4:] == [[], []]


@pytest.mark.parametrize("kind", ["word_level", "bpe"])
def test_neighbours_of_a_script_without_spaces_are_one_word(kind):
    """They speak in one direction; the weight is that of leaving all of them out."""
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
    without = log_odds(classifier, text[: most.start] + " " + text[most.end :], 1)
    assert most.weight == pytest.approx(whole - without, abs=1e-3)


@pytest.mark.parametrize("kind", ["word_piece", "bpe", "unigram"])
def test_parts_of_a_word_count_as_one(kind):
    """A person reads words, not tokens; what was cut off has no weight."""
    torch.manual_seed(0)
    config = tiny_model_config(max_seq_len=32, char_ngram_buckets=0)
    tokenizer = train_tokenizer(
        ["abcd efgh abef cdgh"] * 3, TokenizerConfig(type=kind, max_vocab_size=30)
    )
    model = EncoderClassifier(config, vocab_size=tokenizer.get_vocab_size(), num_classes=2).eval()
    classifier = Classifier(TorchEncoder(model, config), tokenizer, ["x", "y"], max_seq_len=32)
    (words,) = classifier.explain(["abgh, cdabef!"])
    assert [word.word for word in words] == ["abgh", ",", "cdabef", "!"]

    (many,) = classifier.explain(["abgh " * 99])
    assert 1 <= len(many) < 32
    assert many[0].start == 0


def test_attention_maps_are_those_of_the_model(classifier):
    maps = attention_maps(classifier, TEXTS[2])
    architecture = classifier.encoder.architecture
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
    assert all(word.word == text[word.start : word.end] for word in words)
    for before, word in itertools.pairwise(words):
        assert before.end <= word.start
    for word in words:
        assert not unicodedata.combining(text[word.end : word.end + 1] or " ")
