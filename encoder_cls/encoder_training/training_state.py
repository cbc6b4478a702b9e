"""The state of a training between two steps, and the metrics of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from encoder_cls.metrics.validation_score import ValidationScore

Outcome = Literal["done", "patience", "time", "skipped"]
"""How a training has ended.

- `done`: all epochs are done.
- `patience`: too many validations in a row had no better score.
- `time`: the time budget is used up.
- `skipped`: the time budget allowed so few steps that the training was left out.
"""


class StepMetrics(NamedTuple):
    """The metrics of a step, over all processes.

    Attributes:
        loss: over all targets.
        grad_norm: of dense gradients, before clipping.
        padded_tokens: with padding; `tokens` are without.
        has_finite_gradient: in all processes.
    """

    loss: float
    grad_norm: float
    tokens: int
    padded_tokens: int
    has_finite_gradient: bool

    @property
    def has_finite_loss(self) -> bool:
        """Whether the loss is finite."""
        return math.isfinite(self.loss)

    @property
    def should_update(self) -> bool:
        """Whether the step updates the model: its loss and gradient are finite.

        Processes agree, because both are summed over all of them.
        """
        return self.has_finite_loss and self.has_finite_gradient


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Everything except weights and moments that a training needs to continue.

    Attributes:
        step: of the run, pretraining included.
        first_step: before this training.
        step_limit: the steps that there is time for; None without a limit, or until steps are
            timed.
        validated_step: the step of the last validation.
        best_score: None before a validation.
        stale_validations: validations in a row without a better score.
        skipped_in_a_row: the number of the last steps, all of which were skipped.
        sums: of metrics since the last row of the log.
        outcome: how the training has ended; None if it goes on.
    """

    step: int = 0
    first_step: int = 0
    step_limit: int | None = None
    validated_step: int = 0
    best_score: ValidationScore | None = None
    best_step: int = 0
    stale_validations: int = 0
    skipped_in_a_row: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    outcome: Outcome | None = None

    @classmethod
    def starting_at(cls, step: int) -> TrainingState:
        """The state after `step` steps of an earlier training."""
        return cls(step=step, first_step=step, validated_step=step, best_step=step)

    @property
    def step_in_training(self) -> int:
        """The steps done in this training."""
        return self.step - self.first_step

    def after_step(self, metrics: StepMetrics) -> TrainingState:
        """The state after a step, with its metrics in the sums."""
        # The gradient norm of a skipped step may be infinite or not a number, so it is left out.
        skipped_in_a_row = 0
        skipped_steps = 0
        grad_norm = metrics.grad_norm
        if not metrics.should_update:
            skipped_in_a_row = self.skipped_in_a_row + 1
            skipped_steps = 1
            grad_norm = 0.0

        metrics_to_add = {
            "steps": 1,
            "skipped_steps": skipped_steps,
            "loss": metrics.loss,
            "grad_norm": grad_norm,
            "tokens": metrics.tokens,
            "padded_tokens": metrics.padded_tokens,
        }
        sums = {name: self.sums.get(name, 0.0) + value for name, value in metrics_to_add.items()}
        return replace(self, step=self.step + 1, skipped_in_a_row=skipped_in_a_row, sums=sums)

    def after_validation(self, score: ValidationScore, *, is_warming_up: bool) -> TrainingState:
        """The state after a validation, stale without a better score, except during warm-up."""
        if score.is_better_than(self.best_score):
            return replace(
                self,
                validated_step=self.step,
                best_score=score,
                best_step=self.step,
                stale_validations=0,
            )

        stale_validations = 0
        if not is_warming_up:
            stale_validations = self.stale_validations + 1
        return replace(self, validated_step=self.step, stale_validations=stale_validations)

    def mean_metrics(self) -> dict[str, float]:
        """The means since the last row of the log, and the skipped steps."""
        sums = self.sums
        means = {
            "loss": sums["loss"] / sums["steps"],
            "padding_fraction": 1 - sums["tokens"] / sums["padded_tokens"],
        }

        num_updates = sums["steps"] - sums["skipped_steps"]
        if num_updates:
            means["grad_norm"] = sums["grad_norm"] / num_updates

        if sums["skipped_steps"]:
            means["skipped_steps"] = int(sums["skipped_steps"])
        return means
