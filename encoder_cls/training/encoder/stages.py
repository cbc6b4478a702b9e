"""The stages of the encoder's training: masked language modelling or denoising, then classification.

The batches of a step are a pure function of the step, given that torch's random numbers have been seeded for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from encoder_cls.inference.encoder.batches import Indices, by_length
from encoder_cls.inference.encoder.torch import Batch, compute_logits, pad
from encoder_cls.model import DenoisingAutoencoder, EncoderClassifier
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, UNK_ID, TokenizedTexts
from encoder_cls.training.encoder.batches import WHOLE, BatchSampler, Shard, derive_seed
from encoder_cls.training.encoder.checkpoint import TrainingState
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.few_labels import LinearAnswers
from encoder_cls.training.plan import Schedule
from encoder_cls.training.prepared import Prepared

REPORTED_VALIDATIONS = 3  # the report computes logits of the validation texts about so often
PLOTTED_VALIDATIONS = 10  # TensorBoard shows no more plots of a kind
PASSES_PER_STEP = 3  # forward passes of validation that take as long as a step, about
NO_ANSWERS = LinearAnswers(None)


@dataclass(frozen=True, kw_only=True)
class TargetBatch(ABC):
    """A batch with its targets."""

    inputs: Batch

    @property
    @abstractmethod
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, (): the summed loss divided by it is the mean loss."""

    @abstractmethod
    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed by their weights, ()."""


@dataclass(kw_only=True)
class Stage(ABC):
    """A part of the training, from first weights to the best: how long it is, and what it learns.

    Attributes:
        metric_prefix: of its splits in the metrics.
        seed: of its batches, its dropout and its random weights.
        texts: the texts it learns from, `rows` of the prepared ones, in the batches of its `sampler`.
        patience: stale validations after which it ends; none: it goes on to its last step.
        validation_cost: the time of a validation in steps, as `report_cost` is that of the report after the stage.
        answers: of the linear classifier, set when the stage starts.
    """

    name: ClassVar[str]
    metric_prefix: ClassVar[str]
    prepared: Prepared
    device: torch.device
    seed: int
    texts: TokenizedTexts
    rows: NDArray[np.int64]
    sampler: BatchSampler
    schedule: Schedule
    patience: int | None = None
    validation_cost: float = 0.0
    report_cost: float = 0.0
    answers: LinearAnswers = NO_ANSWERS

    def new_model(self) -> EncoderClassifier:
        """Make the model that learns, with random weights, a function of the seed."""
        return self.prepared.new_model(self.seed)

    @abstractmethod
    def batches_at(self, step: int, shard: Shard = WHOLE) -> Sequence[TargetBatch]:
        """The batches of a step of the stage, counted from 0, or a shard of each that has a text in it."""

    @abstractmethod
    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """Validate a model, shared by all processes; none where its logits are not finite, and in all but the first."""

    def loss(self, model: EncoderClassifier, batch: TargetBatch) -> Tensor:
        """The summed loss of a batch, ()."""
        return batch.loss(model)

    def steps(self, state: TrainingState) -> int:
        """Its steps at most: those of all epochs, or fewer where a time budget has decided so."""
        return self.schedule.total_steps if state.stage_steps is None else state.stage_steps

    def epoch(self, state: TrainingState) -> float:
        """Epochs done."""
        return state.step_in_stage / self.schedule.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether a validation has to be done at this step."""
        step = state.step_in_stage
        is_due = step % self.schedule.validate_every == 0 or step == self.steps(state)
        return is_due and state.step > state.validated_step

    def is_drawn(self, state: TrainingState) -> bool:
        """Whether the validation is drawn: the first one in each tenth of all steps."""
        step, total = state.step_in_stage, self.steps(state)
        earlier = (step - 1) // self.schedule.validate_every * self.schedule.validate_every
        return step * PLOTTED_VALIDATIONS // total > earlier * PLOTTED_VALIDATIONS // total

    def is_done(self, state: TrainingState) -> bool:
        """Whether its steps are done, or its patience has run out."""
        out_of_patience = self.patience is not None and state.stale_validations >= self.patience
        return out_of_patience or state.step_in_stage == self.steps(state)

    def has_work_left(self, state: TrainingState) -> bool:
        """Whether a step or a validation is still to come."""
        return self.is_validation_due(state) or not self.is_done(state)

    def affordable_steps(self, seconds: float, seconds_per_step: float) -> int:
        """The steps that fit into the time, with their validations and the report."""
        steps = seconds / seconds_per_step - self.validation_cost - self.report_cost  # perhaps infinite
        affordable = steps / (1 + self.validation_cost / self.schedule.validate_every)
        return int(min(max(affordable, 0), self.schedule.total_steps))


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


def make_stages(prepared: Prepared, device: torch.device) -> list[Stage]:
    """Make the stages of the plan: pretraining, and the model, which starts from its weights."""
    config, plan, stages = prepared.config, prepared.plan, list[Stage]()
    validation_tokens = int(prepared.validation_texts.lengths.sum())

    def validation_cost(texts: TokenizedTexts, schedule: Schedule) -> float:
        tokens_per_step = int(texts.lengths.sum()) / schedule.steps_per_epoch
        return validation_tokens / tokens_per_step / PASSES_PER_STEP

    if plan.pretraining:
        texts, seed = prepared.texts, derive_seed(config.seed, 1000)  # far from seeds that a person would try
        kind = DenoisingStage if config.pretrain.objective == "denoising" else PretrainingStage
        stages.append(
            kind(
                prepared=prepared,
                device=device,
                seed=seed,
                texts=texts,
                rows=np.arange(len(texts)),
                sampler=BatchSampler.of(texts.lengths, config.train, seed=seed),
                schedule=plan.pretraining,
                validation_cost=validation_cost(texts, plan.pretraining),
            )
        )
    if plan.training:
        cost = validation_cost(prepared.model_texts, plan.training)
        tests = len(prepared.dataset.test or ()) / max(1, len(prepared.validation_texts))
        stages.append(
            ModelStage(
                prepared=prepared,
                device=device,
                seed=config.seed,
                texts=prepared.model_texts,
                rows=prepared.model_rows,
                sampler=prepared.model_sampler,
                schedule=plan.training,
                patience=config.train.patience,
                validation_cost=cost,
                report_cost=cost * (REPORTED_VALIDATIONS + tests),
            )
        )
    return stages
