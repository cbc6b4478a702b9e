"""The stages: pretraining, by masked language modelling or denoising, and training on labels."""

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

from encoder_cls.inference.encoder import Indices, by_length
from encoder_cls.inference.encoder.torch import Batch, TorchEncoder, pad
from encoder_cls.system.stop import check_stop
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.encoder.batches import (
    WHOLE,
    BatchSampler,
    ClassificationBatch,
    GuessedTokens,
    MultiLabelBatch,
    Shard,
    delete_tokens,
    derive_seed,
    drop_tokens,
    mask_tokens,
)
from encoder_cls.training.encoder.checkpoint import TrainingState
from encoder_cls.training.encoder.process_group import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.few_labels import LinearAnswers
from encoder_cls.training.plan import Schedule
from encoder_cls.training.prepared import Prepared
from encoder_cls.transformer import DenoisingAutoencoder, EncoderClassifier

NO_ANSWERS = LinearAnswers(None)
PLOTTED_VALIDATIONS = 10  # TensorBoard shows no more plots of a kind
PASSES_PER_STEP = 3  # forward passes of validation that take as long as a step, about
REPORTED_VALIDATIONS = 3  # the report computes logits of the validation texts about so often


@dataclass(kw_only=True)
class Stage(ABC):
    """A part of the training, from first weights to the best: how long it is, and what it learns."""

    name: ClassVar[str]
    metric_prefix: ClassVar[str]  # of its splits in the metrics
    kind: ClassVar[type[EncoderClassifier]] = EncoderClassifier  # of the model that learns
    prepared: Prepared
    device: torch.device
    seed: int  # of its batches, its dropout and its random weights
    texts: TokenizedTexts  # that it learns from
    rows: NDArray[np.int64]  # of these among the prepared ones
    sampler: BatchSampler
    schedule: Schedule
    patience: int | None = None  # stale validations after which it ends; none: it goes on to its last step
    answers: LinearAnswers = NO_ANSWERS  # of the linear classifier, set when the stage starts

    @abstractmethod
    def batches_at(self, step: int, shard: Shard = WHOLE) -> Sequence[GuessedTokens | ClassificationBatch]:
        """The batches of a step of the stage, counted from 0, or a shard of each that has a text in it."""

    @abstractmethod
    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """Validate a model, shared by all processes; none where its logits are not finite, and in all but the first."""

    @cached_property
    def validation_cost(self) -> float:
        """The time of a validation, in steps."""
        tokens_per_step = int(self.texts.lengths.sum()) / self.schedule.steps_per_epoch
        return int(self.prepared.validation_texts.lengths.sum()) / tokens_per_step / PASSES_PER_STEP

    @cached_property
    def report_cost(self) -> float:
        """The time of the report after the stage, in steps."""
        return 0.0

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
        return GuessedTokens(
            inputs=masked,
            is_guessed=is_masked,
            candidates=candidates,
            targets=targets,
            vectors=lambda model: model.encoder(*masked),
        )


class DenoisingStage(PretrainingStage):
    """Denoising: the encoder reads a text with words deleted, and a decoder, thrown away afterwards, writes the whole.

    Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder" (2021),
    https://arxiv.org/abs/2104.06979; there the decoder sees one vector of the text, here all that the encoder gives.
    """

    kind = DenoisingAutoencoder

    def _corrupted(self, batch: Batch, candidates: Tensor) -> GuessedTokens:
        corrupted = delete_tokens(batch, fraction=self.prepared.config.pretrain.mask_probability)
        ids, has_next = batch.input_ids, batch.attention_mask.roll(-1, dims=1)
        has_next[:, -1] = False

        def vectors(model: EncoderClassifier) -> Tensor:
            assert isinstance(model, DenoisingAutoencoder)
            embedded, memory = model.encoder.embedding(ids, batch.char_ngrams), model.encoder(*corrupted)
            decoded: Tensor = model.decoder(embedded, batch.attention_mask, memory, corrupted.attention_mask)
            return decoded

        return GuessedTokens(
            inputs=batch,
            is_guessed=has_next,
            candidates=candidates,
            targets=torch.searchsorted(candidates, ids[:, 1:][has_next[:, :-1]]),
            vectors=vectors,
        )


class ModelStage(Stage):
    """Classification by labels, and by the pseudo-labels of a linear classifier, whose logits join in validations."""

    name, metric_prefix = "model", ""

    @cached_property
    def report_cost(self) -> float:
        """See `Stage`."""
        tests = len(self.prepared.dataset.test or ()) / max(1, len(self.prepared.validation_texts))
        return self.validation_cost * (REPORTED_VALIDATIONS + tests)

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[ClassificationBatch]:
        """See `Stage`."""
        parts = [shard.of(indices) for indices in self.sampler.batches_of_step(step)]
        return [self._collate(indices) for indices in parts if len(indices)]

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Stage`: of the weighted sum of the encoder's logits and the linear classifier's."""
        config, dataset = self.prepared.config.train, self.prepared.dataset
        encoder = TorchEncoder(model, self.prepared.config.model)
        logits = encoder.logits(self.prepared.validation_texts, batch_tokens=config.batch_tokens, share=group.dealt)
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
        targets, weights = self.targets_of(indices), self.prepared.class_weights.to(self.device)
        kind, alternatives = ClassificationBatch, targets.shape[1]
        if self.prepared.dataset.is_multi_label:
            kind, alternatives, weights = MultiLabelBatch, 2, torch.where(targets > 0, weights, 1.0)
        targets = targets * (1 - config.label_smoothing) + config.label_smoothing / alternatives
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
                sampler=BatchSampler(texts.lengths, config.train, seed=seed),
                schedule=plan.pretraining,
            )
        )
    if plan.training:
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
            )
        )
    return stages
