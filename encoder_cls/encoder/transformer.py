"""A Transformer encoder with a classifier head, in PyTorch, and a decoder for pretraining.

The parts come first; the whole model, `EncoderClassifier`, comes last.

Encoder and decoder follow Vaswani et al., "Attention Is All You Need" (2017),
https://arxiv.org/abs/1706.03762. The config chooses the place of the norms, the activation and the
positions. Additions to the paper are embeddings of character n-grams and of pairs of neighbouring
tokens (`CharNgramEmbedding`, `BigramEmbedding`, both optional), a learned scale of the sinusoids,
dropout of whole features, and a head that reads one vector of a text: the mean of its tokens'
vectors, their maximum, or the vector of `[CLS]`.

Shapes are suffixes of names: `x_BTD` has the shape (B, T, D).

    B   texts of a batch
    T   tokens of a text, padding included
    D   width of a token's vector, `d_model`
    H   attention heads
    K   width of a head, D / H
    S   tokens that are attended to: in self-attention the T tokens, otherwise those of a memory
    C   classes
    W   distinct words of a batch
    N   character n-grams of these words
    M   tokens to guess, in pretraining
    V   tokens to choose from, in pretraining

`input_ids` and `attention_mask` are (B, T). Masks are True on real tokens and False on padding. No
sequence is empty, because the tokenizer puts `[CLS]` first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from encoder_cls.config.schema import ModelConfig
from encoder_cls.text.tokens import CLS_ID, PAD_ID, PAIR_MULTIPLIER

# The standard deviation of random weights, as in BERT (Devlin et al., 2019),
# https://arxiv.org/abs/1810.04805.
INITIAL_STD = 0.02


class SequenceDropout(nn.Module):
    """Dropout of whole features, with one mask for all tokens of a sequence.

    Gal and Ghahramani, "A Theoretically Grounded Application of Dropout in Recurrent Neural
    Networks" (2016), https://arxiv.org/abs/1512.05287. Dropout of single elements would draw T
    times as many random numbers, which takes a quarter of the time of a training step on a CPU.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x_BTD: Tensor) -> Tensor:
        """In training mode, drop each feature with probability `p`."""
        if not self.training or self.p == 0:
            return x_BTD

        # Scale up the features that are kept, so that the expected value stays the same.
        keep = 1 - self.p
        scale_B1D = x_BTD.new_empty(x_BTD.shape[0], 1, x_BTD.shape[2]).bernoulli_(keep).div_(keep)
        return x_BTD * scale_B1D


class PositionalEncoding(nn.Module):
    """A vector for each position, which is added to the token's vector.

    The vectors are learned, or they are sinusoids with a learned scale (Li et al., "Neural Speech
    Synthesis with Transformer Network", 2019, https://arxiv.org/abs/1809.08895). The scale starts
    at `INITIAL_STD`, like the tokens' own vectors: sinusoids of scale 1, as published, would be
    much larger than the tokens' vectors.
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

    def forward(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """Add the vector of each position, by default 0, 1, 2, ...; tokens of position -1 get none.

        A sequence longer than `max_seq_len` raises a `ValueError`.
        """
        num_tokens = x_BTD.shape[1]
        if num_tokens > self.max_seq_len:
            raise ValueError(
                f"a sequence has {num_tokens} tokens, but max_seq_len is {self.max_seq_len}"
            )

        if self.kind == "none":
            return x_BTD
        table = self.weight if self.kind == "learned" else self.table
        if positions_BT is None:
            vectors = table[:num_tokens]
        else:
            is_word_BT1 = (positions_BT >= 0)[:, :, None]
            vectors = functional.embedding(positions_BT.clamp(min=0), table) * is_word_BT1
        if self.kind == "sinusoidal":
            vectors = self.scale * vectors
        return x_BTD + vectors


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """The positional encoding of Vaswani et al. (2017), section 3.5, (positions, d_model)."""
    positions = torch.arange(num_positions, dtype=torch.float64)

    # One frequency for each pair of features, from 1 down to nearly 1 / 10,000.
    features = torch.arange(0, d_model, 2, dtype=torch.float64)
    frequencies = torch.exp(features * (-math.log(10_000) / d_model))

    # Features alternate: the sine of an angle, then its cosine.
    angles = positions[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class CharNgramBatch(NamedTuple):
    """The character n-grams of the words of a batch; each distinct word is listed once.

    `words` and `positions` are as in `PaddedTexts`.

    Attributes:
        ngrams: hashes, word after word, (N,).
        offsets: where each word starts in `ngrams`, and where the last one ends, (W + 1,).
    """

    words: Tensor
    ngrams: Tensor
    offsets: Tensor
    positions: Tensor | None = None


class CharNgramEmbedding(nn.Module):
    """The mean of the vectors of a word's character n-grams.

    The hash of an n-gram selects its row in a table. An unknown word gets a vector, too: that of
    "refunded" is near that of "refund" (Bojanowski et al., "Enriching Word Vectors with Subword
    Information", 2017, https://arxiv.org/abs/1607.04606).
    """

    def __init__(self, buckets: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(buckets, d_model, mode="mean", include_last_offset=True)

    def forward(self, char_ngrams: CharNgramBatch) -> Tensor:
        """The vector of each token's word, (B, T, D)."""
        rows = char_ngrams.ngrams % self.table.num_embeddings
        vectors_WD = self.table(rows, char_ngrams.offsets)
        return functional.embedding(char_ngrams.words, vectors_WD)


class BigramEmbedding(nn.Module):
    """A vector for each pair of a token and the token before it.

    The hash of a pair selects its row in a table, as in fastText (Joulin et al., "Bag of Tricks for
    Efficient Text Classification", 2017, https://arxiv.org/abs/1607.01759). Rows start at zero, so
    that a pair that training lacks adds nothing.
    """

    def __init__(self, buckets: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, d_model)

    def forward(self, input_ids_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """The vector of each token's pair, (B, T, D); tokens of position -1 make no pairs."""
        # The first token makes a pair with `[PAD]`.
        previous_BT = functional.pad(input_ids_BT[:, :-1], (1, 0), value=PAD_ID)
        if positions_BT is not None:
            # The token at position 1 makes a pair with `[CLS]`, although features are between them.
            previous_BT = previous_BT.masked_fill(positions_BT == 1, CLS_ID)
        hashes_BT = previous_BT * PAIR_MULTIPLIER + input_ids_BT
        vectors_BTD = self.table(hashes_BT % self.table.num_embeddings)
        if positions_BT is None:
            return vectors_BTD
        return vectors_BTD * (positions_BT >= 0)[:, :, None]


class InputEmbedding(nn.Module):
    """The sum of the vectors of a token, its character n-grams, its pair and its position."""

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        # The gradients of all tables are dense, so that every optimizer of torch takes them.
        # Training makes them sparse: see `embedding_tables.use_sparse_gradients`.
        self.tokens = nn.Embedding(vocab_size, config.d_model)

        self.char_ngrams: CharNgramEmbedding | None = None
        if config.char_ngram_buckets:
            self.char_ngrams = CharNgramEmbedding(config.char_ngram_buckets, config.d_model)

        self.bigrams: BigramEmbedding | None = None
        if config.bigram_buckets:
            self.bigrams = BigramEmbedding(config.bigram_buckets, config.d_model)

        self.positions = PositionalEncoding(config)
        self.dropout = SequenceDropout(config.dropout)

    def forward(self, input_ids_BT: Tensor, char_ngrams: CharNgramBatch | None) -> Tensor:
        """The vectors of tokens, (B, T, D)."""
        positions_BT = char_ngrams.positions if char_ngrams else None
        x_BTD = self.tokens(input_ids_BT)
        if self.char_ngrams is not None and char_ngrams is not None:
            x_BTD = x_BTD + self.char_ngrams(char_ngrams)
        if self.bigrams is not None:
            x_BTD = x_BTD + self.bigrams(input_ids_BT, positions_BT)
        x_BTD = self.positions(x_BTD, positions_BT)
        x_BTD = self.dropout(x_BTD)

        # If matrix products are computed in half precision, keep the vectors between the layers in
        # half precision as well: that halves the memory traffic, and needs no casts.
        if torch.is_autocast_enabled(x_BTD.device.type):
            x_BTD = x_BTD.to(torch.get_autocast_dtype(x_BTD.device.type))
        return x_BTD

    def token_scores(self, x_MD: Tensor, token_ids_V: Tensor) -> Tensor:
        """The scores of tokens, (M, V): the last layer's vectors times the tokens' own vectors.

        Press and Wolf, "Using the Output Embedding to Improve Language Models" (2017),
        https://arxiv.org/abs/1608.05859.
        """
        # Compute this product in float32: a CPU would compile a bfloat16 kernel for each shape, and
        # M and V differ from batch to batch.
        with torch.autocast("cpu", enabled=False):
            return x_MD.float() @ self.tokens(token_ids_V).T


class MultiHeadAttention(nn.Module):
    """Attention in several heads (Vaswani et al., 2017, section 3.2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv_proj = nn.Linear(config.d_model, 3 * config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(
        self,
        x_BTD: Tensor,
        mask_BTS: Tensor,
        maps: list[Tensor] | None = None,
        memory_BSD: Tensor | None = None,
    ) -> Tensor:
        """Let each token attend to the tokens of its text, or to a memory, (B, T, D).

        Args:
            mask_BTS: True where a token may attend to another; may be (B, 1, S).
            maps: receives the attention weights, (B, H, T, S), unless None.
            memory_BSD: None for self-attention.
        """
        if memory_BSD is None:
            q_BTD, k_BSD, v_BSD = self.qkv_proj(x_BTD).chunk(3, dim=2)
        else:
            q_BTD, k_BSD, v_BSD = self._project(x_BTD, memory_BSD)

        # Split the D features among the heads, K for each.
        q_BHTK = self._split_heads(q_BTD)
        k_BHSK = self._split_heads(k_BSD)
        v_BHSK = self._split_heads(v_BSD)
        mask_B1TS = mask_BTS[:, None]

        # Use the fused kernel, except when training on a CPU, where its backward pass is slower
        # than plain products, and except when the weights are needed, which it does not return.
        use_fused_kernel = maps is None and (x_BTD.is_cuda or not torch.is_grad_enabled())
        if use_fused_kernel:
            mixed_BHTK = fused_attention(q_BHTK, k_BHSK, v_BHSK, mask_B1TS)
        else:
            weights_BHTS = attention_weights(q_BHTK, k_BHSK, mask_B1TS)
            mixed_BHTK = weights_BHTS.to(v_BHSK.dtype) @ v_BHSK
            if maps is not None:
                maps.append(weights_BHTS)

        mixed_BTD = mixed_BHTK.transpose(1, 2).flatten(2)
        return self.out_proj(mixed_BTD)

    def _project(self, x_BTD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, (B, T, D), and the keys and values of a memory, (B, S, D).

        Self-attention computes all three in a single product.
        """
        d_model = x_BTD.shape[2]
        q_weight, kv_weight = torch.split(self.qkv_proj.weight, [d_model, 2 * d_model])
        q_bias, kv_bias = torch.split(self.qkv_proj.bias, [d_model, 2 * d_model])

        q_BTD = functional.linear(x_BTD, q_weight, q_bias)
        k_BSD, v_BSD = functional.linear(memory_BSD, kv_weight, kv_bias).chunk(2, dim=2)
        return q_BTD, k_BSD, v_BSD

    def _split_heads(self, x_BTD: Tensor) -> Tensor:
        batch_size, num_tokens, _ = x_BTD.shape
        x_BTHK = x_BTD.view(batch_size, num_tokens, self.num_heads, -1)
        return x_BTHK.transpose(1, 2)


def attention_weights(q_BHTK: Tensor, k_BHSK: Tensor, mask_B1TS: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(K)), (B, H, T, S), and zero where the mask is False."""
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1)

    # The softmax gives a weight of exactly 0 to a score of -inf.
    masked_B1TS = torch.where(mask_B1TS, 0.0, -torch.inf).to(q_BHTK.dtype)

    # Scale and mask the scores in a single operation: with two operations, attention takes 10% to
    # 50% longer.
    scale = 1 / math.sqrt(q_BHTK.shape[-1])
    return masked_B1TS.add(scores_BHTS, alpha=scale).softmax(dim=-1)


# The kernels of fused attention that may be used. cuDNN's kernel is left out: with a mask, it
# returned gradients that were not finite (torch 2.11, H200, in bfloat16 and in float32), although
# the loss was correct.
ATTENTION_KERNELS = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


def fused_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask_B1TS: Tensor) -> Tensor:
    """Mix the values by the `attention_weights`, (B, H, T, K), in a single kernel."""
    # The backward pass uses the same kernel as this forward pass.
    with sdpa_kernel(ATTENTION_KERNELS):
        return functional.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask_B1TS)


class FeedForward(nn.Module):
    """Two linear maps with an activation between them (Vaswani et al., 2017, section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, config.d_ff)
        self.activation = nn.ReLU() if config.activation == "relu" else nn.GELU()
        self.down_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform vectors, (B, T, D)."""
        return self.down_proj(self.activation(self.up_proj(x_BTD)))


class Layer(nn.Module):
    """A layer of the encoder or of the decoder.

    Its sublayers are self-attention, then in a decoder attention to a memory, then the feed-forward
    network, each with a residual connection. Its norm comes before the sublayer (pre-norm), or
    after the sum with the residual (post-norm), which is the original; pre-norm can be trained
    without a careful warm-up (Xiong et al., "On Layer Normalization in the Transformer
    Architecture", 2020, https://arxiv.org/abs/2002.04745).
    """

    def __init__(self, config: ModelConfig, *, has_memory: bool = False) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = MultiHeadAttention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = SequenceDropout(config.dropout)
        if has_memory:
            self.cross_attention = MultiHeadAttention(config)
            self.cross_attention_norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        x_BTD: Tensor,
        mask_BTS: Tensor,
        maps: list[Tensor] | None = None,
        memory: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Transform the vectors of tokens, (B, T, D).

        Args:
            mask_BTS: (B, T, T) or (B, 1, T).
            maps: receives the weights of the self-attention, (B, H, T, T), unless None.
            memory: in a decoder, vectors, (B, S, D), and their mask, (B, S).
        """
        attention = partial(self.attention, mask_BTS=mask_BTS, maps=maps)
        x_BTD = self._residual(x_BTD, self.attention_norm, attention)

        if memory is not None:
            memory_BSD, memory_mask_BS = memory
            cross_attention = partial(
                self.cross_attention, mask_BTS=memory_mask_BS[:, None], memory_BSD=memory_BSD
            )
            x_BTD = self._residual(x_BTD, self.cross_attention_norm, cross_attention)

        return self._residual(x_BTD, self.feed_forward_norm, self.feed_forward)

    def _residual(
        self, x_BTD: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]
    ) -> Tensor:
        if self.pre_norm:
            return x_BTD + self.dropout(sublayer(norm(x_BTD)))

        normed_BTD: Tensor = norm(x_BTD + self.dropout(sublayer(x_BTD)))
        return normed_BTD


def final_norm(config: ModelConfig) -> nn.Module:
    """The norm after the last layer, for pre-norm, whose layers do not normalize their sums."""
    if config.norm == "pre":
        return nn.LayerNorm(config.d_model)
    return nn.Identity()


def initialize(module: nn.Module) -> None:
    """Set the weights of a module: small random ones, and zeros for biases and token pairs."""
    if isinstance(module, nn.Linear | nn.Embedding | nn.EmbeddingBag):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, BigramEmbedding):
        nn.init.zeros_(module.table.weight)


class Encoder(nn.Module):
    """A vector for each token in its context."""

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.embedding = InputEmbedding(config, vocab_size=vocab_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.final_norm = final_norm(config)
        self.apply(initialize)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        char_ngrams: CharNgramBatch | None = None,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """The vectors of tokens, (B, T, D); those of padding have no meaning.

        Args:
            maps: receives the attention weights of each layer, (B, H, T, T), unless None.
        """
        x_BTD = self.embedding(input_ids, char_ngrams)

        # Every token may attend to all real tokens of its text.
        mask_B1T = attention_mask.bool()[:, None]
        for layer in self.layers:
            x_BTD = layer(x_BTD, mask_B1T, maps)
        return self.final_norm(x_BTD)

    def attention_maps(
        self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None
    ) -> Tensor:
        """The attention weights, (layers, B, H, T, T): [layer, text, head, from, to]."""
        maps: list[Tensor] = []
        self(input_ids, attention_mask, char_ngrams, maps)
        return torch.stack(maps)


class Decoder(nn.Module):
    """The decoder: a vector for each token, from which the next token is guessed.

    A token attends to itself, to the tokens before it, and to the vectors of an encoder.
    """

    def __init__(self, config: ModelConfig, *, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config, has_memory=True) for _ in range(num_layers))
        self.final_norm = final_norm(config)
        self.apply(initialize)

    def forward(
        self, x_BTD: Tensor, attention_mask: Tensor, memory_BSD: Tensor, memory_mask: Tensor
    ) -> Tensor:
        """The vectors of tokens, (B, T, D)."""
        position = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        is_not_later_TT = position <= position[:, None]
        causal_mask_BTT = attention_mask[:, None] & is_not_later_TT

        for layer in self.layers:
            x_BTD = layer(x_BTD, causal_mask_BTT, memory=(memory_BSD, memory_mask))
        return self.final_norm(x_BTD)


class ClassifierHead(nn.Module):
    """A linear map of the one vector into which the vectors of a text's tokens are pooled."""

    def __init__(self, config: ModelConfig, *, num_classes: int) -> None:
        super().__init__()
        self.pooling = config.pooling
        self.dropout = nn.Dropout(config.head_dropout)
        self.linear = nn.Linear(config.d_model, num_classes)
        self.apply(initialize)

    def forward(self, x_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """The logits of texts, (B, C), in the type of the pooled vectors."""
        # Full precision costs little here, because the head computes a single vector for each text.
        with torch.autocast(x_BTD.device.type, enabled=False):
            pooled_BD = self.dropout(self.pool(x_BTD, attention_mask))

            # After `.half()` or `.bfloat16()`, the weights have fewer bits than the pooled vector.
            logits_BC = self.linear(pooled_BD.to(self.linear.weight.dtype))
            return logits_BC.to(pooled_BD.dtype)

    def pool(self, x_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """Pool the vectors of real tokens, (B, D), in float32, or float64 after `.double()`."""
        x_BTD = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
        if self.pooling == "cls":
            return x_BTD[:, 0]

        mask_BT1 = attention_mask[:, :, None]
        if self.pooling == "max":
            return x_BTD.masked_fill(~mask_BT1, -torch.inf).amax(dim=1)

        sums_BD = x_BTD.masked_fill(~mask_BT1, 0).sum(dim=1)
        return sums_BD / mask_BT1.sum(dim=1)


class EncoderClassifier(nn.Module):
    """The encoder with its classifier head; `vocab_size` and `num_classes` come from the data."""

    def __init__(self, config: ModelConfig, *, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(config, vocab_size=vocab_size)
        self.head = ClassifierHead(config, num_classes=num_classes)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, char_ngrams: CharNgramBatch | None = None
    ) -> Tensor:
        """The logits of texts, (B, C), in float32, or float64 after `.double()`."""
        x_BTD = self.encoder(input_ids, attention_mask, char_ngrams)
        return self.head(x_BTD, attention_mask.bool())


class DenoisingAutoencoder(EncoderClassifier):
    """An encoder classifier with a decoder for pretraining; both share the `InputEmbedding`."""

    def __init__(self, config: ModelConfig, *, vocab_size: int, num_classes: int) -> None:
        super().__init__(config, vocab_size=vocab_size, num_classes=num_classes)
        # The decoder has a single layer on purpose: a stronger one could guess words without using
        # the encoder.
        self.decoder = Decoder(config, num_layers=1)
