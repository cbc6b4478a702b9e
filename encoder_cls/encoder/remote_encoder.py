"""An encoder on a GPU for worker processes: they ask the process that started them.

Each process that used a GPU itself would load its own copy of CUDA and the weights.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.predicting_encoder import PredictingEncoder
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.processes import ask_parent
from encoder_cls.system.settings import own_settings
from encoder_cls.text.tokens import TokenizedTexts


class EncoderCall(NamedTuple):
    """A call of a method of an encoder."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class RemoteEncoder:
    """An encoder in a worker process, which its parent computes."""

    engine = "torch"
    uses_gpu = True

    def __init__(self, architecture: EncoderArchitecture) -> None:
        self.architecture = architecture

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """See `PredictingEncoder`."""
        weights: dict[str, NDArray[np.float32]] = self._ask("named_weights")
        return weights

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """See `PredictingEncoder`."""
        logits: Logits = self._ask("logits", texts, batch_tokens=batch_tokens)
        return logits

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """See `PredictingEncoder`."""
        vectors: NDArray[np.float32] = self._ask("embed", texts, batch_tokens=batch_tokens)
        return vectors

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """See `PredictingEncoder`."""
        maps: NDArray[np.float32] = self._ask("attention_maps", texts)
        return maps

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        return ask_parent(EncoderCall(method, arguments, options))


class EncoderForWorkers:
    """Computes the calls of the workers' `RemoteEncoder`s, one after the other."""

    def __init__(self, encoder: PredictingEncoder) -> None:
        self._encoder = encoder
        self._lock = Lock()

    def __call__(self, call: EncoderCall) -> Any:
        """Compute a call."""
        # The calls come from threads, one for each worker process.
        with self._lock, own_settings():
            method = getattr(self._encoder, call.method)
            return method(*call.arguments, **call.options)
