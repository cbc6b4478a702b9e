"""The random numbers of a training step: their seed, and the words that they drop.

They depend only on the seed and the step, for which torch is seeded again, so a resumed run needs
no stored generator.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID


def derive_seed(*numbers: int) -> int:
    """Derive a seed of 32 bits: torch's generator on the CPU ignores further ones."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Seed torch on the CPU and a device.

    `torch.manual_seed` seeds all kinds, which takes up to a millisecond even without CUDA.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def is_word(input_ids: Tensor) -> Tensor:
    """Whether a token is neither padding nor `[CLS]`."""
    return (input_ids != PAD_ID) & (input_ids != CLS_ID)


def drop_tokens(
    input_ids: Tensor, *, fraction: float, generator: torch.Generator | None = None
) -> Tensor:
    """Replace words by `[UNK]`, with a probability of `fraction`.

    Unknown words are rare in training texts, and the model must learn to handle them.
    """
    if fraction == 0:
        return input_ids
    is_dropped = torch.rand(input_ids.shape, generator=generator) < fraction
    return input_ids.masked_fill(is_dropped & is_word(input_ids), UNK_ID)
