"""A stage of the training: how long it is, and what it learns.

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

from encoder_cls.inference.encoder.torch import Batch
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.batches import WHOLE, BatchSampler, Shard
from encoder_cls.training.encoder.checkpoint import TrainingState
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.training.linear.few_labels import LinearAnswers
from encoder_cls.training.plan import Schedule
from encoder_cls.training.prepared import Prepared
from encoder_cls.transformer import EncoderClassifier

NO_ANSWERS = LinearAnswers(None)
PLOTTED_VALIDATIONS = 10  # TensorBoard shows no more plots of a kind
PASSES_PER_STEP = 3  # forward passes of validation that take as long as a step, about


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
