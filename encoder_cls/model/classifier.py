"""The encoder with a classification head on the mean of its vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.config import ModelConfig
from encoder_cls.model.encoder import CharNgramBatch, Encoder, initialize


class ClassifierHead(nn.Module):
    """Token vectors -> logits: the mean over real tokens, dropout, a linear map."""

    def __init__(self, config: ModelConfig, *, num_classes: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.head_dropout)
        self.linear = nn.Linear(config.d_model, num_classes)
        self.apply(initialize)

    def forward(self, x_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, T, D) and its mask -> (B, C) logits, float32 whatever the other products are."""
        with torch.autocast(x_BTD.device.type, enabled=False):  # one vector a text costs nothing, and its digits count
            return self.linear(self.dropout(self.pool(x_BTD, attention_mask)))

    @staticmethod
    def pool(x_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean of the vectors on real tokens, (B, D)."""
        mask_BT1 = attention_mask[:, :, None]
        sums_BD = x_BTD.float().masked_fill(~mask_BT1, 0).sum(dim=1)
        return sums_BD / mask_BT1.sum(dim=1)


class EncoderClassifier(nn.Module):
    """An encoder with a classifier head.

    Args:
        config: the shape.
        vocab_size: number of token ids, found in the data.
        num_classes: number of classes, found in the data.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(config, vocab_size=vocab_size)
        self.head = ClassifierHead(config, num_classes=num_classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None) -> Tensor:
        """(B, T) ids, their mask and character n-grams -> (B, C) logits, always float32."""
        return self.head(self.encoder(input_ids, attention_mask, char_ngrams), attention_mask)

    def log_probabilities(
        self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None
    ) -> Tensor:
        """(B, T) ids, their mask and character n-grams -> (B, C) log-probabilities."""
        return functional.log_softmax(self(input_ids, attention_mask, char_ngrams), dim=-1)
