"""Balanced class weights are suggested where they help by more than chance, and not otherwise."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.data.dataset import Split
from encoder_cls.linear import nb_svm as class_weight_check
from encoder_cls.linear.nb_svm import class_weights_note
from encoder_cls.text.tokenizer import tokenize


def note(*, sizes: tuple[int, ...], overlap: float, seed: int = 0) -> str:
    """What is said of texts of so many of each class, whose words are other classes' as often as `overlap`."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    texts = [
        " ".join(
            f"w{(label if random.random() > overlap else random.integers(len(sizes))) * 12 + random.integers(12)}"
            for _ in range(4)
        )
        for label in labels
    ]
    tokenized = tokenize(train_tokenizer(texts, TokenizerConfig()), texts, max_seq_len=16)
    words_only = SimpleNamespace(max_tokens=16, frequent_token_ids=[])
    return class_weights_note(Split(texts=texts, labels=labels, where=texts), tokenized, words_only)


def test_it_is_suggested_where_rare_classes_are_missed():
    """With what it brings to macro-F1, and what it costs in accuracy."""
    found = note(sizes=(800, 60, 60), overlap=0.55)
    assert found.startswith(
        "classes are skewed (60 to 800 texts), and --set train.class_weights=balanced may help"
    )
    before, after = map(
        float, re.search(r"macro-F1 ([\d.]+)% -> ([\d.]+)%, accuracy", found).groups()
    )
    assert after > before + 2


@pytest.mark.parametrize(
    ("sizes", "overlap"),
    [((300, 300, 200), 0.6), ((800, 60, 60), 0.0), ((800, 60, 60), 1.0), ((30, 3, 3), 0.5)],
    ids=["not skewed", "all are found", "nothing can be found", "too few to tell"],
)
def test_nothing_is_said_where_it_would_not_help(sizes, overlap):
    assert note(sizes=sizes, overlap=overlap) == ""


def test_much_text_is_sampled(monkeypatch):
    """So that it takes a second: many classes have fewer texts each, too few here to be sure of anything."""
    monkeypatch.setattr(class_weight_check, "MOST_WORK", 90)
    assert note(sizes=(800, 60, 60), overlap=0.55) == ""
