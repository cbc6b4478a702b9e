"""The shape of an encoder and of its weights, and its interface, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from encoder_cls.inference.task import Logits
    from encoder_cls.text.tokens import TokenizedTexts

MOST_LAYERS, LONGEST_SEQUENCE = 256, 65_536  # limits of a file
CHOICES = {"norm": ("pre", "post"), "activation": ("relu", "gelu"), "positions": ("sinusoidal", "learned", "none")}
COUNTS = ("char_ngram_buckets", "bigram_buckets")  # that may be 0


@dataclass(frozen=True, kw_only=True)
class EncoderArchitecture:
    """The settings of `config.ModelConfig` that prediction needs.

    Raises:
        ValueError: no encoder has this shape.
    """

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
                    raise ValueError(f"{field.name} {value!r} is none of {', '.join(CHOICES[field.name])}")
            elif type(value) is not int or value < (0 if field.name in COUNTS else 1):
                raise ValueError(f"{field.name} {value!r} is no number of that kind")
        if self.num_layers > MOST_LAYERS or self.max_seq_len > LONGEST_SEQUENCE:
            raise ValueError(f"{self.num_layers:,} layers, {self.max_seq_len:,} tokens: more than there can be")
        if self.d_model % self.num_heads or (self.positions == "sinusoidal" and self.d_model % 2):
            raise ValueError(f"d_model {self.d_model} does not fit {self.num_heads} heads, or the positions")

    @classmethod
    def of(cls, config: Any) -> EncoderArchitecture:
        """That of a `ModelConfig`."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def weight_shapes(self, *, vocab_size: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """The shape of each weight of `model.EncoderClassifier`, by its name."""
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
        return shapes | {"head.linear.weight": (num_classes, width), "head.linear.bias": (num_classes,)}

    def linear_maps(self) -> dict[str, tuple[int, int]]:
        """The shape of the matrix of each linear map of a layer, (outputs, inputs)."""
        width = self.d_model
        return {
            "attention.qkv_proj": (3 * width, width),
            "attention.out_proj": (width, width),
            "feed_forward.up_proj": (self.d_ff, width),
            "feed_forward.down_proj": (width, self.d_ff),
        }


class Encoder(Protocol):
    """An encoder with its head, whatever library computes it.

    `batch_tokens` is the most tokens in a batch, padding counted; none: a number that is fast on the device.
    """

    architecture: EncoderArchitecture

    @property
    def engine(self) -> str:
        """The library that computes it: `numpy` or `torch`."""

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Its weights by name."""

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """Logits, (texts, classes)."""

    def embed(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """The vectors that the head reads, (texts, d_model), always float32."""

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """The attention weights in one text, (layers, heads, T, T): [layer, head, looking, looked at]."""
