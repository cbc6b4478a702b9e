"""Pretraining: masked language modelling, or denoising by a decoder."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.inference.encoder.batches import by_length
from encoder_cls.inference.encoder.torch import Batch, pad
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID
from encoder_cls.training.encoder.batches import WHOLE, Shard
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.stage import Stage, TargetBatch
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.transformer import DenoisingAutoencoder, EncoderClassifier


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


@dataclass(frozen=True, kw_only=True)
class GuessedTokens(TargetBatch):
    """Texts of which some tokens are to be guessed, where `is_guessed`, (B, T).

    The softmax is over the tokens of the batch, `candidates`, (V,): few of all tokens, and drawn as often as they are
    used. Targets index the candidates, (guessed tokens,).
    """

    is_guessed: Tensor
    candidates: Tensor
    targets: Tensor

    @property
    def normalizer(self) -> Tensor:
        """See `TargetBatch`; 1 where there is no token to guess."""
        return self.is_guessed.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `TargetBatch`."""
        scores = model.encoder.embedding.token_scores(self._vectors(model)[self.is_guessed], self.candidates)
        return functional.cross_entropy(scores.float(), self.targets, reduction="sum")

    @abstractmethod
    def _vectors(self, model: EncoderClassifier) -> Tensor:
        """The vectors that tokens are guessed from, (B, T, D)."""


class MaskedLMBatch(GuessedTokens):
    """Texts with masked tokens, which are guessed from the encoder's vectors."""

    def _vectors(self, model: EncoderClassifier) -> Tensor:
        vectors: Tensor = model.encoder(*self.inputs)
        return vectors


@dataclass(frozen=True, kw_only=True)
class DenoisingBatch(GuessedTokens):
    """Texts that a decoder writes, each token from those before it and the encoder's vectors of `corrupted` ones."""

    corrupted: Batch

    def _vectors(self, model: EncoderClassifier) -> Tensor:
        if not isinstance(model, DenoisingAutoencoder):
            raise TypeError("a model without a decoder")
        embedded = model.encoder.embedding(self.inputs.input_ids, self.inputs.char_ngrams)
        memory, memory_mask = model.encoder(*self.corrupted), self.corrupted.attention_mask
        vectors: Tensor = model.decoder(embedded, self.inputs.attention_mask, memory, memory_mask)
        return vectors


class PretrainingStage(Stage):
    """Masked language modelling of all texts, with and without labels.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), https://arxiv.org/abs/1810.04805;
    masked tokens are always `[MASK]`, which is enough (Wettig et al., 2023, https://arxiv.org/abs/2202.08005). Other
    tokens are masked in each epoch, so there is no overfitting, and no patience.
    """

    name, metric_prefix = "pretraining", "pretraining/"

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[GuessedTokens]:
        """See `Stage`; the candidates of a shard are those of the whole batch."""
        batches = []
        for indices in self.sampler.batches_of_step(step):
            if len(part := shard.of(indices)):
                whole = pad(self.texts, indices).to(self.device)
                batch = whole if shard == WHOLE else pad(self.texts, part).to(self.device)
                batches.append(self._corrupted(batch, torch.unique(whole.input_ids)))
        return batches

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Stage`: the mean loss, with the same tokens corrupted each time."""
        torch.manual_seed(self.seed)
        texts = self.prepared.validation_texts
        pieces = by_length(texts.lengths, batch_tokens=self.prepared.config.train.batch_tokens)
        mine = group.dealt(len(pieces))
        loss = weight = 0.0
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for number, piece in enumerate(pieces):
                    if number not in mine:
                        torch.rand(len(piece.indices), piece.length, device=self.device)  # as corrupting it would
                        continue
                    inputs = pad(texts, *piece).to(self.device)
                    batch = self._corrupted(inputs, torch.unique(inputs.input_ids))
                    loss += float(batch.loss(model))
                    weight += float(batch.normalizer)
                    check_stop()
        finally:
            model.train(was_training)
        loss, weight = group.summed(loss, weight)
        mean = loss / weight
        return ValidationResult({"loss": mean}, (1.0, -mean, -mean)) if np.isfinite(mean) else None

    def _corrupted(self, batch: Batch, candidates: Tensor) -> GuessedTokens:
        masked, is_masked = mask_tokens(batch, fraction=self.prepared.config.pretrain.mask_probability)
        targets = torch.searchsorted(candidates, batch.input_ids[is_masked])
        return MaskedLMBatch(inputs=masked, is_guessed=is_masked, candidates=candidates, targets=targets)


class DenoisingStage(PretrainingStage):
    """Denoising: the encoder reads a text with words deleted, and a decoder, thrown away afterwards, writes the whole.

    Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder" (2021),
    https://arxiv.org/abs/2104.06979; there the decoder sees one vector of the text, here all that the encoder gives.
    """

    def new_model(self) -> EncoderClassifier:
        """See `Stage`."""
        return self.prepared.new_model(self.seed, DenoisingAutoencoder)

    def _corrupted(self, batch: Batch, candidates: Tensor) -> GuessedTokens:
        corrupted = delete_tokens(batch, fraction=self.prepared.config.pretrain.mask_probability)
        ids, has_next = batch.input_ids, batch.attention_mask.roll(-1, dims=1)
        has_next[:, -1] = False
        targets = torch.searchsorted(candidates, ids[:, 1:][has_next[:, :-1]])
        return DenoisingBatch(
            inputs=batch, is_guessed=has_next, candidates=candidates, targets=targets, corrupted=corrupted
        )
