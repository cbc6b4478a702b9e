"""The batches of training: which texts are in the batches of a step, and which words are dropped.

Texts are a pure function of seed and step, and so are the dropped words, because torch's random
numbers are seeded for each step: a resumed run has nothing to replay or store.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.padding import Indices, round_up_lengths
from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID


def derive_seed(*numbers: int) -> int:
    """Derive a seed of 32 bits from several numbers; torch's CPU generator ignores further bits."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Seed the random numbers that torch draws on the CPU and on a device.

    `torch.manual_seed` seeds all kinds of devices, which takes up to a millisecond where CUDA is
    not in use.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


class Epoch(NamedTuple):
    """The order of texts and batches in an epoch.

    Attributes:
        texts: the texts in the order of their rounded lengths, (texts,).
        batches: the numbers of the batches in the order in which they are used, (batches,).
    """

    texts: NDArray[np.int32]
    batches: Indices


class BatchSampler:
    """The batches of all epochs.

    In each epoch the texts are shuffled, sorted by their rounded lengths and cut into batches of at
    most `batch_size` texts and `batch_tokens` tokens, padding included; then the batches are
    shuffled. The sorted lengths are the same in each epoch, and so are the cuts and their number. A
    text longer than `batch_tokens` is a batch by itself.

    Args:
        lengths: the number of tokens of each text, (texts,).
        config: the size of a batch, and how many batches there are in a step.
        seed: of the shuffles.
    """

    def __init__(self, lengths: NDArray[np.int64], config: TrainConfig, *, seed: int) -> None:
        self._seed = seed
        self._accumulation_steps = config.accumulation_steps

        # The smallest type: sorting eight bits for each text takes a tenth of the time and an
        # eighth of the memory.
        longest = int(lengths.max(initial=0))
        rounded = round_up_lengths(np.arange(longest + 1))
        self._rounded_lengths = rounded.astype(np.min_scalar_type(2 * longest))[lengths]

        self._cuts = cut(
            np.sort(self._rounded_lengths),
            batch_size=config.batch_size,
            batch_tokens=config.batch_tokens,
        )

        # An epoch is needed for many batches in a row.
        self._epoch = lru_cache(maxsize=1)(self._shuffled_epoch)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in which each text occurs once."""
        return len(self._cuts) - 1

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in which each text occurs once."""
        return math.ceil(self.batches_per_epoch / self._accumulation_steps)

    def indices(self, batch: int) -> Indices:
        """The texts of a batch, counted from 0 at the start of training."""
        number, position = divmod(batch, self.batches_per_epoch)
        epoch = self._epoch(number)

        batch_of_epoch = epoch.batches[position]
        start = self._cuts[batch_of_epoch]
        end = self._cuts[batch_of_epoch + 1]
        return epoch.texts[start:end].astype(np.int64)

    def batches_of_step(self, step: int) -> list[Indices]:
        """The texts of each batch of a step.

        The last step of an epoch may have fewer batches, so that no step spans two epochs.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        first = position * self._accumulation_steps
        end = min(first + self._accumulation_steps, self.batches_per_epoch)

        batches_before = epoch * self.batches_per_epoch
        return [self.indices(batches_before + batch) for batch in range(first, end)]

    def _shuffled_epoch(self, epoch: int) -> Epoch:
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(np.arange(len(self._rounded_lengths), dtype=np.int32))

        # A stable sort keeps texts of equal lengths in their shuffled order.
        order = np.argsort(self._rounded_lengths[shuffled], kind="stable")
        return Epoch(texts=shuffled[order], batches=random.permutation(self.batches_per_epoch))


def cut(sorted_lengths: NDArray[np.int64], *, batch_size: int, batch_tokens: int) -> Indices:
    """The positions at which to cut sorted lengths into batches that are within both limits.

    The first one is 0, the last one the number of lengths, (batches + 1,).
    """
    cuts = [0]
    while cuts[-1] < len(sorted_lengths):
        start = cuts[-1]
        window = sorted_lengths[start : start + batch_size]

        # A batch is padded to its longest text, which is its last one.
        tokens_with_padding = np.arange(1, len(window) + 1) * window
        num_texts = int(np.searchsorted(tokens_with_padding, batch_tokens, side="right"))
        cuts.append(start + max(1, num_texts))
    return np.array(cuts)


def shard_of(indices: Indices, shard: int, num_shards: int) -> Indices:
    """One of the shards of a batch, counted from 0, which may be empty.

    Neighbours are in the same shard, because they have similar lengths.
    """
    start = shard * len(indices) // num_shards
    end = (shard + 1) * len(indices) // num_shards
    return indices[start:end]


def is_word(input_ids: Tensor) -> Tensor:
    """Which tokens are neither padding nor `[CLS]`, (B, T)."""
    return (input_ids != PAD_ID) & (input_ids != CLS_ID)


def drop_tokens(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words, (B, T), by `[UNK]`, which is too rare otherwise."""
    if fraction == 0:
        return input_ids
    is_dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    return input_ids.masked_fill(is_dropped & is_word(input_ids), UNK_ID)
