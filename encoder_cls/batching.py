"""Which texts make up a batch, and the batch itself: padded token ids with their mask.

The batch of a step is a pure function of (lengths, settings, seed, step). So a run that was interrupted
goes on with exactly the batch that would have come next, and nothing has to be replayed or stored.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.tokenizer import CLS_ID, PAD_ID, UNK_ID, TokenizedTexts

Indices = NDArray[np.int64]

# Lengths within 1/16 of each other count as equal: enough to mix neighbours anew in each epoch, while
# padding stays a few percent.
LENGTH_TOLERANCE = 1 / 16


class BatchSchedule:
    """The batches of all epochs.

    In each epoch the texts are shuffled, brought into order of their (rounded) lengths and cut into
    batches of at most `batch_size` texts and `batch_tokens` tokens, padding counted; then the batches are
    shuffled. The rounded lengths in order are the same in each epoch, hence so are the cuts: every
    epoch has `batches_per_epoch` batches. A text longer than the budget is a batch by itself.

    Args:
        lengths: tokens of each text, (texts,).
        batch_size: the most texts in a batch.
        batch_tokens: the most tokens in a batch.
        seed: seed of the shuffles.
    """

    def __init__(self, lengths: NDArray[np.int64], *, batch_size: int, batch_tokens: int, seed: int) -> None:
        self._seed = seed
        self._rounded = _round_up(lengths)
        self._cuts = cut(np.sort(self._rounded), batch_size=batch_size, batch_tokens=batch_tokens)
        self._epoch = lru_cache(maxsize=2)(self._shuffled_epoch)  # one epoch is needed many times in a row

    @property
    def batches_per_epoch(self) -> int:
        """Batches of one pass over the texts."""
        return len(self._cuts) - 1

    def indices(self, batch: int) -> Indices:
        """The texts of batch number `batch`, counted from 0 at the start of training."""
        epoch, place = divmod(batch, self.batches_per_epoch)
        return self._epoch(epoch)[place]

    def _shuffled_epoch(self, epoch: int) -> list[Indices]:
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(len(self._rounded))
        in_order = shuffled[np.argsort(self._rounded[shuffled], kind="stable")]
        batches = np.split(in_order, self._cuts[1:-1])
        return [batches[place] for place in random.permutation(len(batches))]


def by_length(lengths: NDArray[np.int64], *, batch_tokens: int) -> list[Indices]:
    """All texts in batches of similar length, the longest first: memory is at its peak at the start."""
    in_order = np.argsort(lengths, kind="stable")
    cuts = cut(lengths[in_order], batch_size=len(lengths), batch_tokens=batch_tokens)
    return np.split(in_order, cuts[1:-1])[::-1] if len(lengths) else []


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


def pad(texts: TokenizedTexts, indices: Indices) -> tuple[Tensor, Tensor]:
    """The tokens of some texts as `input_ids` (B, T) and `attention_mask` (B, T), True on real tokens."""
    lengths = texts.lengths[indices]
    places = np.arange(lengths.max())
    mask = places < lengths[:, None]
    input_ids = np.full(mask.shape, PAD_ID, dtype=np.int64)
    input_ids[mask] = texts.input_ids[(texts.offsets[indices][:, None] + places)[mask]]
    return torch.from_numpy(input_ids), torch.from_numpy(mask)


def drop_words(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, of which training would otherwise see too few."""
    if fraction == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    is_word = (input_ids != PAD_ID) & (input_ids != CLS_ID)
    return input_ids.masked_fill(dropped & is_word, UNK_ID)


def _round_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths rounded up to the next of 1, 2, ..., 15, 16, 17, 18, ..., 32, 34, ..., each 1/16 apart."""
    step = np.maximum(1, 2 ** np.floor(np.log2(np.maximum(lengths * LENGTH_TOLERANCE, 1))).astype(np.int64))
    rounded: NDArray[np.int64] = -(-lengths // step) * step
    return rounded
