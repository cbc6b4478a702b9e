"""Where a training stands: the few numbers beside weights and moments, and how a step and a validation change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


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
