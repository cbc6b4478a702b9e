"""The state of a training between two steps, and what a step was like."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from encoder_cls.metrics.validation_score import ValidationScore

Outcome = Literal["done", "patience", "time", "skipped"]
"""How a training has ended: all epochs, no better scores, no time left, or no time at all."""


class StepMetrics(NamedTuple):
    """What a step was like.

    Attributes:
        loss: the mean loss.
        grad_norm: the norm of the dense gradients before clipping.
        tokens: the number of tokens without padding.
        padded_tokens: the number of tokens with padding.
        has_finite_gradient: whether the gradient is finite in all processes.
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
        """Whether the step has updated the model: it does where loss and gradient are finite."""
        return self.has_finite_loss and self.has_finite_gradient


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """All that decides how a training goes on, besides weights and moments.

    Attributes:
        step: optimizer steps done in the run, those of an earlier pretraining included.
        first_step: the steps done before this training.
        step_limit: its number of steps, once a time budget has decided it.
        validated_step: the step of the last validation.
        best_score: the best score so far.
        best_step: the step of the best score.
        stale_validations: the later validations that count against patience.
        skipped_in_a_row: how many of the last steps in a row have updated nothing.
        sums: of the metrics of steps that are not logged yet.
        outcome: how the training has ended; None while it goes on.
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
        """The state of a training that follows another one."""
        return cls(step=step, first_step=step, validated_step=step, best_step=step)

    @property
    def step_in_training(self) -> int:
        """Optimizer steps done in this training."""
        return self.step - self.first_step

    def after_step(self, metrics: StepMetrics) -> TrainingState:
        """The state one step later, with its metrics added to the sums."""
        # A skipped step has no norm to add.
        skipped_in_a_row = 0
        skipped_steps = 0
        grad_norm = metrics.grad_norm
        if not metrics.should_update:
            skipped_in_a_row = self.skipped_in_a_row + 1
            skipped_steps = 1
            grad_norm = 0.0

        added = {
            "steps": 1,
            "skipped_steps": skipped_steps,
            "loss": metrics.loss,
            "grad_norm": grad_norm,
            "tokens": metrics.tokens,
            "padded_tokens": metrics.padded_tokens,
        }
        sums = {name: self.sums.get(name, 0.0) + value for name, value in added.items()}
        return replace(self, step=self.step + 1, skipped_in_a_row=skipped_in_a_row, sums=sums)

    def after_validation(self, score: ValidationScore, *, is_warming_up: bool) -> TrainingState:
        """The state after a validation.

        A validation without a better score is stale, unless the learning rate still rises.
        """
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
        """The means of the metrics that are not logged yet, and how many steps were skipped."""
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
