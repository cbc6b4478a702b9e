"""The encoder with a classification head on the mean of its vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encoder_cls.config import ModelConfig
from encoder_cls.model.encoder import CharNgramBatch, Encoder, initialize


class ClassifierHead(nn.Module):
    """The mean over real tokens, dropout, a linear map."""

    def __init__(self, config: ModelConfig, *, num_classes: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.head_dropout)
        self.linear = nn.Linear(config.d_model, num_classes)
        self.apply(initialize)

    def forward(self, x_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits, (B, C), always float32."""
        with torch.autocast(x_BTD.device.type, enabled=False):  # one vector a text costs nothing, and its digits count
            return self.linear(self.dropout(self.pool(x_BTD, attention_mask)))

    @staticmethod
    def pool(x_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean of the vectors on real tokens, (B, D)."""
        mask_BT1 = attention_mask[:, :, None]
        sums_BD = x_BTD.float().masked_fill(~mask_BT1, 0).sum(dim=1)
        return sums_BD / mask_BT1.sum(dim=1)


class EncoderClassifier(nn.Module):
    """An encoder with a classifier head; `vocab_size` and `num_classes` come from the data."""

    def __init__(self, config: ModelConfig, *, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(config, vocab_size=vocab_size)
        self.head = ClassifierHead(config, num_classes=num_classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None) -> Tensor:
        """Logits, (B, C), always float32; arguments as of `Encoder.forward`."""
        return self.head(self.encoder(input_ids, attention_mask, char_ngrams), attention_mask)
