"""The encoder in NumPy and in PyTorch: equal logits, and the choice of the quicker engine."""

from __future__ import annotations

import copy
import functools
import logging
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.tokenizer import train_tokenizer
from tokenizers import Tokenizer

from encoder_cls.config.schema import ModelConfig, TokenizerConfig
from encoder_cls.encoder import engine_choice
from encoder_cls.encoder.engine_choice import AutomaticEncoder, multiplications
from encoder_cls.encoder.numpy_encoder import NumpyEncoder
from encoder_cls.encoder.torch_encoder import TorchEncoder, make_batch
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.system.row_text import row_text
from encoder_cls.system.stop import checking
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import FEATURE

TEXTS = [
    "rain and snow today",
    "",
    "a big soup with zzz",
    "ball " * 40,
    "我爱 カナ",
    "🙂 [PAD] \ud800",
]


SMALLEST = ModelConfig(d_model=8, num_layers=1, num_heads=1, d_ff=8, max_seq_len=8)


@functools.cache
def tokenizer_of(kind: str) -> Tokenizer:
    return train_tokenizer(TEXTS[:4], TokenizerConfig(type=kind, max_vocab_size=60))


def both_encoders(
    config: ModelConfig, kind: str = "word_level"
) -> tuple[TorchEncoder, NumpyEncoder]:
    """An encoder whose random weights are so large that each part has an effect."""
    torch.manual_seed(0)
    vocab_size = tokenizer_of(kind).get_vocab_size()
    model = EncoderClassifier(config, vocab_size=vocab_size, num_classes=3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)

    by_torch = TorchEncoder(model.eval(), config)
    by_numpy = NumpyEncoder(by_torch.architecture, by_torch.named_weights())
    return by_torch, by_numpy


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    norm=st.sampled_from(["pre", "post"]),
    activation=st.sampled_from(["relu", "gelu"]),
    positions=st.sampled_from(["sinusoidal", "learned", "none"]),
    pooling=st.sampled_from(["mean", "cls", "max"]),
    char_ngram_buckets=st.sampled_from([0, 64]),
    bigram_buckets=st.sampled_from([0, 32]),
    num_layers=st.integers(1, 3),
    num_heads=st.sampled_from([1, 2, 8]),
    kind=st.sampled_from(["word_level", "word_piece", "bpe", "unigram"]),
    texts=st.lists(st.sampled_from(TEXTS) | st.text(max_size=30), min_size=1, max_size=5),
    batch_tokens=st.sampled_from([None, 1, 40]),
)
def test_logits_vectors_and_maps_are_those_of_torch(kind, texts, batch_tokens, **model):
    """NumPy and PyTorch agree for all settings, sub-words, scripts, empty texts and batch sizes."""
    config = ModelConfig(d_model=16, d_ff=24, max_seq_len=16, **model)
    by_torch, by_numpy = both_encoders(config, kind)
    tokenized = tokenize(tokenizer_of(kind), texts, max_seq_len=16)

    expected_logits = by_torch.logits(tokenized)
    logits = by_numpy.logits(tokenized, batch_tokens=batch_tokens)
    assert_close(logits, expected_logits)
    assert np.ptp(expected_logits) > 0.01

    expected_vectors = by_torch.embed(tokenized)
    vectors = by_numpy.embed(tokenized, batch_tokens=batch_tokens)
    assert_close(vectors, expected_vectors)

    # The vectors are what the head reads.
    weights = by_numpy.named_weights()
    logits_of_vectors = vectors @ weights["head.linear.weight"].T + weights["head.linear.bias"]
    assert_close(logits_of_vectors, expected_logits)

    first = tokenized[:1]
    assert_close(by_numpy.attention_maps(first), by_torch.attention_maps(first))


def assert_close(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_activations_are_right_far_from_zero(activation):
    """The formula of the error function is as exact at both ends as near zero."""
    config = ModelConfig(
        d_model=8, num_layers=1, num_heads=1, d_ff=64, max_seq_len=8, activation=activation
    )
    by_torch, _ = both_encoders(config)
    weights = by_torch.named_weights()
    biases = np.linspace(-12, 12, 64, dtype=np.float32)
    weights["encoder.layers.0.feed_forward.up_proj.bias"] = biases
    tensors = {name: torch.from_numpy(weight) for name, weight in weights.items()}
    by_torch.model.load_state_dict(tensors)
    by_numpy = NumpyEncoder(by_torch.architecture, weights)
    tokenized = tokenize(tokenizer_of("word_level"), TEXTS, max_seq_len=8)

    logits = by_numpy.logits(tokenized)

    np.testing.assert_allclose(logits, by_torch.logits(tokenized), rtol=1e-5, atol=1e-5)


def test_a_stop_is_noticed_after_each_batch():
    """Long work can therefore be stopped, and its progress can be shown."""
    _, encoder = both_encoders(SMALLEST)
    tokenized = tokenize(tokenizer_of("word_level"), TEXTS, max_seq_len=8)
    checks = []

    with checking(lambda: checks.append("check")):
        encoder.logits(tokenized, batch_tokens=1)

    assert len(checks) == len(TEXTS)


def test_no_texts_have_no_logits():
    tokenized = tokenize(tokenizer_of("word_level"), [], max_seq_len=8)

    for encoder in both_encoders(SMALLEST):
        assert encoder.logits(tokenized).shape == (0, 3)


@pytest.fixture
def encoder(classifier) -> AutomaticEncoder:
    """A new encoder, which has done no work yet."""
    by_numpy = NumpyEncoder(classifier.encoder.architecture, classifier.encoder.named_weights())
    return AutomaticEncoder(by_numpy, device="cpu")


@pytest.fixture
def engines_used(monkeypatch) -> list[str]:
    """The engines that have computed logits."""
    used: list[str] = []

    def record(encoder_class: type) -> None:
        compute = encoder_class.logits

        def recorded(self, texts, **options):
            used.append(self.engine)
            return compute(self, texts, **options)

        monkeypatch.setattr(encoder_class, "logits", recorded)

    record(NumpyEncoder)
    record(TorchEncoder)
    return used


def test_few_texts_are_predicted_by_numpy_and_many_by_torch(
    classifier, encoder, engines_used, monkeypatch, caplog
):
    """Earlier calls do not matter, so that equal calls have equal predictions."""
    few = classifier.tokenize(["rain and snow today", "", "soup with zzz"])
    many = classifier.tokenize(["rain and snow today", "", "soup with zzz"] * 3)
    work = multiplications(encoder.architecture, few.lengths)
    monkeypatch.setattr(engine_choice, "BREAK_EVEN", 2.5 * work)
    caplog.set_level(logging.DEBUG, logger="encoder_cls")

    for texts in (few, few, few, many, few, many):
        encoder.logits(texts)

    assert engines_used == ["numpy", "numpy", "numpy", "torch", "numpy", "torch"]
    assert [record.message for record in caplog.records] == ["engine: PyTorch"]


@pytest.mark.parametrize(("num_tokens", "engine"), [(0, "numpy"), (1_000_000, "torch")])
def test_one_engine_predicts_a_stream_however_it_is_cut(
    classifier, encoder, engines_used, monkeypatch, num_tokens, engine
):
    """The engine is chosen at the start by the size of the stream; copies for workers keep it."""
    few = classifier.tokenize(["rain and snow today"])
    many = classifier.tokenize(["rain and snow today"] * 9)
    work = multiplications(encoder.architecture, few.lengths)
    monkeypatch.setattr(engine_choice, "BREAK_EVEN", 2.5 * work)

    encoder.choose_engine(num_tokens)
    worker = copy.copy(encoder)
    for texts in (few, many):
        encoder.logits(texts)
        worker.logits(texts)

    assert encoder.engine == engine
    assert engines_used == [engine] * 4


@pytest.mark.parametrize(
    ("fraction", "num_processes", "engine"),
    [
        pytest.param(1.0, 1, "torch", id="much work"),
        pytest.param(0.2, 1, "numpy", id="the gate leaves little of it"),
        pytest.param(1.0, 8, "numpy", id="many processes have little of it each"),
    ],
)
def test_pytorch_predicts_a_stream_where_it_saves_more_time_than_its_import_takes(
    encoder, monkeypatch, fraction, num_processes, engine
):
    """Each process imports it, and computes only the texts that the gate leaves."""
    architecture = encoder.architecture
    work = multiplications(architecture, np.full(1, architecture.max_seq_len))
    monkeypatch.setattr(engine_choice, "BREAK_EVEN", work)
    automatic = AutomaticEncoder(NumpyEncoder(architecture, encoder.named_weights()), device="cpu")

    automatic.choose_engine(
        4 * architecture.max_seq_len,
        fraction_computed=lambda: fraction,
        num_processes=num_processes,
    )

    assert automatic.engine == engine


@pytest.mark.parametrize(
    ("device", "texts", "fraction", "device_used"),
    [
        pytest.param("auto", 8, 1.0, "cuda", id="much work"),
        pytest.param("auto", 8, 0.4, "cpu", id="much work, but the gate leaves little of it"),
        pytest.param("auto", 4, 1.0, "cpu", id="less work"),
        pytest.param("cpu", 8, 1.0, "cpu", id="a person has named the CPU"),
    ],
)
def test_a_gpu_is_used_where_it_saves_more_time_than_its_start_takes(
    classifier, encoder, monkeypatch, device, texts, fraction, device_used
):
    """The work of processes on the CPU counts: with two of them, a GPU needs twice the work."""
    architecture = encoder.architecture
    work = multiplications(architecture, np.full(1, architecture.max_seq_len))
    monkeypatch.setattr(engine_choice, "has_gpu", lambda: True)
    monkeypatch.setattr(engine_choice, "usable_processes", lambda: 2)
    monkeypatch.setattr(engine_choice, "BREAK_EVEN", work)
    monkeypatch.setattr(engine_choice, "GPU_BREAK_EVEN", 2.5 * work)
    chosen = AutomaticEncoder(NumpyEncoder(architecture, encoder.named_weights()), device=device)

    chosen.choose_engine(texts * architecture.max_seq_len, fraction_computed=lambda: fraction)

    assert chosen.uses_gpu == (device_used == "cuda")
    assert chosen.engine == "torch"


def test_a_gpu_is_not_looked_for_where_there_is_little_work(encoder, monkeypatch):
    """To look for it would import PyTorch."""
    automatic = AutomaticEncoder(
        NumpyEncoder(encoder.architecture, encoder.named_weights()), device="auto"
    )
    monkeypatch.setattr(engine_choice, "has_gpu", lambda: pytest.fail("looked for a GPU"))

    automatic.choose_engine(1000, fraction_computed=lambda: pytest.fail("asked"))

    assert automatic.engine == "numpy"
    assert not automatic.uses_gpu


def test_pytorch_predicts_in_float32_where_bfloat16_is_fast_or_switched_on(
    classifier, encoder, monkeypatch
):
    """A caller's block of `torch.autocast` does not change the precision."""
    tokenized = classifier.tokenize(["rain and snow today", "", "soup with zzz"])
    expected = encoder.logits(tokenized)

    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: True, raising=False)
    by_torch = encoder.torch()
    assert_close(by_torch.logits(tokenized), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(by_torch.logits(tokenized), expected)


# A program that predicts on two threads, forks, and predicts in the child.
FORKING = """
import os, signal, sys, torch
from encoder_cls import load_classifier

torch.set_num_threads(2)
classifier = load_classifier(sys.argv[1])
classifier.encoder = classifier.encoder.torch()
texts = ["rain and snow today"] * 300
classifier.predict(texts)

child = os.fork()
if child == 0:
    signal.alarm(5)
    classifier.predict(texts)
    os._exit(0)
print(os.waitpid(child, 0)[1], torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_predicts(trained_run):
    """The child predicts although PyTorch has predicted on several threads before the fork."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, trained_run.path], capture_output=True, check=True
    )

    assert ended.stdout == b"0 2\n"


def test_features_have_no_positions_and_make_no_pairs():
    """Words have the positions, and the pairs, that they would have without features."""
    rows = [row_text([("text", text)], {"size": size}) for size, text in enumerate(TEXTS * 4)]
    tokenizer = train_tokenizer(rows, TokenizerConfig())
    config = ModelConfig(d_model=8, num_layers=1, num_heads=1, d_ff=8, max_seq_len=64, norm="post")
    torch.manual_seed(0)
    model = EncoderClassifier(config, vocab_size=tokenizer.get_vocab_size(), num_classes=3).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    row = rows[-6]
    tokenized = tokenize(tokenizer, [row], max_seq_len=64)
    is_text = tokenized.kinds_of(np.arange(len(tokenized.words))) != FEATURE
    without = replace(
        tokenized,
        words=tokenized.words[is_text],
        offsets=np.array([0, is_text.sum()]),
        kinds=None,
    )

    def vectors(texts):
        batch = make_batch(texts, [0])
        return model.encoder.embedding(batch.input_ids, batch.char_ngrams)[0].detach()

    features = ~is_text
    assert features.sum() > 5
    np.testing.assert_allclose(vectors(tokenized)[is_text], vectors(without))
    ids = torch.from_numpy(tokenized.input_ids()[features].astype(np.int64))
    np.testing.assert_allclose(
        vectors(tokenized)[features], model.encoder.embedding.tokens(ids).detach()
    )

    by_torch = TorchEncoder(model, config)
    by_numpy = NumpyEncoder(by_torch.architecture, by_torch.named_weights())
    several = tokenize(tokenizer, rows, max_seq_len=64)
    assert_close(by_numpy.logits(several), by_torch.logits(several))
