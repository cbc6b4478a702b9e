"""The encoder in PyTorch, for prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder import architecture as arrays
from encoder_cls.encoder.architecture import EncoderArchitecture, Indices, compute_rows
from encoder_cls.encoder.transformer import CharNgramBatch, EncoderClassifier
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.machine import autocast, resolve_device
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.weights import Weight, dense

GPU_BATCH_TOKENS = 65_536  # keep a GPU busy
CPU_BATCH_TOKENS = 2048  # fit the caches of a CPU


class Batch(NamedTuple):
    """The arguments of a model: `model(*batch)`."""

    input_ids: Tensor
    attention_mask: Tensor
    char_ngrams: CharNgramBatch

    @classmethod
    def of(cls, batch: arrays.Batch) -> Batch:
        """A batch of arrays in tensors."""
        words = (batch.words, batch.char_ngrams.ngrams.astype(np.int64), batch.char_ngrams.offsets)
        input_ids, attention_mask = (
            torch.from_numpy(batch.input_ids),
            torch.from_numpy(batch.attention_mask),
        )
        return cls(input_ids, attention_mask, CharNgramBatch(*map(torch.from_numpy, words)))

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        words = CharNgramBatch(*(tensor.to(device) for tensor in self.char_ngrams))
        return Batch(self.input_ids.to(device), self.attention_mask.to(device), words)


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> Batch:
    """The batch of `encoder.pad` in tensors."""
    return Batch.of(arrays.pad(texts, indices, length))


class TorchEncoder:
    """A model as an encoder with the methods of `NumpyEncoder`, on any device and in any mode.

    It computes in float32, whatever the precision of training, so that its answers equal those of `NumpyEncoder`.
    """

    engine = "torch"

    def __init__(self, model: EncoderClassifier, config: ModelConfig) -> None:
        self.model = model
        self.architecture = EncoderArchitecture.of(config)

    @classmethod
    def from_weights(
        cls, architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, device: str
    ) -> TorchEncoder:
        """Make an encoder from its weights by name; a `ConfigError` if the device does not exist."""
        torch_device = resolve_device(device)
        config = ModelConfig(**asdict(architecture))
        shapes = {name: weight.shape for name, weight in weights.items()}
        vocab_size, num_classes = (
            shapes["encoder.embedding.tokens.weight"][0],
            shapes["head.linear.bias"][0],
        )
        model = EncoderClassifier(config, vocab_size=vocab_size, num_classes=num_classes)
        model.load_state_dict(
            {name: torch.from_numpy(weight) for name, weight in dense(weights).items()}
        )
        return cls(model.to(torch_device).eval(), config)

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """See `NumpyEncoder`."""
        # The decoder of a pretraining is left out.
        parts = nn.ModuleDict({"encoder": self.model.encoder, "head": self.model.head})
        return {
            name: tensor.detach().cpu().contiguous().numpy()
            for name, tensor in parts.state_dict().items()
        }

    def logits(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
        share: Callable[[int], range] = range,
    ) -> Logits:
        """See `NumpyEncoder`, and `compute_rows`."""
        width = self.model.head.linear.out_features
        return self._rows(texts, lambda batch: self.model(*batch), width, batch_tokens, share)

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """See `NumpyEncoder`."""

        def pooled(batch: Batch) -> Tensor:
            return self.model.head.pool(self.model.encoder(*batch), batch.attention_mask)

        return self._rows(texts, pooled, self.architecture.d_model, batch_tokens)

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """See `NumpyEncoder`."""
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            maps = self.model.encoder.attention_maps(*pad(texts, np.array([0])).to(device))
        return maps[:, 0].float().cpu().numpy()

    def _rows(
        self,
        texts: TokenizedTexts,
        compute: Callable[[Batch], Tensor],
        width: int,
        batch_tokens: int | None,
        share: Callable[[int], range] = range,
    ) -> NDArray[np.float32]:
        """Run `compute_rows` on the model's device, without dropout, and restore its training mode."""
        device = next(self.model.parameters()).device
        if batch_tokens is None:
            batch_tokens = CPU_BATCH_TOKENS if device.type == "cpu" else GPU_BATCH_TOKENS

        def on_device(batch: arrays.Batch) -> NDArray[np.float32]:
            return compute(Batch.of(batch).to(device)).cpu().numpy()

        was_training = self.model.training
        self.model.eval()
        try:
            # Also within a caller's own block of `torch.autocast`.
            with torch.inference_mode(), autocast(torch.float32, device):
                return compute_rows(
                    texts, on_device, width=width, batch_tokens=batch_tokens, share=share
                )
        finally:
            self.model.train(was_training)
