"""The engines that compute an encoder, NumPy and PyTorch, and the choice between them.

NumPy computes a few texts, and PyTorch computes many, because importing PyTorch takes longer than
a thousand predictions by NumPy.
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
    """An encoder with its head, computed by one of the engines in float32.

    The argument `batch_tokens` is the maximum number of tokens in a batch, including padding. If it
    is None, the engine chooses a number that is fast on its device.
    """

    @property
    def architecture(self) -> EncoderArchitecture:
        """The sizes of the encoder."""

    @property
    def engine(self) -> str:
        """The engine that computes the encoder, `numpy` or `torch`."""

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name, as in `EncoderArchitecture.weight_shapes`."""

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """The logits of texts, (texts, classes)."""

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """The vectors of texts that the head reads, (texts, d_model)."""

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """The attention weights in the first text, as [layer, head, from, to].

        Their shape is (layers, heads, T, T), where T is the number of the text's tokens.
        """


def new_encoder(
    architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, engine: str, device: str
) -> Encoder:
    """Make an encoder for an engine.

    Args:
        architecture: the sizes of the encoder.
        weights: the weights by name, as in `EncoderArchitecture.weight_shapes`.
        engine: one of the `ENGINES`; `auto` chooses by the amount of work.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        ConfigError: the device does not exist, or the engine is not installed.
    """
    is_cpu = device in {"auto", "cpu"}

    if engine == "numpy":
        if not is_cpu:
            raise ConfigError(f"--device {device}: the engine numpy computes on the cpu only")
        return NumpyEncoder(architecture, weights)

    if engine == "auto" and is_cpu:
        return AutomaticEncoder(NumpyEncoder(architecture, weights), device=device)

    if not is_installed("torch"):
        raise ConfigError(f"--engine {engine} --device {device}: {needs_torch()}")
    from encoder_cls.encoder.torch_encoder import TorchEncoder

    return TorchEncoder.from_weights(architecture, weights, device=device)


class AutomaticEncoder:
    """An encoder that NumPy computes for a few texts, and PyTorch, if installed, for many.

    The engine of a call depends only on the work of this call and not on earlier calls, so that
    equal calls have equal results. If a stream of texts is divided into several calls,
    `choose_engine` chooses the engine of all of them.

    Args:
        numpy_encoder: the encoder in NumPy.
        device: the device of the encoder in PyTorch.
    """

    def __init__(self, numpy_encoder: NumpyEncoder, *, device: str) -> None:
        self._numpy = numpy_encoder
        self._device = device
        self._torch: TorchEncoder | None = None
        # The engine of all calls; None if it is chosen for each call.
        self._chosen_engine: str | None = None

    @property
    def architecture(self) -> EncoderArchitecture:
        """The sizes of the encoder."""
        return self._numpy.architecture

    @property
    def engine(self) -> str:
        """The engine that was chosen for all calls; NumPy if it is chosen for each call."""
        return self._chosen_engine or "numpy"

    def choose_engine(self, num_tokens: int) -> None:
        """Choose the engine of all calls for a stream of texts.

        Args:
            num_tokens: the approximate number of tokens of the stream.
        """
        max_seq_len = self.architecture.max_seq_len
        lengths = np.full(math.ceil(num_tokens / max_seq_len), max_seq_len)
        self._chosen_engine = quicker_engine(self.architecture, lengths)

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """See `Encoder`."""
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

        # No lock is needed: if two threads make an encoder each, both compute equal logits.
        if self._torch is None:
            log("debug", "engine: PyTorch")
            self._torch = TorchEncoder.from_weights(
                self.architecture, self.named_weights(), device=self._device
            )
        return self._torch

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the encoder in PyTorch: a copy of this object makes its own from the weights.
        return self.__dict__ | {"_torch": None}

    def _encoder_for(self, texts: TokenizedTexts) -> Encoder:
        engine = self._chosen_engine or quicker_engine(self.architecture, texts.lengths)

        # This object may have been copied to a machine without PyTorch after the choice.
        if engine == "torch" and is_installed("torch"):
            return self.torch()
        return self._numpy


# The number of multiplications from which PyTorch is quicker, although its import takes one to two
# seconds (docs/experiments/speed.md).
BREAK_EVEN = 6e10


def quicker_engine(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> str:
    """The engine that is quicker for texts of these lengths, (texts,)."""
    if multiplications(architecture, lengths) > BREAK_EVEN and is_installed("torch"):
        return "torch"
    return "numpy"


def multiplications(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> float:
    """The number of multiplications of all layers for texts of these lengths, (texts,)."""
    tokens = lengths.astype(np.float64)

    # In a layer, linear maps multiply the vector of each token by all weights.
    per_token = sum(map(math.prod, architecture.linear_maps().values()))

    # Attention multiplies the vectors of each pair of tokens twice: for the scores, and for the
    # weighted mean of the values.
    per_pair = 2 * architecture.d_model

    per_layer = per_token * tokens.sum() + per_pair * (tokens**2).sum()
    return float(architecture.num_layers * per_layer)
