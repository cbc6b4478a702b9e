"""The encoder by PyTorch: batches in tensors, and the weights that a folder holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.tokenizer import train_tokenizer

from encoder_cls.config import TokenizerConfig
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder import batches as collate
from encoder_cls.inference.encoder.torch import TorchEncoder, pad, torch_encoder
from encoder_cls.text.tokenizer import tokenize

TEXTS = ("rain and snow", "", "snow zzz")
TOKENIZED = tokenize(train_tokenizer(TEXTS[:2], TokenizerConfig()), TEXTS, max_seq_len=8)


def test_tensors_hold_what_arrays_do():
    """Ids, mask and the n-grams of each word."""
    indices = np.array([2, 0, 2])
    arrays, tensors = collate.pad(TOKENIZED, indices, 5), pad(TOKENIZED, indices, 5)
    assert tensors.input_ids.tolist() == arrays.input_ids.tolist()
    assert tensors.attention_mask.tolist() == arrays.attention_mask.tolist()
    assert tensors.char_ngrams.words.tolist() == arrays.words.tolist()
    assert tensors.char_ngrams.ngrams.tolist() == arrays.char_ngrams.ngrams.tolist()
    assert tensors.char_ngrams.offsets.tolist() == arrays.char_ngrams.offsets.tolist()
    assert {tensor.dtype for tensor in (tensors.input_ids, *tensors.char_ngrams)} == {torch.int64}


def test_a_batch_moves_as_a_whole():
    """Ids, mask and all three parts of the n-grams go to the device, and nothing else changes."""
    batch = pad(TOKENIZED, np.array([0, 1]))
    moved = batch.to(torch.device("meta"))
    for here, there in zip((*batch[:2], *batch.char_ngrams), (*moved[:2], *moved.char_ngrams), strict=True):
        assert there.device.type == "meta"
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
    assert [tensor.tolist() for tensor in batch.to(torch.device("cpu")).char_ngrams] == [
        tensor.tolist() for tensor in batch.char_ngrams
    ]


def test_an_encoder_is_made_of_its_weights(classifier):
    """Written out as arrays and read again it says the same, bit for bit."""
    encoder = torch_encoder(classifier)
    again = TorchEncoder.from_weights(
        encoder.architecture,
        encoder.weights(),
        device="cpu",
    )
    tokenized = classifier.tokenize(TEXTS)
    assert again.logits(tokenized).tolist() == encoder.logits(tokenized).tolist()
    assert again.attention_maps(tokenized[:1]).tolist() == encoder.attention_maps(tokenized[:1]).tolist()


def test_who_needs_torch_is_told_that_there_is_none(classifier):
    """A classifier without an encoder has no model of PyTorch."""
    alone = Classifier(None, classifier.tokenizer, ("a", "b"), max_seq_len=8)
    with pytest.raises(TypeError, match="PyTorch"):
        torch_encoder(alone)
