"""The random numbers of a training step: their seed, and the words that they drop.

They depend only on the seed and the step: torch is seeded again for each step. A resumed run needs
no stored generator.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID


def derive_seed(*numbers: int) -> int:
    """Derive a seed from several numbers.

    It has 32 bits, because torch's generator on the CPU ignores further ones.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Seed the random numbers that torch draws on the CPU and on a device.

    `torch.manual_seed` would seed all kinds of devices, which takes up to a millisecond even
    without CUDA.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def is_word(input_ids: Tensor) -> Tensor:
    """Whether each token is neither padding nor `[CLS]`, (B, T)."""
    return (input_ids != PAD_ID) & (input_ids != CLS_ID)


def drop_tokens(
    input_ids: Tensor, *, fraction: float, generator: torch.Generator | None = None
) -> Tensor:
    """Replace words by `[UNK]`, each with a probability of `fraction`, (B, T).

    Unknown words are rare in training texts. From dropped words, the model learns to handle them.
    """
    if fraction == 0:
        return input_ids
    is_dropped = torch.rand(input_ids.shape, generator=generator) < fraction
    return input_ids.masked_fill(is_dropped & is_word(input_ids), UNK_ID)
