"""What is learnt in a step, and how a validation judges what has been learnt so far.

Pretraining guesses hidden words; then the labels are learnt. Both are pure functions of the step, given that torch's
random numbers have been seeded for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.evaluation.metrics import Metrics, compute_metrics
from encoder_cls.inference.calibration import combine_logits, fit_scales
from encoder_cls.inference.collate import Batch, Indices, by_length, pad
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.torch_engine import compute_logits
from encoder_cls.model import EncoderClassifier
from encoder_cls.training.masking import drop_tokens, mask_tokens
from encoder_cls.training.setup import Stage, TrainingSetup


class ObjectiveBatch(Protocol):
    """A batch and what is asked about it."""

    @property
    def batch(self) -> Batch:
        """What the model reads."""

    @property
    def weight(self) -> Tensor:
        """How much all answers to it count together, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The sum of the losses of all answers, each by its weight, ()."""


class ValidationResult(NamedTuple):
    """What a validation found out.

    Attributes:
        scores: by name.
        rank: the greater the better; of equals the second number decides.
        metrics: how well classes are told apart, where classes are learnt.
        scales: the classifier's, under which that is so.
    """

    scores: dict[str, float]
    rank: tuple[float, float]
    metrics: Metrics | None = None
    scales: tuple[float, ...] | None = None


class Objective(Protocol):
    """The lessons of all steps of a stage."""

    def at(self, step: int) -> list[ObjectiveBatch]:
        """Those of a step of the stage, counted from 0: one for each batch."""

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> ValidationResult | None:
        """Judge a model on the validation texts; none where its answers are no finite numbers.

        Args:
            model: the model.
            after_batch: called after each batch; what it raises ends the work.
        """


@dataclass(frozen=True, kw_only=True)
class MaskedLMBatch:
    """Texts of which some words are hidden; each has to be told from the other words of the batch.

    So the softmax is over the words that occur in the batch, few of all there are, drawn as often as they are used.

    Attributes:
        batch: the texts.
        is_masked: (B, T), where a word is hidden.
        candidates: (V,), the ids to choose from.
        answers: (hidden words,), which of the candidates stood there.
    """

    batch: Batch
    is_masked: Tensor
    candidates: Tensor
    answers: Tensor

    @property
    def weight(self) -> Tensor:
        """See `ObjectiveBatch`; a batch without any word asks nothing."""
        return self.is_masked.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `ObjectiveBatch`."""
        vectors = model.encoder(*self.batch)[self.is_masked]
        scores = model.encoder.embedding.token_scores(vectors, self.candidates)
        return functional.cross_entropy(scores.float(), self.answers, reduction="sum")


class MaskedLMObjective:
    """All texts, with and without labels, some of their words hidden.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), https://arxiv.org/abs/1810.04805;
    hidden words are always `[MASK]`, as Wettig et al. (2023), https://arxiv.org/abs/2202.08005, found to be enough.
    """

    def __init__(self, setup: TrainingSetup, stage: Stage, *, device: torch.device) -> None:
        self._preparation = setup
        self._stage = stage
        self._fraction = setup.config.pretrain.mask_probability
        self._device = device

    def at(self, step: int) -> list[ObjectiveBatch]:
        """See `Objective`."""
        texts = self._stage.texts
        return [self._lesson(pad(texts, indices).to(self._device)) for indices in self._stage.batches(step)]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> ValidationResult | None:
        """See `Objective`: the mean loss, of the same hidden words each time."""
        torch.manual_seed(self._stage.seed)
        texts = self._preparation.validation_texts
        was_training = model.training
        model.eval()
        loss = weight = 0.0
        try:
            with torch.inference_mode():
                for piece in by_length(texts.lengths, batch_tokens=self._preparation.config.train.batch_tokens):
                    lesson = self._lesson(pad(texts, *piece).to(self._device))
                    loss += float(lesson.loss(model))
                    weight += float(lesson.weight)
                    after_batch()
        finally:
            model.train(was_training)
        mean = loss / weight
        return ValidationResult({"loss": mean}, (-mean, -mean)) if np.isfinite(mean) else None

    def _lesson(self, batch: Batch) -> MaskedLMBatch:
        masked, is_masked = mask_tokens(batch, fraction=self._fraction)
        candidates, rows = torch.unique(batch.input_ids, return_inverse=True)
        return MaskedLMBatch(batch=masked, is_masked=is_masked, candidates=candidates, answers=rows[is_masked])


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """Texts, and how probable each class is to be for each of them.

    R-Drop (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448):
    each text is there twice, with other words dropped, and the model drops other features; what it says of both is to
    be right and the same. So what it learns by heart of one reading has to hold for the other.

    Attributes:
        batch: the texts; with a rdrop_weight all of them once, then all of them again.
        targets: (B, C) probabilities.
        class_weights: (C,), how much each class counts.
        rdrop_weight: how much it counts that both readings agree.
    """

    batch: Batch
    targets: Tensor
    class_weights: Tensor
    rdrop_weight: float

    @property
    def weight(self) -> Tensor:
        """See `ObjectiveBatch`."""
        return self._weights.sum()

    @property
    def _weights(self) -> Tensor:
        """How much each reading counts, (B,)."""
        return self.targets @ self.class_weights

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `ObjectiveBatch`."""
        logits = model(*self.batch)
        loss = functional.cross_entropy(logits, self.targets, weight=self.class_weights, reduction="sum")
        return loss + self.rdrop_weight * self._symmetric_kl(logits) if self.rdrop_weight else loss

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The divergences of each reading from the other, the mean of KL(p || q) and KL(q || p) in nats, summed, ()."""
        first, second = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1) / 2
        weights, _ = self._weights.chunk(2)
        return (weights * divergences).sum()


class ClassificationObjective:
    """The training texts, once or twice, some of their words dropped, with their labels.

    Args:
        setup: of the run.
        stage: of which these are the lessons.
        linear: the classifier whose scores are added to the encoder's, if any.
        device: where to.
    """

    def __init__(
        self, setup: TrainingSetup, stage: Stage, linear: LinearClassifier | None, *, device: torch.device
    ) -> None:
        self._preparation = setup
        self._class_weights = setup.class_weights.to(device)
        self._stage = stage
        self._beside = [linear.scores(setup.validation_texts)] if linear else []
        self._device = device

    def at(self, step: int) -> list[ObjectiveBatch]:
        """See `Objective`."""
        return [self._lesson(indices) for indices in self._stage.batches(step)]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> ValidationResult | None:
        """See `Objective`: of the encoder's scores and the linear classifier's, added up as they are best."""
        dataset, config = self._preparation.dataset, self._preparation.config.train
        logits = compute_logits(
            model, self._preparation.validation_texts, batch_tokens=config.batch_tokens, after_batch=after_batch
        )
        if not np.isfinite(logits).all():
            return None
        labels = dataset.selection.labels
        weights = self._preparation.class_weights.numpy()[labels]
        all_scores = [logits, *self._beside]
        scales, parts = fit_scales(all_scores, labels, weights)
        joint = combine_logits(all_scores, scales).astype(np.float32)
        metrics = compute_metrics(joint, labels, dataset.label_names, weights)
        scores = metrics.scalars()
        for given, part in zip(self._beside, parts[1:], strict=True):
            scores |= {"linear_accuracy": float((given.argmax(axis=1) == labels).mean()), "linear_part": part}
        monitored = scores[config.monitor] * (-1 if config.monitor == "loss" else 1)
        # On small splits many validations have equal accuracy: the loss then tells which is better.
        return ValidationResult(scores, (monitored, -metrics.loss), metrics, scales)

    def _lesson(self, indices: Indices) -> ClassificationBatch:
        config, dataset = self._preparation.config.train, self._preparation.dataset
        if config.rdrop_weight:
            indices = np.tile(indices, 2)
        batch = pad(self._stage.texts, indices).to(self._device)
        dropped = drop_tokens(batch.input_ids, fraction=config.word_dropout)
        labels = torch.from_numpy(dataset.train.labels[indices]).to(self._device)
        classes, smoothing = len(dataset.label_names), config.label_smoothing
        return ClassificationBatch(
            batch=batch._replace(input_ids=dropped),
            targets=functional.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes,
            class_weights=self._class_weights,
            rdrop_weight=config.rdrop_weight,
        )
