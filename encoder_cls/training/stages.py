"""The stages of a training, pretraining and labels: their schedule, batches and validation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.encoder.architecture import Indices
from encoder_cls.encoder.batches import (
    BatchSampler,
    ClassificationBatch,
    MultiLabelBatch,
    derive_seed,
    drop_tokens,
    shard_of,
)
from encoder_cls.encoder.distributed import ALONE, ProcessGroup
from encoder_cls.encoder.pretraining import GuessedTokens, denoise, mask_tokens, summed_loss
from encoder_cls.encoder.torch_encoder import TorchEncoder, pad
from encoder_cls.encoder.transformer import DenoisingAutoencoder, EncoderClassifier
from encoder_cls.metrics.logits import Logits
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.checkpoint import TrainingState
from encoder_cls.training.plan import Schedule
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.validation import ValidationResult, judge

PLOTTED_VALIDATIONS = 10  # at most: TensorBoard shows no more plots of a kind
PASSES_PER_STEP = 3  # forward passes that take about as long as a step
REPORTED_VALIDATIONS = 3  # passes over the validation texts that the report takes, about


@dataclass
class Stage(ABC):
    """A part of the training: its texts, its length, its batches, its validation."""

    name: ClassVar[str]
    metric_prefix: ClassVar[str]  # of its splits in the metrics
    kind = EncoderClassifier  # of the model that learns

    prepared: Prepared
    schedule: Schedule
    device: torch.device
    linear_logits: Logits | None = (
        None  # of validation texts, by the linear classifier; in the first process
    )
    pseudo_labels: NDArray[np.float32] | None = (
        None  # (texts, classes), of the unlabelled ones among `texts`
    )
    seed: int = field(init=False)  # of its batches, its dropout and its random weights
    texts: TokenizedTexts = field(init=False)  # that it learns from
    rows: NDArray[np.int64] = field(init=False)  # of these among the prepared ones
    sampler: BatchSampler = field(init=False)
    patience: int | None = field(init=False, default=None)  # as in `train.patience`
    report_cost: float = field(
        init=False, default=0.0
    )  # the time of the report after the stage, in steps

    @abstractmethod
    def __post_init__(self) -> None:
        """Set the fields that the data and the config decide."""

    @abstractmethod
    def batches_at(
        self, step: int, shard: int = 0, num_shards: int = 1
    ) -> Sequence[GuessedTokens | ClassificationBatch]:
        """The batches of a step of the stage, counted from 0; or a shard of each, without empty ones."""

    @abstractmethod
    def validate(
        self, model: EncoderClassifier, group: ProcessGroup = ALONE
    ) -> ValidationResult | None:
        """Validate a model with all processes; None where its logits are not finite, and in all but the first."""

    @cached_property
    def validation_cost(self) -> float:
        """The time of a validation, in steps."""
        tokens_per_step = int(self.texts.lengths.sum()) / self.schedule.steps_per_epoch
        return int(self.prepared.validation_texts.lengths.sum()) / tokens_per_step / PASSES_PER_STEP

    def steps(self, state: TrainingState) -> int:
        """The maximum number of steps: those of all epochs, or as many as a time budget allows."""
        return self.schedule.total_steps if state.stage_steps is None else state.stage_steps

    def epoch(self, state: TrainingState) -> float:
        """The epochs done, as a fraction."""
        return state.step_in_stage / self.schedule.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether a validation is due after this step."""
        step = state.step_in_stage
        is_due = step % self.schedule.validate_every == 0 or step == self.steps(state)
        return is_due and state.step > state.validated_step

    def is_drawn(self, state: TrainingState) -> bool:
        """Whether TensorBoard shows plots of the validation: the first one in each tenth of all steps."""
        step, total = state.step_in_stage, self.steps(state)
        earlier = (step - 1) // self.schedule.validate_every * self.schedule.validate_every
        return step * PLOTTED_VALIDATIONS // total > earlier * PLOTTED_VALIDATIONS // total

    def is_done(self, state: TrainingState) -> bool:
        """Whether its steps are done, or as many validations in a row were stale as its patience allows."""
        is_out_of_patience = self.patience is not None and state.stale_validations >= self.patience
        return is_out_of_patience or state.step_in_stage == self.steps(state)

    def has_work_left(self, state: TrainingState) -> bool:
        """Whether a step or a validation is left."""
        return self.is_validation_due(state) or not self.is_done(state)

    def affordable_steps(self, seconds: float, seconds_per_step: float) -> int:
        """The number of steps that fit into a time, with their validations and the report."""
        steps = (
            seconds / seconds_per_step - self.validation_cost - self.report_cost
        )  # perhaps infinite
        affordable = steps / (1 + self.validation_cost / self.schedule.validate_every)
        return int(min(max(affordable, 0), self.schedule.total_steps))


class PretrainingStage(Stage):
    """Masked language modelling or denoising of all texts, with and without labels.

    Each epoch hides other words, so the model does not overfit, and needs no early stopping.
    """

    name, metric_prefix = "pretraining", "pretraining/"

    def __post_init__(self) -> None:
        config = self.prepared.config
        self.seed = derive_seed(config.seed, 1000)  # far from the seeds that people try
        self.texts, self.rows = self.prepared.texts, np.arange(len(self.prepared.texts))
        self.sampler = BatchSampler(self.texts.lengths, config.train, seed=self.seed)
        is_denoising = config.pretrain.objective == "denoising"
        self.kind = DenoisingAutoencoder if is_denoising else EncoderClassifier
        self._objective = partial(
            denoise if is_denoising else mask_tokens, fraction=config.pretrain.mask_probability
        )

    def batches_at(self, step: int, shard: int = 0, num_shards: int = 1) -> list[GuessedTokens]:
        """See `Stage`; the candidates of a shard are those of the whole batch."""
        batches = []
        for indices in self.sampler.batches_of_step(step):
            if len(part := shard_of(indices, shard, num_shards)):
                whole = pad(self.texts, indices).to(self.device)
                batch = whole if num_shards == 1 else pad(self.texts, part).to(self.device)
                batches.append(self._objective(batch, torch.unique(whole.input_ids)))
        return batches

    def validate(
        self, model: EncoderClassifier, group: ProcessGroup = ALONE
    ) -> ValidationResult | None:
        """See `Stage`: the mean loss, with the same tokens hidden each time."""
        texts, batch_tokens = (
            self.prepared.validation_texts,
            self.prepared.config.train.batch_tokens,
        )
        torch.manual_seed(self.seed)
        mine = summed_loss(
            model, texts, self._objective, batch_tokens=batch_tokens, share=group.dealt
        )
        loss, weight = group.summed(*mine)
        mean = loss / weight
        return ValidationResult({"loss": mean}, (1.0, -mean, -mean)) if np.isfinite(mean) else None


class ModelStage(Stage):
    """Training on labels and pseudo-labels; validations add the logits of the linear classifier."""

    name, metric_prefix = "model", ""

    def __post_init__(self) -> None:
        prepared = self.prepared
        self.seed, self.patience = prepared.config.seed, prepared.config.train.patience
        self.texts, self.rows, self.sampler = (
            prepared.model_texts,
            prepared.model_rows,
            prepared.model_sampler,
        )
        tests = len(prepared.dataset.test or ()) / max(1, len(prepared.validation_texts))
        self.report_cost = self.validation_cost * (REPORTED_VALIDATIONS + tests)

    def batches_at(
        self, step: int, shard: int = 0, num_shards: int = 1
    ) -> list[ClassificationBatch]:
        """See `Stage`."""
        parts = [
            shard_of(indices, shard, num_shards) for indices in self.sampler.batches_of_step(step)
        ]
        return [self._collate(indices) for indices in parts if len(indices)]

    def validate(
        self, model: EncoderClassifier, group: ProcessGroup = ALONE
    ) -> ValidationResult | None:
        """See `Stage`: scores the weighted sum of the logits of encoder and linear classifier."""
        config, dataset = self.prepared.config.train, self.prepared.dataset
        encoder = TorchEncoder(model, self.prepared.config.model)
        logits = encoder.logits(
            self.prepared.validation_texts, batch_tokens=config.batch_tokens, share=group.dealt
        )
        group.sum(torch.from_numpy(logits))
        if not (group.leads and np.isfinite(logits).all()):
            return None
        is_taught = self.pseudo_labels is not None
        return judge(
            logits,
            self.linear_logits,
            dataset,
            monitor=config.monitor,
            expects_equal_shares=is_taught,
        )

    def _collate(self, indices: Indices) -> ClassificationBatch:
        config = self.prepared.config.train
        if config.rdrop_weight:
            indices = np.tile(indices, 2)
        batch = pad(self.texts, indices).to(self.device)
        inputs = batch._replace(
            input_ids=drop_tokens(batch.input_ids, fraction=config.word_dropout)
        )
        targets, weights = self.targets_of(indices), self.prepared.class_weights.to(self.device)
        kind, alternatives = ClassificationBatch, targets.shape[1]
        if self.prepared.dataset.is_multi_label:
            kind, alternatives, weights = MultiLabelBatch, 2, torch.where(targets > 0, weights, 1.0)
        targets = targets * (1 - config.label_smoothing) + config.label_smoothing / alternatives
        return kind(
            inputs=inputs, targets=targets, weights=weights, rdrop_weight=config.rdrop_weight
        )

    def targets_of(self, indices: Indices) -> Tensor:
        """The target probability of each class, (B, C): 1 for the labels of a text, else its pseudo-label."""
        dataset, labels = self.prepared.dataset, self.prepared.dataset.train.labels
        if dataset.is_multi_label:
            return torch.from_numpy(labels[indices]).to(self.device)
        targets = np.zeros((len(indices), len(dataset.label_names)), dtype=np.float32)
        is_labelled = indices < len(labels)
        targets[is_labelled, labels[indices[is_labelled]]] = 1
        if self.pseudo_labels is not None:
            targets[~is_labelled] = self.pseudo_labels[indices[~is_labelled] - len(labels)]
        return torch.from_numpy(targets).to(self.device)


def make_stages(prepared: Prepared, device: torch.device) -> list[Stage]:
    """Make the stages of the plan: pretraining, and the model, which starts from its weights."""
    schedules = {PretrainingStage: prepared.plan.pretraining, ModelStage: prepared.plan.training}
    return [stage(prepared, schedule, device) for stage, schedule in schedules.items() if schedule]
