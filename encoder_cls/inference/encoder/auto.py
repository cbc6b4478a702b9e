"""Choose the library that computes an encoder: NumPy for a few texts, PyTorch for many."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError
from encoder_cls.inference.encoder import Encoder, EncoderArchitecture
from encoder_cls.inference.encoder.numpy import NumpyEncoder
from encoder_cls.inference.task import Logits
from encoder_cls.inference.weights import Weight
from encoder_cls.system.machine import is_installed, log, needs_torch
from encoder_cls.text.tokens import TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.inference.encoder.torch import TorchEncoder

# Multiplications from which PyTorch is quicker, its import of one to two seconds included (docs/results.md). The work
# chooses the engine, not the clock, so that equal inputs have equal results.
BREAK_EVEN = 6e10

ENGINES = ("auto", "numpy", "torch")

_LOCK = RLock()
if hasattr(os, "register_at_fork"):  # what another thread holds at that moment nobody would release in the child
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def new_encoder(
    architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, engine: str, device: str
) -> Encoder:
    """Make an encoder that one of the `ENGINES` computes; a `ConfigError` where device or engine are missing."""
    is_cpu = device in {"auto", "cpu"}
    if engine == "numpy":
        if not is_cpu:
            raise ConfigError(f"--device {device}: the engine numpy computes on the cpu")
        return NumpyEncoder(architecture, weights)
    if engine == "auto" and is_cpu:
        return AutoEncoder(architecture, weights, device=device)
    if not is_installed("torch"):
        raise ConfigError(f"--engine {engine} --device {device}: {needs_torch()}")
    from encoder_cls.inference.encoder.torch import TorchEncoder

    precision = "float32" if engine == "torch" else "auto"
    return TorchEncoder.from_weights(architecture, weights, device=device, precision=precision)


def is_on_gpu(encoder: Encoder | None, device: str) -> bool:
    """Whether further texts are computed by PyTorch on something else than the CPU."""
    if encoder is None or encoder.engine == "numpy":
        return False
    from encoder_cls.inference.encoder.torch import is_gpu

    return is_gpu(device)


class AutoEncoder(NumpyEncoder):
    """An encoder by NumPy that hands much work to PyTorch, on a device of this."""

    def __init__(self, architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, device: str) -> None:
        super().__init__(architecture, weights)
        self._device = device
        self._torch: TorchEncoder | None = None
        self._work_done = 0.0

    @property
    def engine(self) -> str:
        """The library that computes further texts."""
        return "torch" if self._torch or self._is_much(0) else "numpy"

    def expect(self, num_tokens: int) -> None:
        """Choose the library ahead, for the total of texts that come in parts, so that all are computed alike."""
        lengths = np.full(1 + num_tokens // self.architecture.max_seq_len, self.architecture.max_seq_len)
        if self._is_much(multiplications(self.architecture, lengths)):
            log("debug", f"engine: PyTorch, for about {num_tokens:,} tokens")
            self._work_done = math.inf

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """See `Encoder`."""
        if torch := self._torch_for(texts):
            return torch.logits(texts, batch_tokens=batch_tokens)
        return super().logits(texts, batch_tokens=batch_tokens)

    def embed(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """See `Encoder`."""
        if torch := self._torch_for(texts):
            return torch.embed(texts, batch_tokens=batch_tokens)
        return super().embed(texts, batch_tokens=batch_tokens)

    def torch(self) -> TorchEncoder:
        """The same by PyTorch, which computes all further texts; a `ConfigError` where the device does not exist."""
        from encoder_cls.inference.encoder.torch import TorchEncoder

        with _LOCK:  # of several threads the first one makes it
            if self._torch is None:
                self._torch = TorchEncoder.from_weights(self.architecture, self.weights(), device=self._device)
            return self._torch

    def __getstate__(self) -> dict[str, Any]:
        # Without the PyTorch encoder: another process may lack PyTorch or the device. Infinite work chooses it again.
        work_done = math.inf if self._torch else self._work_done
        return self.__dict__ | {"_torch": None, "_work_done": work_done}

    def _is_much(self, work: float) -> bool:
        """Whether PyTorch is quicker for this work, or for all before."""
        return max(work, self._work_done) > BREAK_EVEN and is_installed("torch")

    def _torch_for(self, texts: TokenizedTexts) -> TorchEncoder | None:
        """The encoder by PyTorch, if it is quicker for these texts, by their work and that of all before."""
        work = multiplications(self.architecture, texts.lengths)
        if self._torch is None and self._is_much(work):
            if math.isfinite(self._work_done):
                log("debug", f"engine: PyTorch, for {max(work, self._work_done):.0e} multiplications at once or so far")
            self.torch()
        with _LOCK:
            self._work_done += work
        return self._torch


def multiplications(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> float:
    """The number of multiplications of the layers for texts of these lengths, (texts,)."""
    by_token = sum(map(math.prod, architecture.linear_maps().values()))
    by_pair = 2 * architecture.d_model  # of tokens: scores, and their weighted sum
    tokens = lengths.astype(np.float64)
    return float(architecture.num_layers * (by_token * tokens.sum() + by_pair * (tokens**2).sum()))
