"""Rows that training has not touched: zero where a model is validated and saved, and as they were for training."""

from __future__ import annotations

import torch

from encoder_cls.config import ModelConfig
from encoder_cls.model import EncoderClassifier
from encoder_cls.training.encoder.optimizer import UntrainedRows

CONFIG = ModelConfig(d_model=4, num_layers=1, num_heads=1, d_ff=4, char_ngram_buckets=6, bigram_buckets=6)
TABLES = ("tokens.weight", "char_ngrams.table.weight", "bigrams.table.weight")


def new_model() -> EncoderClassifier:
    torch.manual_seed(0)
    return EncoderClassifier(CONFIG, vocab_size=8, num_classes=2)


def test_rows_are_zero_until_they_are_trained():
    """Those that differ from the first weights stay; all else is shared, and the model itself stays as it is."""
    model = new_model()
    with torch.no_grad():
        for name, table in model.named_parameters():
            if name.endswith(TABLES):
                table[2] += 1
                table[4, 1] += 1e-6
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    zeroed = UntrainedRows(new_model()).zeroed(model)
    parameters = dict(model.named_parameters())
    for name, found in zeroed.named_parameters():
        if name.endswith(TABLES):
            assert found.any(dim=1).nonzero().squeeze(1).tolist() == [2, 4]
            assert torch.equal(found[[2, 4]], parameters[name][[2, 4]])
        else:
            assert found is parameters[name]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_both_models_have_their_own_mode():
    """A validation in the middle of training leaves dropout as it was."""
    model = new_model().train()
    zeroed = UntrainedRows(new_model()).zeroed(model)
    zeroed.eval()
    assert model.encoder.embedding.dropout.training
    assert not zeroed.encoder.embedding.dropout.training
