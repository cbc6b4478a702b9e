"""Which engine answers: NumPy a few texts, PyTorch many where it is installed; the answers are the same."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from encoder_cls.inference.encoder import auto as auto_engine
from encoder_cls.inference.encoder.auto import AutoEncoder, multiplications
from encoder_cls.inference.encoder.numpy import NumpyEncoder
from encoder_cls.inference.encoder.torch import TorchEncoder, torch_encoder

TEXTS = ["rain and snow today", "", "soup with zzz"]


FORKING = """
import os, signal, sys, threading, torch
from encoder_cls import load_classifier
from encoder_cls.inference.encoder import auto as auto_engine
torch.set_num_threads(2)
classifier, texts, held = load_classifier(sys.argv[1]), ["rain and snow today"] * 300, threading.Event()
classifier.encoder.torch()
classifier.predict(texts)
def hold():
    with auto_engine._LOCK:
        held.set()
        threading.Event().wait(0.1)
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(5)
    classifier.predict(texts)
    os._exit(0)
print(os.waitpid(child, 0)[1], torch.get_num_threads())
"""


@pytest.fixture
def encoder(classifier) -> AutoEncoder:
    """A new one, which has done no work yet."""
    return AutoEncoder(classifier.encoder.architecture, torch_encoder(classifier).weights(), device="cpu")


@pytest.fixture
def computed_by(monkeypatch) -> list[str]:
    """The engines that have computed logits."""
    called: list[str] = []
    for name, kind in (("numpy", NumpyEncoder), ("torch", TorchEncoder)):
        real = kind.logits
        monkeypatch.setattr(
            kind,
            "logits",
            lambda self, *them, _real=real, _name=name, **it: called.append(_name) or _real(self, *them, **it),
        )
    return called


def test_a_few_texts_are_answered_by_numpy(classifier, encoder, computed_by):
    """PyTorch would take longer to load than they all take."""
    encoder.logits(classifier.tokenize(TEXTS))
    assert computed_by == ["numpy"]


def test_many_texts_are_answered_by_torch(classifier, encoder, computed_by, monkeypatch, caplog):
    """At once, or where many have come one by one; whoever asks for it is told."""
    tokenized = classifier.tokenize(TEXTS)
    work = multiplications(encoder.architecture, tokenized.lengths)
    monkeypatch.setattr(auto_engine, "BREAK_EVEN", 2.5 * work)
    caplog.set_level(logging.DEBUG, logger="encoder_cls")
    answers = [encoder.logits(tokenized) for _ in range(5)]
    assert computed_by == ["numpy"] * 3 + ["torch"] * 2
    assert [record.message.partition(",")[0] for record in caplog.records] == ["engine: PyTorch"]
    np.testing.assert_allclose(answers[-1], answers[0], atol=0.05)
    monkeypatch.setattr(auto_engine, "BREAK_EVEN", 0.5 * work)
    computed_by.clear()
    AutoEncoder(encoder.architecture, encoder.weights(), device="cpu").logits(tokenized)
    assert computed_by == ["torch"]


def test_where_torch_is_not_installed_numpy_answers_all(classifier, encoder, computed_by, monkeypatch):
    """However many."""
    monkeypatch.setattr(auto_engine, "BREAK_EVEN", 0)
    monkeypatch.setattr(auto_engine, "is_installed", lambda _: False)
    encoder.logits(classifier.tokenize(TEXTS))
    assert computed_by == ["numpy"]


def test_the_work_is_what_the_layers_multiply(classifier):
    """By hand: four matrices of attention and two of feed-forward for each token, and two products for each pair."""
    architecture = classifier.encoder.architecture
    width, inner, layers = architecture.d_model, architecture.d_ff, architecture.num_layers
    by_hand = layers * (5 * (4 * width**2 + 2 * width * inner) + (9 + 4) * 2 * width)
    assert multiplications(architecture, np.array([3, 2])) == by_hand


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_answers(trained_run):
    """After PyTorch has answered on several threads, and while another thread chooses an engine."""
    ended = subprocess.run([sys.executable, "-c", FORKING, trained_run.path], capture_output=True, check=True)
    assert ended.stdout == b"0 2\n"
