"""The shape of an encoder that trains in a second."""

from __future__ import annotations

from typing import Any

from encoder_cls.config.schema import ModelConfig

# Keys of `model` in a config.
SHAPE = {
    "d_model": 16,
    "num_layers": 1,
    "num_heads": 2,
    "d_ff": 32,
    "max_seq_len": 16,
    "char_ngram_buckets": 64,
    "bigram_buckets": 64,
}

# The same as settings: `model.d_model` and so on.
SHAPE_SETTINGS = {f"model.{key}": value for key, value in SHAPE.items()}


def tiny_model_config(**changes: Any) -> ModelConfig:
    """A config of a tiny encoder with some values changed."""
    return ModelConfig(**SHAPE | changes)
