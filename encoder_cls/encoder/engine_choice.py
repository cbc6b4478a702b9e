"""The choice between the engines that compute an encoder: NumPy and PyTorch.

NumPy computes a few texts and PyTorch many, since importing it takes longer than a thousand
predictions by NumPy; a GPU computes even more, because starting it takes seconds, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.numpy_encoder import NumpyEncoder
from encoder_cls.encoder.predicting_encoder import PredictingEncoder
from encoder_cls.errors import ConfigError
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.libraries import is_installed, needs_torch
from encoder_cls.system.log import log
from encoder_cls.system.machine import has_gpu
from encoder_cls.system.processes import usable_processes
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.weights import Weight

if TYPE_CHECKING:
    from encoder_cls.encoder.torch_encoder import TorchEncoder
    from encoder_cls.encoder.transformer import EncoderClassifier

ENGINES = ("auto", "numpy", "torch")


def new_encoder(
    architecture: EncoderArchitecture,
    weights: Mapping[str, Weight],
    *,
    engine: str,
    device: str,
    model_class: type[EncoderClassifier] | None = None,
) -> PredictingEncoder:
    """Make an encoder for one of the `ENGINES`; `auto` chooses by the amount of work.

    Args:
        weights: by the names of `EncoderArchitecture.weight_shapes`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        model_class: a user's own model, which PyTorch computes whatever the engine.

    Raises:
        ConfigError: the device does not exist, or the engine is not installed.
    """
    if model_class:
        from encoder_cls.encoder.torch_encoder import TorchEncoder

        return TorchEncoder.from_weights(
            architecture, weights, device=device, model_class=model_class
        )

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
    """An encoder that NumPy computes for a few texts, PyTorch for many, and a GPU for even more.

    A call's engine and device depend on its work alone, so that equal calls have equal results;
    `choose_engine` chooses them once for a stream of texts.
    """

    def __init__(self, numpy_encoder: NumpyEncoder, *, device: str) -> None:
        self._numpy = numpy_encoder
        self._device = device
        # The encoders in PyTorch, by the names of their devices.
        self._torch: dict[str, TorchEncoder] = {}
        # The engine and the device of all calls; None if they are chosen for each call.
        self._choice: _Choice | None = None

    @property
    def architecture(self) -> EncoderArchitecture:
        """See `PredictingEncoder`."""
        return self._numpy.architecture

    @property
    def engine(self) -> str:
        """The engine that was chosen for all calls; NumPy if each call chooses."""
        return self._choice.engine if self._choice else "numpy"

    @property
    def uses_gpu(self) -> bool:
        """Whether a GPU was chosen for all calls."""
        return self._choice is not None and self._choice.device != "cpu"

    def choose_engine(
        self,
        num_tokens: int,
        *,
        fraction_computed: Callable[[], float] = lambda: 1.0,
        num_processes: int = 1,
    ) -> None:
        """Choose engine and device of all calls, for a stream of texts.

        Args:
            fraction_computed: of texts that do not skip the encoder; called only if there is much
                work.
            num_processes: among how many the work is shared, each with a copy of this object.
        """
        # Estimate the work as if all texts were as long as the encoder reads.
        max_seq_len = self.architecture.max_seq_len
        num_texts = math.ceil(num_tokens / max_seq_len)
        work = num_texts * multiplications(self.architecture, np.array([max_seq_len]))
        if _is_much(work, num_processes):
            work *= fraction_computed()
        self._choice = self._quicker(work, num_processes)

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """See `PredictingEncoder`."""
        return self._numpy.named_weights()

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """See `PredictingEncoder`."""
        return self._encoder_for(texts).logits(texts, batch_tokens=batch_tokens)

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """See `PredictingEncoder`."""
        return self._encoder_for(texts).embed(texts, batch_tokens=batch_tokens)

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """See `PredictingEncoder`."""
        return self._numpy.attention_maps(texts)

    def torch(self, device: str = "cpu") -> TorchEncoder:
        """This encoder in PyTorch."""
        from encoder_cls.encoder.torch_encoder import TorchEncoder

        # No lock is needed: if two threads make an encoder each, both compute equal logits.
        if device not in self._torch:
            log("debug", "engine: PyTorch" if device == "cpu" else f"engine: PyTorch on {device}")
            self._torch[device] = TorchEncoder.from_weights(
                self.architecture, self.named_weights(), device=device
            )
        return self._torch[device]

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the encoders in PyTorch: a copy of this object makes its own from the weights.
        return self.__dict__ | {"_torch": {}}

    def _encoder_for(self, texts: TokenizedTexts) -> PredictingEncoder:
        choice = self._choice
        if choice is None:
            choice = self._quicker(multiplications(self.architecture, texts.lengths))

        # This object may have been copied to a machine without PyTorch after the choice.
        if choice.engine == "torch" and is_installed("torch"):
            return self.torch(choice.device)
        return self._numpy

    def _quicker(self, work: float, num_processes: int = 1) -> _Choice:
        if not _is_much(work, num_processes) or not is_installed("torch"):
            return _Choice("numpy", "cpu")

        # Look for a GPU last, because that imports torch.
        is_enough = work > GPU_BREAK_EVEN * usable_processes()
        if self._device == "auto" and is_enough and has_gpu():
            return _Choice("torch", GPU)
        return _Choice("torch", "cpu")


class _Choice(NamedTuple):
    engine: str
    device: str


# The number of multiplications, for each process that computes, from which PyTorch is quicker,
# although its import takes one to two seconds (docs/experiments/speed.md).
BREAK_EVEN = 6e10


def _is_much(work: float, num_processes: int) -> bool:
    return work > BREAK_EVEN * num_processes


# The number of multiplications, for each process that would compute otherwise, from which a GPU is
# quicker. A process computes 1.3e10 to 3e10 in a second, and to start CUDA and its libraries takes
# five to six seconds (docs/experiments/speed.md).
GPU_BREAK_EVEN = 1e11

# The device on which PyTorch computes much work, if there is one.
GPU = "cuda"


def multiplications(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> float:
    """The multiplications of all layers for texts of these lengths, (texts,)."""
    tokens = lengths.astype(np.float64)

    # In a layer, linear maps multiply the vector of each token by all weights.
    per_token = sum(map(math.prod, architecture.linear_maps().values()))

    # Attention multiplies the vectors of each pair of tokens twice: for the scores, and for the
    # weighted mean of the values.
    per_pair = 2 * architecture.d_model

    per_layer = per_token * tokens.sum() + per_pair * (tokens**2).sum()
    return float(architecture.num_layers * per_layer)
