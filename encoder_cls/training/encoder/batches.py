"""Batches: their texts, what is hidden in them, and their loss.

The texts are a pure function of seed and step, and so is what is hidden once torch's random numbers are seeded for the
step: a resumed run has nothing to replay or store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from encoder_cls.config import TrainConfig
from encoder_cls.inference.encoder import Indices, round_up_lengths
from encoder_cls.inference.encoder.torch import Batch
from encoder_cls.text.token_arrays import CLS_ID, MASK_ID, PAD_ID, UNK_ID
from encoder_cls.transformer import EncoderClassifier


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


def mask_tokens(batch: Batch, *, fraction: float) -> tuple[Batch, Tensor]:
    """Put `[MASK]`, a word without n-grams, in place of a random part of the words; also returns where, (B, T)."""
    ids, char_ngrams = batch.input_ids, batch.char_ngrams
    is_word = (ids != PAD_ID) & (ids != CLS_ID)
    is_masked = is_word & (torch.rand(ids.shape, device=ids.device) < fraction)
    without_ngrams = len(char_ngrams.offsets) - 1  # one more word
    char_ngrams = char_ngrams._replace(
        words=char_ngrams.words.masked_fill(is_masked, without_ngrams),
        offsets=torch.cat([char_ngrams.offsets, char_ngrams.offsets[-1:]]),
    )
    return batch._replace(input_ids=ids.masked_fill(is_masked, MASK_ID), char_ngrams=char_ngrams), is_masked


def delete_tokens(batch: Batch, *, fraction: float) -> Batch:
    """Take a random part of the words out of their texts, which become shorter."""
    ids, mask = batch.input_ids, batch.attention_mask
    is_kept = mask & ((torch.rand(ids.shape, device=ids.device) >= fraction) | (ids == CLS_ID))
    order = (~is_kept).sort(dim=1, stable=True).indices[:, : is_kept.sum(dim=1).max()]  # those that are kept come first
    mask, words = is_kept.gather(1, order), batch.char_ngrams.words.gather(1, order)
    ids = ids.gather(1, order).masked_fill(~mask, PAD_ID)
    return Batch(ids, mask, batch.char_ngrams._replace(words=words))


def drop_tokens(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, of which training would otherwise see too few."""
    if fraction == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    is_word = (input_ids != PAD_ID) & (input_ids != CLS_ID)
    return input_ids.masked_fill(dropped & is_word, UNK_ID)


@dataclass(frozen=True, kw_only=True)
class GuessedTokens:
    """Texts of which some tokens are to be guessed, where `is_guessed`, (B, T), from `vectors` of a model, (B, T, D).

    The softmax is over the tokens of the batch, `candidates`, (V,): few of all tokens, and drawn as often as they are
    used. Targets index the candidates, (guessed tokens,).
    """

    inputs: Batch
    is_guessed: Tensor
    candidates: Tensor
    targets: Tensor
    vectors: Callable[[EncoderClassifier], Tensor]

    @property
    def normalizer(self) -> Tensor:
        """The number of guessed tokens, at least 1, (): the summed loss divided by it is the mean loss."""
        return self.is_guessed.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all guessed tokens, summed, ()."""
        scores = model.encoder.embedding.token_scores(self.vectors(model)[self.is_guessed], self.candidates)
        return functional.cross_entropy(scores.float(), self.targets, reduction="sum")


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """Texts with target probabilities, (B, C), and weights of classes, (C,).

    R-Drop (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448):
    the batch has all texts twice, with other dropout masks and other words dropped; the symmetric Kullback-Leibler
    divergence of both predictions, times `rdrop_weight`, is added to the cross entropy.
    """

    inputs: Batch
    targets: Tensor
    weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, (): the summed loss divided by it is the mean loss."""
        return (self.targets @ self.weights).sum()

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all texts, summed by their weights, ()."""
        logits = model(*self.inputs)
        loss = self._cross_entropy(logits)
        return loss + self.rdrop_weight * self._symmetric_kl(logits) if self.rdrop_weight else loss

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, self.targets, weight=self.weights, reduction="sum")

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The mean of KL(p || q) and KL(q || p) of the two dropout passes, in nats, summed by the weights, ()."""
        first, second = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1) / 2
        weights, _ = (self.targets @ self.weights).chunk(2)
        return (weights * divergences).sum()


class MultiLabelBatch(ClassificationBatch):
    """The same where a text may have several labels, with weights of the labels of each text, (B, C)."""

    @property
    def normalizer(self) -> Tensor:
        """The number of texts: each counts once, with all its labels."""
        return torch.tensor(float(len(self.targets)), device=self.targets.device)

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        """The binary cross entropies of all labels."""
        return functional.binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights, reduction="sum")

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The same of Bernoulli distributions: (p - q) * (logit p - logit q) / 2 of each label."""
        first, second = logits.chunk(2)
        weights, _ = self.weights.chunk(2)
        return (weights * (first.sigmoid() - second.sigmoid()) * (first - second)).sum() / 2
