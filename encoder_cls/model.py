"""The Transformer encoder classifier in PyTorch: logits of tokens and their mask.

The encoder of Vaswani et al., "Attention Is All You Need" (2017), https://arxiv.org/abs/1706.03762,
with three choices: where the norms are, which activation, which positions. Not in that paper: vectors of a word's
character n-grams and of its neighbour (`CharNgramEmbedding`, `BigramEmbedding`, both optional), a learned scale of the
sinusoids, dropout of whole features, and the head, on the mean of the tokens.

Shapes are suffixes of names:
    B batch, T tokens, D d_model, H heads, K width of a head (D / H), C classes,
    W distinct words of a batch, N their character n-grams, M masked tokens, V tokens to choose from.
`input_ids` and `attention_mask` are (B, T). Masks are True on real tokens, everywhere.
No sequence is empty: the tokenizer puts `[CLS]` first.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.config import ModelConfig
from encoder_cls.text.tokens import PAIR_MULTIPLIER

INITIAL_STD = 0.02  # of all weights, as in BERT (Devlin et al., 2019), https://arxiv.org/abs/1810.04805


class SequenceDropout(nn.Module):
    """Dropout of whole features, with one mask for all tokens of a sequence.

    Gal and Ghahramani, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks" (2016),
    https://arxiv.org/abs/1512.05287. Dropout by element, with T times as many random numbers, takes a quarter of a
    training step on a CPU.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Drop features in training, and scale the others so that the mean stays."""
        if not self.training or self.p == 0:
            return x_BTD
        keep = 1 - self.p
        scale_B1D = x_BTD.new_empty(x_BTD.shape[0], 1, x_BTD.shape[2]).bernoulli_(keep).div_(keep)
        return x_BTD * scale_B1D


class PositionalEncoding(nn.Module):
    """A vector for each position, added to the token's vector.

    Sinusoids have a learned scale (Li et al., "Neural Speech Synthesis with Transformer Network", 2019,
    https://arxiv.org/abs/1809.08895) that starts small: at the published scale of 1 they would drown the tokens' own
    vectors, which start at `INITIAL_STD`.
    """

    table: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind = config.positions
        self.max_seq_len = config.max_seq_len
        shape = (config.max_seq_len, config.d_model)
        if self.kind == "learned":
            self.weight = nn.Parameter(nn.init.normal_(torch.empty(shape), std=INITIAL_STD))
        elif self.kind == "sinusoidal":
            self.scale = nn.Parameter(torch.tensor(INITIAL_STD))
            self.register_buffer("table", sinusoids(*shape), persistent=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Add the vector of each token's position.

        Raises:
            ValueError: the sequence is longer than `max_seq_len`.
        """
        tokens = x_BTD.shape[1]
        if tokens > self.max_seq_len:
            raise ValueError(f"a sequence of {tokens} tokens, where max_seq_len is {self.max_seq_len}")
        if self.kind == "learned":
            return x_BTD + self.weight[:tokens]
        if self.kind == "sinusoidal":
            return x_BTD + self.scale * self.table[:tokens]
        return x_BTD


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """The positional encoding of Vaswani et al. (2017), section 3.5, (positions, d_model)."""
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000) / d_model))
    angles = position * frequency
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class CharNgramBatch(NamedTuple):
    """The character n-grams of the words of a batch, each distinct word once.

    Attributes:
        words: (B, T), the index of each token's word among the distinct words; any on padding.
        ngrams: (N,), hashes of the character n-grams of all distinct words, one word after the other.
        offsets: (W + 1,), the beginning of each word in `ngrams`, and the end of the last.
    """

    words: Tensor
    ngrams: Tensor
    offsets: Tensor


class CharNgramEmbedding(nn.Module):
    """The mean of the vectors of a word's character n-grams, which share the rows of a table by their hash.

    So an unknown word has a vector, too: "refunded" is near "refund" (Bojanowski et al., 2017,
    https://arxiv.org/abs/1607.04606).
    """

    def __init__(self, buckets: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(buckets, d_model, mode="mean", sparse=True, include_last_offset=True)

    def forward(self, char_ngrams: CharNgramBatch) -> Tensor:
        """Vectors of tokens, (B, T, D)."""
        vectors_WD = self.table(char_ngrams.ngrams % self.table.num_embeddings, char_ngrams.offsets)
        return functional.embedding(char_ngrams.words, vectors_WD)


class BigramEmbedding(nn.Module):
    """A vector for each pair of a token and the one before it (of the first: `[PAD]`).

    Pairs share the rows of a table by a hash, as in fastText (Joulin et al., "Bag of Tricks for Efficient Text
    Classification", 2017, https://arxiv.org/abs/1607.01759). They start at zero: an unknown pair adds nothing.
    """

    def __init__(self, buckets: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, d_model, sparse=True)

    def forward(self, input_ids_BT: Tensor) -> Tensor:
        """Vectors of tokens, (B, T, D)."""
        previous_BT = functional.pad(input_ids_BT[:, :-1], (1, 0))
        return self.table((previous_BT * PAIR_MULTIPLIER + input_ids_BT) % self.table.num_embeddings)


class InputEmbedding(nn.Module):
    """The sum of the vectors of a token, its character n-grams, its neighbour and its position."""

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        # Gradients of tables are sparse: a batch touches few of their rows.
        self.tokens = nn.Embedding(vocab_size, config.d_model, sparse=True)
        self.char_ngrams = (
            CharNgramEmbedding(config.char_ngram_buckets, config.d_model) if config.char_ngram_buckets else None
        )
        self.bigrams = BigramEmbedding(config.bigram_buckets, config.d_model) if config.bigram_buckets else None
        self.positions = PositionalEncoding(config)
        self.dropout = SequenceDropout(config.dropout)

    def forward(self, input_ids_BT: Tensor, char_ngrams: CharNgramBatch | None) -> Tensor:
        """Vectors of tokens, (B, T, D)."""
        x_BTD = self.tokens(input_ids_BT)
        if self.char_ngrams and char_ngrams:
            x_BTD = x_BTD + self.char_ngrams(char_ngrams)
        if self.bigrams:
            x_BTD = x_BTD + self.bigrams(input_ids_BT)
        return self.dropout(self.positions(x_BTD))

    def token_scores(self, x_MD: Tensor, token_ids_V: Tensor) -> Tensor:
        """Scores of tokens for vectors of the encoder, (M, V): products with the tokens' own vectors.

        Press and Wolf, "Using the Output Embedding to Improve Language Models" (2017), https://arxiv.org/abs/1608.05859.
        """
        # A CPU compiles a kernel for each shape of a bfloat16 product, and M and V differ in each batch.
        with torch.autocast("cpu", enabled=False):
            return x_MD.float() @ self.tokens(token_ids_V).T


def initialize(module: nn.Module) -> None:
    """Small normal weights and zero biases; pairs of neighbours start at zero."""
    if isinstance(module, nn.Linear | nn.Embedding | nn.EmbeddingBag):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, BigramEmbedding):
        nn.init.zeros_(module.table.weight)


class MultiHeadSelfAttention(nn.Module):
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(K)) V of each head (Vaswani et al., 2017, section 3.2).

    Padding has the score -inf and so the weight 0.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv_proj = nn.Linear(config.d_model, 3 * config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(self, x_BTD: Tensor, attention_mask_BT: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """Mix the vectors of tokens, (B, T, D); attention weights, (B, H, T, T), are appended to `maps`, if given."""
        batch, tokens, _ = x_BTD.shape
        qkv_BT3HK = self.qkv_proj(x_BTD).view(batch, tokens, 3, self.num_heads, -1)
        q_BHTK, k_BHTK, v_BHTK = (it.transpose(1, 2) for it in qkv_BT3HK.unbind(2))
        mask_B11T = attention_mask_BT[:, None, None, :]
        # On a CPU the plain products train faster than the fused kernel, whose backward pass is slow there.
        use_fused_kernel = maps is None and (x_BTD.is_cuda or not torch.is_grad_enabled())
        if use_fused_kernel:
            mixed_BHTK = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, attn_mask=mask_B11T)
        else:
            padding_B11T = torch.where(mask_B11T, 0.0, -torch.inf).to(q_BHTK.dtype)
            scores_BHTT = q_BHTK @ k_BHTK.transpose(-2, -1)
            # One pass over the scores scales and masks them: with two, attention takes a tenth to a half longer.
            weights_BHTT = padding_B11T.add(scores_BHTT, alpha=1 / math.sqrt(q_BHTK.shape[-1])).softmax(dim=-1)
            mixed_BHTK = weights_BHTT.to(v_BHTK.dtype) @ v_BHTK
            if maps is not None:
                maps.append(weights_BHTT)
        return self.out_proj(mixed_BHTK.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear maps of each token with a non-linearity between them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, config.d_ff)
        self.activation = nn.ReLU() if config.activation == "relu" else nn.GELU()
        self.down_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Map the vectors of tokens, (B, T, D)."""
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
        """Transform the vectors of tokens, (B, T, D); `maps` as in `MultiHeadSelfAttention`."""
        if self.pre_norm:
            x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), attention_mask_BT, maps))
            return x_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BTD)))
        x_BTD = self.attention_norm(x_BTD + self.dropout(self.attention(x_BTD, attention_mask_BT, maps)))
        return self.feed_forward_norm(x_BTD + self.dropout(self.feed_forward(x_BTD)))


class Encoder(nn.Module):
    """The encoder: a vector for each token in its context."""

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.embedding = InputEmbedding(config, vocab_size=vocab_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        # With pre-norm the residual sum itself is never normalized; this does it once, at the end.
        self.final_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        self.apply(initialize)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        char_ngrams: CharNgramBatch | None = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """Vectors of tokens, (B, T, D); those on padding mean nothing. `maps` as in `MultiHeadSelfAttention`."""
        x_BTD = self.embedding(input_ids, char_ngrams)
        if torch.is_autocast_enabled(x_BTD.device.type):
            # The sums between layers in the precision of the products, too: half the memory to move, and no casts.
            x_BTD = x_BTD.to(torch.get_autocast_dtype(x_BTD.device.type))
        for layer in self.layers:
            x_BTD = layer(x_BTD, attention_mask, maps)
        return self.final_norm(x_BTD)

    def attention_maps(self, *batch: Any) -> Tensor:
        """Attention weights, (layers, B, H, T, T): [layer, text, head, looking, looked at]; arguments of `forward`."""
        maps: list[Tensor] = []
        self(*batch, maps=maps)
        return torch.stack(maps)


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
