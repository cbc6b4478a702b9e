"""The architecture of an encoder: its settings, and the shapes of its weights."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import pytest

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.transformer import EncoderClassifier

SETTINGS = {
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "d_ff": 12,
    "max_seq_len": 16,
    "norm": "pre",
    "activation": "gelu",
    "positions": "sinusoidal",
    "char_ngram_buckets": 32,
    "bigram_buckets": 16,
}

# All combinations of the settings that add weights or leave them out.
VALUES = list(
    itertools.product(["pre", "post"], ["sinusoidal", "learned", "none"], [0, 32], [0, 16])
)


@pytest.mark.parametrize(("norm", "positions", "char_ngram_buckets", "bigram_buckets"), VALUES)
def test_the_weights_are_those_of_the_model(norm, positions, char_ngram_buckets, bigram_buckets):
    settings = SETTINGS | {
        "norm": norm,
        "positions": positions,
        "char_ngram_buckets": char_ngram_buckets,
        "bigram_buckets": bigram_buckets,
    }
    config = ModelConfig(**settings)
    architecture = EncoderArchitecture.of(config)
    model = EncoderClassifier(config, vocab_size=10, num_classes=3)

    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert asdict(architecture) == settings
    assert architecture.weight_shapes(vocab_size=10, num_classes=3) == expected


def invalid_settings():
    for name in ("d_model", "num_layers", "max_seq_len"):
        for value in (0, -1, 1.0, True, "8", None):
            yield pytest.param(
                {name: value}, "expected a whole number from 1", id=f"{name}={value}"
            )

    for name in ("char_ngram_buckets", "bigram_buckets"):
        for value in (-1, 2.0, False):
            yield pytest.param(
                {name: value}, "expected a whole number from 0", id=f"{name}={value}"
            )

    for name in ("norm", "activation", "positions"):
        for value in ("other", None, 1):
            yield pytest.param({name: value}, "expected one of", id=f"{name}={value}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *invalid_settings(),
        ({"num_heads": 3}, "d_model 8 is not divisible by num_heads 3"),
        ({"d_model": 7, "num_heads": 7}, "need an even d_model, not 7"),
        ({"num_layers": 10**9}, "num_layers 1,000,000,000 is more than 256"),
        ({"max_seq_len": 10**9}, "more than 2 GiB"),
        ({"d_model": 64, "num_heads": 64, "max_seq_len": 65_536}, "more than 2 GiB"),
    ],
)
def test_settings_that_no_encoder_has_are_refused(settings, message):
    """They are refused before anything is made of them, however large it would be."""
    with pytest.raises(ValueError, match=message):
        EncoderArchitecture(**SETTINGS | settings)


@pytest.mark.parametrize(("num_heads", "max_seq_len"), [(8, 8192), (4, 11_585), (2, 16_384)])
def test_an_encoder_that_can_be_trained_can_be_loaded(num_heads, max_seq_len):
    """The config and the model folder have one limit of the attention to one text."""
    config = ModelConfig(num_heads=num_heads, max_seq_len=max_seq_len)
    assert EncoderArchitecture.of(config).max_seq_len == max_seq_len

    with pytest.raises(ValueError, match="tokens are the most"):
        ModelConfig(num_heads=num_heads, max_seq_len=max_seq_len + 1)
    with pytest.raises(ValueError, match="more than 2 GiB"):
        EncoderArchitecture(**SETTINGS | {"num_heads": num_heads, "max_seq_len": max_seq_len + 1})
