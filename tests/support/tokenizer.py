"""Tokenizers of a few texts, and of the bundled example."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tokenizers import Tokenizer

from encoder_cls.config.schema import DataConfig, TokenizerConfig
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.text.tokenizer_training import train_and_tokenize


def train_tokenizer(texts: Sequence[str], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer trained on whole texts, however long."""
    tokenizer, _, _ = train_and_tokenize(texts, config, max_seq_len=1 << 20)
    return tokenizer


@functools.cache
def example_texts() -> list[str]:
    """The training texts of the bundled example."""
    return list(load_dataset(DataConfig(train="example:train")).train.texts)


@functools.cache
def example_tokenizer(kind: str) -> Tokenizer:
    """A tokenizer with 600 tokens of the bundled example. Not to be changed."""
    return train_tokenizer(example_texts(), TokenizerConfig(type=kind, max_vocab_size=600))
