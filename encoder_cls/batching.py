"""Which texts make up a batch, and the batch itself: padded token ids with their mask.

The batch of a step is a pure function of (lengths, settings, seed, step). So a run that was interrupted
goes on with exactly the batch that would have come next, and nothing has to be replayed or stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.model import BatchSpelling
from encoder_cls.ngrams import flat_places
from encoder_cls.tokens import CLS_ID, MASK_ID, PAD_ID, UNK_ID, TokenizedTexts

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
        longest = int(lengths.max(initial=0))
        # Of the smallest type: sorting eight bits a text takes a tenth of the time and an eighth of the memory.
        self._rounded = _round_up(np.arange(longest + 1)).astype(np.min_scalar_type(2 * longest))[lengths]
        self._cuts = cut(np.sort(self._rounded), batch_size=batch_size, batch_tokens=batch_tokens)
        self._epoch = lru_cache(maxsize=1)(self._shuffled_epoch)  # one epoch is needed many times in a row

    @property
    def batches_per_epoch(self) -> int:
        """Batches of one pass over the texts."""
        return len(self._cuts) - 1

    def indices(self, batch: int) -> Indices:
        """The texts of batch number `batch`, counted from 0 at the start of training."""
        epoch, place = divmod(batch, self.batches_per_epoch)
        in_order, order = self._epoch(epoch)
        first, last = self._cuts[order[place] : order[place] + 2]
        return in_order[first:last].astype(np.int64)

    def _shuffled_epoch(self, epoch: int) -> tuple[NDArray[np.int32], Indices]:
        """The texts in order of their lengths, and the order of the batches."""
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(np.arange(len(self._rounded), dtype=np.int32))
        in_order = shuffled[np.argsort(self._rounded[shuffled], kind="stable")]
        return in_order, random.permutation(self.batches_per_epoch)


class Piece(NamedTuple):
    """A batch to be.

    Attributes:
        indices: of its texts.
        length: to which they are padded.
    """

    indices: Indices
    length: int


def by_length(lengths: NDArray[np.int64], *, batch_tokens: int) -> list[Piece]:
    """All texts in batches of similar length, the longest first: memory is at its peak at the start.

    Each length comes with one number of texts, and lengths are rounded up: batches of much text have few shapes, for
    each of which a CPU compiles kernels, which takes as long as using them once.
    """
    in_order = np.argsort(-lengths, kind="stable")
    rounded = np.minimum(_round_up(lengths[in_order]), lengths.max(initial=0))
    pieces: list[Piece] = []
    start = 0
    while start < len(lengths):
        length = int(rounded[start])
        texts = max(1, batch_tokens // length)
        pieces.append(Piece(in_order[start : start + texts], length))
        start += texts
    return pieces


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


class Batch(NamedTuple):
    """What the model is given; `model(*batch)`."""

    input_ids: Tensor
    attention_mask: Tensor
    spelling: BatchSpelling

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            BatchSpelling(*(tensor.to(device) for tensor in self.spelling)),
        )


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> Batch:
    """Some texts as one batch, (B, T) with T the longest of them, or the length that is asked for."""
    lengths = texts.lengths[indices]
    places = flat_places(texts.offsets[indices], lengths)
    mask = np.arange(length or lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, PAD_ID, dtype=np.int64)
    distinct, rows = np.unique(texts.words[places], return_inverse=True)
    input_ids[mask] = texts.word_ids[distinct][rows]
    words = np.zeros(mask.shape, dtype=np.int64)
    words[mask] = rows
    spellings = texts.spellings.take(distinct)
    spelling = BatchSpelling(*map(torch.from_numpy, (words, spellings.ngrams.astype(np.int64), spellings.offsets)))
    return Batch(torch.from_numpy(input_ids), torch.from_numpy(mask), spelling)


def drop_words(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, of which training would otherwise see too few."""
    if fraction == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    is_word = (input_ids != PAD_ID) & (input_ids != CLS_ID)
    return input_ids.masked_fill(dropped & is_word, UNK_ID)


def hide_words(batch: Batch, *, fraction: float) -> tuple[Batch, Tensor]:
    """Put `[MASK]`, which has no letters, in place of a random part of the words; also returns where, (B, T)."""
    ids, spelling = batch.input_ids, batch.spelling
    is_word = (ids != PAD_ID) & (ids != CLS_ID)
    is_hidden = is_word & (torch.rand(ids.shape, device=ids.device) < fraction)
    nameless = len(spelling.offsets) - 1  # one more word, without n-grams
    spelling = spelling._replace(
        words=spelling.words.masked_fill(is_hidden, nameless),
        offsets=torch.cat([spelling.offsets, spelling.offsets[-1:]]),
    )
    return batch._replace(input_ids=ids.masked_fill(is_hidden, MASK_ID), spelling=spelling), is_hidden


def _round_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths rounded up to the next of 1, 2, ..., 15, 16, 17, 18, ..., 32, 34, ..., each 1/16 apart."""
    step = np.maximum(1, 2 ** np.floor(np.log2(np.maximum(lengths * LENGTH_TOLERANCE, 1))).astype(np.int64))
    rounded: NDArray[np.int64] = -(-lengths // step) * step
    return rounded
