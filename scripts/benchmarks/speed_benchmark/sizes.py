"""Sizes of models, the same for all systems."""

from __future__ import annotations

from dataclasses import dataclass

from encoder_cls.config import ModelConfig, load_config

PLAIN = ("model.char_ngram_buckets=0", "model.bigram_buckets=0")  # an encoder as the others have it


@dataclass(frozen=True)
class Size:
    """Width and number of layers; the rest follows from them as is usual."""

    d_model: int
    num_layers: int

    def __str__(self) -> str:
        return f"{self.d_model}/{self.num_layers}"

    @property
    def num_heads(self) -> int:
        """Heads of width 32."""
        return max(1, self.d_model // 32)

    @property
    def d_ff(self) -> int:
        """Four times the width."""
        return 4 * self.d_model

    def overrides(self, max_seq_len: int) -> list[str]:
        """As values of encoder-cls's config."""
        shape = {"d_model": self.d_model, "num_layers": self.num_layers, "num_heads": self.num_heads}
        shape |= {"d_ff": self.d_ff, "max_seq_len": max_seq_len}
        return [f"model.{name}={value}" for name, value in shape.items()]

    def model_config(self, max_seq_len: int, *, tables: bool) -> ModelConfig:
        """The shape of encoder-cls's model, with or without its tables of n-grams and pairs."""
        return load_config(None, [*self.overrides(max_seq_len), *(() if tables else PLAIN)]).model


SIZES = {str(size): size for size in (Size(128, 2), Size(256, 4), Size(512, 6))}
