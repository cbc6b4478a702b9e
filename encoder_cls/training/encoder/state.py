"""The state of a training, and when it has no patience left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


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
        linear_texts: from so many texts the linear classifier learns, as a stream, where a time budget has decided it.
        sums: of the metrics that have not been logged yet.
    """

    step: int = 0
    stage: int = 0
    stage_start: int = 0
    stage_steps: int | None = None
    validated_step: int = 0
    best_score: tuple[float, float, float] | None = None
    best_step: int = 0
    stale_validations: int = 0
    score_to_beat: tuple[float, float, float] | None = None
    linear_texts: int | None = None
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

    def is_best(self, score: tuple[float, float, float]) -> bool:
        """Whether the score is the best of this stage."""
        return self.best_score is None or score > self.best_score

    def after_validation(self, score: tuple[float, float, float], *, is_warming_up: bool) -> TrainingState:
        """The state after a validation; while the learning rate still rises, a worse score does not count."""
        if self.is_best(score):
            return replace(self, validated_step=self.step, best_score=score, best_step=self.step, stale_validations=0)
        stale_validations = 0 if is_warming_up else self.stale_validations + 1
        return replace(self, validated_step=self.step, stale_validations=stale_validations)

    def at_next_stage(self) -> TrainingState:
        """The next stage, before its first step."""
        new = TrainingState(stage=self.stage + 1, score_to_beat=self.score_to_beat, linear_texts=self.linear_texts)
        return replace(new, step=self.step, stage_start=self.step, validated_step=self.step, best_step=self.step)
