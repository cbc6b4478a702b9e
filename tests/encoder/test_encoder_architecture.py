"""The shape of an encoder and of its weights, and batches by length."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import numpy as np
import pytest

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder.architecture import EncoderArchitecture, by_length
from encoder_cls.encoder.transformer import EncoderClassifier

SHAPE = {
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
KNOBS = ("norm", "positions", "char_ngram_buckets", "bigram_buckets")
VALUES = [*itertools.product(["pre", "post"], ["sinusoidal", "learned", "none"], [0, 32], [0, 16])]


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_the_weights_are_those_of_the_model(values):
    chosen = dict(zip(KNOBS, values, strict=True))
    config = ModelConfig(**SHAPE | chosen)
    architecture = EncoderArchitecture.of(config)
    assert asdict(architecture) == SHAPE | chosen
    model = EncoderClassifier(config, vocab_size=10, num_classes=3)
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert architecture.weight_shapes(vocab_size=10, num_classes=3) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {name: it}
            for name in ("d_model", "num_layers", "max_seq_len")
            for it in (0, -1, 1.0, True, "8", None)
        ),
        *(
            {name: it}
            for name in ("char_ngram_buckets", "bigram_buckets")
            for it in (-1, 2.0, False)
        ),
        *({name: it} for name in ("norm", "activation", "positions") for it in ("other", None, 1)),
        {"num_heads": 3},
        {"d_model": 7, "num_heads": 7},
        {"num_layers": 10**9},
        {"max_seq_len": 10**9},
        {"d_model": 64, "num_heads": 64, "max_seq_len": 65_536},
    ],
    ids=str,
)
def test_a_shape_that_no_encoder_has_is_refused(wrong):
    """Before anything is made of it, however large it would be."""
    with pytest.raises(
        ValueError, match=r"not one of|not a whole number|are the most|more than 2 GiB|does not fit"
    ):
        EncoderArchitecture(**SHAPE | wrong)


@pytest.mark.parametrize("shape", [(8, 8192), (4, 11_585), (2, 16_384)], ids=str)
def test_an_encoder_that_can_be_trained_can_be_loaded(shape):
    """The config and the model folder have one limit of the attention to one text."""
    num_heads, max_seq_len = shape
    config = ModelConfig(num_heads=num_heads, max_seq_len=max_seq_len)

    assert EncoderArchitecture.of(config).max_seq_len == max_seq_len

    with pytest.raises(ValueError, match="tokens are the most"):
        ModelConfig(num_heads=num_heads, max_seq_len=max_seq_len + 1)
    with pytest.raises(ValueError, match="more than 2 GiB"):
        EncoderArchitecture(**SHAPE | {"num_heads": num_heads, "max_seq_len": max_seq_len + 1})


LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_inference_batches_hold_every_text_once_longest_first(batch_tokens):
    batches = by_length(LENGTHS, batch_tokens=batch_tokens)
    assert sorted(np.concatenate([indices for indices, _ in batches]).tolist()) == list(
        range(len(LENGTHS))
    )
    assert all(length >= LENGTHS[indices].max() for indices, length in batches)
    assert all(
        len(indices) == 1 or len(indices) * length <= batch_tokens for indices, length in batches
    )
    padded = [length for _, length in batches]
    assert padded == sorted(padded, reverse=True)
    assert padded[0] == LENGTHS.max()  # never longer than the model reads
    assert by_length(np.zeros(0, dtype=np.int64), batch_tokens=8) == []
