"""The encoder by NumPy and by PyTorch: equal answers, and the quicker one for the work."""

from __future__ import annotations

import copy
import functools
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import ModelConfig, TokenizerConfig
from encoder_cls.encoder import numpy_encoder as numpy_engine
from encoder_cls.encoder.numpy_encoder import NumpyEncoder, multiplications
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.system.stop import checking
from encoder_cls.text.tokenizer import tokenize

TEXTS = [
    "rain and snow today",
    "",
    "a big soup with zzz",
    "ball " * 40,
    "我爱 カナ",
    "🙂 [PAD] \ud800",
]


@functools.cache
def tokenizer_of(kind: str):
    return train_tokenizer(TEXTS[:4], TokenizerConfig(type=kind, max_vocab_size=60))


def both(
    config: ModelConfig, kind: str = "word_level", seed: int = 0
) -> tuple[TorchEncoder, NumpyEncoder]:
    """An encoder with random weights, large enough that none of its parts is without effect."""
    torch.manual_seed(seed)
    model = EncoderClassifier(config, vocab_size=tokenizer_of(kind).get_vocab_size(), num_classes=3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    by_torch = TorchEncoder(model.eval(), config)
    return by_torch, NumpyEncoder(by_torch.architecture, by_torch.named_weights())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    norm=st.sampled_from(["pre", "post"]),
    activation=st.sampled_from(["relu", "gelu"]),
    positions=st.sampled_from(["sinusoidal", "learned", "none"]),
    char_ngram_buckets=st.sampled_from([0, 64]),
    bigram_buckets=st.sampled_from([0, 32]),
    num_layers=st.integers(1, 3),
    num_heads=st.sampled_from([1, 2, 8]),
    kind=st.sampled_from(["word_level", "word_piece", "bpe", "unigram"]),
    texts=st.lists(st.sampled_from(TEXTS) | st.text(max_size=30), min_size=1, max_size=5),
    batch_tokens=st.sampled_from([None, 1, 40]),
)
def test_logits_vectors_and_maps_are_those_of_torch(kind, texts, batch_tokens, **knobs):
    """Norms, activations, positions, tables on and off, heads, sub-words, scripts, empty texts, any batches."""
    by_torch, by_numpy = both(ModelConfig(d_model=16, d_ff=24, max_seq_len=16, **knobs), kind)
    tokenized = tokenize(tokenizer_of(kind), texts, max_seq_len=16)
    expected = by_torch.logits(tokenized)
    np.testing.assert_allclose(
        by_numpy.logits(tokenized, batch_tokens=batch_tokens), expected, atol=1e-5
    )
    assert np.ptp(expected) > 0.01
    vectors = by_torch.embed(tokenized)
    np.testing.assert_allclose(
        by_numpy.embed(tokenized, batch_tokens=batch_tokens), vectors, atol=1e-5
    )
    head = by_numpy.named_weights()
    np.testing.assert_allclose(
        vectors @ head["head.linear.weight"].T + head["head.linear.bias"], expected, atol=1e-5
    )
    first = tokenized[:1]
    np.testing.assert_allclose(
        by_numpy.attention_maps(first), by_torch.attention_maps(first), atol=1e-5
    )


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_activations_are_right_far_from_zero(activation):
    """The error function is a formula: as exact at both ends as near zero."""
    config = ModelConfig(
        d_model=8, num_layers=1, num_heads=1, d_ff=64, max_seq_len=8, activation=activation
    )
    by_torch, _ = both(config)
    weights = by_torch.named_weights()
    weights["encoder.layers.0.feed_forward.up_proj.bias"] = np.linspace(
        -12, 12, 64, dtype=np.float32
    )
    by_torch.model.load_state_dict(
        {name: torch.from_numpy(weight) for name, weight in weights.items()}
    )
    tokenized = tokenize(tokenizer_of("word_level"), TEXTS, max_seq_len=8)
    found = NumpyEncoder(by_torch.architecture, weights).logits(tokenized)
    np.testing.assert_allclose(found, by_torch.logits(tokenized), rtol=1e-5, atol=1e-5)


def test_a_stop_is_noticed_after_each_batch():
    """So a long work can be ended, and its progress shown."""
    _, encoder = both(ModelConfig(d_model=8, num_layers=1, num_heads=1, d_ff=8, max_seq_len=8))
    tokenized = tokenize(tokenizer_of("word_level"), TEXTS, max_seq_len=8)
    told = []
    with checking(lambda: told.append(1)):
        encoder.logits(tokenized, batch_tokens=1)
    assert len(told) == len(TEXTS)
    assert encoder.logits(tokenized[:0]).shape == (0, 3)


FORKING = """
import os, signal, sys, torch
from encoder_cls import load_classifier
torch.set_num_threads(2)
classifier, texts = load_classifier(sys.argv[1]), ["rain and snow today"] * 300
classifier.encoder = classifier.encoder.torch()
classifier.predict(texts)
child = os.fork()
if child == 0:
    signal.alarm(5)
    classifier.predict(texts)
    os._exit(0)
print(os.waitpid(child, 0)[1], torch.get_num_threads())
"""


@pytest.fixture
def encoder(classifier) -> NumpyEncoder:
    """A new one, which has done no work yet."""
    return NumpyEncoder(
        classifier.encoder.architecture, classifier.encoder.named_weights(), torch_device="cpu"
    )


@pytest.fixture
def computed_by(monkeypatch) -> list[str]:
    """The engines that have computed logits."""
    called: list[str] = []
    by_numpy, by_torch = NumpyEncoder._pooled, TorchEncoder.logits
    monkeypatch.setattr(
        NumpyEncoder, "_pooled", lambda *it: called.append("numpy") or by_numpy(*it)
    )
    monkeypatch.setattr(
        TorchEncoder, "logits", lambda *it, **more: called.append("torch") or by_torch(*it, **more)
    )
    return called


def test_few_texts_are_answered_by_numpy_and_many_by_torch(
    classifier, encoder, computed_by, monkeypatch, caplog
):
    """Whatever came before, so that the same call has the same answers."""
    few = classifier.tokenize(["rain and snow today", "", "soup with zzz"])
    many = classifier.tokenize(["rain and snow today", "", "soup with zzz"] * 3)
    work = multiplications(encoder.architecture, few.lengths)
    monkeypatch.setattr(numpy_engine, "BREAK_EVEN", 2.5 * work)
    caplog.set_level(logging.DEBUG, logger="encoder_cls")
    for texts in (few, few, few, many, few, many):
        encoder.logits(texts)
    assert computed_by == ["numpy", "numpy", "numpy", "torch", "numpy", "torch"]
    assert [record.message for record in caplog.records] == ["engine: PyTorch"]


@pytest.mark.parametrize(("num_tokens", "engine"), [(0, "numpy"), (1_000_000, "torch")])
def test_one_engine_answers_a_stream_however_it_is_cut(
    classifier, encoder, computed_by, monkeypatch, num_tokens, engine
):
    """It is chosen at the start, by the size of the whole."""
    few = classifier.tokenize(["rain and snow today"])
    many = classifier.tokenize(["rain and snow today"] * 9)
    work = multiplications(encoder.architecture, few.lengths)
    monkeypatch.setattr(numpy_engine, "BREAK_EVEN", 2.5 * work)
    encoder.choose_engine(num_tokens)
    of_worker = copy.copy(encoder)
    for texts in (few, many):
        encoder.logits(texts)
        of_worker.logits(texts)
    assert encoder.engine == engine
    assert computed_by == [engine] * 4


def test_pytorch_answers_in_float32_where_bfloat16_is_fast_or_switched_on(
    classifier, encoder, monkeypatch
):
    """Also in a caller's block of `torch.autocast`."""
    tokenized = classifier.tokenize(["rain and snow today", "", "soup with zzz"])
    expected = encoder.logits(tokenized)
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: True, raising=False)
    by_torch = encoder.torch()
    np.testing.assert_allclose(by_torch.logits(tokenized), expected, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_allclose(by_torch.logits(tokenized), expected, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_answers(trained_run):
    """After PyTorch has answered on several threads."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, trained_run.path], capture_output=True, check=True
    )
    assert ended.stdout == b"0 2\n"
