"""Vectors of tokens in, vectors of tokens that know of each other out: attention, feed-forward, N layers of both.

Suffixes of names are shapes, as in the package's docstring.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.config import ModelConfig
from encoder_cls.model.embeddings import CharNgramBatch, InputEmbedding, SequenceDropout, initialize


class MultiHeadSelfAttention(nn.Module):
    """Each token gathers what it needs from all real tokens of its sequence, H times over.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(width of a head)) V (Vaswani et al., 2017, section 3.2), where
    padding gets the score -inf and so the weight 0.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv_proj = nn.Linear(config.d_model, 3 * config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(self, x_BTD: Tensor, attention_mask_BT: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """(B, T, D) and its mask -> (B, T, D).

        Where `maps` is given, the attention weights (B, H, T, T) are appended to it, indexed [text, head,
        token that looks, token looked at]; each row sums to 1.
        """
        q_BHTK, k_BHTK, v_BHTK = self._heads(self.qkv_proj(x_BTD))
        mask_B11T = attention_mask_BT[:, None, None, :]
        # On a CPU the plain products train faster than the fused kernel, whose backward pass is slow there.
        use_fused_kernel = maps is None and (x_BTD.is_cuda or not torch.is_grad_enabled())
        if use_fused_kernel:
            mixed_BHTK = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, attn_mask=mask_B11T)
        else:
            weights_BHTT = self._weights(q_BHTK, k_BHTK, mask_B11T)
            mixed_BHTK = weights_BHTT.to(v_BHTK.dtype) @ v_BHTK
            if maps is not None:
                maps.append(weights_BHTT)
        return self.out_proj(mixed_BHTK.transpose(1, 2).flatten(2))

    def _heads(self, qkv_BT3D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, 3D), laid out as [q, k, v] and within each as heads -> three of (B, H, T, K)."""
        batch, tokens, _ = qkv_BT3D.shape
        q_BTHK, k_BTHK, v_BTHK = qkv_BT3D.view(batch, tokens, 3, self.num_heads, -1).unbind(2)
        return q_BTHK.transpose(1, 2), k_BTHK.transpose(1, 2), v_BTHK.transpose(1, 2)

    @staticmethod
    def _weights(q_BHTK: Tensor, k_BHTK: Tensor, mask_B11T: Tensor) -> Tensor:
        """How much each token looks at each, (B, H, T, T): softmax(scores / sqrt(K) + padding)."""
        padding_B11T = torch.where(mask_B11T, 0.0, -torch.inf).to(q_BHTK.dtype)
        scores_BHTT = q_BHTK @ k_BHTK.transpose(-2, -1)
        # One pass over the scores scales and masks them: with two, attention takes a tenth to a half longer.
        return padding_B11T.add(scores_BHTT, alpha=1 / math.sqrt(q_BHTK.shape[-1])).softmax(dim=-1)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, on each token by itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, config.d_ff)
        self.activation = nn.ReLU() if config.activation == "relu" else nn.GELU()
        self.down_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.down_proj(self.activation(self.up_proj(x_BTD)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; each with a residual sum and a norm before (pre) or after (post).

    Post-norm is the original; pre-norm trains without care for warm-up (Xiong et al., "On Layer
    Normalization in the Transformer Architecture", 2020, https://arxiv.org/abs/2002.04745).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = MultiHeadSelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = SequenceDropout(config.dropout)

    def forward(self, x_BTD: Tensor, attention_mask_BT: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """(B, T, D) and its mask -> (B, T, D); `maps` as in `MultiHeadSelfAttention`."""
        if self.pre_norm:
            x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), attention_mask_BT, maps))
            return x_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BTD)))
        x_BTD = self.attention_norm(x_BTD + self.dropout(self.attention(x_BTD, attention_mask_BT, maps)))
        return self.feed_forward_norm(x_BTD + self.dropout(self.feed_forward(x_BTD)))


class Encoder(nn.Module):
    """Token ids -> one vector a token, each knowing of the others.

    Args:
        config: the shape.
        vocab_size: number of token ids, found in the data.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.embedding = InputEmbedding(config, vocab_size=vocab_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        # With pre-norm the residual sum itself is never normalized; this does it once, at the end.
        self.final_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        self.apply(initialize)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None) -> Tensor:
        """Encode a batch.

        Args:
            input_ids: (B, T) integers; what stands on padding does not matter.
            attention_mask: (B, T) booleans, True on real tokens, of which each row has one at least.
            char_ngrams: the words' character n-grams; without them all words are told apart by their ids alone.

        Returns:
            (B, T, D) vectors; those on padding mean nothing.
        """
        return self._run(input_ids, attention_mask, char_ngrams, None)

    def attention_maps(
        self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None
    ) -> Tensor:
        """Which token looks at which, (layers, B, H, T, T): [layer, text, head, looking, looked at].

        As with any call, `eval()` and `torch.inference_mode()` are the caller's to choose.
        """
        maps: list[Tensor] = []
        self._run(input_ids, attention_mask, char_ngrams, maps)
        return torch.stack(maps)

    def _run(
        self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None, maps: list[Tensor] | None
    ) -> Tensor:
        x_BTD = self.embedding(input_ids, char_ngrams)
        if torch.is_autocast_enabled(x_BTD.device.type):
            # The sums between layers in the precision of the products, too: half the memory to move, and no casts.
            x_BTD = x_BTD.to(torch.get_autocast_dtype(x_BTD.device.type))
        for layer in self.layers:
            x_BTD = layer(x_BTD, attention_mask, maps)
        return self.final_norm(x_BTD)
