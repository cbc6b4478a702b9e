"""A model and many tokenized texts in, what the model makes of them out: batched forward passes, without dropout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.inference.calibration import Logits
from encoder_cls.inference.collate import Batch, by_length, pad
from encoder_cls.model import EncoderClassifier
from encoder_cls.system.device import autocast, resolve_precision
from encoder_cls.text.token_arrays import TokenizedTexts

# The most tokens in a batch where nobody has chosen: what keeps a GPU busy, or what fits a processor's caches, that is
# twice as many where numbers have half the bytes.
GPU_BATCH_TOKENS, CPU_BATCH_BYTES = 65_536, 8192


def compute_logits(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    *,
    batch_tokens: int | None,
    after_batch: Callable[[], None] | None = None,
) -> Logits:
    """Logits of all texts, (texts, classes); arguments as in `in_batches`."""
    return in_batches(
        model,
        texts,
        lambda batch: model(*batch),
        width=model.head.linear.out_features,
        batch_tokens=batch_tokens,
        after_batch=after_batch,
    )


def in_batches(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    compute: Callable[[Batch], Tensor],
    *,
    width: int,
    batch_tokens: int | None,
    after_batch: Callable[[], None] | None = None,
) -> NDArray[np.float32]:
    """What a model makes of all texts, (texts, width), without dropout.

    Matrix products are in bfloat16 where the device is fast at it, which moves probabilities by a thousandth.

    Args:
        model: the classifier; its training mode is put back afterwards.
        texts: the token ids.
        compute: from a batch on the model's device to its rows, (B, width).
        width: how many numbers a text gets.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        after_batch: called after each batch; what it raises ends the work.
    """
    device = next(model.parameters()).device
    precision = resolve_precision("auto", device)
    fast_tokens = CPU_BATCH_BYTES // precision.itemsize if device.type == "cpu" else GPU_BATCH_TOKENS
    rows = np.zeros((len(texts), width), dtype=np.float32)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(precision, device):
            for piece in by_length(texts.lengths, batch_tokens=batch_tokens or fast_tokens):
                rows[piece.indices] = compute(pad(texts, *piece).to(device)).cpu().numpy()
                if after_batch:
                    after_batch()
    finally:
        model.train(was_training)
    return rows
