"""The batches of training: which texts are in the batches of a step.

They depend only on the seed and the step, because each epoch has a generator of its own. A resumed
run needs no stored generator.
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
    """The order of texts and batches in an epoch.

    Attributes:
        texts: the indices of the texts, in the order of their rounded lengths, (texts,).
        batches: the indices of the batches, in the order in which they are used, (batches,).
    """

    texts: NDArray[np.int32]
    batches: Indices


class BatchSampler:
    """The batches of all epochs.

    In each epoch, the texts are shuffled, sorted by their rounded lengths, and cut into batches of
    at most `batch_size` texts and `batch_tokens` tokens, including padding. Then the batches are
    shuffled. A text longer than `batch_tokens` is a batch by itself.

    The sorted lengths are the same in each epoch, so the batches of all epochs have the same
    boundaries.

    Args:
        lengths: the number of tokens of each text, (texts,).
        config: the maximum size of a batch, and the number of batches in a step.
        seed: the seed of the shuffling.
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
        """The number of batches in an epoch, in which each text occurs once."""
        return len(self._cuts) - 1

    @property
    def steps_per_epoch(self) -> int:
        """The number of optimizer steps in an epoch."""
        return math.ceil(self.batches_per_epoch / self._accumulation_steps)

    def indices(self, batch: int) -> Indices:
        """The indices of the texts of a batch, which is counted from 0 at the start of training."""
        epoch_number, position = divmod(batch, self.batches_per_epoch)
        epoch = self._epoch(epoch_number)

        batch_of_epoch = epoch.batches[position]
        start = self._cuts[batch_of_epoch]
        end = self._cuts[batch_of_epoch + 1]
        return epoch.texts[start:end].astype(np.int64)

    def batches_of_step(self, step: int) -> list[Indices]:
        """The indices of the texts of each batch of a step, counted from 0.

        The last step of an epoch may have fewer batches, so that no step spans two epochs.
        """
        epoch_number, position = divmod(step, self.steps_per_epoch)
        first = position * self._accumulation_steps
        end = min(first + self._accumulation_steps, self.batches_per_epoch)

        batches_before = epoch_number * self.batches_per_epoch
        return [self.indices(batches_before + batch) for batch in range(first, end)]

    def _shuffled_epoch(self, epoch_number: int) -> Epoch:
        """The order of texts and batches in an epoch, counted from 0."""
        random = np.random.default_rng([self._seed, epoch_number])
        shuffled = random.permutation(np.arange(len(self._rounded_lengths), dtype=np.int32))

        # A stable sort keeps texts of equal lengths in their shuffled order.
        order = np.argsort(self._rounded_lengths[shuffled], kind="stable")
        return Epoch(texts=shuffled[order], batches=random.permutation(self.batches_per_epoch))


def cut(sorted_lengths: NDArray[np.int64], *, batch_size: int, batch_tokens: int) -> Indices:
    """The positions at which sorted texts are cut into batches, (batches + 1,).

    The first position is 0, the last one is the number of texts.

    Args:
        sorted_lengths: the lengths of the texts, increasing, (texts,).
        batch_size: the maximum number of texts in a batch.
        batch_tokens: the maximum number of tokens in a batch, including padding.
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
    """The texts of one shard of a batch, which may be empty.

    A shard consists of neighbouring texts, because they have similar lengths.

    Args:
        indices: the indices of the texts of the batch.
        shard: the number of the shard, counted from 0.
        num_shards: the number of shards into which the batch is divided.
    """
    start = shard * len(indices) // num_shards
    end = (shard + 1) * len(indices) // num_shards
    return indices[start:end]
