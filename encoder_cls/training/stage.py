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
from encoder_cls.training.recipe import LinearInput
from encoder_cls.training.sampler import BatchSampler
from encoder_cls.training.state import TrainingState

TIMED_STEPS = 20  # from which the time of the others is judged
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
        time_budget: minutes that it may take, as judged by its first steps; none: as many as it takes.
        linear: what a linear classifier looks at that is fitted beside it; none: there is no such classifier.
        make_objective: what it learns, on a device, with what it is given of such a linear classifier.
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
    time_budget: float | None
    linear: LinearInput | None
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
        return state.stage_steps or self.total_steps

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

    def affordable_steps(self, seconds_per_step: float) -> int:
        """The steps that the limit of time allows: those that told how fast they are at least, all at most."""
        if self.time_budget is None:
            return self.total_steps
        affordable = 60 * self.time_budget / seconds_per_step  # perhaps infinite
        return int(min(max(affordable, TIMED_STEPS), self.total_steps))
