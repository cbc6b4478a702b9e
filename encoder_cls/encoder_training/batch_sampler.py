"""Which texts are in the batches of each step.

They depend only on the seed and the step, since each epoch has a generator of its own: a resumed
run needs no stored one.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.padding import Indices, round_up_lengths


class Epoch(NamedTuple):
    """The order of texts and batches in an epoch, by their indices.

    Attributes:
        texts: in the order of their rounded lengths.
        batches: in the order of use.
    """

    texts: NDArray[np.int32]
    batches: Indices


class BatchSampler:
    """The batches of all epochs.

    In each epoch, texts are shuffled, sorted by rounded length, and cut into batches of at most
    `batch_size` texts and `batch_tokens` tokens with padding, but at least one text. Then the
    batches are shuffled. The sorted lengths, and so the boundaries, are the same in each epoch.

    Args:
        lengths: in tokens.
    """

    def __init__(self, lengths: NDArray[np.int64], config: TrainConfig, *, seed: int) -> None:
        self._seed = seed
        self._accumulation_steps = config.accumulation_steps

        # Store the rounded lengths, which are less than twice the lengths, in the smallest possible
        # type: sorting integers of 8 bits takes a tenth of the time and an eighth of the memory
        # that integers of 64 bits take.
        longest = int(lengths.max(initial=0))
        rounded = round_up_lengths(np.arange(longest + 1))
        self._rounded_lengths = rounded.astype(np.min_scalar_type(2 * longest))[lengths]

        self._cuts = cut(
            np.sort(self._rounded_lengths),
            batch_size=config.batch_size,
            batch_tokens=config.batch_tokens,
        )

        # Keep the order of the current epoch, because many batches in a row need it.
        self._epoch = lru_cache(maxsize=1)(self._shuffled_epoch)

    @property
    def batches_per_epoch(self) -> int:
        """The batches in which each text occurs once."""
        return len(self._cuts) - 1

    @property
    def steps_per_epoch(self) -> int:
        """The optimizer steps of an epoch."""
        return math.ceil(self.batches_per_epoch / self._accumulation_steps)

    def indices(self, batch: int) -> Indices:
        """The texts of a batch, counted from 0 at the start of training."""
        epoch_number, position = divmod(batch, self.batches_per_epoch)
        epoch = self._epoch(epoch_number)

        batch_of_epoch = epoch.batches[position]
        start = self._cuts[batch_of_epoch]
        end = self._cuts[batch_of_epoch + 1]
        return epoch.texts[start:end].astype(np.int64)

    def batches_of_step(self, step: int) -> list[Indices]:
        """The texts of each batch of a step; the last step of an epoch may have fewer batches."""
        epoch_number, position = divmod(step, self.steps_per_epoch)
        first = position * self._accumulation_steps
        end = min(first + self._accumulation_steps, self.batches_per_epoch)

        batches_before = epoch_number * self.batches_per_epoch
        return [self.indices(batches_before + batch) for batch in range(first, end)]

    def _shuffled_epoch(self, epoch_number: int) -> Epoch:
        random = np.random.default_rng([self._seed, epoch_number])
        shuffled = random.permutation(np.arange(len(self._rounded_lengths), dtype=np.int32))

        # A stable sort keeps texts of equal lengths in their shuffled order.
        order = np.argsort(self._rounded_lengths[shuffled], kind="stable")
        return Epoch(texts=shuffled[order], batches=random.permutation(self.batches_per_epoch))


def cut(sorted_lengths: NDArray[np.int64], *, batch_size: int, batch_tokens: int) -> Indices:
    """Where texts of increasing lengths are cut into batches, from 0 on, (batches + 1,)."""
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
    """A shard of a batch, maybe empty: neighbours, because they have similar lengths."""
    start = shard * len(indices) // num_shards
    end = (shard + 1) * len(indices) // num_shards
    return indices[start:end]
