"""The libraries that compute an encoder, NumPy and PyTorch, and the choice between them.

Importing PyTorch takes longer than a thousand predictions by NumPy. So NumPy computes a few texts,
and PyTorch computes many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.numpy_encoder import NumpyEncoder
from encoder_cls.errors import ConfigError
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.libraries import is_installed, needs_torch
from encoder_cls.system.log import log
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.weights import Weight

if TYPE_CHECKING:
    from encoder_cls.encoder.torch_encoder import TorchEncoder

ENGINES = ("auto", "numpy", "torch")


class Encoder(Protocol):
    """An encoder with its head, computed by one of the libraries, in float32.

    `batch_tokens` is the most tokens in a batch, padding included; by default a number that is fast
    on the device.
    """

    @property
    def architecture(self) -> EncoderArchitecture:
        """The sizes of the encoder."""

    @property
    def engine(self) -> str:
        """The library that computes the encoder: `numpy` or `torch`."""

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name, as in `EncoderArchitecture.weight_shapes`."""

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """Logits, (texts, classes)."""

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """The vectors that the head reads, (texts, d_model)."""

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """The attention weights in one text, (layers, heads, T, T): [layer, head, from, to]."""


def new_encoder(
    architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, engine: str, device: str
) -> Encoder:
    """Make an encoder for one of the `ENGINES`.

    Raises:
        ConfigError: the device or the library does not exist here.
    """
    is_cpu = device in {"auto", "cpu"}

    if engine == "numpy":
        if not is_cpu:
            raise ConfigError(f"--device {device}: the engine numpy computes on the cpu")
        return NumpyEncoder(architecture, weights)

    if engine == "auto" and is_cpu:
        return AutomaticEncoder(NumpyEncoder(architecture, weights), device=device)

    if not is_installed("torch"):
        raise ConfigError(f"--engine {engine} --device {device}: {needs_torch()}")
    from encoder_cls.encoder.torch_encoder import TorchEncoder

    return TorchEncoder.from_weights(architecture, weights, device=device)


class AutomaticEncoder:
    """An encoder that NumPy computes for a few texts, and PyTorch, if installed, for many.

    The work of a call chooses the library, and not what came before, so that equal calls have equal
    results. A stream of texts comes in several calls: for these, `choose_engine` chooses once.

    Args:
        numpy_encoder: the encoder in NumPy.
        device: of the encoder in PyTorch.
    """

    def __init__(self, numpy_encoder: NumpyEncoder, *, device: str) -> None:
        self._numpy = numpy_encoder
        self._device = device
        self._torch: TorchEncoder | None = None
        # The library of all calls; None: each call has its own.
        self._chosen: str | None = None

    @property
    def architecture(self) -> EncoderArchitecture:
        """The sizes of the encoder."""
        return self._numpy.architecture

    @property
    def engine(self) -> str:
        """The library that was chosen for all calls; NumPy if none was."""
        return self._chosen or "numpy"

    def choose_engine(self, num_tokens: int) -> None:
        """Choose the library for a stream of about so many tokens."""
        max_seq_len = self.architecture.max_seq_len
        lengths = np.full(math.ceil(num_tokens / max_seq_len), max_seq_len)
        self._chosen = quicker_engine(self.architecture, lengths)

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name."""
        return self._numpy.named_weights()

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """See `Encoder`."""
        return self._encoder_for(texts).logits(texts, batch_tokens=batch_tokens)

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """See `Encoder`."""
        return self._encoder_for(texts).embed(texts, batch_tokens=batch_tokens)

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """See `Encoder`."""
        return self._numpy.attention_maps(texts)

    def torch(self) -> TorchEncoder:
        """This encoder in PyTorch.

        Raises:
            ConfigError: the device does not exist.
        """
        from encoder_cls.encoder.torch_encoder import TorchEncoder

        # There is no lock: two threads may each make one, and both compute equal logits.
        if self._torch is None:
            log("debug", "engine: PyTorch")
            self._torch = TorchEncoder.from_weights(
                self.architecture, self.named_weights(), device=self._device
            )
        return self._torch

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes its own encoder in PyTorch from the weights.
        return self.__dict__ | {"_torch": None}

    def _encoder_for(self, texts: TokenizedTexts) -> Encoder:
        engine = self._chosen or quicker_engine(self.architecture, texts.lengths)
        # A copy may have come to a machine without PyTorch.
        if engine == "torch" and is_installed("torch"):
            return self.torch()
        return self._numpy


# Multiplications from which PyTorch is quicker, although its import takes one to two seconds
# (docs/experiments/speed.md).
BREAK_EVEN = 6e10


def quicker_engine(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> str:
    """The library that is quicker for texts of these lengths, (texts,)."""
    if multiplications(architecture, lengths) > BREAK_EVEN and is_installed("torch"):
        return "torch"
    return "numpy"


def multiplications(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> float:
    """The number of multiplications of all layers for texts of these lengths, (texts,)."""
    tokens = lengths.astype(np.float64)

    # Linear maps multiply each token by all weights.
    per_token = sum(map(math.prod, architecture.linear_maps().values()))

    # Attention multiplies pairs of tokens, for the scores and for the weighted mean of the values.
    per_pair = 2 * architecture.d_model

    per_layer = per_token * tokens.sum() + per_pair * (tokens**2).sum()
    return float(architecture.num_layers * per_layer)
