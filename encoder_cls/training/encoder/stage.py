"""A stage of training and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.batches import BatchSampler
from encoder_cls.training.encoder.objectives import Objective
from encoder_cls.training.linear.techniques import LinearAnswers


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The few numbers that, with weights and moments, decide how training goes on.

    Attributes:
        step: optimizer steps done, in all stages.
        stage: which stage is going on, counted from 0; the last is that of the model.
        stage_start: the step at which its training began.
        stage_steps: its steps, where a limit of time has decided how many there are.
        validated_step: the step of the last validation.
        best_score: the stage's best validation score so far and what breaks a tie; none before the first.
        best_step: when it was reached.
        stale_validations: validations since then.
        score_to_beat: the validation score of the linear classifier alone; none: there is no such classifier.
        sums: running sums of the metrics that have not been logged yet.
    """

    step: int = 0
    stage: int = 0
    stage_start: int = 0
    stage_steps: int | None = None
    validated_step: int = 0
    best_score: tuple[float, float] | None = None
    best_step: int = 0
    stale_validations: int = 0
    score_to_beat: tuple[float, float] | None = None
    sums: dict[str, float] = field(default_factory=dict)

    @property
    def step_in_stage(self) -> int:
        """Optimizer steps done in this stage."""
        return self.step - self.stage_start

    @property
    def has_beaten_linear(self) -> bool:
        """Whether the stage, the last one, has had a validation that was better than the linear classifier alone."""
        if self.best_score is None:
            return False
        return self.score_to_beat is None or self.best_score > self.score_to_beat

    def after_step(self, metrics: Mapping[str, float]) -> TrainingState:
        """One step on, its metrics added to the sums."""
        new = {"steps": 1, **metrics}
        sums = {name: self.sums.get(name, 0.0) + value for name, value in new.items()}
        return replace(self, step=self.step + 1, sums=sums)

    def is_best(self, score: tuple[float, float]) -> bool:
        """Whether no validation of this stage has had so good a score."""
        return self.best_score is None or score > self.best_score

    def after_validation(self, score: tuple[float, float], *, is_warming_up: bool) -> TrainingState:
        """The same step, validated.

        Args:
            score: that of the validation.
            is_warming_up: the learning rate still rises, so a worse score is no sign that there is no more to learn.
        """
        if self.is_best(score):
            return replace(self, validated_step=self.step, best_score=score, best_step=self.step, stale_validations=0)
        stale_validations = 0 if is_warming_up else self.stale_validations + 1
        return replace(self, validated_step=self.step, stale_validations=stale_validations)

    def at_next_stage(self) -> TrainingState:
        """The next stage, before its first step."""
        step = self.step
        return TrainingState(
            step=step,
            stage=self.stage + 1,
            stage_start=step,
            validated_step=step,
            best_step=step,
            score_to_beat=self.score_to_beat,
        )


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
