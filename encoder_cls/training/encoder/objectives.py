"""The objectives of the stages: masked language modelling, then classification.

The batches of a step are a pure function of the step, given that torch's random numbers have been seeded for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.inference.encoder.batches import Indices, by_length
from encoder_cls.inference.encoder.torch import Batch, compute_logits, pad
from encoder_cls.model import EncoderClassifier
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, UNK_ID
from encoder_cls.training.encoder.batches import WHOLE, BatchSampler, Shard
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.techniques import LinearAnswers
from encoder_cls.training.prepared import Prepared


class ObjectiveBatch(Protocol):
    """A batch with its targets."""

    @property
    def inputs(self) -> Batch:
        """The texts."""

    @property
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, (): the summed loss divided by it is the mean loss."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed by their weights, ()."""


class Objective(Protocol):
    """The task of a stage."""

    def batches_at(self, step: int, shard: Shard = WHOLE) -> Sequence[ObjectiveBatch]:
        """The batches of a step of the stage, counted from 0, or a shard of each that has a text in it."""

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """Validate a model, shared by all processes; none where its logits are not finite, and in all but the first."""


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
    """Texts with masked tokens, (B, T); the softmax is over the tokens of the batch, `candidates`, (V,).

    These are few of all tokens, and drawn as often as they are used. Targets index the candidates, (masked tokens,).
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
    masked tokens are always `[MASK]`, which is enough (Wettig et al., 2023, https://arxiv.org/abs/2202.08005).
    """

    def __init__(self, prepared: Prepared, sampler: BatchSampler, *, seed: int, device: torch.device) -> None:
        self._prepared, self._sampler, self._seed, self._device = prepared, sampler, seed, device

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[MaskedLMBatch]:
        """See `Objective`; the candidates of a shard are those of the whole batch."""
        batches, texts = [], self._prepared.texts
        for indices in self._sampler.batches_of_step(step):
            if len(part := shard.of(indices)):
                whole = pad(texts, indices).to(self._device)
                batch = whole if shard == WHOLE else pad(texts, part).to(self._device)
                batches.append(self._masked(batch, torch.unique(whole.input_ids)))
        return batches

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Objective`: the mean loss, with the same tokens masked each time."""
        torch.manual_seed(self._seed)
        texts = self._prepared.validation_texts
        pieces = by_length(texts.lengths, batch_tokens=self._prepared.config.train.batch_tokens)
        mine = group.dealt(len(pieces))
        loss = weight = 0.0
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for number, piece in enumerate(pieces):
                    if number not in mine:
                        torch.rand(len(piece.indices), piece.length, device=self._device)  # as masking it would
                        continue
                    inputs = pad(texts, *piece).to(self._device)
                    batch = self._masked(inputs, torch.unique(inputs.input_ids))
                    loss += float(batch.loss(model))
                    weight += float(batch.normalizer)
                    check_stop()
        finally:
            model.train(was_training)
        loss, weight = group.summed(loss, weight)
        mean = loss / weight
        return ValidationResult({"loss": mean}, (-mean, -mean)) if np.isfinite(mean) else None

    def _masked(self, batch: Batch, candidates: Tensor) -> MaskedLMBatch:
        masked, is_masked = mask_tokens(batch, fraction=self._prepared.config.pretrain.mask_probability)
        targets = torch.searchsorted(candidates, batch.input_ids[is_masked])
        return MaskedLMBatch(inputs=masked, is_masked=is_masked, candidates=candidates, targets=targets)


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """Texts with target probabilities, (B, C), and weights of classes, (C,).

    R-Drop (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448):
    the batch has all texts twice, with other dropout masks and other words dropped; the symmetric Kullback-Leibler
    divergence of both predictions, times `rdrop_weight`, is added to the cross entropy.
    """

    inputs: Batch
    targets: Tensor
    class_weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """See `ObjectiveBatch`."""
        return self._weights.sum()

    @property
    def _weights(self) -> Tensor:
        """The weight of each row, (B,)."""
        return self.targets @ self.class_weights

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `ObjectiveBatch`."""
        logits = model(*self.inputs)
        loss = functional.cross_entropy(logits, self.targets, weight=self.class_weights, reduction="sum")
        return loss + self.rdrop_weight * self._symmetric_kl(logits) if self.rdrop_weight else loss

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The mean of KL(p || q) and KL(q || p) of the two dropout passes, in nats, summed by the weights, ()."""
        first, second = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1) / 2
        weights, _ = self._weights.chunk(2)
        return (weights * divergences).sum()


@dataclass(frozen=True, kw_only=True)
class MultiLabelBatch:
    """Texts with target probabilities and weights of labels, (B, C); with R-Drop as in `ClassificationBatch`."""

    inputs: Batch
    targets: Tensor
    weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """See `ObjectiveBatch`: each text counts once, with all its labels."""
        return torch.tensor(float(len(self.targets)), device=self.targets.device)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `ObjectiveBatch`: the binary cross entropies of all labels."""
        logits = model(*self.inputs).float()
        loss = functional.binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights, reduction="sum")
        return loss + self.rdrop_weight * self._symmetric_kl(logits) if self.rdrop_weight else loss

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The same of Bernoulli distributions: (p - q) * (logit p - logit q) / 2 of each label."""
        first, second = logits.chunk(2)
        weights, _ = self.weights.chunk(2)
        return (weights * (first.sigmoid() - second.sigmoid()) * (first - second)).sum() / 2


class ClassificationObjective:
    """Classification by labels, then by the pseudo-labels of a linear classifier; its logits join in validations."""

    def __init__(self, prepared: Prepared, *, answers: LinearAnswers | None, device: torch.device) -> None:
        self._prepared, self._dataset = prepared, prepared.dataset
        self._class_weights = prepared.class_weights.to(device)
        self._config = prepared.config.train
        self._answers = answers or LinearAnswers(None)
        self._device = device

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[ClassificationBatch | MultiLabelBatch]:
        """See `Objective`."""
        parts = [shard.of(indices) for indices in self._prepared.model_sampler.batches_of_step(step)]
        return [self._collate(indices) for indices in parts if len(indices)]

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Objective`: of the weighted sum of the encoder's logits and the linear classifier's."""
        logits = compute_logits(
            model,
            self._prepared.validation_texts,
            batch_tokens=self._config.batch_tokens,
            share=group.dealt,
        )
        group.sum(torch.from_numpy(logits))
        if not (group.leads and np.isfinite(logits).all()):
            return None
        linear, is_taught = self._answers.validation_logits, self._answers.pseudo_labels is not None
        return judge(logits, linear, self._dataset, monitor=self._config.monitor, expects_equal_shares=is_taught)

    def _collate(self, indices: Indices) -> ClassificationBatch | MultiLabelBatch:
        config = self._config
        if config.rdrop_weight:
            indices = np.tile(indices, 2)
        batch = pad(self._prepared.model_texts, indices).to(self._device)
        inputs = batch._replace(input_ids=drop_tokens(batch.input_ids, fraction=config.word_dropout))
        smoothing, rdrop_weight = config.label_smoothing, config.rdrop_weight
        if self._dataset.is_multi_label:
            labels = torch.from_numpy(self._dataset.train.labels[indices]).to(self._device)
            targets, weights = (
                labels * (1 - smoothing) + smoothing / 2,
                torch.where(labels > 0, self._class_weights, 1.0),
            )
            return MultiLabelBatch(inputs=inputs, targets=targets, weights=weights, rdrop_weight=rdrop_weight)
        targets = self._targets(indices)
        targets, weights = targets * (1 - smoothing) + smoothing / targets.shape[1], self._class_weights
        return ClassificationBatch(inputs=inputs, targets=targets, class_weights=weights, rdrop_weight=rdrop_weight)

    def _targets(self, indices: Indices) -> Tensor:
        """The probability of each class: 1 for the label of a text, else its pseudo-label."""
        labels, classes = self._dataset.train.labels, len(self._dataset.label_names)
        pseudo_labels = self._answers.pseudo_labels
        if pseudo_labels is None:
            return functional.one_hot(torch.from_numpy(labels[indices]).to(self._device), classes)
        is_labelled = indices < len(labels)
        targets = np.zeros((len(indices), classes), dtype=np.float32)
        targets[is_labelled, labels[indices[is_labelled]]] = 1
        targets[~is_labelled] = pseudo_labels[indices[~is_labelled] - len(labels)]
        return torch.from_numpy(targets).to(self._device)
