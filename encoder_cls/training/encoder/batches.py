"""The texts of each batch, a pure function of seed and step: a resumed run has nothing to replay or store."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import TrainConfig
from encoder_cls.inference.encoder import Indices, round_up_lengths


def derive_seed(*numbers: int) -> int:
    """One seed made of several numbers; of 32 bits, since torch's CPU generator looks at no more of its seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


@dataclass(frozen=True)
class Shard:
    """Part number `index`, from 0, of `count` parts of each batch of a step."""

    index: int = 0
    count: int = 1

    def of(self, indices: Indices) -> Indices:
        """The texts of a batch that are in it, perhaps none; neighbours, since they have similar lengths."""
        return indices[self.index * len(indices) // self.count : (self.index + 1) * len(indices) // self.count]


WHOLE = Shard()


class BatchSampler:
    """The batches of all epochs.

    In each epoch the texts are shuffled, brought into order of their (rounded) lengths and cut into
    batches of at most `batch_size` texts and `batch_tokens` tokens, padding counted; then the batches are
    shuffled. The rounded lengths in order are the same in each epoch, hence so are the cuts: every
    epoch has `batches_per_epoch` batches. A text longer than the budget is a batch by itself.
    """

    def __init__(self, lengths: NDArray[np.int64], config: TrainConfig, *, seed: int) -> None:
        self._seed, self._accumulation_steps = seed, config.accumulation_steps
        longest = int(lengths.max(initial=0))
        # Of the smallest type: sorting eight bits a text takes a tenth of the time and an eighth of the memory.
        self._rounded = round_up_lengths(np.arange(longest + 1)).astype(np.min_scalar_type(2 * longest))[lengths]
        self._cuts = cut(np.sort(self._rounded), batch_size=config.batch_size, batch_tokens=config.batch_tokens)
        self._epoch = lru_cache(maxsize=1)(self._shuffled_epoch)  # one epoch is needed many times in a row

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
        return [self.indices(epoch * self.batches_per_epoch + batch) for batch in range(first, last)]

    def _shuffled_epoch(self, epoch: int) -> tuple[NDArray[np.int32], Indices]:
        """The texts in order of their lengths, and the order of the batches."""
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(np.arange(len(self._rounded), dtype=np.int32))
        in_order = shuffled[np.argsort(self._rounded[shuffled], kind="stable")]
        return in_order, random.permutation(self.batches_per_epoch)


def cut(sorted_lengths: NDArray[np.int64], *, batch_size: int, batch_tokens: int) -> Indices:
    """Where to cut a sorted sequence of lengths so that each piece, padded, stays within both limits."""
    cuts = [0]
    while cuts[-1] < len(sorted_lengths):
        start = cuts[-1]
        window = sorted_lengths[start : start + batch_size]
        # Padded to its longest text, a piece of n texts has n * (its last length) tokens.
        padded = np.arange(1, len(window) + 1) * window
        cuts.append(start + max(1, int(np.searchsorted(padded, batch_tokens, side="right"))))
    return np.array(cuts)
