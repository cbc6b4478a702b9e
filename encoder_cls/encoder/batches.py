"""Batches of texts.

The texts of a batch are a pure function of seed and step, and so are the words dropped in it, since torch's random
numbers are seeded for each step: a resumed run has nothing to replay or store.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.architecture import Indices, round_up_lengths
from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID


def derive_seed(*numbers: int) -> int:
    """Derive one seed from several numbers, of 32 bits: torch's CPU generator ignores further bits."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def shard_of(indices: Indices, shard: int, num_shards: int) -> Indices:
    """Part number `shard`, from 0, of a batch, perhaps empty; neighbours, since these have similar lengths."""
    return indices[shard * len(indices) // num_shards : (shard + 1) * len(indices) // num_shards]


class BatchSampler:
    """The batches of all epochs.

    In each epoch the texts are shuffled, sorted by their (rounded) lengths and cut into batches of at most `batch_size`
    texts and `batch_tokens` tokens, padding counted; then the batches are shuffled. The sorted lengths are the same in
    each epoch, and so are the cuts and their number. A text longer than `batch_tokens` is a batch by itself.
    """

    def __init__(self, lengths: NDArray[np.int64], config: TrainConfig, *, seed: int) -> None:
        self._seed, self._accumulation_steps = seed, config.accumulation_steps
        longest = int(lengths.max(initial=0))
        # The smallest type: sorting eight bits per text takes a tenth of the time and an eighth of the memory.
        self._rounded = round_up_lengths(np.arange(longest + 1)).astype(
            np.min_scalar_type(2 * longest)
        )[lengths]
        self._cuts = cut(
            np.sort(self._rounded), batch_size=config.batch_size, batch_tokens=config.batch_tokens
        )
        self._epoch = lru_cache(maxsize=1)(self._shuffled_epoch)  # needed many times in a row

    @property
    def batches_per_epoch(self) -> int:
        """Batches in which each text occurs once."""
        return len(self._cuts) - 1

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in which each text occurs once."""
        return math.ceil(self.batches_per_epoch / self._accumulation_steps)

    def indices(self, batch: int) -> Indices:
        """The texts of batch number `batch`, counted from 0 at the start of training."""
        epoch, position = divmod(batch, self.batches_per_epoch)
        in_order, order = self._epoch(epoch)
        first, last = self._cuts[order[position] : order[position] + 2]
        return in_order[first:last].astype(np.int64)

    def batches_of_step(self, step: int) -> list[Indices]:
        """The batches of a step; the last step of an epoch may have fewer, so that no step spans two epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        first = position * self._accumulation_steps
        last = min(first + self._accumulation_steps, self.batches_per_epoch)
        return [
            self.indices(epoch * self.batches_per_epoch + batch) for batch in range(first, last)
        ]

    def _shuffled_epoch(self, epoch: int) -> tuple[NDArray[np.int32], Indices]:
        """The texts in order of their lengths, and the order of the batches."""
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(np.arange(len(self._rounded), dtype=np.int32))
        in_order = shuffled[np.argsort(self._rounded[shuffled], kind="stable")]
        return in_order, random.permutation(self.batches_per_epoch)


def cut(sorted_lengths: NDArray[np.int64], *, batch_size: int, batch_tokens: int) -> Indices:
    """The positions at which to cut sorted lengths, so that each piece, padded, is within both limits."""
    cuts = [0]
    while cuts[-1] < len(sorted_lengths):
        start = cuts[-1]
        window = sorted_lengths[start : start + batch_size]
        # Padded to its longest text, the last one, a piece of n texts has n * (length of the last) tokens.
        padded = np.arange(1, len(window) + 1) * window
        cuts.append(start + max(1, int(np.searchsorted(padded, batch_tokens, side="right"))))
    return np.array(cuts)


def is_word(input_ids: Tensor) -> Tensor:
    """Which tokens, (B, T), are neither padding nor `[CLS]`."""
    return (input_ids != PAD_ID) & (input_ids != CLS_ID)


def drop_tokens(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, which training would otherwise see too rarely."""
    if fraction == 0:
        return input_ids
    is_dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    return input_ids.masked_fill(is_dropped & is_word(input_ids), UNK_ID)
