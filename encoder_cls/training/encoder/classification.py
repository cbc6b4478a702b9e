"""The objective of the model stage: classification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.config import TrainConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.inference.encoder.batches import Indices
from encoder_cls.inference.encoder.torch import Batch, compute_logits, pad
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.batches import WHOLE, BatchSampler, Shard
from encoder_cls.training.encoder.masked_lm import drop_tokens
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.techniques import LinearAnswers


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """Texts, and how probable each class is to be for each of them.

    R-Drop (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448):
    each text is there twice and passes through the model with two dropout masks, other words dropped in each; the
    symmetric Kullback-Leibler divergence of the two predictions is added to the cross entropy. It keeps a model from
    overfitting to what dropout leaves.

    Attributes:
        inputs: the texts; with an rdrop_weight all of them once, then all of them again.
        targets: (B, C) probabilities.
        class_weights: (C,), how much each class counts.
        rdrop_weight: of the divergence in the loss.
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
        """How much each row counts, (B,)."""
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
    """Texts, and how probable each label is to be for each of them; with R-Drop as in `ClassificationBatch`.

    Attributes:
        inputs: the texts; with an rdrop_weight all of them once, then all of them again.
        targets: (B, C) probabilities.
        weights: (B, C), how much each label of each text counts.
        rdrop_weight: of the divergence in the loss.
    """

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
        """The mean of KL(p || q) and KL(q || p) of the Bernoulli distributions of two dropout passes, in nats, ().

        Of one label it is (p - q) * (logit p - logit q) / 2; summed by the weights.
        """
        first, second = logits.chunk(2)
        weights, _ = self.weights.chunk(2)
        return (weights * (first.sigmoid() - second.sigmoid()) * (first - second)).sum() / 2


class ClassificationObjective:
    """The training texts, once or twice, some of their words dropped, with their labels.

    Args:
        texts: those of the dataset's training split, then those that have pseudo-labels.
        sampler: which of them make up the batches of a step.
        validation_texts: those of the split that the dataset selects weights by.
        dataset: has the labels of both.
        class_weights: how much each class counts in the loss of a step, (C,).
        config: of the training.
        answers: those of the linear classifier whose logits are combined with the encoder's, if any, and which teaches
            the texts after those of the training split.
        device: where to.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        sampler: BatchSampler,
        validation_texts: TokenizedTexts,
        *,
        dataset: Dataset,
        class_weights: Tensor,
        config: TrainConfig,
        answers: LinearAnswers | None,
        device: torch.device,
    ) -> None:
        self._texts = texts
        self._sampler = sampler
        self._validation_texts = validation_texts
        self._dataset = dataset
        self._class_weights = class_weights.to(device)
        self._config = config
        self._answers = answers or LinearAnswers(None)
        self._device = device

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[ClassificationBatch | MultiLabelBatch]:
        """See `Objective`."""
        parts = [shard.of(indices) for indices in self._sampler.batches_of_step(step)]
        return [self._collate(indices) for indices in parts if len(indices)]

    def validate(
        self, model: EncoderClassifier, after_batch: Callable[[], None], group: ProcessGroup = ALONE
    ) -> ValidationResult | None:
        """See `Objective`: of the weighted sum of the encoder's logits and the linear classifier's."""
        logits = group.merged(
            compute_logits(
                model,
                self._validation_texts,
                batch_tokens=self._config.batch_tokens,
                after_batch=after_batch,
                share=group.dealt,
            )
        )
        if not (group.leads and np.isfinite(logits).all()):
            return None
        return judge(
            logits,
            self._answers.validation_logits,
            self._dataset,
            monitor=self._config.monitor,
            expects_equal_shares=self._answers.pseudo_labels is not None,
        )

    def _collate(self, indices: Indices) -> ClassificationBatch | MultiLabelBatch:
        config = self._config
        if config.rdrop_weight:
            indices = np.tile(indices, 2)
        batch = pad(self._texts, indices).to(self._device)
        dropped = drop_tokens(batch.input_ids, fraction=config.word_dropout)
        inputs = batch._replace(input_ids=dropped)
        smoothing = config.label_smoothing
        if self._dataset.is_multi_label:
            labels = torch.from_numpy(self._dataset.train.labels[indices]).to(self._device)
            return MultiLabelBatch(
                inputs=inputs,
                targets=labels * (1 - smoothing) + smoothing / 2,
                weights=torch.where(labels > 0, self._class_weights, 1.0),
                rdrop_weight=config.rdrop_weight,
            )
        targets = self._targets(indices)
        return ClassificationBatch(
            inputs=inputs,
            targets=targets * (1 - smoothing) + smoothing / targets.shape[1],
            class_weights=self._class_weights,
            rdrop_weight=config.rdrop_weight,
        )

    def _targets(self, indices: Indices) -> Tensor:
        """How probable each class is to be: the label of a text of the training split, else its pseudo-label."""
        labels, classes = self._dataset.train.labels, len(self._dataset.label_names)
        pseudo_labels = self._answers.pseudo_labels
        if pseudo_labels is None:
            return functional.one_hot(torch.from_numpy(labels[indices]).to(self._device), classes)
        is_labelled = indices < len(labels)
        targets = np.zeros((len(indices), classes), dtype=np.float32)
        targets[is_labelled, labels[indices[is_labelled]]] = 1
        targets[~is_labelled] = pseudo_labels[indices[~is_labelled] - len(labels)]
        return torch.from_numpy(targets).to(self._device)
