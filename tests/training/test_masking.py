"""Masked and dropped words: so many as are wanted, and nothing but words."""

from __future__ import annotations

import pytest
import torch

from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID
from encoder_cls.training.encoder.objectives import drop_tokens


def test_word_dropout_replaces_words_only():
    """About the wanted part of the words becomes [UNK]; [CLS] and padding stay."""
    torch.manual_seed(0)
    input_ids = torch.full((100, 50), 7)
    input_ids[:, 0], input_ids[:, 40:] = CLS_ID, PAD_ID
    dropped = drop_tokens(input_ids, fraction=0.3)
    assert (dropped[:, 0] == CLS_ID).all()
    assert (dropped[:, 40:] == PAD_ID).all()
    assert (dropped[:, 1:40] == UNK_ID).float().mean() == pytest.approx(0.3, abs=0.02)
    assert drop_tokens(input_ids, fraction=0) is input_ids
