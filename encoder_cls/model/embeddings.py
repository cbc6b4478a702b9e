"""Tokens in, vectors out: the token's own, those of its character n-grams and its neighbour, and its position.

Suffixes of names are shapes, as in the package's docstring.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.config import ModelConfig
from encoder_cls.text.char_ngrams import PAIR_MULTIPLIER

INITIAL_STD = 0.02  # of all weights, as in BERT (Devlin et al., 2019), https://arxiv.org/abs/1810.04805


class SequenceDropout(nn.Module):
    """Dropout with one mask for all tokens of a sequence: whole features are dropped, not single numbers.

    Gal and Ghahramani, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks"
    (2016), https://arxiv.org/abs/1512.05287. It draws T times fewer random numbers than dropout by
    element, which takes a quarter of a training step on a CPU.
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
    """A vector for each position in the sequence, added to the token's vector.

    Sinusoids are multiplied by a learned scale (Li et al., "Neural Speech Synthesis with Transformer
    Network", 2019, https://arxiv.org/abs/1809.08895) that starts small: at their full size they would drown
    the tokens' own vectors, which start at `INITIAL_STD`. The scale 1 gives the encoding as first published.
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
        """Add to the vectors of each token that of its position.

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
    """The positional encoding of Vaswani et al. (2017), section 3.5, (positions, d_model).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000) / d_model))
    angles = position * frequency
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class CharNgramBatch(NamedTuple):
    """The character n-grams of the words of a batch, each distinct word once.

    Attributes:
        words: (B, T), which of the distinct words each token is; what stands on padding does not matter.
        ngrams: (N,), hashes of the character n-grams of all distinct words, one word after the other.
        offsets: (W + 1,), where in `ngrams` each word begins, and the last ends.
    """

    words: Tensor
    ngrams: Tensor
    offsets: Tensor


class CharNgramEmbedding(nn.Module):
    """A vector for each word made of its parts, the mean of those of its character n-grams.

    So a word that training never showed is not nothing: "refunded" is near "refund" (Bojanowski et al.,
    2017, https://arxiv.org/abs/1607.04606). N-grams share the rows of a table by their hash.
    """

    def __init__(self, buckets: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(buckets, d_model, mode="mean", sparse=True, include_last_offset=True)

    def forward(self, char_ngrams: CharNgramBatch) -> Tensor:
        """The character n-grams of a batch -> (B, T, D) vectors."""
        vectors_WD = self.table(char_ngrams.ngrams % self.table.num_embeddings, char_ngrams.offsets)
        return functional.embedding(char_ngrams.words, vectors_WD)


class BigramEmbedding(nn.Module):
    """A vector for each pair of neighbours, that of a token and the one before it (of the first: `[PAD]`).

    Pairs share the rows of a table by a hash, as in fastText (Joulin et al., "Bag of Tricks for Efficient
    Text Classification", 2017, https://arxiv.org/abs/1607.01759). They start at zero: a pair that
    training never showed adds nothing.
    """

    def __init__(self, buckets: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, d_model, sparse=True)

    def forward(self, input_ids_BT: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, D) vectors."""
        previous_BT = functional.pad(input_ids_BT[:, :-1], (1, 0))
        return self.table((previous_BT * PAIR_MULTIPLIER + input_ids_BT) % self.table.num_embeddings)


class InputEmbedding(nn.Module):
    """Tokens -> vectors: the token's own plus those of its character n-grams, of its neighbour and of its position."""

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
        """(B, T) ids and the words' character n-grams -> (B, T, D) vectors."""
        x_BTD = self.tokens(input_ids_BT)
        if self.char_ngrams and char_ngrams:
            x_BTD = x_BTD + self.char_ngrams(char_ngrams)
        if self.bigrams:
            x_BTD = x_BTD + self.bigrams(input_ids_BT)
        return self.dropout(self.positions(x_BTD))

    def token_scores(self, x_MD: Tensor, token_ids_V: Tensor) -> Tensor:
        """How well tokens fit where the encoder made these vectors, (M, V): products with the tokens' own vectors.

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
