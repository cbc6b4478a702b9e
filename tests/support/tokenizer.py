"""Tokenizers of a few texts."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.text.tokenizer_training import train_and_tokenize


def train_tokenizer(texts: Sequence[str], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer trained on whole texts, however long."""
    tokenizer, _, _ = train_and_tokenize(texts, config, max_seq_len=1 << 20)
    return tokenizer
