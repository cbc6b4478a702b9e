"""The objective of pretraining: masked language modelling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from encoder_cls.inference.encoder.batches import Indices, by_length
from encoder_cls.inference.encoder.torch import Batch, pad
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.char_ngrams import flat_indices
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, UNK_ID, TokenizedTexts
from encoder_cls.training.encoder.batches import WHOLE, BatchSampler, Shard
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult


def drop_tokens(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, of which training would otherwise see too few."""
    if fraction == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    is_word = (input_ids != PAD_ID) & (input_ids != CLS_ID)
    return input_ids.masked_fill(dropped & is_word, UNK_ID)


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


@dataclass(frozen=True, kw_only=True)
class MaskedLMBatch:
    """Texts some of whose tokens are masked; the softmax is over the tokens that occur in the batch.

    These are few of all there are, and drawn as often as they are used.

    Attributes:
        inputs: the texts.
        is_masked: (B, T), where a token is masked.
        candidates: (V,), the ids of the softmax.
        targets: (masked tokens,), which of the candidates stood there.
    """

    inputs: Batch
    is_masked: Tensor
    candidates: Tensor
    targets: Tensor

    @property
    def normalizer(self) -> Tensor:
        """See `ObjectiveBatch`; 1 where no token is masked."""
        return self.is_masked.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `ObjectiveBatch`."""
        vectors = model.encoder(*self.inputs)[self.is_masked]
        scores = model.encoder.embedding.token_scores(vectors, self.candidates)
        return functional.cross_entropy(scores.float(), self.targets, reduction="sum")


class MaskedLMObjective:
    """Masked language modelling of all texts, with and without labels.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), https://arxiv.org/abs/1810.04805;
    masked tokens are always `[MASK]`, as Wettig et al. (2023), https://arxiv.org/abs/2202.08005, found to be enough.

    Args:
        texts: to learn from.
        sampler: which of them make up the batches of a step.
        validation_texts: on which the loss is measured.
        mask_probability: of each token.
        batch_tokens: the most tokens in a batch of a validation.
        validation_seed: of the tokens that are masked in a validation.
        device: where to.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        sampler: BatchSampler,
        validation_texts: TokenizedTexts,
        *,
        mask_probability: float,
        batch_tokens: int,
        validation_seed: int,
        device: torch.device,
    ) -> None:
        self._texts = texts
        self._sampler = sampler
        self._validation_texts = validation_texts
        self._mask_probability = mask_probability
        self._batch_tokens = batch_tokens
        self._validation_seed = validation_seed
        self._device = device

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[MaskedLMBatch]:
        """See `Objective`; in a shard, too, the candidates are those of the whole batch."""
        batches = []
        for indices in self._sampler.batches_of_step(step):
            if shard == WHOLE:
                batches.append(self._masked(pad(self._texts, indices).to(self._device)))
            elif len(part := shard.of(indices)):
                candidates = torch.from_numpy(distinct_ids(self._texts, indices)).to(self._device)
                batches.append(self._masked(pad(self._texts, part).to(self._device), candidates))
        return batches

    def validate(
        self, model: EncoderClassifier, after_batch: Callable[[], None], group: ProcessGroup = ALONE
    ) -> ValidationResult | None:
        """See `Objective`: the mean loss, with the same tokens masked each time."""
        torch.manual_seed(self._validation_seed)
        texts = self._validation_texts
        pieces = by_length(texts.lengths, batch_tokens=self._batch_tokens)
        mine = group.dealt(len(pieces))
        losses = []
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for number, piece in enumerate(pieces):
                    if number not in mine:
                        torch.rand(len(piece.indices), piece.length, device=self._device)  # as masking it would
                        continue
                    batch = self._masked(pad(texts, *piece).to(self._device))
                    losses.append((float(batch.loss(model)), float(batch.normalizer)))
                    after_batch()
        finally:
            model.train(was_training)
        loss, weight = map(sum, group.gather_array(np.reshape(losses, (-1, 2)), len(pieces)).T.tolist())
        mean = loss / weight
        return ValidationResult({"loss": mean}, (-mean, -mean)) if np.isfinite(mean) else None

    def _masked(self, batch: Batch, candidates: Tensor | None = None) -> MaskedLMBatch:
        """A batch with some tokens masked; without candidates they are its own tokens."""
        masked, is_masked = mask_tokens(batch, fraction=self._mask_probability)
        candidates = torch.unique(batch.input_ids) if candidates is None else candidates
        targets = torch.searchsorted(candidates, batch.input_ids[is_masked])
        return MaskedLMBatch(inputs=masked, is_masked=is_masked, candidates=candidates, targets=targets)


def distinct_ids(texts: TokenizedTexts, indices: Indices) -> NDArray[np.int64]:
    """The ids that some texts have as one batch, in order; that of padding, too, where their lengths differ."""
    lengths = texts.lengths[indices]
    words = np.unique(texts.words[flat_indices(texts.offsets[indices], lengths)])
    padding = [PAD_ID] if lengths.min() < lengths.max() else []
    return np.union1d(texts.word_ids[words], padding).astype(np.int64)
