"""Texts of words of syllables, in which each class prefers words of its own, and fits to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.features import CountedTexts, LinearOptions
from encoder_cls.linear_training.model_selection import fit_linear
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

MAX_SEQ_LEN = 12
SYLLABLES = ["ba", "ko", "ri", "tu", "en", "sol", "mir", "da", "pe", "lo"]


class Corpus(NamedTuple):
    """Texts with their classes."""

    texts: tuple[str, ...]
    labels: NDArray[np.int64]


@functools.cache
def corpus(num_classes: int, size: int = 90) -> Corpus:
    """Texts in which each class prefers words of its own, with much noise; some texts are empty."""
    random = np.random.default_rng(num_classes)
    words = []
    for _ in range(60):
        syllables = random.choice(SYLLABLES, size=random.integers(1, 4))
        words.append("".join(syllables))

    labels = np.arange(size) % num_classes
    texts = []
    for label in labels:
        class_words = random.choice(words[label * 5 : label * 5 + 8], size=2)
        other_words = random.choice(words, size=random.integers(0, 5))
        text = ""
        if random.random() > 0.04:
            text = " ".join(random.permutation([*class_words, *other_words]))
        texts.append(text)
    return Corpus(tuple(texts), labels)


class Reader:
    """Tokenizes texts by the words of some texts."""

    def __init__(self, texts: Sequence[str], *, max_vocab_size: int = 30_000) -> None:
        config = TokenizerConfig(max_vocab_size=max_vocab_size)
        self.tokenizer = train_tokenizer(texts, config)

    def __call__(self, texts: Sequence[str], *, max_seq_len: int = MAX_SEQ_LEN) -> TokenizedTexts:
        return tokenize(self.tokenizer, texts, max_seq_len=max_seq_len)


def options_for(
    num_classes: int,
    *,
    char_ngrams: bool = False,
    class_weights: Sequence[float] | None = None,
    max_tokens: int = MAX_SEQ_LEN,
) -> LinearOptions:
    """Options of a linear model, by default with equal weights of the classes."""
    if class_weights is None:
        class_weights = [1.0] * num_classes
    return LinearOptions(max_tokens, char_ngrams, np.array(class_weights, dtype=np.float32))


def fit(
    read: Callable[[Sequence[str]], TokenizedTexts],
    texts: Sequence[str],
    labels: NDArray[np.int64],
    **options: Any,
) -> LinearModel:
    """Fit a linear model, cross-validated; options are those of `options_for`."""
    linear_options = options_for(len(set(labels)), **options)
    linear, _ = fit_linear(CountedTexts.of(read(texts), labels, linear_options))
    return linear
