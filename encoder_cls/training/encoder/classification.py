"""Training on labels: dropped words, R-Drop, and validation beside the linear classifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.inference.encoder.batches import Indices
from encoder_cls.inference.encoder.torch import compute_logits, pad
from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID
from encoder_cls.training.encoder.batches import WHOLE, Shard
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.stage import Stage, TargetBatch
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.transformer import EncoderClassifier


def drop_tokens(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, of which training would otherwise see too few."""
    if fraction == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    is_word = (input_ids != PAD_ID) & (input_ids != CLS_ID)
    return input_ids.masked_fill(dropped & is_word, UNK_ID)


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch(TargetBatch):
    """Texts with target probabilities, (B, C), and weights of classes, (C,).

    R-Drop (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448):
    the batch has all texts twice, with other dropout masks and other words dropped; the symmetric Kullback-Leibler
    divergence of both predictions, times `rdrop_weight`, is added to the cross entropy.
    """

    targets: Tensor
    weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """See `TargetBatch`."""
        return (self.targets @ self.weights).sum()

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `TargetBatch`."""
        return self._loss_of(model(*self.inputs))

    def _loss_of(self, logits: Tensor) -> Tensor:
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
        """See `TargetBatch`: each text counts once, with all its labels."""
        return torch.tensor(float(len(self.targets)), device=self.targets.device)

    def _loss_of(self, logits: Tensor) -> Tensor:
        return super()._loss_of(logits.float())

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        """The binary cross entropies of all labels."""
        return functional.binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights, reduction="sum")

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The same of Bernoulli distributions: (p - q) * (logit p - logit q) / 2 of each label."""
        first, second = logits.chunk(2)
        weights, _ = self.weights.chunk(2)
        return (weights * (first.sigmoid() - second.sigmoid()) * (first - second)).sum() / 2


class ModelStage(Stage):
    """Classification by labels, and by the pseudo-labels of a linear classifier, whose logits join in validations."""

    name, metric_prefix = "model", ""

    @cached_property
    def _class_weights(self) -> Tensor:
        return self.prepared.class_weights.to(self.device)

    def loss(self, model: EncoderClassifier, batch: TargetBatch) -> Tensor:
        """See `Stage`; of an objective of one's own where there is one."""
        objective = self.prepared.objective
        return objective(model, batch) if objective else super().loss(model, batch)

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[ClassificationBatch]:
        """See `Stage`."""
        parts = [shard.of(indices) for indices in self.sampler.batches_of_step(step)]
        return [self._collate(indices) for indices in parts if len(indices)]

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Stage`: of the weighted sum of the encoder's logits and the linear classifier's."""
        config, dataset = self.prepared.config.train, self.prepared.dataset
        logits = compute_logits(
            model, self.prepared.validation_texts, batch_tokens=config.batch_tokens, share=group.dealt
        )
        group.sum(torch.from_numpy(logits))
        if not (group.leads and np.isfinite(logits).all()):
            return None
        linear, is_taught = self.answers.validation_logits, self.answers.pseudo_labels is not None
        return judge(logits, linear, dataset, monitor=config.monitor, expects_equal_shares=is_taught)

    def _collate(self, indices: Indices) -> ClassificationBatch:
        config = self.prepared.config.train
        if config.rdrop_weight:
            indices = np.tile(indices, 2)
        batch = pad(self.texts, indices).to(self.device)
        inputs = batch._replace(input_ids=drop_tokens(batch.input_ids, fraction=config.word_dropout))
        smoothing, kind, weights = config.label_smoothing, ClassificationBatch, self._class_weights
        targets = self.targets_of(indices)
        if self.prepared.dataset.is_multi_label:
            kind, weights = MultiLabelBatch, torch.where(targets > 0, weights, 1.0)
            targets = targets * (1 - smoothing) + smoothing / 2
        else:
            targets = targets * (1 - smoothing) + smoothing / targets.shape[1]
        return kind(inputs=inputs, targets=targets, weights=weights, rdrop_weight=config.rdrop_weight)

    def targets_of(self, indices: Indices) -> Tensor:
        """The probability of each class: 1 for the labels of a text, else its pseudo-label."""
        dataset, pseudo_labels = self.prepared.dataset, self.answers.pseudo_labels
        labels, classes = dataset.train.labels, len(dataset.label_names)
        if dataset.is_multi_label:
            return torch.from_numpy(labels[indices]).to(self.device)
        if pseudo_labels is None:
            return functional.one_hot(torch.from_numpy(labels[indices]).to(self.device), classes)
        is_labelled = indices < len(labels)
        targets = np.zeros((len(indices), classes), dtype=np.float32)
        targets[is_labelled, labels[indices[is_labelled]]] = 1
        targets[~is_labelled] = pseudo_labels[indices[~is_labelled] - len(labels)]
        return torch.from_numpy(targets).to(self.device)
