"""The encoder, independent of the library that computes it: shapes of weights, padded batches of texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import PAD_ID, CharNgrams, TokenizedTexts, flat_indices

if TYPE_CHECKING:
    from encoder_cls.encoder.numpy_encoder import NumpyEncoder
    from encoder_cls.encoder.torch_encoder import TorchEncoder

Encoder: TypeAlias = "NumpyEncoder | TorchEncoder"
Indices = NDArray[np.int64]

# Limits of a model folder, which may come from a stranger.
MOST_LAYERS = 256
# Attention scores of a layer for one text, num_heads * max_seq_len^2: 2 GiB of float32 numbers.
# `config/schema` has the same limit, so that no encoder is trained that cannot be loaded.
MOST_SCORES = 2**29
CHOICES = {
    "norm": ("pre", "post"),
    "activation": ("relu", "gelu"),
    "positions": ("sinusoidal", "learned", "none"),
}
COUNTS = ("char_ngram_buckets", "bigram_buckets")  # that may be 0
# Lengths this near count as equal, so that texts are shuffled in each epoch, and padding stays a few percent.
LENGTH_TOLERANCE = 1 / 16


@dataclass(frozen=True, kw_only=True)
class EncoderArchitecture:
    """The settings of `config.ModelConfig` that prediction needs; a `ValueError` if they are impossible."""

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    max_seq_len: int
    norm: str
    activation: str
    positions: str
    char_ngram_buckets: int
    bigram_buckets: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in CHOICES:
                if value not in CHOICES[field.name]:
                    raise ValueError(
                        f"{field.name} {value!r} is not one of {', '.join(CHOICES[field.name])}"
                    )
            elif type(value) is not int or value < (0 if field.name in COUNTS else 1):
                raise ValueError(f"{field.name} {value!r} is not a whole number in range")
        if self.num_layers > MOST_LAYERS:
            raise ValueError(f"{self.num_layers:,} layers; {MOST_LAYERS} are the most")
        if self.num_heads * self.max_seq_len**2 > MOST_SCORES:
            raise ValueError(
                f"the attention of {self.num_heads:,} heads to {self.max_seq_len:,} tokens takes"
                " more than 2 GiB"
            )
        if self.d_model % self.num_heads or (self.positions == "sinusoidal" and self.d_model % 2):
            raise ValueError(
                f"d_model {self.d_model} does not fit {self.num_heads} heads, or the positions"
            )

    @classmethod
    def of(cls, config: Any) -> EncoderArchitecture:
        """Take the settings of a `ModelConfig`."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def weight_shapes(self, *, vocab_size: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """The shape of each weight of `transformer.EncoderClassifier`, by its name."""
        width, embedding = self.d_model, "encoder.embedding."
        shapes: dict[str, tuple[int, ...]] = {f"{embedding}tokens.weight": (vocab_size, width)}
        if self.char_ngram_buckets:
            shapes[f"{embedding}char_ngrams.table.weight"] = (self.char_ngram_buckets, width)
        if self.bigram_buckets:
            shapes[f"{embedding}bigrams.table.weight"] = (self.bigram_buckets, width)
        if self.positions == "learned":
            shapes[f"{embedding}positions.weight"] = (self.max_seq_len, width)
        elif self.positions == "sinusoidal":
            shapes[f"{embedding}positions.scale"] = ()
        for layer in (f"encoder.layers.{number}" for number in range(self.num_layers)):
            for name, shape in self.linear_maps().items():
                shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
            for norm in ("attention_norm", "feed_forward_norm"):
                shapes |= {f"{layer}.{norm}.weight": (width,), f"{layer}.{norm}.bias": (width,)}
        if self.norm == "pre":
            shapes |= {"encoder.final_norm.weight": (width,), "encoder.final_norm.bias": (width,)}
        return shapes | {
            "head.linear.weight": (num_classes, width),
            "head.linear.bias": (num_classes,),
        }

    def linear_maps(self) -> dict[str, tuple[int, int]]:
        """The shape of the matrix of each linear map of a layer, (outputs, inputs)."""
        width = self.d_model
        return {
            "attention.qkv_proj": (3 * width, width),
            "attention.out_proj": (width, width),
            "feed_forward.up_proj": (self.d_ff, width),
            "feed_forward.down_proj": (width, self.d_ff),
        }


class Batch(NamedTuple):
    """Some texts, padded to one length.

    Attributes:
        input_ids: (B, T).
        attention_mask: (B, T), True on real tokens.
        words: (B, T), the index of each token's word among the distinct words; any on padding.
        char_ngrams: those of the distinct words.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.bool_]
    words: NDArray[np.int64]
    char_ngrams: CharNgrams


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> Batch:
    """Make a batch of texts, padded to the longest of them or to `length`."""
    lengths = texts.lengths[indices]
    tokens = flat_indices(texts.offsets[indices], lengths)
    mask = np.arange(length or lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, PAD_ID, dtype=np.int64)
    distinct, rows = np.unique(texts.words[tokens], return_inverse=True)
    input_ids[mask] = texts.word_ids[distinct][rows]
    words = np.zeros(mask.shape, dtype=np.int64)
    words[mask] = rows
    return Batch(input_ids, mask, words, texts.char_ngrams.take(distinct))


def compute_rows(
    texts: TokenizedTexts,
    compute: Callable[[Batch], NDArray[np.float32]],
    *,
    width: int,
    batch_tokens: int,
    share: Callable[[int], range] = range,
) -> NDArray[np.float32]:
    """Compute rows for all texts, (texts, width); `compute` takes a batch and returns its rows, (B, width).

    `share` chooses among the batches, by their number; rows of the others are 0.
    """
    rows = np.zeros((len(texts), width), dtype=np.float32)
    batches = by_length(texts.lengths, batch_tokens=batch_tokens)
    for indices, length in (batches[number] for number in share(len(batches))):
        rows[indices] = compute(pad(texts, indices, length))
        check_stop()
    return rows


def by_length(lengths: NDArray[np.int64], *, batch_tokens: int) -> list[tuple[Indices, int]]:
    """Plan batches of texts of similar length, the longest first, so that memory is at its peak at the start.

    A batch is the indices of its texts, and the length to which they are padded. Lengths are rounded up, and batches of
    one length have one number of texts, since a CPU compiles kernels for each shape, which takes as long as using them
    once.
    """
    in_order = np.argsort(-lengths, kind="stable")
    rounded = np.minimum(round_up_lengths(lengths[in_order]), lengths.max(initial=0))
    batches: list[tuple[Indices, int]] = []
    start = 0
    while start < len(lengths):
        length = int(rounded[start])
        texts = max(1, batch_tokens // length)
        batches.append((in_order[start : start + texts], length))
        start += texts
    return batches


def round_up_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round lengths up to 1, 2, ..., 15, 16, 17, 18, ..., 32, 34, ..., at most 1/16 apart."""
    step = np.maximum(
        1, 2 ** np.floor(np.log2(np.maximum(lengths * LENGTH_TOLERANCE, 1))).astype(np.int64)
    )
    rounded: NDArray[np.int64] = -(-lengths // step) * step
    return rounded
