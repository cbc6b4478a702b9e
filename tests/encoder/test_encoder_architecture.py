"""The architecture of an encoder: its settings, and the shapes of its weights."""

from __future__ import annotations

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
    "pooling": "max",
}


@pytest.mark.parametrize("bigram_buckets", [0, 16])
@pytest.mark.parametrize("char_ngram_buckets", [0, 32])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_weights_are_those_of_the_model(norm, positions, char_ngram_buckets, bigram_buckets):
    """The shapes are equal for all settings that add weights or leave weights out."""
    settings = SETTINGS | {
        "norm": norm,
        "positions": positions,
        "char_ngram_buckets": char_ngram_buckets,
        "bigram_buckets": bigram_buckets,
    }
    config = ModelConfig(**settings)
    model = EncoderClassifier(config, vocab_size=10, num_classes=3)

    architecture = EncoderArchitecture.of(config)

    assert asdict(architecture) == settings
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert architecture.weight_shapes(vocab_size=10, num_classes=3) == expected


def check_refused(message: str, **settings: object) -> None:
    with pytest.raises(ValueError, match=message):
        EncoderArchitecture(**SETTINGS | settings)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "8", None])
@pytest.mark.parametrize("name", ["d_model", "num_layers", "max_seq_len"])
def test_a_size_is_a_whole_number_from_1(name, value):
    check_refused("expected a whole number from 1", **{name: value})


@pytest.mark.parametrize("value", [-1, 2.0, False])
@pytest.mark.parametrize("name", ["char_ngram_buckets", "bigram_buckets"])
def test_the_size_of_a_table_that_can_be_left_out_is_a_whole_number_from_0(name, value):
    check_refused("expected a whole number from 0", **{name: value})


@pytest.mark.parametrize("value", ["other", None, 1])
@pytest.mark.parametrize("name", ["norm", "activation", "positions", "pooling"])
def test_a_setting_of_a_few_values_has_one_of_them(name, value):
    check_refused("expected one of", **{name: value})


def test_an_encoder_that_names_no_pooling_has_the_mean():
    """The first models were saved before there was a choice."""
    settings = {name: value for name, value in SETTINGS.items() if name != "pooling"}

    assert EncoderArchitecture(**settings).pooling == "mean"


def test_sizes_that_do_not_fit_each_other_are_refused():
    check_refused("d_model 8 is not divisible by num_heads 3", num_heads=3)
    check_refused("need an even d_model, not 7", d_model=7, num_heads=7)


def test_an_encoder_that_is_too_large_is_refused():
    """The settings are refused before any array is made of their sizes."""
    check_refused("num_layers 1,000,000,000 is more than 256", num_layers=10**9)
    check_refused("more than 2 GiB", max_seq_len=10**9)
    check_refused("more than 2 GiB", d_model=64, num_heads=64, max_seq_len=65_536)


@pytest.mark.parametrize(("num_heads", "max_seq_len"), [(8, 8192), (4, 11_585), (2, 16_384)])
def test_an_encoder_that_can_be_trained_can_be_loaded(num_heads, max_seq_len):
    """Config and model folder have the same limit of the attention scores of a text."""
    config = ModelConfig(num_heads=num_heads, max_seq_len=max_seq_len)
    assert EncoderArchitecture.of(config).max_seq_len == max_seq_len

    with pytest.raises(ValueError, match=r"the maximum is [\d,]+ tokens"):
        ModelConfig(num_heads=num_heads, max_seq_len=max_seq_len + 1)
    check_refused("more than 2 GiB", num_heads=num_heads, max_seq_len=max_seq_len + 1)
