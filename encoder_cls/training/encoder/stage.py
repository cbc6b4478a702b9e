"""The stages of training, and the state of a run between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.batches import BatchSampler, derive_seed
from encoder_cls.training.encoder.objectives import ClassificationObjective, MaskedLMObjective, Objective
from encoder_cls.training.linear.techniques import LinearAnswers
from encoder_cls.training.plan import Schedule
from encoder_cls.training.prepared import Prepared

REPORTED_VALIDATIONS = 3  # the report computes logits of the validation texts about so often


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The numbers that, with weights and moments, decide how training goes on.

    Attributes:
        step: optimizer steps done, in all stages.
        stage: the current stage, counted from 0.
        stage_start: its first step.
        stage_steps: its steps, where a time budget has decided them.
        validated_step: the step of the last validation.
        best_score: the stage's best selection key so far, at `best_step`, `stale_validations` ago.
        score_to_beat: the selection key of the linear classifier alone.
        sums: of the metrics that have not been logged yet.
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
        """Whether a validation of the last stage was better than the linear classifier alone."""
        if self.best_score is None:
            return False
        return self.score_to_beat is None or self.best_score > self.score_to_beat

    def after_step(self, metrics: Mapping[str, float]) -> TrainingState:
        """The state one step later, with its metrics added to the sums."""
        new = {"steps": 1, **metrics}
        sums = {name: self.sums.get(name, 0.0) + value for name, value in new.items()}
        return replace(self, step=self.step + 1, sums=sums)

    def is_best(self, score: tuple[float, float]) -> bool:
        """Whether the score is the best of this stage."""
        return self.best_score is None or score > self.best_score

    def after_validation(self, score: tuple[float, float], *, is_warming_up: bool) -> TrainingState:
        """The state after a validation; while the learning rate still rises, a worse score says nothing."""
        if self.is_best(score):
            return replace(self, validated_step=self.step, best_score=score, best_step=self.step, stale_validations=0)
        stale_validations = 0 if is_warming_up else self.stale_validations + 1
        return replace(self, validated_step=self.step, stale_validations=stale_validations)

    def at_next_stage(self) -> TrainingState:
        """The next stage, before its first step."""
        begun = TrainingState(stage=self.stage + 1, score_to_beat=self.score_to_beat)
        return replace(begun, step=self.step, stage_start=self.step, validated_step=self.step, best_step=self.step)


PLOTTED_VALIDATIONS = 10  # TensorBoard shows no more plots of a kind


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the training, from first weights to the best.

    Attributes:
        name: `pretraining` or `model`.
        metric_prefix: of its splits in the metrics.
        seed: of its batches, its dropout and its random weights.
        starts_from: the stage whose best weights are its first ones.
        rows: which of the prepared texts it learns from, in the batches of its `sampler`.
        patience: stale validations after which it ends; none: it goes on to its last step.
        validation_cost: the time of a validation in steps, as `report_cost` is that of the report after the stage.
    """

    name: str
    metric_prefix: str
    seed: int
    starts_from: str | None
    rows: NDArray[np.int64]
    sampler: BatchSampler
    schedule: Schedule
    patience: int | None
    validation_cost: float
    report_cost: float
    make_objective: Callable[[torch.device, LinearAnswers | None], Objective]

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


def make_stages(prepared: Prepared) -> list[Stage]:
    """Make the stages of the plan: pretraining, and the model, which starts from its weights."""
    plan, stages = prepared.plan, []
    if plan.pretraining:
        stages.append(_pretraining_stage(prepared, plan.pretraining))
    if plan.training:
        stages.append(_model_stage(prepared, plan.training, starts_from=stages[0].name if stages else None))
    return stages


def _pretraining_stage(prepared: Prepared, schedule: Schedule) -> Stage:
    config, texts = prepared.config, prepared.texts
    seed = derive_seed(config.seed, 1000)  # far from those that a person would try for the model
    sampler = BatchSampler.of(texts.lengths, config.train, seed=seed)
    return Stage(
        name="pretraining",
        metric_prefix="pretraining/",
        seed=seed,
        starts_from=None,
        rows=np.arange(len(texts)),
        sampler=sampler,
        schedule=schedule,
        patience=None,  # other tokens are masked each time, so there is no overfitting
        validation_cost=_cost_of(prepared.validation_texts, texts, schedule),
        report_cost=0.0,
        make_objective=lambda device, _: MaskedLMObjective(prepared, sampler, seed=seed, device=device),
    )


def _model_stage(prepared: Prepared, schedule: Schedule, *, starts_from: str | None) -> Stage:
    config, test = prepared.config, prepared.dataset.test or ()
    validation_cost = _cost_of(prepared.validation_texts, prepared.model_texts, schedule)
    tests = len(test) / max(1, len(prepared.validation_texts))
    return Stage(
        name="model",
        metric_prefix="",
        seed=config.seed,
        starts_from=starts_from,
        rows=prepared.model_rows,
        sampler=prepared.model_sampler,
        schedule=schedule,
        patience=config.train.patience,
        validation_cost=validation_cost,
        report_cost=validation_cost * (REPORTED_VALIDATIONS + tests),
        make_objective=lambda device, answers: ClassificationObjective(prepared, answers=answers, device=device),
    )


def _cost_of(texts: TokenizedTexts, learned: TokenizedTexts, schedule: Schedule) -> float:
    """The time of the logits of texts in steps: a forward pass is about a third of one."""
    tokens_per_step = int(learned.lengths.sum()) / schedule.steps_per_epoch
    return int(texts.lengths.sum()) / tokens_per_step / 3
