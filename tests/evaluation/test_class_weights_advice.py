"""Balanced class weights are suggested only if they help by more than chance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation import class_weights_advice
from encoder_cls.evaluation.class_weights_advice import class_weights_note
from encoder_cls.text.tokenizer import tokenize


def note_on_classes(sizes: Sequence[int], *, overlap: float) -> str:
    """Return the note for classes of these sizes, each of which has twelve words of its own.

    With the probability `overlap`, a word of a text is one of a random class.
    """
    random = np.random.default_rng(0)
    num_classes = len(sizes)
    labels = random.permutation(np.repeat(np.arange(num_classes), sizes))

    texts = []
    for label in labels:
        words = []
        for _ in range(4):
            word_class = label
            if random.random() <= overlap:
                word_class = random.integers(num_classes)
            words.append(f"w{12 * word_class + random.integers(12)}")
        texts.append(" ".join(words))

    tokenizer = train_tokenizer(texts, TokenizerConfig())
    tokens = tokenize(tokenizer, texts, max_seq_len=16)
    words_only = SimpleNamespace(max_tokens=16, frequent_token_ids=[], knows_feature_pairs=False)
    split = Split(texts=texts, labels=labels, where=texts)
    return class_weights_note(split, tokens, words_only)


def test_balanced_weights_are_suggested_if_rare_classes_are_missed():
    """The note gives macro-F1 and accuracy without and with balanced weights."""
    note = note_on_classes((800, 60, 60), overlap=0.55)

    assert note.startswith(
        "classes are skewed (60 to 800 texts), and --set train.class_weights=balanced may help"
    )
    before, after = re.search(r"macro-F1 ([\d.]+)% -> ([\d.]+)%, accuracy", note).groups()
    assert float(after) > float(before) + 2


@pytest.mark.parametrize(
    ("sizes", "overlap"),
    [
        pytest.param((300, 300, 200), 0.6, id="not skewed"),
        pytest.param((800, 60, 60), 0.0, id="all are found"),
        pytest.param((800, 60, 60), 1.0, id="nothing can be found"),
        pytest.param((30, 3, 3), 0.5, id="too few texts"),
    ],
)
def test_there_is_no_note_if_balanced_weights_would_not_help(sizes, overlap):
    assert note_on_classes(sizes, overlap=overlap) == ""


def test_a_sample_of_many_texts_is_cross_validated(monkeypatch):
    """Here it has 1,000 tokens: 200 texts are too few to show that balanced weights help."""
    monkeypatch.setattr(class_weights_advice, "MAX_WORK", 6000)

    assert note_on_classes((800, 60, 60), overlap=0.55) == ""


def test_no_weights_are_tried_with_fewer_texts_than_classes(monkeypatch):
    """With 30,000 classes, the sample of a run would have no text at all."""
    monkeypatch.setattr(class_weights_advice, "MAX_WORK", 2)

    assert note_on_classes((800, 60, 60), overlap=0.55) == ""
