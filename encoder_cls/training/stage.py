"""A stage of training: what it learns from, how long, and what is due after each of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.fitted_linear import LinearAnswers
from encoder_cls.training.objectives import Objective
from encoder_cls.training.sampler import BatchSampler
from encoder_cls.training.state import TrainingState

PLOTTED_VALIDATIONS = 10  # TensorBoard shows no more plots of a kind


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the training, from first weights to the best.

    Attributes:
        name: `pretraining`, then `model`.
        metric_prefix: of the names of its splits in the metrics.
        seed: of its batches and its dropout, and of its first weights where it starts from none.
        starts_from: the stage whose weights are its first; none: random ones.
        texts: from which it learns.
        rows: which of the setup's texts these are.
        sampler: the batches of all epochs.
        epochs: how often each text is learned from, at most.
        validate_every: steps between validations.
        patience: validations without a better score after which it ends; none: it goes on to its last step.
        validation_cost: the time that a validation takes, in that of a step.
        report_cost: the time that what comes after the stage takes, in that of a step.
        make_objective: what it learns, on a device, with what it is given of a linear classifier, if there is one.
    """

    name: str
    metric_prefix: str
    seed: int
    starts_from: str | None
    texts: TokenizedTexts
    rows: NDArray[np.int64]
    sampler: BatchSampler
    epochs: int
    validate_every: int
    patience: int | None
    validation_cost: float
    report_cost: float
    make_objective: Callable[[torch.device, LinearAnswers | None], Objective]

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of one epoch."""
        return self.sampler.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """Optimizer steps of all epochs."""
        return self.epochs * self.steps_per_epoch

    def steps(self, state: TrainingState) -> int:
        """The steps that it has, at most: those of all epochs, or fewer where a limit of time has decided so."""
        return self.total_steps if state.stage_steps is None else state.stage_steps

    def epoch(self, state: TrainingState) -> float:
        """Epochs done."""
        return state.step_in_stage / self.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether there is a validation now, which has not been yet."""
        step = state.step_in_stage
        is_due = step % self.validate_every == 0 or step == self.steps(state)
        return is_due and state.step > state.validated_step

    def is_drawn(self, state: TrainingState) -> bool:
        """Whether plots are drawn of the validation at this step: of the first in each tenth of all steps."""
        step, total = state.step_in_stage, self.steps(state)
        former = (step - 1) // self.validate_every * self.validate_every
        return step * PLOTTED_VALIDATIONS // total > former * PLOTTED_VALIDATIONS // total

    def is_done(self, state: TrainingState) -> bool:
        """Whether its steps are done, or its patience has run out."""
        out_of_patience = self.patience is not None and state.stale_validations >= self.patience
        return out_of_patience or state.step_in_stage == self.steps(state)

    def has_work_left(self, state: TrainingState) -> bool:
        """Whether a step or a validation is still to come."""
        return self.is_validation_due(state) or not self.is_done(state)

    def affordable_steps(self, seconds: float, seconds_per_step: float) -> int:
        """The steps that there is time for, with their validations and what comes after them; all at most."""
        steps = seconds / seconds_per_step - self.validation_cost - self.report_cost  # perhaps infinite
        return int(min(max(steps / (1 + self.validation_cost / self.validate_every), 0), self.total_steps))
