"""Objectives: masked language modelling in pretraining, then classification; each with its loss and its validation.

The batches of a step are a pure function of the step, given that torch's random numbers have been seeded for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from encoder_cls.config import TrainConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.inference.collate import Indices, by_length
from encoder_cls.inference.logits import softmax
from encoder_cls.inference.torch_engine import Batch, compute_logits, pad
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.fitted_linear import FittedLinear
from encoder_cls.training.masking import drop_tokens, mask_tokens
from encoder_cls.training.sampler import BatchSampler
from encoder_cls.training.validation import ValidationResult, judge


class ObjectiveBatch(Protocol):
    """A batch with its targets."""

    @property
    def inputs(self) -> Batch:
        """What the model reads."""

    @property
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, (): the summed loss divided by it is the mean loss."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed by their weights, ()."""


class Objective(Protocol):
    """What a stage learns."""

    def batches_at(self, step: int) -> list[ObjectiveBatch]:
        """The batches of a step of the stage, counted from 0."""

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> ValidationResult | None:
        """Validate a model; none where its logits are no finite numbers.

        Args:
            model: the model.
            after_batch: called after each batch; what it raises ends the work.
        """


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

    def batches_at(self, step: int) -> list[ObjectiveBatch]:
        """See `Objective`."""
        batches = self._sampler.batches_of_step(step)
        return [self._collate(pad(self._texts, indices).to(self._device)) for indices in batches]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> ValidationResult | None:
        """See `Objective`: the mean loss, with the same tokens masked each time."""
        torch.manual_seed(self._validation_seed)
        texts = self._validation_texts
        was_training = model.training
        model.eval()
        loss = weight = 0.0
        try:
            with torch.inference_mode():
                for piece in by_length(texts.lengths, batch_tokens=self._batch_tokens):
                    batch = self._collate(pad(texts, *piece).to(self._device))
                    loss += float(batch.loss(model))
                    weight += float(batch.normalizer)
                    after_batch()
        finally:
            model.train(was_training)
        mean = loss / weight
        return ValidationResult({"loss": mean}, (-mean, -mean)) if np.isfinite(mean) else None

    def _collate(self, batch: Batch) -> MaskedLMBatch:
        masked, is_masked = mask_tokens(batch, fraction=self._mask_probability)
        candidates, rows = torch.unique(batch.input_ids, return_inverse=True)
        return MaskedLMBatch(inputs=masked, is_masked=is_masked, candidates=candidates, targets=rows[is_masked])


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
        linear: the classifier whose logits are combined with the encoder's, if any; and the teacher of the texts after
            those of the training split.
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
        linear: FittedLinear | None,
        device: torch.device,
    ) -> None:
        self._texts = texts
        self._sampler = sampler
        self._validation_texts = validation_texts
        self._dataset = dataset
        self._class_weights = class_weights.to(device)
        self._config = config
        self._linear_logits = linear.validation_logits if linear else None
        self._pseudo_labels = _pseudo_labels(texts, len(dataset.train), linear)
        self._device = device

    def batches_at(self, step: int) -> list[ObjectiveBatch]:
        """See `Objective`."""
        return [self._collate(indices) for indices in self._sampler.batches_of_step(step)]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> ValidationResult | None:
        """See `Objective`: of the weighted sum of the encoder's logits and the linear classifier's."""
        logits = compute_logits(
            model, self._validation_texts, batch_tokens=self._config.batch_tokens, after_batch=after_batch
        )
        if not np.isfinite(logits).all():
            return None
        return judge(
            logits,
            self._linear_logits,
            self._dataset,
            monitor=self._config.monitor,
            expects_equal_shares=self._pseudo_labels is not None,
        )

    def _collate(self, indices: Indices) -> ObjectiveBatch:
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
        if self._pseudo_labels is None:
            return functional.one_hot(torch.from_numpy(labels[indices]).to(self._device), classes)
        is_labelled = indices < len(labels)
        targets = np.zeros((len(indices), classes), dtype=np.float32)
        targets[is_labelled, labels[indices[is_labelled]]] = 1
        targets[~is_labelled] = self._pseudo_labels[indices[~is_labelled] - len(labels)]
        return torch.from_numpy(targets).to(self._device)


def _pseudo_labels(texts: TokenizedTexts, num_labelled: int, linear: FittedLinear | None) -> NDArray[np.float32] | None:
    """What the teacher says of the texts after those with labels, (texts, classes); none where there are none.

    Soft labels: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, https://arxiv.org/abs/1503.02531.
    """
    if len(texts) == num_labelled:
        return None
    assert linear
    assert linear.few_labels
    rest = texts.take(np.arange(num_labelled, len(texts)))
    probabilities: NDArray[np.float32] = softmax(linear.few_labels.teacher.logits(rest)).astype(np.float32)
    return probabilities
