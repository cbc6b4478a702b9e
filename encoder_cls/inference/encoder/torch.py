"""The encoder in PyTorch, for prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.config import ModelConfig
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder import batches as collate
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.encoder.auto import AutoEncoder
from encoder_cls.inference.encoder.batches import Indices, by_length
from encoder_cls.inference.task import Logits
from encoder_cls.inference.weights import Weight, dense
from encoder_cls.model import CharNgramBatch, EncoderClassifier
from encoder_cls.system.machine import autocast, resolve_device, resolve_precision
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts

# The most tokens in a batch: so many keep a GPU busy; on a CPU, so many bytes a number fit the caches.
GPU_BATCH_TOKENS, CPU_BATCH_BYTES = 65_536, 8192


class Batch(NamedTuple):
    """The arguments of a model: `model(*batch)`."""

    input_ids: Tensor
    attention_mask: Tensor
    char_ngrams: CharNgramBatch

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        return Batch(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            CharNgramBatch(*(tensor.to(device) for tensor in self.char_ngrams)),
        )


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> Batch:
    """`collate.pad` in tensors."""
    batch = collate.pad(texts, indices, length)
    arrays = (batch.words, batch.char_ngrams.ngrams.astype(np.int64), batch.char_ngrams.offsets)
    return Batch(
        torch.from_numpy(batch.input_ids),
        torch.from_numpy(batch.attention_mask),
        CharNgramBatch(*map(torch.from_numpy, arrays)),
    )


class TorchEncoder:
    """An `Encoder` around a model on any device and in any mode; `precision` is as in `train.precision`."""

    engine = "torch"

    def __init__(self, model: EncoderClassifier, config: ModelConfig, *, precision: str = "auto") -> None:
        self.model = model
        self.architecture = EncoderArchitecture.of(config)
        self.precision = precision

    @classmethod
    def from_weights(
        cls,
        architecture: EncoderArchitecture,
        weights: Mapping[str, Weight],
        *,
        device: str,
        precision: str = "auto",
    ) -> TorchEncoder:
        """Make one of weights by name.

        Raises:
            ConfigError: there is no such device.
        """
        torch_device = resolve_device(device)
        config = ModelConfig(**asdict(architecture))
        shapes = {name: weight.shape for name, weight in weights.items()}
        vocab_size, num_classes = shapes["encoder.embedding.tokens.weight"][0], shapes["head.linear.bias"][0]
        model = EncoderClassifier(config, vocab_size=vocab_size, num_classes=num_classes)
        model.load_state_dict({name: torch.from_numpy(weight) for name, weight in dense(weights).items()})
        return cls(model.to(torch_device).eval(), config, precision=precision)

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """See `Encoder`."""
        tensors = self.model.state_dict().items()
        return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors}

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """See `Encoder`."""
        return compute_logits(self.model, texts, batch_tokens=batch_tokens, precision=self.precision)

    def embed(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """See `Encoder`; float32 products, since vectors are kept and compared with those of other days."""
        model = self.model
        return in_batches(
            model,
            texts,
            lambda batch: model.head.pool(model.encoder(*batch), batch.attention_mask),
            width=self.architecture.d_model,
            batch_tokens=batch_tokens,
            precision="float32",
        )

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """See `Encoder`."""
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            maps = self.model.encoder.attention_maps(*pad(texts, np.array([0])).to(device))
        return maps[:, 0].float().cpu().numpy()


def torch_encoder(classifier: Classifier) -> TorchEncoder:
    """The encoder of a classifier, computed by PyTorch.

    Raises:
        TypeError: it has none, or one of another library.
    """
    if isinstance(classifier.encoder, AutoEncoder):
        return classifier.encoder.torch()
    if not isinstance(classifier.encoder, TorchEncoder):
        raise TypeError("not a classifier whose encoder is computed by PyTorch")
    return classifier.encoder


def compute_logits(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    *,
    batch_tokens: int | None,
    precision: str = "auto",
    share: Callable[[int], range] = range,
) -> Logits:
    """Logits, (texts, classes); arguments as in `in_batches`."""
    return in_batches(
        model,
        texts,
        lambda batch: model(*batch),
        width=model.head.linear.out_features,
        batch_tokens=batch_tokens,
        precision=precision,
        share=share,
    )


def in_batches(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    compute: Callable[[Batch], Tensor],
    *,
    width: int,
    batch_tokens: int | None,
    precision: str = "auto",
    share: Callable[[int], range] = range,
) -> NDArray[np.float32]:
    """Compute rows for all texts, (texts, width), without dropout.

    Args:
        model: the classifier; its training mode is restored.
        texts: the token ids.
        compute: from a batch on the model's device to its rows, (B, width).
        width: of a row.
        batch_tokens: as in `Encoder`.
        precision: as in `train.precision`; `auto` may be bfloat16, which moves probabilities by a thousandth.
        share: chooses among so many batches; the rows of the others are 0.
    """
    device = next(model.parameters()).device
    dtype = resolve_precision(precision, device)
    fast_tokens = CPU_BATCH_BYTES // dtype.itemsize if device.type == "cpu" else GPU_BATCH_TOKENS
    rows = np.zeros((len(texts), width), dtype=np.float32)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(dtype, device):
            pieces = by_length(texts.lengths, batch_tokens=batch_tokens or fast_tokens)
            for piece in (pieces[number] for number in share(len(pieces))):
                rows[piece.indices] = compute(pad(texts, *piece).to(device)).cpu().numpy()
                check_stop()
    finally:
        model.train(was_training)
    return rows
