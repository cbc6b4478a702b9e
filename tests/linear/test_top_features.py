"""The words and pairs of words that speak most for each class."""

from __future__ import annotations

import numpy as np
import pytest
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear.top_features import NgramWeight, top_features
from encoder_cls.linear_training.features import CountedTexts, LinearOptions
from encoder_cls.linear_training.model_selection import fit_linear
from encoder_cls.text.tokenizer import tokenize

GOOD = ["not bad at all", "great film !", "not bad , great", "a great film"]
BAD = ["bad film", "all bad", "at all : bad", "a bad bad film"]
OTHER = ["the train is late", "a late train", "late again !", "is the train late"]


Ngrams = list[NgramWeight]


def top_of(groups: list[list[str]], *, shown: list[str], top_k: int = 6) -> list[Ngrams]:
    """The top features of a model whose classes have these texts.

    Args:
        groups: the texts of each class.
        shown: the texts in which pairs are looked up.
        top_k: the most n-grams of a class.
    """
    texts = [text for group in groups for text in group]
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    tokenizer = train_tokenizer(texts, TokenizerConfig(min_frequency=1))
    options = LinearOptions(16, True, np.ones(len(groups), dtype=np.float32))
    counted = CountedTexts.of(tokenize(tokenizer, texts, max_seq_len=16), labels, options)
    linear, _ = fit_linear(counted)

    return top_features(
        linear,
        tokenize(tokenizer, shown, max_seq_len=16),
        num_classes=len(groups),
        top_k=top_k,
        word_of=tokenizer.id_to_token,
    )


@pytest.mark.parametrize("groups", [[GOOD, BAD], [GOOD, BAD, OTHER]])
def test_each_class_has_its_own_words_and_pairs(groups):
    """Also the first of two classes, which have a single classifier."""
    tops = top_of(groups, shown=[*GOOD, *BAD, *OTHER])

    names = [[ngram.ngram for ngram in ngrams] for ngrams in tops]
    assert {"great", "not bad"} <= set(names[0])
    assert "^ bad" in names[1] or "bad film" in names[1]
    assert "not bad" not in names[1]
    if len(groups) == 3:
        assert {"late", "train"} <= set(names[2])

    for ngrams in tops:
        weights = [ngram.weight for ngram in ngrams]
        assert len(ngrams) == 6
        assert weights == sorted(weights, reverse=True)
        assert min(weights) > 0


def test_pairs_are_those_of_the_given_texts():
    """The model has only their hashes."""
    without_texts, _ = top_of([GOOD, BAD], shown=[], top_k=50)
    with_one_text, _ = top_of([GOOD, BAD], shown=["this is not bad"], top_k=50)

    assert not any(" " in ngram.ngram for ngram in without_texts)
    pairs = [ngram.ngram for ngram in with_one_text if " " in ngram.ngram]
    assert pairs == ["not bad"]


def test_numbers_are_left_out():
    """The number of an order speaks for a class by chance."""
    groups = [["order 4711 late", "order 4711 gone"], ["refund 2 me", "refund covid19"]]
    orders, refunds = top_of(groups, shown=[text for group in groups for text in group], top_k=50)

    words = {word for ngram in [*orders, *refunds] for word in ngram.ngram.split()}
    assert {"order", "refund", "covid19"} <= words
    assert not {"4711", "2"} & words


def test_pairs_with_punctuation_or_unknown_words_are_left_out():
    tops = top_of([GOOD, BAD], shown=[*GOOD, *BAD, "zzz bad", "bad zzz"], top_k=100)

    for ngrams in tops:
        for ngram in ngrams:
            words = ngram.ngram.split()
            assert "[UNK]" not in words
            if len(words) > 1:
                assert not {"!", ",", ":"} & set(words)
