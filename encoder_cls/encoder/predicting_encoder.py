"""What an encoder computes for predictions, whichever engine computes it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.metrics.logits import Logits
from encoder_cls.text.tokens import TokenizedTexts


class PredictingEncoder(Protocol):
    """An encoder with its head, computed by one of the engines in float32.

    `batch_tokens` is the most tokens in a batch, padding included; None for a number that is fast
    on the device.
    """

    @property
    def architecture(self) -> EncoderArchitecture:
        """The sizes of the encoder."""

    @property
    def engine(self) -> str:
        """`numpy` or `torch`."""

    @property
    def uses_gpu(self) -> bool:
        """Whether a GPU computes it."""

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights, as in `EncoderArchitecture.weight_shapes`."""

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """The logits of texts, (texts, classes)."""

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """The vectors of texts that the head reads, (texts, d_model)."""

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """The attention weights in the first text, (layers, heads, from, to), of its tokens."""
