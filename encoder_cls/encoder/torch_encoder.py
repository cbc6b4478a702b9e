"""The encoder in PyTorch, for prediction, and batches of texts as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.nested_tensors import map_tensors
from encoder_cls.encoder.padding import Indices, PaddedTexts, compute_rows, pad
from encoder_cls.encoder.transformer import CharNgramBatch, EncoderClassifier
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.machine import autocast, resolve_device
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.weights import Shapes, Weight, dense

# The maximum number of tokens in a batch on a GPU, including padding: enough to keep it busy.
GPU_BATCH_TOKENS = 65_536

# The maximum number of tokens in a batch on a CPU, including padding: they fit into its caches.
CPU_BATCH_TOKENS = 2048


class Batch(NamedTuple):
    """A batch of texts as tensors, (B, T): the arguments of a model, as in `model(*batch)`."""

    input_ids: Tensor
    attention_mask: Tensor
    char_ngrams: CharNgramBatch

    @classmethod
    def of(cls, texts: PaddedTexts) -> Batch:
        """Make tensors of padded texts."""
        positions = None
        if texts.positions is not None:
            positions = torch.from_numpy(texts.positions)
        return cls(
            input_ids=torch.from_numpy(texts.input_ids),
            attention_mask=torch.from_numpy(texts.attention_mask),
            char_ngrams=CharNgramBatch(
                words=torch.from_numpy(texts.words),
                ngrams=torch.from_numpy(texts.char_ngrams.ngrams.astype(np.int64)),
                offsets=torch.from_numpy(texts.char_ngrams.offsets),
                positions=positions,
            ),
        )

    def to(self, device: torch.device) -> Batch:
        """Copy it to a device."""
        return map_tensors(lambda tensor: tensor.to(device), self)


def make_batch(
    texts: TokenizedTexts, indices: Indices | Tensor | Sequence[int], length: int | None = None
) -> Batch:
    """Make a batch of these texts, padded to `length`; None for that of the longest one."""
    return Batch.of(pad(texts, np.asarray(indices), length))


def weight_shapes(
    model_class: type[EncoderClassifier],
    architecture: EncoderArchitecture,
    *,
    vocab_size: int,
    num_classes: int,
) -> Shapes:
    """The shape of each weight by its name."""
    config = ModelConfig(**asdict(architecture))
    model = model_class(config, vocab_size=vocab_size, num_classes=num_classes)
    return {name: tuple(weight.shape) for name, weight in model.state_dict().items()}


class TorchEncoder:
    """An encoder that PyTorch computes, on the device of its model.

    It computes in float32, also in a training of lower precision, so that its logits equal those of
    `NumpyEncoder`. The model may be in training mode.
    """

    engine = "torch"

    def __init__(self, model: EncoderClassifier, config: ModelConfig) -> None:
        self.model = model
        self.architecture = EncoderArchitecture.of(config)

    @classmethod
    def from_weights(
        cls,
        architecture: EncoderArchitecture,
        weights: Mapping[str, Weight],
        *,
        device: str,
        model_class: type[EncoderClassifier] = EncoderClassifier,
    ) -> TorchEncoder:
        """Make an encoder on a device as in `resolve_device`."""
        torch_device = resolve_device(device)
        config = ModelConfig(**asdict(architecture))

        vocab_size = weights["encoder.embedding.tokens.weight"].shape[0]
        num_classes = weights["head.linear.bias"].shape[0]
        model = model_class(config, vocab_size=vocab_size, num_classes=num_classes)

        arrays = dense(weights)
        model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return cls(model.to(torch_device).eval(), config)

    @property
    def uses_gpu(self) -> bool:
        """See `PredictingEncoder`."""
        return self._device.type != "cpu"

    def named_weights(self) -> dict[str, NDArray[np.float32]]:
        """See `PredictingEncoder`."""
        # Leave out the decoder, which a model has during pretraining by denoising.
        return {
            name: tensor.detach().cpu().contiguous().numpy()
            for name, tensor in self.model.state_dict().items()
            if not name.startswith("decoder.")
        }

    def logits(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
        share: Callable[[int], range] = range,
    ) -> Logits:
        """See `PredictingEncoder`; `share` is that of `compute_rows`."""

        def compute(batch: Batch) -> Tensor:
            logits_BC: Tensor = self.model(*batch)
            return logits_BC

        num_classes = self.model.head.linear.out_features
        return self._rows(texts, compute, width=num_classes, batch_tokens=batch_tokens, share=share)

    def embed(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """See `PredictingEncoder`."""

        def pooled(batch: Batch) -> Tensor:
            return self.model.head.pool(self.model.encoder(*batch), batch.attention_mask)

        return self._rows(texts, pooled, width=self.architecture.d_model, batch_tokens=batch_tokens)

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """See `PredictingEncoder`."""
        batch = make_batch(texts, np.array([0])).to(self._device)
        with torch.inference_mode():
            maps = self.model.encoder.attention_maps(*batch)
        return maps[:, 0].float().cpu().numpy()

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _rows(
        self,
        texts: TokenizedTexts,
        compute: Callable[[Batch], Tensor],
        *,
        width: int,
        batch_tokens: int | None,
        share: Callable[[int], range] = range,
    ) -> NDArray[np.float32]:
        """Compute rows without dropout, also in training mode."""
        device = self._device
        if batch_tokens is None:
            batch_tokens = CPU_BATCH_TOKENS if device.type == "cpu" else GPU_BATCH_TOKENS

        def compute_on_device(padded: PaddedTexts) -> NDArray[np.float32]:
            batch = Batch.of(padded).to(device)
            return compute(batch).cpu().numpy()

        was_training = self.model.training
        self.model.eval()
        try:
            # Compute in float32, even if the caller is inside a block of `torch.autocast`.
            with torch.inference_mode(), autocast(torch.float32, device):
                return compute_rows(
                    texts,
                    compute_on_device,
                    width=width,
                    batch_tokens=batch_tokens,
                    share=share,
                )
        finally:
            self.model.train(was_training)
