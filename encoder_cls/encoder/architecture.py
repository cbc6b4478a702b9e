"""The architecture of an encoder: its sizes, and the shapes of its weights.

Prediction reads this file, so it imports neither PyTorch nor pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from encoder_cls.weights import Shapes

# The settings that are one of a few values; all other settings are counts.
CHOICES = {
    "norm": ("pre", "post"),
    "activation": ("relu", "gelu"),
    "positions": ("sinusoidal", "learned", "none"),
    "pooling": ("mean", "cls", "max"),
}

# The counts that may be 0: an encoder may have no table of this kind.
OPTIONAL_COUNTS = ("char_ngram_buckets", "bigram_buckets")

# The maximum number of layers of a model folder, which may come from an untrusted source.
# `config/schema` has the same limits, so that every encoder that is trained can be loaded.
MAX_LAYERS = 256

# The maximum number of attention scores of a layer for one text, num_heads * max_seq_len^2. As
# float32, they take 2 GiB.
MAX_SCORES = 2**29


@dataclass(frozen=True, kw_only=True)
class EncoderArchitecture:
    """What prediction needs of a `ModelConfig`; a `ValueError` refuses invalid settings."""

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
    # The first models of format 1 were saved before there was a choice.
    pooling: str = "mean"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in CHOICES:
                _check_choice(field.name, value)
            else:
                _check_count(field.name, value)

        if self.num_layers > MAX_LAYERS:
            raise ValueError(f"num_layers {self.num_layers:,} is more than {MAX_LAYERS}")

        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")

        if self.num_heads * self.max_seq_len**2 > MAX_SCORES:
            raise ValueError(
                f"the attention of {self.num_heads:,} heads to {self.max_seq_len:,} tokens takes"
                " more than 2 GiB"
            )

    @classmethod
    def of(cls, config: Any) -> EncoderArchitecture:
        """The architecture that a `ModelConfig` describes."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def weight_shapes(self, *, vocab_size: int, num_classes: int) -> Shapes:
        """The shape of each weight of `transformer.EncoderClassifier`, by its name."""
        shapes = self._embedding_shapes(vocab_size)
        for number in range(self.num_layers):
            shapes |= self._layer_shapes(f"encoder.layers.{number}")
        if self.norm == "pre":
            shapes |= self._norm_shapes("encoder.final_norm")
        return shapes | _linear_shapes("head.linear", (num_classes, self.d_model))

    def linear_maps(self) -> dict[str, tuple[int, int]]:
        """The shape of the matrix of each linear map of a layer, (outputs, inputs)."""
        return {
            "attention.qkv_proj": (3 * self.d_model, self.d_model),
            "attention.out_proj": (self.d_model, self.d_model),
            "feed_forward.up_proj": (self.d_ff, self.d_model),
            "feed_forward.down_proj": (self.d_model, self.d_ff),
        }

    def _embedding_shapes(self, vocab_size: int) -> Shapes:
        embedding = "encoder.embedding"
        shapes: Shapes = {f"{embedding}.tokens.weight": (vocab_size, self.d_model)}

        if self.char_ngram_buckets:
            table = f"{embedding}.char_ngrams.table.weight"
            shapes[table] = (self.char_ngram_buckets, self.d_model)
        if self.bigram_buckets:
            shapes[f"{embedding}.bigrams.table.weight"] = (self.bigram_buckets, self.d_model)

        if self.positions == "learned":
            shapes[f"{embedding}.positions.weight"] = (self.max_seq_len, self.d_model)
        elif self.positions == "sinusoidal":
            shapes[f"{embedding}.positions.scale"] = ()
        return shapes

    def _layer_shapes(self, layer: str) -> Shapes:
        shapes: Shapes = {}
        for name, shape in self.linear_maps().items():
            shapes |= _linear_shapes(f"{layer}.{name}", shape)
        for name in ("attention_norm", "feed_forward_norm"):
            shapes |= self._norm_shapes(f"{layer}.{name}")
        return shapes

    def _norm_shapes(self, name: str) -> Shapes:
        return {f"{name}.weight": (self.d_model,), f"{name}.bias": (self.d_model,)}


def _linear_shapes(name: str, shape: tuple[int, int]) -> Shapes:
    num_outputs, _ = shape
    return {f"{name}.weight": shape, f"{name}.bias": (num_outputs,)}


def _check_choice(name: str, value: object) -> None:
    if value not in CHOICES[name]:
        known = ", ".join(CHOICES[name])
        raise ValueError(f"{name}: invalid value {value!r} (expected one of {known})")


def _check_count(name: str, value: object) -> None:
    least = 0 if name in OPTIONAL_COUNTS else 1
    # In Python a bool is an int, but it is no count, so the type is compared.
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: invalid value {value!r} (expected a whole number from {least})")
